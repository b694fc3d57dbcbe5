"""SDK clients that call any library's servers in memory."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast

from mcp.client import Client
from mcp.server.auth.provider import AccessToken
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestURLParams,
    ElicitResult,
    GetPromptResult,
    InputRequiredResult,
    TextContent,
)

from roundtrip.adapters.finding import low_level

__all__ = [
    "ANN",
    "EVE",
    "KEY",
    "LIVE",
    "RETRY",
    "Legs",
    "Person",
    "asks_where",
    "call_text",
    "connect",
    "prompted",
    "short",
    "text_of",
]

RETRY: Final = "2026-07-28"
LIVE: Final = "legacy"
_ERAS: Final = {RETRY: "2026-07-28", LIVE: "2025-11-25"}
KEY: Final = b"k" * 32
ANN, EVE = (
    AccessToken(token=name, client_id="chat", scopes=[], subject=name, claims={"sub": name}) for name in ("ann", "eve")
)
_MAX_CHARS: Final = 90

Content: TypeAlias = Mapping[str, Any] | Callable[[str], Mapping[str, Any]]
"""The content of an accepted form, or a function that returns it for a message."""


class Person:
    """User who accepts every question, with these contents in order. The last content answers all further questions."""

    def __init__(self, *contents: Content) -> None:
        self._contents = contents or ({},)
        self.asked: list[str] = []

    async def __call__(self, context: Any, params: Any) -> ElicitResult:
        """Answer a form, or agree to visit a page."""
        self.asked.append(params.message)
        if isinstance(params, ElicitRequestURLParams):
            return ElicitResult(action="accept")
        content = self._contents[min(len(self.asked), len(self._contents)) - 1]
        return ElicitResult(action="accept", content=dict(content(params.message) if callable(content) else content))

    async def model(self, context: Any, params: CreateMessageRequestParams) -> CreateMessageResult:
        """Answer as the client's model."""
        self.asked.append("model")
        return CreateMessageResult(role="assistant", content=TextContent(type="text", text="done"), model="model")


def connect(server: Any, *, mode: str = RETRY, person: Person | None = None, **options: Any) -> Client:
    """Create a client for a server. If there is a person, it declares that it can be asked."""
    if person is not None:
        options = {"elicitation_callback": person, "sampling_callback": person.model, **options}
    return Client(cast("Any", low_level(server)), mode=mode, **options)


def text_of(result: CallToolResult) -> str:
    """Return a result's text, marked if it is an error."""
    text = " ".join(one.text for one in result.content if isinstance(one, TextContent))
    return f"error: {text}" if result.is_error else text


async def call_text(
    server: Any,
    tool: str = "work",
    arguments: Mapping[str, Any] | None = None,
    *,
    mode: str = RETRY,
    person: Person | None = None,
) -> str:
    """Call a tool, and return the text from its result or error."""
    async with connect(server, mode=mode, person=person) as client:
        try:
            return text_of(await client.call_tool(tool, dict(arguments or {})))
        except (MCPError, RuntimeError) as error:
            return f"error: {error}"


async def prompted(server: Any, *, mode: str = RETRY, person: Person) -> str:
    """Get the prompt `work`, and return its text or error."""
    async with connect(server, mode=mode, person=person) as client:
        try:
            result: GetPromptResult = await client.get_prompt("work", {})
        except (MCPError, RuntimeError) as error:
            return f"error: {error}"
    (message,) = result.messages
    return message.content.text if isinstance(message.content, TextContent) else "error: not a text"


async def asks_where(make: Callable[[], Any], *, expected: str = "done", call: Any = call_text) -> str:
    """Call the tool `work` in both eras, and return in which eras it asks and ends with a text."""
    works: list[str] = []
    for mode, revision in _ERAS.items():
        person = Person({"name": "done"})
        text: str = await call(make(), mode=mode, person=person)
        if text == expected and person.asked:
            works.append(revision)
    if len(works) == len(_ERAS):
        return "asks on both"
    return f"asks on {works[0]} only" if works else "asks on neither"


class Legs:
    """One call to the tool `work` on 2026-07-28, leg by leg, each through a new client."""

    def __init__(self, **arguments: Any) -> None:
        self.arguments = arguments
        self._asked: InputRequiredResult | None = None
        self._last: dict[str, Any] = {}

    @property
    def token(self) -> str:
        """Return the last round's request state."""
        if self._asked is None or self._asked.request_state is None:
            raise AssertionError("no round has a request state")
        return self._asked.request_state

    @property
    def questions(self) -> list[str]:
        """Return the last round's messages."""
        requests = (self._asked.input_requests if self._asked is not None else None) or {}
        return [one.params.message for one in requests.values() if isinstance(one, ElicitRequest)]

    async def leg(self, server: Any, content: Content | None = None) -> str:
        """Send the next leg with this answer to all questions, and return the result's text, or `asked`."""
        state = self._asked.request_state if self._asked is not None else None
        self._last = {"input_responses": self._answers(content), "request_state": state}
        return await self.again(server)

    async def begin_with_answers(self, server: Any, content: Content) -> str:
        """Send the questions' answers without the token, as if the call began with them."""
        self._last = {"input_responses": self._answers(content), "request_state": None}
        return await self.again(server)

    def _answers(self, content: Content | None) -> dict[str, ElicitResult] | None:
        responses: dict[str, ElicitResult] = {}
        if self._asked is not None and content is not None:
            for key, request in (self._asked.input_requests or {}).items():
                message = request.params.message if isinstance(request, ElicitRequest) else ""
                given = content(message) if callable(content) else content
                responses[key] = ElicitResult(action="accept", content=dict(given))
        return responses or None

    async def again(self, server: Any) -> str:
        """Send the last leg again."""
        async with connect(server, person=Person()) as client:
            try:
                result = await client.session.call_tool("work", self.arguments, **self._last, allow_input_required=True)
            except MCPError as error:
                return f"error: {error}"
        if isinstance(result, InputRequiredResult):
            self._asked = result
            return "asked"
        return text_of(cast("CallToolResult", result))


def short(text: str) -> str:
    """Return a text that fits into a table cell."""
    line = " ".join(text.split()).replace("|", "/").replace("`", "'")
    return line if len(line) <= _MAX_CHARS else f"{line[:_MAX_CHARS]}…"
