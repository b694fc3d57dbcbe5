"""Several versions of one tool: the listed one, the called one, and the one that a call in flight keeps."""

from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, InputRequiredResult

from roundtrip import Context, Server
from roundtrip.testing import Era, LegByLeg, Steps
from tests.kit.players import Person, connect, text_of
from tests.kit.shops import KEY

pytestmark = pytest.mark.anyio


def shop(*versions: str | int | None, **options: Any) -> Server:
    """A shop whose tool `quote` says which version of it was called, after asking whether to."""
    server = Server("shop", keys=[KEY], **options)
    for version in versions:
        add_quote(server, version)
    return server


def add_quote(server: Server, version: str | int | None, **options: Any) -> None:
    @server.tool(name="quote", version=version, **options)
    async def quote(title: str, ctx: Context) -> str:
        sure = await ctx.ask("sure", "Sure?", bool)
        return f"{title} by {version}, {sure}"


async def quoted(server: Server, era: Era, meta: Any = None) -> str:
    async with connect(server, era, Person({"value": True})) as client:
        return text_of(await client.call_tool("quote", {"title": "Dune"}, meta=meta))


async def test_highest_version_is_used_in_any_registration_order() -> None:
    server = shop("1.9", "1.10", "1.2")
    assert await quoted(server, Era.RETRY) == "Dune by 1.10, True"
    async with connect(server, Era.RETRY) as client:
        (listed,) = (await client.list_tools()).tools
    assert (listed.meta or {})["fastmcp"] == {"version": "1.10", "versions": ["1.10", "1.9", "1.2"]}


@pytest.mark.parametrize("meta", [{"roundtrip/version": "1"}, {"fastmcp": {"version": "1.0"}}])
async def test_a_caller_names_a_version(meta: dict[str, Any]) -> None:
    assert await quoted(shop(1, 2), Era.RETRY, meta) == "Dune by 1, True"


async def test_results_of_versions_say_that_they_wrap_a_value() -> None:
    """A client validates structured content by the schema of the listed version, and has none of another."""
    server = Server("shop", keys=[KEY])
    for version in (1, 2):

        @server.tool("titles", version=version)
        async def titles() -> list[str]:
            return ["Dune"]

    @server.tool("shelf", version=1)
    async def shelf() -> dict[str, list[str]]:
        return {"result": ["Dune"]}

    @server.tool
    async def unversioned() -> list[str]:
        return ["Dune"]

    calls: dict[str, Any] = {"titles": {"fastmcp": {"version": "1"}}, "shelf": None, "unversioned": None}
    async with connect(server, Era.RETRY) as client:
        metas = {name: (await client.call_tool(name, meta=meta)).meta for name, meta in calls.items()}
    marks = {name: (meta or {}).get("fastmcp") for name, meta in metas.items()}
    assert marks == {"titles": {"wrap_result": True}, "shelf": None, "unversioned": None}


async def test_a_version_that_is_not_there_is_an_unknown_tool() -> None:
    assert await quoted(shop(1, 2), Era.RETRY, {"roundtrip/version": "3"}) == "Unknown tool: quote"


async def test_hidden_version_answers_like_a_missing_one() -> None:
    server = shop(1, 2)
    server.disable(keys={"tool:quote@2"})
    assert await quoted(server, Era.RETRY) == "Dune by 1, True"
    assert await quoted(server, Era.RETRY, {"roundtrip/version": "2"}) == "Unknown tool: quote"


async def test_a_version_is_taken_away_alone_or_with_the_others() -> None:
    server = shop(1, 2, 3)
    server.remove_tool("quote", "3.0")
    assert await quoted(server, Era.RETRY) == "Dune by 2, True"
    server.remove_tool("quote")
    assert await quoted(server, Era.RETRY) == "Unknown tool: quote"


def test_name_is_versioned_or_unversioned() -> None:
    for first, second in ((None, "1"), ("1", None)):
        server = shop(first)
        with pytest.raises(ValueError, match="'quote' is registered both with and without a version"):
            add_quote(server, second)


def test_one_version_twice_is_rejected_in_any_spelling() -> None:
    for duplicates in ("warn", "replace", "ignore", "error"):
        for first, second in (("1", "1.0"), ("1.0", "1"), ("1.0rc1", "1rc1")):
            with pytest.raises(ValueError, match=f"version '{second}' must differ from '{first}'"):
                shop(first, second, on_duplicate_tools=duplicates)
    with pytest.raises(ValueError, match=r"Tool already exists: quote@1\.0"):
        shop("1.0", "1.0", on_duplicate_tools="error")


async def test_nested_call_uses_the_highest_version_or_the_named_one() -> None:
    server = shop(1, 2)
    for version in ("1", "2"):

        @server.tool(name="outer", version=version)
        async def outer(ctx: Context, version: str = version) -> str:
            inner = await server.call_tool("inner", {}, ctx)
            assert isinstance(inner, CallToolResult)
            return f"{version}: {text_of(inner)}"

        @server.tool(name="inner", version=version)
        async def inner(version: str = version) -> str:
            return version

    async with connect(server, Era.RETRY) as client:
        assert text_of(await client.call_tool("outer", {}, meta={"roundtrip/version": "1"})) == "1: 2"
    named = await server.call_tool("inner", {}, version="1")
    assert isinstance(named, CallToolResult)
    assert text_of(named) == "1"


# Calls in flight, which only the retry era has between requests.


async def leg(
    hopper: LegByLeg, state: str | None, meta: dict[str, Any] | None = None
) -> CallToolResult | InputRequiredResult:
    answers = {"sure": {"value": True}} if state is not None else None
    return await hopper.leg("quote", {"title": "Dune"}, answers=answers, state=state, meta=meta)


@pytest.mark.parametrize("begun", [1, None])
async def test_leg_naming_another_version_is_rejected_like_bad_tokens(
    begun: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    trace = Steps()
    await leg(before := LegByLeg([shop(begun)]), None)
    with pytest.raises(MCPError) as refused:
        await leg(LegByLeg([shop(1, 2, trace=trace)]), before.token, {"roundtrip/version": "2"})
    assert refused.value.error.message == "Invalid or expired requestState"
    assert refused.value.error.data == {"reason": "invalid_request_state"}
    assert [rejection.reason for rejection in trace.rejections] == ["another version of the tool"]
    assert "another version of the tool" in caplog.text


async def test_a_call_in_flight_keeps_its_version() -> None:
    first, second = {"roundtrip/version": "1"}, {"roundtrip/version": "2.0"}
    flights: list[tuple[Server, Any, Server, Any, str]] = [
        (shop(1), None, shop(1, 2), None, "Dune by 1, True"),
        (shop(1, 2), first, shop(1, 2), None, "Dune by 1, True"),
        (shop(1, 2), None, shop(1, 2), second, "Dune by 2, True"),
        (shop(None), None, shop(1, 2), None, "Dune by 2, True"),
        (shop(1, 2), None, shop(1), None, "Unknown tool: quote"),
    ]
    told: list[str] = []
    for before, named, after, repeated, _ in flights:
        await leg(hopper := LegByLeg([before]), None, named)
        told.append(text_of(await leg(LegByLeg([after]), hopper.token, repeated)))
    assert told == [expected for *_, expected in flights]
