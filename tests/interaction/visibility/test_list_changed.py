"""Clients are notified once of a list that a request changed, on every transport and both eras."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp.client import Client
from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types import InputRequiredResult

from roundtrip import Context, Server
from roundtrip.testing import Era, LegByLeg, served
from tests.interaction.visibility.announcing import EVENTS, LISTS, Bus, Ears, flip, furnish, hearing, listening, shop
from tests.kit.players import connect, text_of
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio

Change = Callable[[Client, str], Awaitable[object]]
CHANGES: dict[str, Change] = {
    "a tool": lambda client, tag: client.call_tool("change", {"tag": tag}),
    "a tool in a thread": lambda client, tag: client.call_tool("change_in_thread", {"tag": tag}),
    "a resolver": lambda client, tag: client.call_tool("change_by_resolver", {"tag": tag}),
    "a tool that fails": lambda client, tag: client.call_tool("change_and_fail", {"tag": tag}),
    "a prompt": lambda client, tag: client.get_prompt("change_prompt", {"tag": tag}),
    "a template": lambda client, tag: client.read_resource(f"change://{tag}"),
}


@pytest.mark.parametrize(
    ("by", "listing", "era"),
    list(zip(CHANGES, LISTS * 2, [Era.RETRY, Era.LIVE, Era.LIVE, Era.RETRY, Era.RETRY, Era.LIVE], strict=True)),
)
async def test_change_is_announced_once_by_any_author(era: Era, by: str, listing: str) -> None:
    bus = Bus()
    async with hearing(shop(bus), era) as (client, ears):
        await CHANGES[by](client, listing)
        assert bus.published == [EVENTS[listing]]
    assert ears.heard == [listing]


async def test_a_request_that_changes_all_lists_announces_each_once() -> None:
    bus = Bus()
    async with hearing(shop(bus), Era.RETRY) as (client, ears):
        await client.call_tool("change", {"tag": "all"})
        assert bus.published == list(EVENTS.values())
        await client.call_tool("change", {"tag": "nothing has it"})
        assert bus.published == list(EVENTS.values())
    assert sorted(ears.heard) == sorted(LISTS)


async def test_a_middleware_may_change_a_list_at_any_request() -> None:
    bus = Bus()

    async def hide_at_ping(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method == "tools/list":
            server.disable(tags="prompts")
        return await call_next(ctx)

    server = shop(bus, middleware=[hide_at_ping])
    async with hearing(server, Era.RETRY) as (client, ears):
        await client.list_tools()
        assert bus.published == [PromptsListChanged()]
        await client.list_tools()
        assert bus.published == [PromptsListChanged()]
    assert ears.heard == ["prompts"]


async def test_item_added_and_removed_in_a_request_is_announced() -> None:
    bus = Bus()
    server = shop(bus)

    @server.tool()
    async def grow() -> str:
        def tool() -> str:
            return "new"

        server.add_tool(tool, name="new")
        server.prompt("new")(tool)
        server.resource("new://it")(tool)
        return "grown"

    @server.tool()
    async def shrink(listing: str) -> str:
        if listing == "tools":
            server.remove_tool("new")
        else:
            server.remove_prompt("new")
        return "shrunk"

    async with hearing(server, Era.RETRY) as (client, _):
        await client.call_tool("grow", {})
        assert bus.published == list(EVENTS.values())
        for listing in ("tools", "prompts"):
            bus.published.clear()
            await client.call_tool("shrink", {"listing": listing})
            assert bus.published == [EVENTS[listing]]


@pytest.mark.parametrize(
    ("era", "ways"), [(Era.RETRY, "session event"), (Era.LIVE, "session event"), (Era.LIVE, "event")]
)
async def test_change_that_its_tool_announces_is_announced_once(era: Era, ways: str) -> None:
    bus = Bus()
    server = shop(bus)

    @server.tool()
    async def change_and_announce(ctx: Context) -> str:
        flip(server, "tools")
        for way in dict.fromkeys(ways.split()):
            await (ctx.session.send_tool_list_changed() if way == "session" else ctx.notify_tools_changed())
        return "announced"

    async with hearing(server, era) as (client, ears):
        await client.call_tool("change_and_announce", {})
        assert bus.published == [ToolsListChanged()]
    assert ears.heard == ["tools"]


async def test_change_after_an_announcement_is_announced() -> None:
    bus = Bus()
    server = shop(bus)

    @server.tool()
    async def announce_and_change(ctx: Context) -> str:
        flip(server, "tools")
        await ctx.session.send_tool_list_changed()
        await ctx.notify_tools_changed()
        server.enable(tags="tools")
        return "changed"

    async with hearing(server, Era.RETRY) as (client, ears):
        await client.call_tool("announce_and_change", {})
        assert bus.published == [ToolsListChanged()] * 2
    assert ears.heard == ["tools"] * 2


async def test_a_leg_that_ends_with_questions_announces_what_it_changed() -> None:
    bus = Bus()
    hopper = LegByLeg([shop(bus)])
    assert isinstance(await hopper.leg("change_and_ask", {"tag": "tools"}), InputRequiredResult)
    assert bus.published == [ToolsListChanged()]
    # The next leg runs the body again and changes nothing.
    result = await hopper.leg("change_and_ask", {"tag": "tools"}, answers={"sure": {"ok": True}}, state=hopper.token)
    assert not isinstance(result, InputRequiredResult)
    assert text_of(result) == "tools True"
    assert bus.published == [ToolsListChanged()]


async def test_clients_that_listen_hear_of_the_changes_of_others() -> None:
    server = shop()
    ears = Ears()
    async with (
        connect(server, Era.RETRY) as listener,
        connect(server, Era.RETRY) as modern,
        connect(server, Era.LIVE) as older,
    ):
        async with listening(listener, ears):
            await modern.call_tool("change", {"tag": "tools"})
            await older.call_tool("change", {"tag": "prompts"})
            await listener.call_tool("finish", {})
        assert ears.heard == ["tools", "prompts"]


async def test_change_outside_of_a_request_is_announced_to_no_client() -> None:
    bus = Bus()

    @asynccontextmanager
    async def lifespan(server: MCPServer[Any]) -> AsyncGenerator[dict[str, Any]]:
        assert isinstance(server, Server)
        server.disable(tags="prompts")
        yield {}

    server = shop(bus, lifespan=lifespan)
    flip(server, "tools")
    async with hearing(server, Era.RETRY) as (client, ears):
        flip(server, "resources")
        assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["change_prompt"]
        assert bus.published == []
    assert ears.heard == []


async def test_a_bus_that_fails_does_not_break_the_answer(era: Era, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(InMemorySubscriptionBus):
        async def publish(self, event: ServerEvent) -> None:
            raise ConnectionError("the bus is down")

    server = Server[Any]("shop", subscriptions=Broken())
    furnish(server)

    @server.tool()
    async def change(tag: str) -> str:
        flip(server, tag)
        return tag

    ears = Ears()
    async with connect(server, era, message_handler=ears) as client:
        assert text_of(await client.call_tool("change", {"tag": "all"})) == "all"
    assert "could not publish that the tools changed" in caplog.text
    assert [record.levelno for record in caplog.records if "could not" in record.message] == [logging.WARNING] * 3
    assert ears.heard == ([] if era is Era.RETRY else list(LISTS))


async def test_abandoned_call_still_announces_its_changes(era: Era) -> None:
    bus = Bus()
    server = shop(bus)
    changed, ended = anyio.Event(), anyio.Event()

    @server.tool()
    async def change_and_hang() -> str:
        flip(server, "tools")
        changed.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()
        return "never"

    async with connect(server, era) as client:
        with anyio.fail_after(WAIT):
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "change_and_hang")
                await changed.wait()
                group.cancel_scope.cancel()
            await ended.wait()
            while not bus.published:
                await anyio.lowlevel.checkpoint()
        assert bus.published == [ToolsListChanged()]
        assert text_of(await client.call_tool("finish", {})) == "finished"


@pytest.mark.parametrize("options", [{}, {"stateless_http": True}, {"json_response": True}], ids=str)
async def test_changes_are_promised_and_delivered_once_over_http(options: dict[str, bool], era: Era) -> None:
    standing = "stateless_http" not in options
    async with served(shop(), **options) as url, hearing(url, era, standing=standing) as (client, ears):
        if era is Era.LIVE:  # On 2026-07-28 the SDK promises what a server that can be listened to keeps.
            capabilities = client.server_capabilities.model_dump()
            assert [capabilities[listing]["list_changed"] for listing in LISTS] == [True, True, True]
        await client.call_tool("change", {"tag": "tools"})
        await client.call_tool("change", {"tag": "prompts"})
        await client.get_prompt("change_prompt", {"tag": "resources"})
    assert ears.heard == ["tools", "prompts", "resources"]
