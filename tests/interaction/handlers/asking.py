"""Prompts and templates played leg by leg, and one way to call both."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
from mcp.client import Client
from mcp.server import MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import (
    GetPromptResult,
    InputRequiredResult,
    InputResponse,
    ReadResourceResult,
    TextContent,
    TextResourceContents,
)
from pydantic import BaseModel

from roundtrip import Elicit, Server
from roundtrip.client.legs import LegResult
from roundtrip.testing import LegByLeg, LegRequest
from tests.kit.players import Reply, reply_of

KINDS: Final = ("prompt", "template")
kinds: Final = pytest.mark.parametrize("kind", KINDS)
Result = GetPromptResult | ReadResourceResult


class Tone(BaseModel):
    tone: str = "plain"


async def ask_tone(title: str) -> Elicit[Tone]:
    return Elicit(f"Praise {title} in what tone?", Tone)


def add(server: Server[Any], kind: str, fn: Any) -> Server[Any]:
    """Register a function as the prompt `praise`, or as the template `praise://{title}`."""
    if kind == "prompt":
        server.prompt("praise")(fn)
    else:
        server.resource("praise://{title}")(fn)
    return server


def said(result: LegResult) -> str:
    """Return the text of a prompt of one message, or of a resource of one part."""
    if isinstance(result, InputRequiredResult):
        raise AssertionError(f"it still asks {list(result.input_requests or {})}")
    if isinstance(result, GetPromptResult):
        (message,) = result.messages
        assert isinstance(message.content, TextContent)
        return message.content.text
    assert isinstance(result, ReadResourceResult)
    (part,) = result.contents
    assert isinstance(part, TextResourceContents)
    return part.text


async def fetch(client: Client, kind: str, title: str) -> Result:
    """Fetch the prompt `praise` or the template `praise://{title}`, with the client's own driver."""
    if kind == "prompt":
        return await client.get_prompt("praise", {"title": title})
    return await client.read_resource(f"praise://{title}")


async def failing(client: Client, kind: str, title: str) -> MCPError:
    """Return the error of a leg that fails."""
    try:
        result = await fetch(client, kind, title)
    except MCPError as error:
        return error
    raise AssertionError(f"no error: {result}")


class Legs:
    """Call of a prompt or a template, played leg by leg, each leg on a new server."""

    def __init__(self, make: Callable[[], MCPServer[Any]], kind: str) -> None:
        self._legs = LegByLeg(make)
        self._kind = kind
        self.token: str | None = None
        self.asked: list[str] = []

    async def __call__(
        self, title: str, answers: Mapping[str, Reply] | None = None, *, kind: str | None = None
    ) -> LegResult:
        """Play one leg; answers go with the state of the last one."""
        responses: dict[str, InputResponse] | None = None
        if answers is not None:
            responses = {key: reply_of(reply) for key, reply in answers.items()}
        state = self.token if answers is not None else None
        if (kind or self._kind) == "prompt":
            leg = LegRequest("praise", {"title": title}, responses, state, method="prompts/get")
        else:
            leg = LegRequest(f"praise://{title}", {}, responses, state, method="resources/read")
        result = await self._legs.send(leg)
        self.asked = []
        if isinstance(result, InputRequiredResult):
            self.token = result.request_state
            self.asked = list(self._legs.questions)
        return result
