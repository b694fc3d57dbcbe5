"""`Conversation`, which holds a call's questions, states and result, and `Steps`, which records transitions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Never, cast

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
from roundtrip.machine.call import Transition
from roundtrip.machine.table import Event, State
from roundtrip.questions.wire import TICKET
from roundtrip.tracing import TokenRejection

Message = tuple[Literal["client", "server"], dict[str, Any]]
"""A JSON-RPC message: its sender, and the message as it was sent."""


@dataclass(slots=True)
class AskedQuestion:
    """One question that the client received."""

    name: str | None
    """The question's name. In the live era, names are not sent to the client, so a name is known only if the server
    runs in this process.
    """
    params: Asking
    answer: InputResponse | None = None
    """The user's answer."""
    round: int = 1
    """The number of the round in which the question was asked."""
    page: str | None = None
    """The URL of the question page that showed the question; None if the client showed it."""
    in_app: bool = False
    """True if an app inside the conversation showed the question."""

    @property
    def message(self) -> str:
        """Return the question's message. If the question is for a model, return the text of the last message."""
        if self.params is None:
            return "roots"
        if isinstance(self.params, CreateMessageRequestParams):
            content = self.params.messages[-1].content
            return content.text if isinstance(content, TextContent) else ""
        return self.params.message

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """Return the form's schema; None if the question has no form."""
        if isinstance(self.params, ElicitRequestFormParams):
            return cast("Mapping[str, Any]", self.params.requested_schema)
        return None

    @property
    def url(self) -> str | None:
        """Return the page's URL; None if the question has no page."""
        return self.params.url if isinstance(self.params, ElicitRequestURLParams) else None

    @property
    def shown(self) -> dict[str, Any]:
        """Return what the user sees, as JSON data. In a URL, the ticket is replaced, because tickets differ between
        calls.
        """
        if self.params is None:
            return {}
        shown = self.params.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"meta"})
        if isinstance(self.params, CreateMessageRequestParams):
            return shown
        if isinstance(self.params, ElicitRequestURLParams):
            return {"message": shown["message"], "url": TICKET.sub("<ticket>", shown["url"])}
        # Leave out the form's title, because the SDK's client drops it in the retry era.
        form = shown["requestedSchema"]
        return {
            "message": shown["message"],
            "fields": form.get("properties", {}),
            "required": form.get("required", []),
        }

    def __str__(self) -> str:
        return f"{self.name!r}: {self.message!r}" if self.name is not None else repr(self.message)


@dataclass(frozen=True, slots=True)
class LinkResult:
    """A result that asked the model to show the user a link and to call `continue_call`."""

    result: CallToolResult
    round: int
    """The number of rounds that came before this result."""


@dataclass(slots=True)
class Conversation:
    """One call, from its first request to its result."""

    first: LegRequest
    """The first request."""
    era: Era
    rounds: list[list[AskedQuestion]] = field(default_factory=list[list[AskedQuestion]])
    tokens: list[str | None] = field(default_factory=list[str | None])
    """The request state of each round. The live era has no request states."""
    legs: int = 0
    """The number of requests in the call."""
    states: list[State] | None = None
    """The call's states; None if the server uses another library or runs in another process."""
    approvals: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The approvals that the user's approvers have decided, in order. Each is in the inbox API's format."""
    link_results: list[LinkResult] = field(default_factory=list[LinkResult])
    """Earlier results, which contained links to question pages."""
    result: FinalResult = field(default_factory=lambda: CallToolResult(content=[]))
    """The final result. It is empty if the user left the call waiting, or if a protocol error ended the call."""
    error: MCPError | None = None
    """The protocol error that ended the call. `User` raises it unless `allow_error` is set."""
    left: bool = False
    """True if the user left the call waiting for answers."""
    messages: list[Message] = field(default_factory=list[Message])
    """All JSON-RPC messages. They are recorded only with the fixture `wire_snapshot` or with
    `User(record_messages=True)`.
    """

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            """Raise an AttributeError that lists the existing attributes, because authors of tests may guess names."""
            known = ", ".join(one for one in dir(type(self)) if not one.startswith("_"))
            raise AttributeError(f"a Conversation has no attribute {name!r}; it has {known}")

    @property
    def questions(self) -> list[AskedQuestion]:
        """Return all questions, in order."""
        return [question for round_ in self.rounds for question in round_]

    @property
    def names(self) -> list[str | None]:
        """Return the question names, in order."""
        return [question.name for question in self.questions]

    @property
    def asked(self) -> list[str]:
        """Return the question messages, in order."""
        return [question.message for question in self.questions]

    @property
    def shown(self) -> list[dict[str, dict[str, Any]]]:
        """Return, for each round, a mapping from question names to what the user saw. A question without a name is
        listed under its message.
        """
        return [
            {question.message if question.name is None else question.name: question.shown for question in round_}
            for round_ in self.rounds
        ]

    @property
    def is_error(self) -> bool:
        """Return True if the call failed."""
        return self.error is not None or (isinstance(self.result, CallToolResult) and bool(self.result.is_error))

    @property
    def failure(self) -> str:
        """Return the error text that the client received; "" if the call succeeded."""
        if self.error is not None:
            return self.error.error.message
        return self.text if self.is_error else ""

    @property
    def told(self) -> str:
        """Describe how the call ended, in one line."""
        if self.left:
            return "unanswered questions: the user left"
        if self.is_error:
            return f"the failure {self.failure!r}"
        return f"the result {self.text!r}"

    @property
    def returned(self) -> dict[str, Any]:
        """Return the whole result as JSON data, without `_meta` and cache times."""
        named = {"content", "structured_content", "is_error", "description", "messages", "contents"}
        return self.result.model_dump(mode="json", by_alias=True, exclude_none=True, include=named)

    @property
    def text(self) -> str:
        """Return the text in the result of a tool, prompt or resource."""
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
        """Return the tool's value as JSON data. If the result has no structured content, return its text."""
        structured = self.result.structured_content if isinstance(self.result, CallToolResult) else None
        if structured is None:
            return self.text
        # If a tool returns a value that is not an object, the SDK wraps it in an object.
        return structured["result"] if set(structured) == {"result"} else structured


class Steps:
    """A recorder of a server's transitions. Pass it to the server as `trace=`.

    Example:
        ```python
        trace = Steps()
        await User(Server("cinema", trace=trace), answers).call("book", film="Solaris")
        assert trace.states[-1] is State.COMPLETED
        ```
    """

    def __init__(self) -> None:
        self.transitions: list[Transition] = []
        self.rejections: list[TokenRejection] = []
        """The tokens that the server rejected."""

    def __call__(self, fact: Transition | TokenRejection) -> None:
        """Record a transition or a rejected token."""
        if isinstance(fact, Transition):
            self.transitions.append(fact)
        else:
            self.rejections.append(fact)

    @property
    def events(self) -> list[Event]:
        """Return the event of each transition."""
        return [step.event for step in self.transitions]

    @property
    def states(self) -> list[State]:
        """Return the states in order. The first state is the one before the first transition."""
        return [self.transitions[0].source, *(step.target for step in self.transitions)] if self.transitions else []

    @property
    def asked(self) -> list[dict[str, str]]:
        """Return, for each round, a mapping from question names to the reasons for asking."""
        return [dict(step.detail["reasons"]) for step in self.transitions if "reasons" in step.detail]
