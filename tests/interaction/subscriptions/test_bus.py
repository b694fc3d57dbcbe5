"""The bus on Redis: every instance receives the events of each, even after Redis was down."""

import logging
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import anyio
import anyio.to_thread
import pytest
from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from roundtrip.subscriptions import RedisSubscriptionBus
from roundtrip.subscriptions import redis as redis_bus
from tests.kit.programs import needs
from tests.kit.redis_server import RedisServer
from tests.kit.waiting import WAIT, until

pytestmark = [pytest.mark.anyio, needs("redis")]

CHANNEL: Final = "roundtrip:changes"
LISTS: Final = {ToolsListChanged(), PromptsListChanged(), ResourcesListChanged()}


def updated(number: int) -> ResourceUpdated:
    return ResourceUpdated(uri=f"test://{number}")


@asynccontextmanager
async def instance(
    redis: RedisServer, **options: Any
) -> AsyncGenerator[tuple[RedisSubscriptionBus, list[ServerEvent]]]:
    """Return an instance's bus and its received events, after its subscription has begun."""
    bus = RedisSubscriptionBus(redis.url, timeout=0.5, **options)
    heard: list[ServerEvent] = []
    unsubscribe = bus.subscribe(heard.append)
    await until(lambda: LISTS.issubset(heard))
    heard.clear()
    yield bus, heard
    unsubscribe()
    await bus.aclose()


async def test_published_change_arrives_once_on_every_instance(redis: RedisServer) -> None:
    async with instance(redis) as (here, heard_here), instance(redis) as (_, heard_there):
        for event in [*LISTS, updated(1)]:
            await here.publish(event)
            assert heard_here[-1] == event
        await until(lambda: len(heard_there) >= 4)
        # Whatever else there was would have come before this.
        await here.publish(updated(2))
        await until(lambda: updated(2) in heard_there)
        assert set(heard_there) == {*LISTS, updated(1), updated(2)}
        assert len(heard_here) == len(heard_there) == 5


async def test_instances_of_other_services_hear_nothing(redis: RedisServer) -> None:
    async with (
        instance(redis, channel="ours") as (ours, _),
        instance(redis, channel="theirs") as (_, heard),
        instance(redis, channel="theirs") as (other, _),
    ):
        await ours.publish(ToolsListChanged())
        await other.publish(updated(1))
        await until(lambda: heard)
        assert heard == [updated(1)]


async def test_a_burst_arrives_whole_and_equal_events_together(redis: RedisServer) -> None:
    async with instance(redis) as (here, heard_here), instance(redis) as (_, heard_there):
        for number in range(1000):
            await here.publish(updated(number))
        for _ in range(1000):
            await here.publish(ToolsListChanged())
        await here.publish(PromptsListChanged())
        await until(lambda: PromptsListChanged() in heard_there)
        assert len(heard_here) == 2001
        assert {event.uri for event in heard_there if isinstance(event, ResourceUpdated)} == {
            f"test://{number}" for number in range(1000)
        }
        # As many as were sent one after another, and far from all of them.
        assert 1 <= heard_there.count(ToolsListChanged()) < 900


async def test_publishing_never_waits_and_its_queue_is_bounded(
    redis: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_bus, "_MAX_PAUSE_SECONDS", 0.3)
    async with instance(redis) as (here, heard_here), instance(redis) as (_, heard_there):
        redis.stop()
        try:
            with anyio.fail_after(WAIT):
                for number in range(3000):
                    await here.publish(updated(number))
            assert len(heard_here) == 3000
        finally:
            redis.go_on()
        await until(lambda: updated(2999) in heard_there)
        await until(lambda: "too many changes were queued for Redis" in caplog.text)
        # The latest 1024, and what was under way when Redis fell silent.
        told = {event for event in heard_there if isinstance(event, ResourceUpdated)}
        assert {updated(number) for number in range(3000 - 1024, 3000)} <= told
        assert len(told) <= 1024 + 128 * 2


async def test_everything_counts_as_changed_after_redis_returns(
    redis: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_bus, "_MAX_PAUSE_SECONDS", 0.3)
    async with instance(redis) as (here, heard_here), instance(redis) as (_, heard_there):
        redis.kill()
        with anyio.fail_after(WAIT):
            await here.publish(updated(1))
        assert heard_here == [updated(1)]
        assert heard_there == []
        await until(lambda: "cannot be sent to other instances" in caplog.text)
        redis.start()
        await until(lambda: LISTS.issubset(heard_there) and LISTS.issubset(heard_here))
        await until(lambda: updated(1) in heard_there)
        heard_there.clear()
        await here.publish(ToolsListChanged())
        await until(lambda: ToolsListChanged() in heard_there)


MALFORMED: Final = [
    "",
    "nonsense",
    "{}",
    '{"version": 2, "sender": "x", "lists": ["tools"]}',
    '{"version": 1, "sender": 1, "lists": ["tools"]}',
    '{"version": 1, "sender": "x", "lists": ["\\u001b[31mtools"]}',
    '{"version": 1, "sender": "x", "lists": "tools"}',
    '{"version": 1, "sender": "x", "updated": [1]}',
    '{"version": 1, "sender": "x", "updated": ["\\ud800"]}',
    '{"version": 1, "sender": "x", "updated": ["%s"]}' % ("u" * 3000),
    '{"version": 1, "sender": "%s", "lists": ["tools"]}' % ("s" * 100),
    "[" * 100_000,
    '{"version": 1, "sender": "x", "lists": ["tools"%s]}' % (', "tools"' * 200),
]


async def test_invalid_message_is_ignored_and_logged_once(redis: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    async with instance(redis) as (here, _), instance(redis) as (_, heard):
        caplog.clear()
        for text in MALFORMED:
            assert redis.command("publish", CHANNEL, text) == "2", text[:50]
        connection: Any = here
        await connection._connections.command("PUBLISH", CHANNEL, b"\xff\x00" * 100)
        await connection._connections.command("PUBLISH", CHANNEL, b"x" * 3_000_000)
        await here.publish(updated(1))
        await until(lambda: heard)
        assert heard == [updated(1)]
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == 2, "one line for each instance"
    assert all(line.startswith("a message on the change channel is ignored: ") for line in told)
    assert all(line.isprintable() for line in told)


@pytest.mark.parametrize("uri", ["test://" + "u" * 5000, "test://\ud800"])
async def test_unsendable_uri_is_announced_locally_and_logged(
    redis: RedisServer, uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with instance(redis) as (here, heard_here), instance(redis) as (_, heard_there):
        await here.publish(ResourceUpdated(uri=uri))
        await here.publish(updated(1))
        await until(lambda: heard_there)
        assert heard_here == [ResourceUpdated(uri=uri), updated(1)]
        assert heard_there == [updated(1)]
    assert "is not sent to other instances" in caplog.text


async def test_bus_listens_to_redis_only_with_local_listeners(redis: RedisServer) -> None:
    def listeners() -> str:
        return redis.command("pubsub", "numsub", "lazy").split()[-1]

    bus = RedisSubscriptionBus(redis.url, channel="lazy")
    await bus.publish(ToolsListChanged())
    assert listeners() == "0"
    for _ in range(2):
        ends = [bus.subscribe(lambda _: None) for _ in range(3)]
        await until(lambda: listeners() == "1")
        for end in ends:
            end()
        await until(lambda: listeners() == "0")
    await bus.aclose()


def test_bus_serves_several_event_loops(redis: RedisServer) -> None:
    bus = RedisSubscriptionBus(redis.url, channel="loops")
    heard: dict[str, list[ServerEvent]] = {"one": [], "two": []}
    expected = {updated(1), updated(2)}
    together = threading.Barrier(2, timeout=WAIT)

    async def serve(name: str) -> None:
        end = bus.subscribe(heard[name].append)
        await until(lambda: LISTS.issubset(heard[name]))
        await anyio.to_thread.run_sync(together.wait)
        if name == "one":
            await bus.publish(updated(1))
        else:
            elsewhere = RedisSubscriptionBus(redis.url, channel="loops")
            await elsewhere.publish(updated(2))
            await elsewhere.aclose()
        await until(lambda: expected.issubset(heard[name]))
        await anyio.to_thread.run_sync(together.wait)
        await bus.aclose()
        end()

    with ThreadPoolExecutor() as pool:
        list(pool.map(partial(anyio.run, serve), heard))
    assert {name: [events.count(event) for event in expected] for name, events in heard.items()} == {
        "one": [1, 1],
        "two": [1, 1],
    }


_PROCESS: Final = """
import asyncio
import gc
import itertools
import sys
from mcp.server.subscriptions import ToolsListChanged
from roundtrip.subscriptions import RedisSubscriptionBus

async def main(url, listens):
    bus = RedisSubscriptionBus(url, channel="process", timeout=0.3)
    if listens:
        bus.subscribe(lambda event: None)
        await asyncio.sleep(0.05)
    await bus.publish(ToolsListChanged())
    if sys.argv[2] == "closes":
        await bus.aclose()

for url, listens in itertools.product((sys.argv[1], sys.argv[1] + "-gone"), (True, False)):
    asyncio.run(main(url, listens))
    gc.collect()
"""


@pytest.mark.parametrize(("closes", "options"), [("closes", ["-W", "error"]), ("leaves", [])])
async def test_a_process_ends_without_a_word(redis: RedisServer, closes: str, options: list[str]) -> None:
    async with instance(redis, channel="process") as (_, heard):
        command = [sys.executable, *options, "-c", _PROCESS, redis.url, closes]
        with anyio.fail_after(WAIT * 2):
            done = await anyio.run_process(command, check=False, stderr=subprocess.PIPE)
        # Only the failed connection to Redis is reported.
        said = [line for line in done.stderr.decode().splitlines() if not line.startswith("changes ")]
        assert (done.returncode, said) == (0, [])
        if closes == "closes":
            await until(lambda: heard.count(ToolsListChanged()) == 2)
