"""Workers whose store fails in part, whose clock is wrong, or whose task another build has written."""

import asyncio
import json
import logging
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import MCPError

from roundtrip import Context, ElicitUrl, Server, after
from roundtrip.engine.leg import Authored, Suspended
from roundtrip.errors import CallTakenOver
from roundtrip.ledger import LedgerDown, MemoryLedger, SqliteLedger, lease
from roundtrip.ledger.machines import StoredEvent, StoredState
from roundtrip.ledger.memory import MemoryCallStore
from roundtrip.ledger.tasks import CallEntry, change_task
from roundtrip.stored import lease as stored_lease
from roundtrip.stored import legs, service
from roundtrip.stored.content import ContentUnreadable, Pause
from roundtrip.stored.legs import WorkerLeg
from roundtrip.stored.operations import CallOperations
from roundtrip.stored.worker import CallWorker
from roundtrip.system import SYSTEM, System
from roundtrip.tasks import extension
from roundtrip.testing import Clock
from tests.interaction.tasks.looks import Looks
from tests.kit.peer import WAIT_SECONDS, Peer, peers, text_of
from tests.kit.shops import KEY
from tests.kit.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("each_class")]


@pytest.fixture(autouse=True)
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    """Let workers look often."""
    return Looks(monkeypatch)


class Shop:
    """Server that counts its bodies."""

    def __init__(self, ledger: Any = None, **options: Any) -> None:
        self.ledger = ledger or MemoryLedger()
        self.server = server = Server[Any]("shop", keys=[KEY], ledger=self.ledger, **options)
        self.bodies = Counter[str]()
        self.calls: list[str] = []
        self.running = self.most = 0
        self.go_on = anyio.Event()

        @server.tool(task=True, task_ttl=30)
        async def nothing() -> str:
            self.bodies["nothing"] += 1
            return "done"

        @server.tool(task=True)
        async def nap(ctx: Context) -> str:
            self.bodies["nap"] += 1
            await ctx.sleep(0.05)
            return "rested"

        @server.tool(task=after(60))
        async def doze(ctx: Context) -> str:
            self.bodies["doze"] += 1
            await ctx.sleep(0.05)
            return "rested"

        @server.tool(task=True)
        async def slow() -> str:
            self.running += 1
            self.most = max(self.most, self.running)
            await anyio.sleep(0.05)
            self.running -= 1
            self.bodies["slow"] += 1
            return "done"

        @server.tool(task="required", exactly_once=True)
        async def pay(ctx: Context) -> str:
            self.bodies["pay"] += 1
            await self.go_on.wait()
            return "paid"

        @server.tool(task=True)
        async def end(ctx: Context, how: str) -> str:
            self.bodies["end"] += 1
            self.calls.append(ctx.call.id)
            await self.go_on.wait()
            if how == "fail":
                raise MCPError(-32050, "failed")
            if how == "pause":
                await ctx.wait_for("payment")
            return "done"

        @server.tool(task=True)
        async def waits(ctx: Context) -> str:
            self.calls.append(ctx.call.id)
            if len(self.calls) == 1:
                await anyio.sleep_forever()
            return str(await ctx.wait_for("payment", timeout=5))

    async def paying(self, peer: Peer) -> str:
        """Call the tool that runs once, and return its task when its body runs."""
        first = await peer.call("pay")
        handle = await peer.ask("tools/call", name="pay", arguments={}, requestState=first["requestState"])
        await until(lambda: self.bodies["pay"])
        return handle["taskId"]


async def test_task_that_cannot_be_claimed_is_left_alone_for_a_while(
    looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store can often be read when it cannot be written: a worker must not try, and log, without a pause."""
    clock, tries = Clock(), 0
    save = MemoryCallStore.save

    async def read_only(tasks: MemoryCallStore, entry: CallEntry, *, version: int) -> bool:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise LedgerDown("read-only")
        return await save(tasks, entry, version=version)

    monkeypatch.setattr(MemoryCallStore, "save", read_only)
    shop = Shop(system=System(monotonic=clock))
    async with peers(shop.server) as (peer,):
        task_id = (await peer.call("nothing"))["taskId"]
        for number in (1, 2):
            await looks.more(4)
            assert tries == number
            clock.advance(2)
        assert text_of(await peer.until(task_id)) == "done"


async def test_worker_begins_no_more_tasks_than_its_limit(looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "CallWorker", partial(CallWorker, most=1))
    ledger = MemoryLedger()
    shop, other = Shop(ledger), Server[Any]("shop", keys=[KEY], ledger=ledger, run_tasks=False)

    @other.tool(task=True)
    async def elsewhere() -> str:
        return ""

    async with peers(shop.server, other) as (peer, second):
        unknown = [(await second.call("elsewhere"))["taskId"] for _ in range(5)]
        await looks.more(6)
        # The worker knows them as tasks that it cannot run, and they are due no more.
        for task_id in unknown:
            await second.ask("tasks/cancel", taskId=task_id)
        first = (await peer.call("slow"))["taskId"]
        ended, _ = await ledger.tasks.load(first.partition(".")[0])
        await peer.until(first)
        assert ended is not None
        for name in ("a", "b", "c"):
            # At once: storing them in memory does not let the worker look in between.
            await ledger.tasks.add(replace(ended, call_id=name, state=StoredState.DUE, due=0.0))
        await until(lambda: shop.bodies["slow"] >= 4)
    assert shop.most == 1


async def test_draining_worker_ends_its_legs_and_begins_no_others() -> None:
    shop, began = Shop(run_tasks=False), anyio.Event()

    @shop.server.tool(task=True)
    async def hold() -> str:
        began.set()
        await shop.go_on.wait()
        return "held"

    tasks = shop.server.internals.storage.tasks
    assert tasks is not None
    async with peers(shop.server) as (peer,), shop.server.internals.own_lifespan(), tasks.working(2) as engine:
        held = (await peer.call("hold"))["taskId"]
        with anyio.fail_after(WAIT_SECONDS):
            await began.wait()
            await engine.drain(0.01)
            assert engine.is_busy
            await peer.call("nothing")
            drained = asyncio.create_task(engine.drain(WAIT_SECONDS))
            await anyio.sleep(0.01)
            assert not drained.done()
            shop.go_on.set()
            await drained
        assert not engine.is_busy
        assert text_of(await peer.get(held)) == "held"
        assert shop.bodies["nothing"] == 0


async def test_one_caller_leaves_memory_for_the_tasks_of_others(caplog: pytest.LogCaptureFixture) -> None:
    def user(context: Any) -> str:
        return context.request.headers.get("x-user", "nobody")

    shop = Shop(MemoryLedger(max_bytes=20_000), principal=user)
    async with peers(shop.server) as (peer,):
        with anyio.fail_after(WAIT_SECONDS):
            while "result" in await peer.send("tools/call", name="waits", arguments={}):
                pass
        assert "the rest is reserved for other callers" in caplog.text
        assert "taskId" in await Peer(peer.http, peer.url, headers={"x-user": "ann"}).call("waits")


async def test_last_of_quick_status_messages_is_shown() -> None:
    shop = Shop()

    @shop.server.tool(task=True)
    async def tells(ctx: Context) -> str:
        for number in range(5):
            await ctx.task.status(f"message {number}")
        await shop.go_on.wait()
        return "told"

    async with peers(shop.server) as (peer,):
        task_id = (await peer.call("tells"))["taskId"]

        async def is_last_shown() -> bool:
            return (await peer.get(task_id)).get("statusMessage") == "message 4"

        await until(is_last_shown)
        shop.go_on.set()
        assert text_of(await peer.until(task_id)) == "told"


async def test_client_is_told_to_try_again_while_the_store_is_down(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def down(tasks: MemoryCallStore, call_id: str) -> Any:
        raise LedgerDown("away: secret address")

    shop = Shop()
    async with peers(shop.server) as (peer,):
        task_id = (await peer.call("nothing"))["taskId"]
        await peer.until(task_id)
        monkeypatch.setattr(MemoryCallStore, "load", down)
        for answer in (
            await peer.send("tasks/get", taskId=task_id),
            await peer.send("subscriptions/listen", notifications={"taskIds": [task_id]}),
        ):
            assert answer["error"] == {
                "code": -32000,
                "message": "Tasks cannot be reached now; try again later",
                "data": {"reason": "ledger_unavailable"},
            }
    assert "a client cannot reach its task: away: secret address" in caplog.text


@pytest.mark.parametrize("seconds", [-3600, 3600])
async def test_clock_of_the_store_counts(seconds: float) -> None:
    """An instance whose clock is wrong neither keeps a task waiting nor runs it again and again."""
    shop = Shop(system=System(time=lambda: SYSTEM.time() + seconds))
    async with peers(shop.server) as (peer,):
        for tool, text in (("nothing", "done"), ("nap", "rested"), ("doze", "rested")):
            assert text_of(await peer.until((await peer.call(tool))["taskId"])) == text
    assert shop.bodies == {"nothing": 1, "nap": 2, "doze": 2}


@pytest.mark.parametrize(
    ("how", "said", "bodies"), [("finish", "done", 1), ("fail", "failed", 1), ("pause", "done", 2)]
)
async def test_end_survives_an_outage_that_is_longer_than_the_lease(
    how: str, said: str, bodies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The body runs no more often than without the outage."""
    monkeypatch.setattr(stored_lease, "_PAUSES", (0.01,))
    save, failures = MemoryCallStore.save, 0

    async def flaky(tasks: MemoryCallStore, entry: CallEntry, *, version: int) -> bool:
        nonlocal failures
        if shop.go_on.is_set() and failures < 4:
            failures += 1
            raise LedgerDown("away")
        return await save(tasks, entry, version=version)

    monkeypatch.setattr(MemoryCallStore, "save", flaky)
    shop = Shop()
    async with peers(shop.server) as (peer,):
        task_id = (await peer.call("end", how=how))["taskId"]
        await until(lambda: shop.bodies["end"])
        # For the worker, its lease ends with the body; for the store, it goes on.
        monkeypatch.setattr(lease, "LEASE_SECONDS", 0.0)
        shop.go_on.set()

        async def has_ended() -> bool:
            return (await shop.ledger.tasks.list(limit=1))[0].state is not StoredState.RUNNING

        await until(has_ended)
        await shop.server.signal(shop.calls[0], "payment")
        ended = await peer.until(task_id)
        assert (ended["error"]["message"] if how == "fail" else text_of(ended)) == said
    assert (failures, shop.bodies["end"]) == (4, bodies)


async def test_task_that_another_worker_has_is_left_to_it(
    looks: Looks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Between the look of one worker and its claim, another one is faster."""

    async def due(tasks: MemoryCallStore, limit: int) -> tuple[list[str], float | None]:
        return [task.call_id for task in await tasks.list(limit=limit)], None

    monkeypatch.setattr(MemoryCallStore, "due", due)
    shop = Shop()
    other = Shop(shop.ledger)
    async with peers(shop.server, other.server) as (peer, _):
        task_id = (await peer.call("end", how="finish"))["taskId"]
        await looks.more(4)
        shop.go_on.set()
        other.go_on.set()
        assert text_of(await peer.until(task_id)) == "done"
    assert (shop.bodies + other.bodies)["end"] == 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_signal_for_a_lost_task_is_kept() -> None:
    shop = Shop()
    store = shop.ledger.tasks
    async with peers(shop.server) as (peer,):
        handle = await peer.call("waits")
        await until(lambda: shop.calls)
        (call_id,) = shop.calls
        await change_task(store, call_id, lambda entry, now: entry.apply(StoredEvent.LOSE, now))
        assert await shop.server.signal(call_id, "payment", 7)
        tasks = shop.server.internals.storage.tasks
        assert tasks is not None
        await CallOperations(tasks.book).retry(call_id, even_once=False)
        assert text_of(await peer.until(handle["taskId"])) == "7"


async def test_task_of_a_newer_build_is_left_to_it(caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop()

    def renew(entry: CallEntry, now: float) -> None:
        service, fields = json.loads(entry.content)
        entry.content = json.dumps([service, {**fields, "priority": 3}])

    async with peers(shop.server) as (peer,):
        handle = await peer.call("waits")
        await until(lambda: shop.calls)
        tasks = shop.server.internals.storage.tasks
        assert tasks is not None
        with caplog.at_level(logging.WARNING, "roundtrip"):
            await change_task(shop.ledger.tasks, shop.calls[0], renew)
            entry, _ = await shop.ledger.tasks.load(shop.calls[0])
            assert entry is not None
            with pytest.raises(ContentUnreadable):
                tasks.book.seal.read(entry.content, entry.call_id)
            error = (await peer.send("tasks/get", taskId=handle["taskId"]))["error"]
        assert error["message"] == "Task not found"


async def test_page_that_is_not_finished_is_looked_at_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legs, "_PAGE_SECONDS", 0.005)
    shop, pauses = Shop(), list[float]()
    pause_of = WorkerLeg.pause

    def watched(leg: WorkerLeg, end: Suspended | Authored, journal: str, now: float) -> Pause:
        pause = pause_of(leg, end, journal, now)
        if pause.until is not None:
            pauses.append(pause.until - now)
        return pause

    # Not between the writes of a store: a busy machine needs longer for one than a pause grows.
    monkeypatch.setattr(WorkerLeg, "pause", watched)

    @shop.server.tool(task=True)
    async def visit(ctx: Context) -> str:
        return str(await ctx.ask("page", ElicitUrl("Pay", "https://pay.example", done=lambda: len(pauses) > 8 or None)))

    async with peers(shop.server) as (peer,):
        task_id = (await peer.call("visit"))["taskId"]
        await peer.asked(task_id, "page")
        await peer.ask("tasks/update", taskId=task_id, inputResponses={"page": {"action": "accept"}})
        await peer.until(task_id)
    assert pauses == sorted(pauses)
    assert pauses[-1] > 2 * pauses[0]


async def test_worker_without_the_new_key_leaves_its_task_to_others(tmp_path: Path) -> None:
    began, go_on, seen = anyio.Event(), anyio.Event(), list[Exception]()
    clock = Clock()
    system = System(time=clock)

    def shop(*keys: bytes) -> Server[Any]:
        ledger = SqliteLedger(tmp_path / "tasks.db", durable=False, system=system)
        server = Server[Any]("shop", keys=keys, ledger=ledger, system=system)

        @server.tool(task=True)
        async def work(ctx: Context) -> str:
            began.set()
            await go_on.wait()
            try:
                await ctx.task.status("working")
            except Exception as error:
                seen.append(error)
                raise
            return keys[0].decode()[0]

        return server

    old, new = shop(KEY), shop(b"n" * 32, KEY)
    async with peers(old) as (peer,):
        task_id = (await peer.call("work"))["taskId"]
        with anyio.fail_after(WAIT_SECONDS):
            await began.wait()
        async with peers(new) as (second,):
            tasks = new.internals.storage.tasks
            assert tasks is not None
            operations = CallOperations(tasks.book)
            async for entry in operations.scan():
                assert await operations.renew_key(entry)
            go_on.set()
            await until(lambda: seen)
            clock.advance(lease.LEASE_SECONDS + 1)
            assert text_of(await second.until(task_id)) == "n"
    assert [type(error) for error in seen] == [CallTakenOver]


async def test_signal_for_an_impossible_call_finds_nothing(tmp_path: Path) -> None:
    shop = Shop(SqliteLedger(tmp_path / "tasks.db", durable=False))
    impossible = ["", "no\0where", "\udcff", "x" * 10_000]
    assert [call_id for call_id in impossible if await shop.server.signal(call_id, "payment")] == []


async def test_signal_that_is_too_deep_is_rejected() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="the payload must be JSON"):
        await Shop().server.signal("call", "payment", deep)


async def test_calls_are_never_tasks_without_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extension, "is_on_asyncio", lambda: False)
    async with peers(Shop().server) as (peer,):
        assert text_of({"result": await peer.call("nothing")}) == "done"
        assert (await peer.send("tools/call", name="pay", arguments={}))["error"]["code"] == -32021


async def test_task_shown_as_lost_gets_no_result() -> None:
    """Its worker was silent, and not dead: what a client has been told as an end must stay one."""
    clock = Clock()
    system = System(time=clock)
    shop = Shop(MemoryLedger(system=system), system=system)
    async with peers(shop.server) as (peer,):
        task_id = await shop.paying(peer)
        clock.advance(lease.LEASE_SECONDS + stored_lease.END_SECONDS + 1)
        assert (await peer.until(task_id))["status"] == "failed"
        shop.go_on.set()
        service = shop.server.internals.storage.tasks
        assert service is not None
        await until(lambda: not any(engine.is_busy for engine in service._engines.values()))  # pyright: ignore[reportPrivateUsage]
        assert (await peer.get(task_id))["status"] == "failed"


async def test_read_leaves_a_worker_time_to_store_its_result(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The store was down for longer than the lease, and the first to read the task must not call its result unknown."""

    async def down(*_: Any, **__: Any) -> Any:
        raise LedgerDown("the store is down")

    clock = Clock()
    system = System(time=clock)
    shop = Shop(MemoryLedger(system=system), system=system)
    async with peers(shop.server) as (peer,):
        task_id = await shop.paying(peer)
        with monkeypatch.context() as patch:
            patch.setattr(MemoryCallStore, "save", down)
            shop.go_on.set()
            await until(lambda: "a worker cannot store a task" in caplog.text)
            clock.advance(lease.LEASE_SECONDS + 1)
        assert (await peer.get(task_id))["status"] == "working"
        assert text_of(await peer.until(task_id)) == "paid"
    assert shop.bodies["pay"] == 1
