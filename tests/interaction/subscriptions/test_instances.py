"""Two instances that share a bus on Redis: the clients of one hear of what changes on the other, on both eras."""

import threading
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import anyio.to_thread
import pytest
from mcp.client import Client
from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated, ToolsListChanged
from mcp_types import EmptyResult, SubscribeRequestParams, UnsubscribeRequestParams

from roundtrip import Context, Server
from roundtrip.subscriptions import RedisSubscriptionBus
from roundtrip.subscriptions import redis as redis_bus
from roundtrip.testing import Era, served
from tests.kit.players import connect
from tests.kit.programs import needs
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import WAIT, until, until_plain

# The SDK's client no longer wants to subscribe as older revisions do.
pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")]

WATCHED: Final = "test://watched"
UNWATCHED: Final = "test://unwatched"
FIRST: Final = {"tools", "prompts", "resources"}


def shop(bus: Any) -> Server[Any]:
    server = Server[Any]("shop", subscriptions=bus, keys=[b"k" * 32])

    @server.tool()
    async def grow(ctx: Context) -> str:
        server.add_tool(lambda: "new", name="new")
        return "grown"

    @server.tool()
    async def update(uri: str, ctx: Context) -> str:
        await ctx.notify_resource_updated(uri)
        return uri

    return server


async def subscribe(ctx: Any, params: SubscribeRequestParams) -> EmptyResult:
    return EmptyResult()


async def unsubscribe(ctx: Any, params: UnsubscribeRequestParams) -> EmptyResult:
    return EmptyResult()


class Ears:
    """Notifications that a client received: changed lists, and URIs of updated resources."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def __call__(self, message: Any) -> None:
        method = getattr(message, "method", "")
        if method.endswith("/list_changed"):
            self.heard.append(method.split("/")[1])
        elif method == "notifications/resources/updated":
            self.heard.append(message.params.uri)


@asynccontextmanager
async def hearing(server: Server[Any], era: Era) -> AsyncGenerator[tuple[Client, Ears]]:
    """Connect a client that is notified of the lists and of one resource."""
    ears = Ears()
    if era is Era.LIVE:
        # The high-level server has no decorators for these.
        async with served(server) as url:
            protocol = server.session_manager.app
            protocol.add_request_handler("resources/subscribe", SubscribeRequestParams, subscribe)
            protocol.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, unsubscribe)
            async with connect(url, era, message_handler=ears) as client:
                await client.session.subscribe_resource(WATCHED)  # pyright: ignore[reportDeprecated]
                yield client, ears
        return
    async with (
        connect(server, era) as client,
        client.listen(
            tools_list_changed=True,
            prompts_list_changed=True,
            resources_list_changed=True,
            resource_subscriptions=[WATCHED],
        ) as subscription,
        anyio.create_task_group() as group,
    ):

        async def listen() -> None:
            async for event in subscription:
                if isinstance(event, ResourceUpdated):
                    ears.heard.append(event.uri)
                else:
                    ears.heard.append(type(event).__name__.removesuffix("ListChanged").lower())

        group.start_soon(listen)
        yield client, ears
        group.cancel_scope.cancel()


@needs("redis")
async def test_clients_hear_of_other_instances_after_redis_returns(
    redis: RedisServer, era: Era, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_bus, "_MAX_PAUSE_SECONDS", 0.3)
    buses = [RedisSubscriptionBus(redis.url, timeout=1.0) for _ in range(2)]
    here, there = (shop(bus) for bus in buses)
    async with hearing(there, era) as (_, ears), connect(here, Era.RETRY) as changing:
        # Events from before the instance began to listen are unknown.
        await until(lambda: FIRST.issubset(ears.heard))
        ears.heard.clear()
        await changing.call_tool("grow", {})
        await until(lambda: ears.heard == ["tools"])
        for uri in (UNWATCHED, WATCHED):
            await changing.call_tool("update", {"uri": uri})
        await until(lambda: ears.heard == ["tools", WATCHED])

        redis.kill()
        await changing.call_tool("update", {"uri": WATCHED})
        assert ears.heard == ["tools", WATCHED]
        redis.start()
        await until(lambda: FIRST.issubset(ears.heard[2:]))
        await changing.call_tool("update", {"uri": WATCHED})
        await until(lambda: WATCHED in ears.heard[2:])
    for bus in buses:
        await bus.aclose()


async def test_older_client_hears_own_and_foreign_changes_once() -> None:
    """Its own request carries its own changes. A subscription to a very long URI is not kept."""
    server, long = shop(InMemorySubscriptionBus()), "test://" + "u" * 5000
    async with hearing(server, Era.LIVE) as (client, ears), connect(server, Era.RETRY) as other:
        await client.session.subscribe_resource(long)  # pyright: ignore[reportDeprecated]
        await client.call_tool("grow", {})
        for uri in (long, WATCHED):
            await other.call_tool("update", {"uri": uri})
        await until(lambda: WATCHED in ears.heard)
        assert ears.heard == ["tools", WATCHED]
        await client.session.unsubscribe_resource(WATCHED)  # pyright: ignore[reportDeprecated]
        for uri in (WATCHED, UNWATCHED):
            await other.call_tool("update", {"uri": uri})
        await other.call_tool("grow", {})
        await until(lambda: ears.heard[2:])
        assert ears.heard == ["tools", WATCHED, "tools"]


async def test_ended_connection_is_notified_of_nothing() -> None:
    bus = InMemorySubscriptionBus()
    async with connect(shop(bus), Era.LIVE) as client:
        await client.list_tools()
        assert len(bus._listeners) == 1  # pyright: ignore[reportPrivateUsage]
    await until(lambda: not bus._listeners)  # pyright: ignore[reportPrivateUsage]
    await bus.publish(ToolsListChanged())


def test_client_on_another_event_loop_is_notified_there() -> None:
    """The SDK's own bus calls listeners on the loop that publishes."""
    server, listeners = shop(InMemorySubscriptionBus()), list[Ears]()
    done = threading.Event()

    async def listen() -> None:
        async with hearing(server, Era.LIVE) as (_, ears):
            listeners.append(ears)
            # Nothing else wakes this loop.
            await anyio.to_thread.run_sync(done.wait, WAIT)

    async def change() -> None:
        async with connect(server, Era.RETRY) as client:
            await client.call_tool("grow", {})

    with ThreadPoolExecutor() as pool:
        listening = pool.submit(anyio.run, listen)
        try:
            until_plain(lambda: listeners or listening.done())
            anyio.run(change)
            until_plain(lambda: listeners[0].heard)
            assert listeners[0].heard == ["tools"]
        finally:
            done.set()
        listening.result()
