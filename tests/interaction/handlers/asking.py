"""Prompts and templates played leg by leg, and one way to call both."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    ElicitRequestParams,
    ElicitResult,
    GetPromptResult,
    InputRequiredResult,
    InputResponse,
    ReadResourceResult,
    TextContent,
    TextResourceContents,
)

from tests.players import Era, Reply, Target, reply_of

KINDS: Final = ("prompt", "template")
Result = GetPromptResult | ReadResourceResult


def said(result: Result | InputRequiredResult) -> str:
    """The text of a prompt of one message, or of a resource of one part."""
    if isinstance(result, InputRequiredResult):
        raise AssertionError(f"it still asks {list(result.input_requests or {})}")
    if isinstance(result, GetPromptResult):
        (message,) = result.messages
        assert isinstance(message.content, TextContent)
        return message.content.text
    (part,) = result.contents
    assert isinstance(part, TextResourceContents)
    return part.text


async def fetch(client: Client, kind: str, title: str) -> Result:
    """The prompt `praise`, or the template `praise://{title}`, as the client itself drives it."""
    if kind == "prompt":
        return await client.get_prompt("praise", {"title": title})
    return await client.read_resource(f"praise://{title}")


async def failing(client: Client, kind: str, title: str) -> MCPError:
    """The error that it is answered with."""
    try:
        result = await fetch(client, kind, title)
    except MCPError as error:
        return error
    raise AssertionError(f"no error: {result}")


class Legs:
    """Plays a call of the retry era leg by leg, each on a server made anew."""

    def __init__(self, make: Callable[[], Target], kind: str) -> None:
        self._make = make
        self._kind = kind
        self.token: str | None = None
        self.asked: list[str] = []

    async def __call__(
        self, title: str, answers: Mapping[str, Reply] | None = None, *, kind: str | None = None
    ) -> Result | InputRequiredResult:
        """One leg; the state of the last one goes with answers."""

        async def never(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
            raise AssertionError("a retry-era question is answered by the next leg")

        responses: dict[str, InputResponse] | None = None
        if answers is not None:
            responses = {key: reply_of(reply) for key, reply in answers.items()}
        more: dict[str, Any] = {
            "input_responses": responses,
            "request_state": self.token if answers is not None else None,
            "allow_input_required": True,
        }
        refused: MCPError | None = None
        result: Result | InputRequiredResult | None = None
        async with Client(self._make(), mode=Era.RETRY.value, elicitation_callback=never) as client:
            try:
                if (kind or self._kind) == "prompt":
                    result = await client.session.get_prompt("praise", {"title": title}, **more)
                else:
                    result = await client.session.read_resource(f"praise://{title}", **more)
            except MCPError as error:
                # Raised in here it would leave the client inside an exception group.
                refused = error
        if refused is not None or result is None:
            raise refused or AssertionError("no answer")
        self.asked = []
        if isinstance(result, InputRequiredResult):
            self.token = result.request_state
            self.asked = list(result.input_requests or {})
        return result
