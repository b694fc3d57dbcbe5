"""What came of a call: its result, what was asked on the way, and the states it went through."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from mcp_types import (
    CallToolResult,
    CreateMessageRequestParams,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    EmbeddedResource,
    GetPromptResult,
    InputResponse,
    TextContent,
    TextResourceContents,
)

from roundtrip.clients.legs import Asking, Era, FinalResult, Leg
from roundtrip.machine.table import State

__all__ = ["Conversation", "Message", "Question"]

Message = tuple[Literal["client", "server"], dict[str, Any]]
"""Who sent it, and a JSON-RPC message as it went over the wire."""


@dataclass(slots=True)
class Question:
    """One question, as the client was asked it."""

    key: str | None
    """Its name. The live era has none on the wire, so there it is known of servers in this process only."""
    params: Asking
    answer: InputResponse | None = None
    """What the user answered."""

    @property
    def message(self) -> str:
        """What it says."""
        if self.params is None:
            return "roots"
        if isinstance(self.params, CreateMessageRequestParams):
            content = self.params.messages[-1].content
            return content.text if isinstance(content, TextContent) else ""
        return self.params.message

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """The schema of its form, if it is one."""
        if isinstance(self.params, ElicitRequestFormParams):
            return cast("Mapping[str, Any]", self.params.requested_schema)
        return None

    @property
    def url(self) -> str | None:
        """The page that it sends the user to, if it does."""
        return self.params.url if isinstance(self.params, ElicitRequestURLParams) else None

    def __str__(self) -> str:
        return f"{self.key!r}: {self.message!r}" if self.key is not None else repr(self.message)


def _no_result() -> FinalResult:
    return CallToolResult(content=[])


@dataclass(slots=True)
class Conversation:
    """One call, from its first request to its result."""

    first: Leg
    """The request that began it."""
    era: Era
    rounds: list[list[Question]] = field(default_factory=list[list[Question]])
    tokens: list[str | None] = field(default_factory=list[str | None])
    """The request state that came with each round; the live era has none."""
    legs: int = 0
    """How many requests it took."""
    states: list[State] | None = None
    """The states it went through; None where nobody tells: the server is not roundtrip's, or in another process."""
    result: FinalResult = field(default_factory=_no_result)
    messages: list[Message] = field(default_factory=list[Message])
    """Every JSON-RPC message, where they are kept: with the fixture `wire_snapshot`, or `User(wired=True)`."""

    @property
    def questions(self) -> list[Question]:
        """Every question, in the order in which they came."""
        return [question for round_ in self.rounds for question in round_]

    @property
    def keys(self) -> list[str | None]:
        """The names of the questions, in the order in which they came."""
        return [question.key for question in self.questions]

    @property
    def is_error(self) -> bool:
        """Whether the tool failed."""
        return isinstance(self.result, CallToolResult) and bool(self.result.is_error)

    @property
    def text(self) -> str:
        """The text of the result: of a tool's, of a prompt's messages, or of a resource."""
        result = self.result
        if isinstance(result, CallToolResult):
            blocks: list[Any] = list(result.content)
        elif isinstance(result, GetPromptResult):
            blocks = [message.content for message in result.messages]
        else:
            blocks = list(result.contents)
        blocks = [block.resource if isinstance(block, EmbeddedResource) else block for block in blocks]
        return "\n".join(block.text for block in blocks if isinstance(block, TextContent | TextResourceContents))

    @property
    def value(self) -> Any:
        """What the tool returned, in its JSON form: its structured content, else its text."""
        structured = self.result.structured_content if isinstance(self.result, CallToolResult) else None
        if structured is None:
            return self.text
        # The SDK wraps what is no object.
        return structured["result"] if set(structured) == {"result"} else structured
