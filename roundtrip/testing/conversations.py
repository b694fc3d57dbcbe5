"""What came of a call: its result, what was asked on the way, and the states it went through."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from mcp.shared.exceptions import MCPError
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

from roundtrip.client.legs import Asking, Era, FinalResult, LegRequest
from roundtrip.machine.table import State
from roundtrip.questions.wire import TICKET

__all__ = ["AskedQuestion", "Conversation", "Message"]

Message = tuple[Literal["client", "server"], dict[str, Any]]
"""Who sent it, and a JSON-RPC message as it went over the wire."""


@dataclass(slots=True)
class AskedQuestion:
    """One question, as the client was asked it."""

    key: str | None
    """Its name. The live era has none on the wire, so there it is known of servers in this process only."""
    params: Asking
    answer: InputResponse | None = None
    """What the user answered."""
    round: int = 1
    """The round of the call that it came in."""

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

    @property
    def shown(self) -> dict[str, Any]:
        """What there is to see of it, in its JSON form; tickets in URLs are left out, as each is another."""
        if self.params is None:
            return {}
        shown = self.params.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"meta"})
        if isinstance(self.params, CreateMessageRequestParams):
            return shown
        if isinstance(self.params, ElicitRequestURLParams):
            return {"message": shown["message"], "url": TICKET.sub("<ticket>", shown["url"])}
        # The SDK's client drops the title of a form on the retry era.
        form = shown["requestedSchema"]
        return {
            "message": shown["message"],
            "fields": form.get("properties", {}),
            "required": form.get("required", []),
        }

    def __str__(self) -> str:
        return f"{self.key!r}: {self.message!r}" if self.key is not None else repr(self.message)


def _no_result() -> FinalResult:
    return CallToolResult(content=[])


@dataclass(slots=True)
class Conversation:
    """One call, from its first request to its result."""

    first: LegRequest
    """The request that began it."""
    era: Era
    rounds: list[list[AskedQuestion]] = field(default_factory=list[list[AskedQuestion]])
    tokens: list[str | None] = field(default_factory=list[str | None])
    """The request state that came with each round; the live era has none."""
    legs: int = 0
    """How many requests it took."""
    states: list[State] | None = None
    """The states it went through; None where nobody tells: the server is not roundtrip's, or in another process."""
    result: FinalResult = field(default_factory=_no_result)
    """Empty where there is none: the user left the call waiting, or it ended with an error of the protocol."""
    error: MCPError | None = None
    """The error of the protocol that it ended with; it is raised, unless the user is told to `allow_error`."""
    left: bool = False
    """Whether the user left it waiting for answers."""
    messages: list[Message] = field(default_factory=list[Message])
    """Every JSON-RPC message, where they are kept: with the fixture `wire_snapshot`, or `User(wired=True)`."""

    @property
    def questions(self) -> list[AskedQuestion]:
        """Every question, in the order in which they came."""
        return [question for round_ in self.rounds for question in round_]

    @property
    def keys(self) -> list[str | None]:
        """The names of the questions, in the order in which they came."""
        return [question.key for question in self.questions]

    @property
    def asked(self) -> list[str]:
        """What the questions said, in the order in which they came."""
        return [question.message for question in self.questions]

    @property
    def shown(self) -> list[dict[str, dict[str, Any]]]:
        """What each question of each round shows, by its name; by its message, where it has none."""
        return [
            {question.message if question.key is None else question.key: question.shown for question in round_}
            for round_ in self.rounds
        ]

    @property
    def is_error(self) -> bool:
        """Whether it failed."""
        return self.error is not None or (isinstance(self.result, CallToolResult) and bool(self.result.is_error))

    @property
    def failure(self) -> str:
        """What the client was told of why it failed; empty if it did not."""
        if self.error is not None:
            return self.error.error.message
        return self.text if self.is_error else ""

    @property
    def told(self) -> str:
        """How it ended, in a line."""
        if self.left:
            return "questions that were left waiting"
        if self.is_error:
            return f"the failure {self.failure!r}"
        return f"the result {self.text!r}"

    @property
    def returned(self) -> dict[str, Any]:
        """The result as a whole, in its JSON form; only `_meta` and how long it may be cached are left out."""
        named = {"content", "structured_content", "is_error", "description", "messages", "contents"}
        return self.result.model_dump(mode="json", by_alias=True, exclude_none=True, include=named)

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
