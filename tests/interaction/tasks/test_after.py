"""Calls that become tasks only if their body needs more time, or must wait."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio
import httpx
import pytest
from mcp.shared.exceptions import MCPError

from roundtrip import Context, Depends, Elicit, Resolve, Server, ToolError, after
from roundtrip.ledger import LedgerDown, MemoryLedger, SqliteLedger
from roundtrip.ledger.machines import StoredState
from roundtrip.ledger.memory import MemoryCallStore
from roundtrip.stored import request_legs, service
from roundtrip.stored.worker import CallWorker
from tests.kit.peer import WAIT_SECONDS, Peer, peers, text_of
from tests.kit.shops import KEY
from tests.kit.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("each_class")]
LONG = 60.0
SHORT = 0.05


def how_many() -> Elicit[int]:
    return Elicit("How many?", int)


class Shop:
    """Server with tools that become tasks, which shows what their bodies do."""

    def __init__(self, folder: Path | None = None, **options: Any) -> None:
        self.log: list[str] = []
        self.go_on = anyio.Event()
        self.began = anyio.Event()
        self.ledger = MemoryLedger() if folder is None else SqliteLedger(folder / "tasks.db", durable=False)
        self.server = server = Server[Any]("shop", keys=[KEY], ledger=self.ledger, **options)

        async def connection() -> AsyncGenerator[str]:
            self.log.append("open")
            try:
                yield "connection"
            finally:
                self.log.append("close")

        async def body(ctx: Context, name: str) -> str:
            step = await ctx.step("step", lambda: self.log.append(name) or name)
            self.began.set()
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                self.log.append("cancelled")
                raise
            return step

        @server.tool(task=after(LONG))
        async def quick(copies: Annotated[int, Resolve(how_many)], db: str = Depends(connection)) -> str:
            return f"{copies} over {db}"

        @server.tool(task=after(SHORT))
        async def slow(ctx: Context, db: str = Depends(connection)) -> str:
            await ctx.report_progress(1, 2)
            return await body(ctx, "slow")

        @server.tool(task=after(LONG))
        async def patient(ctx: Context) -> str:
            return await body(ctx, "patient")

        @server.tool(task=after(LONG))
        async def asks(ctx: Context) -> str:
            price = await ctx.step("price", lambda: self.log.append("price") or 7)
            return f"{price} {await ctx.ask('word', 'Which word?', str)}"

        @server.tool(task=after(LONG))
        async def sleeps(ctx: Context) -> str:
            await ctx.sleep(0.01)
            return "rested"

        @server.tool(task=after(LONG))
        async def fails(kind: str) -> str:
            if kind == "tool":
                raise ToolError("out of stock")
            raise MCPError(code=-32099, message="no paper", data={"tray": 2})

    async def stored(self) -> int:
        return len(await self.ledger.tasks.list(limit=10))


async def answered(peer: Peer, tool: str, **contents: Any) -> dict[str, Any]:
    """Send the request again with answers."""
    asked = await peer.call(tool)
    responses = {key: {"action": "accept", "content": {"value": value}} for key, value in contents.items()}
    return await peer.ask(
        "tools/call", name=tool, arguments={}, inputResponses=responses, requestState=asked["requestState"]
    )


async def test_quick_call_answers_with_its_result_and_stores_nothing() -> None:
    shop = Shop()
    async with peers(shop.server) as (peer,):
        result = await answered(peer, "quick", how_many=3)
        assert result["resultType"] == "complete"
        assert result["content"][0]["text"] == "3 over connection"
        assert await shop.stored() == 0


async def test_slow_call_becomes_a_task_and_its_body_goes_on() -> None:
    shop = Shop()
    async with peers(shop.server) as (peer,):
        handle = await peer.call("slow")
        assert handle["resultType"] == "task"
        assert handle["statusMessage"] == "1 of 2"
        created, updated = (datetime.fromisoformat(handle[name]) for name in ("createdAt", "lastUpdatedAt"))
        assert timedelta() <= updated - created < timedelta(seconds=WAIT_SECONDS)
        assert (await peer.get(handle["taskId"]))["status"] == "working"
        shop.go_on.set()
        assert text_of(await peer.until(handle["taskId"])) == "slow"
    # The resolvers ran for the request, and then once for the body, which did not move.
    assert shop.log == ["open", "close", "open", "slow", "close"]


@pytest.mark.parametrize("tool", ["asks", "sleeps"])
async def test_body_that_waits_makes_its_call_a_task_at_once(tool: str, tmp_path: Path) -> None:
    shop, other = Shop(tmp_path), Shop(tmp_path)
    async with peers(shop.server, other.server) as (peer, second):
        handle = await peer.call(tool)
        assert handle["resultType"] == "task"
        if tool == "asks":
            assert handle["status"] == "input_required"
            await second.asked(handle["taskId"], "word")
            await second.answer(handle["taskId"], word="Dear")
        ended = await second.until(handle["taskId"])
    assert text_of(ended) == {"asks": "7 Dear", "sleeps": "rested"}[tool]
    assert [*shop.log, *other.log] == (["price"] if tool == "asks" else [])


async def test_errors_of_quick_calls_are_those_of_usual_calls() -> None:
    async with peers(Shop().server) as (peer,):
        failed = await peer.call("fails", kind="tool")
        assert (failed["resultType"], failed["isError"]) == ("complete", True)
        error = (await peer.send("tools/call", name="fails", arguments={"kind": "protocol"}))["error"]
        assert (error["code"], error["message"], error["data"]) == (-32099, "no paper", {"tray": 2})


async def test_client_that_leaves_before_ends_the_body() -> None:
    shop = Shop()
    async with peers(shop.server) as (peer,):
        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as group:
                group.start_soon(peer.call, "patient")
                await shop.began.wait()
                group.cancel_scope.cancel()
        # The server hears later that the client left.
        await until(lambda: "cancelled" in shop.log)
    assert await shop.stored() == 0


async def test_repeated_request_gets_the_same_handle(tmp_path: Path) -> None:
    shops = [Shop(tmp_path), Shop(tmp_path)]
    handles: list[dict[str, Any]] = []
    servers = [shop.server for shop in shops]
    for server in servers:

        @server.tool(task=after(SHORT))
        async def order(copies: Annotated[int, Resolve(how_many)], ctx: Context) -> str:
            await anyio.sleep_forever()
            return ""

    async with peers(*servers) as (one, two):
        asked = await one.call("order")
        again = {
            "name": "order",
            "arguments": {},
            "inputResponses": {"how_many": {"action": "accept", "content": {"value": 3}}},
            "requestState": asked["requestState"],
        }

        async def send(peer: Peer) -> None:
            handles.append(await peer.ask("tools/call", **again))

        # At the same time, so that both bodies run, and one call wins; and afterwards.
        async with anyio.create_task_group() as group:
            group.start_soon(send, one)
            group.start_soon(send, two)
        await send(two)
        await one.ask("tasks/cancel", taskId=handles[0]["taskId"])
    assert len({handle["taskId"] for handle in handles}) == 1


async def test_store_that_is_down_delays_the_task_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_legs, "_RETRY_SECONDS", 0.02)
    shop, failures = Shop(), 3
    add = MemoryCallStore.add

    async def flaky(self: MemoryCallStore, entry: Any) -> bool:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise LedgerDown("away")
        return await add(self, entry)

    monkeypatch.setattr(MemoryCallStore, "add", flaky)
    async with peers(shop.server) as (peer,):
        handle = await peer.call("slow")
        assert handle["resultType"] == "task"
        shop.go_on.set()
        assert text_of(await peer.until(handle["taskId"])) == "slow"
        failures = 10**6
        assert (await peer.call("slow"))["content"][0]["text"] == "slow"
        error = (await peer.send("tools/call", name="asks", arguments={}))["error"]
        assert "try again later" in error["message"]
    assert shop.log.count("slow") == 2


async def test_call_whose_store_lost_the_answer_stays_where_it_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The store has the task, but its answer was lost. So the next attempt finds the call's own task."""
    monkeypatch.setattr(request_legs, "_RETRY_SECONDS", 0.02)
    shop, calls = Shop(tmp_path), list[str]()
    tasks = type(shop.ledger.tasks)
    add = tasks.add

    async def forgetful(self: Any, entry: Any) -> bool:
        await add(self, entry)
        calls.append(entry.call_id)
        # A webhook that knows the call.
        assert await shop.server.signal(entry.call_id, "payment", 7)
        raise LedgerDown("no answer")

    monkeypatch.setattr(tasks, "add", forgetful)

    @shop.server.tool(task=after(SHORT))
    async def pay(ctx: Context) -> str:
        shop.log.append("began")
        first = await ctx.step("first", lambda: shop.log.append("first") or 1)
        await shop.go_on.wait()
        shop.log.append("went on")
        return f"{first}, {await ctx.wait_for('payment')}"

    async with peers(shop.server) as (peer,):
        handle = await peer.call("pay")
        shop.go_on.set()
        assert text_of(await peer.until(handle["taskId"])) == "1, 7"
    # The second leg begins when the body waits for the signal.
    assert (shop.log, len(calls)) == (["began", "first", "went on", "began", "went on"], 1)


async def test_client_that_leaves_while_its_call_is_stored_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shop, stored, go_on = Shop(), anyio.Event(), anyio.Event()
    add = MemoryCallStore.add

    async def slow_add(self: MemoryCallStore, entry: Any) -> bool:
        is_added = await add(self, entry)
        stored.set()
        await go_on.wait()
        return is_added

    monkeypatch.setattr(MemoryCallStore, "add", slow_add)
    async with peers(shop.server) as (peer,):
        async with anyio.create_task_group() as group:
            group.start_soon(peer.call, "slow")
            await stored.wait()
            group.cancel_scope.cancel()
        async with httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
            # Answered by the same process, which has heard before that the other client left.
            await Peer(http, peer.url).send("tasks/get", taskId="unknown")
            go_on.set()
            shop.go_on.set()

            async def is_completed() -> bool:
                return (await shop.ledger.tasks.list(limit=1))[0].state is StoredState.COMPLETED

            await until(is_completed)
    assert shop.log.count("slow") == 1
    assert "cancelled" not in shop.log


async def test_server_that_stops_hands_its_calls_to_others(tmp_path: Path) -> None:
    shop, other = Shop(tmp_path), Shop(tmp_path)
    other.go_on.set()
    handles: list[dict[str, Any]] = []
    async with peers(other.server) as (second,):
        async with peers(shop.server) as (peer,):
            handles.append(await peer.call("slow"))
        assert text_of(await second.until(handles[0]["taskId"])) == "slow"
    assert shop.log.count("slow") + other.log.count("slow") == 1


async def test_bodies_beyond_the_limit_begin_as_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "CallWorker", partial(CallWorker, most=2))
    shop = Shop()
    async with peers(shop.server) as (peer,):
        first, second = await peer.call("slow"), await peer.call("slow")
        third = await peer.call("patient")
        assert third["resultType"] == "task"
        shop.go_on.set()
        for handle in (first, second, third):
            assert (await peer.until(handle["taskId"]))["status"] == "completed"


def test_invalid_seconds_are_rejected() -> None:
    given: list[Any] = [0, -1, True, "2", float("nan"), float("inf"), 100_000]
    assert [seconds for seconds in given if not _is_refused(seconds)] == []


def _is_refused(seconds: Any) -> bool:
    try:
        after(seconds)
    except ValueError as error:
        return "more than 0 and at most a day" in str(error)
    return False
