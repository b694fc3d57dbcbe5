"""Markers are interchangeable: the SDK's run on roundtrip's server, and roundtrip's on the SDK's."""

from typing import Annotated, Any

import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver import Elicit as SdkElicit
from mcp.server.mcpserver import ListRoots as SdkListRoots
from mcp.server.mcpserver import Resolve as SdkResolve
from mcp.server.mcpserver import Sample as SdkSample
from mcp_types import (
    CreateMessageResult,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)

from roundtrip import Elicit, ListRoots, Resolve, Sample, Server
from roundtrip.testing import Era
from tests.kit.players import Person, connect, roots, sample, text_of
from tests.kit.shops import Choice

pytestmark = pytest.mark.anyio


def told(text: str) -> list[SamplingMessage]:
    return [SamplingMessage(role="user", content=TextContent(type="text", text=text))]


async def sdk_confirm(title: str) -> SdkElicit[Choice]:
    return SdkElicit(f"Order {title}?", Choice)


async def sdk_blurb(title: str) -> SdkSample:
    return SdkSample(told(f"Praise {title}"), max_tokens=10)


async def sdk_shelves() -> SdkListRoots:
    return SdkListRoots()


async def own_confirm(title: str) -> Elicit[Choice]:
    return Elicit(f"Order {title}?", Choice)


async def own_blurb(title: str) -> Sample:
    return Sample(told(f"Praise {title}"), max_tokens=10)


async def own_shelves() -> ListRoots:
    return ListRoots()


async def with_sdk_markers(
    title: str,
    choice: Annotated[Choice, SdkResolve(sdk_confirm)],
    text: Annotated[CreateMessageResult, SdkResolve(sdk_blurb)],
    shelves: Annotated[ListRootsResult, SdkResolve(sdk_shelves)],
) -> str:
    said = text.content.text if isinstance(text.content, TextContent) else "?"
    return f"{title}: {choice.ok}, {said}, {len(shelves.roots)} root"


async def with_own_markers(
    title: str,
    choice: Annotated[Choice, Resolve(own_confirm)],
    text: Annotated[CreateMessageResult, Resolve(own_blurb)],
    shelves: Annotated[ListRootsResult, Resolve(own_shelves)],
) -> str:
    return await with_sdk_markers(title, choice, text, shelves)


@pytest.mark.parametrize(
    ("fn", "make"),
    [(with_sdk_markers, Server[Any]), (with_own_markers, MCPServer[Any])],
    ids=["on roundtrip's server", "on the SDK's server"],
)
async def test_either_s_markers_run_on_either_s_server(era: Era, fn: Any, make: type[MCPServer[Any]]) -> None:
    server = make("shop")
    server.add_tool(fn, name="order")
    person = Person({"ok": True})
    async with connect(server, era, person, sampling_callback=sample, list_roots_callback=roots) as client:
        (tool,) = (await client.list_tools()).tools
        assert list(tool.input_schema["properties"]) == ["title"]
        result = await client.call_tool("order", {"title": "Dune"})
    assert text_of(result) == "Dune: True, echo: Praise Dune, 1 root"
    assert person.messages == ["Order Dune?"]
