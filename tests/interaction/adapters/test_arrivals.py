"""The ways by which a function that asks can come to the clients of a FastMCP server: it never runs unasked."""

from typing import Annotated, Any

import pytest
from fastmcp import Client, FastMCP
from fastmcp.resources import Resource
from mcp.server.mcpserver.resolve import Resolve as SdkResolve

from roundtrip import InvalidSignature, Resolve
from roundtrip.fastmcp import install
from roundtrip.testing.networks.fleet import KEYS
from tests.interaction.adapters.arrivals import TRIED, WAYS, ask_count, confirmed_plain, filled, outcome_of

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("way", WAYS)
async def test_function_never_runs_unasked(way: str) -> None:
    outcomes = {name: await outcome_of(way, *tried) for name, tried in TRIED.items()}
    assert [name for name, outcome in outcomes.items() if outcome == "ran"] == ["no promise"]


@pytest.mark.parametrize("way", ["late in child", "provider", "injected", "transform", "alias"])
async def test_tool_that_cannot_ask_is_not_listed_and_says_why(way: str, caplog: pytest.LogCaptureFixture) -> None:
    mcp = FastMCP[Any]("outer")
    install(mcp, keys=KEYS[:1])

    async def fresh(count: Annotated[int, SdkResolve(ask_count)]) -> str:
        return "ran"

    WAYS[way](mcp, fresh)
    async with Client(mcp) as client:
        assert await client.list_tools() == []
        assert await client.list_tools() == []
        name = "alias" if way == "alias" else "t"
        result = await client.call_tool(name, {"count": 666}, raise_on_error=False)
    assert result.is_error
    assert "asks with roundtrip, but reached its server in a way" in str(result.content)
    told = [record.message for record in caplog.records if "omits a component from its lists" in record.message]
    assert len(told) == 1


async def test_prompts_and_resources_that_cannot_ask_are_not_listed() -> None:
    mcp, child = FastMCP[Any]("outer"), FastMCP[Any]("child")
    install(mcp, keys=KEYS[:1])
    mcp.mount(child)
    child.prompt(filled)
    child.resource("counts://{count}")(filled)
    child.add_resource(Resource.from_function(confirmed_plain, uri="files://a"))
    async with Client(mcp) as client:
        lists = [await client.list_prompts(), await client.list_resources(), await client.list_resource_templates()]
        with pytest.raises(Exception, match="asks with roundtrip"):
            await client.read_resource("files://a")
    assert lists == [[], [], []]


def test_resolve_is_no_argument_of_a_server_without_roundtrip() -> None:
    async def counted(count: Annotated[int, Resolve(ask_count)]) -> str:
        return "ran"

    with pytest.raises(InvalidSignature, match=r"Resolve\('ask_count'\) fills a parameter.*call install\(server\)"):
        FastMCP[Any]("foreign").tool(counted)
