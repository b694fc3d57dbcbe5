"""Notifications of tasks to the clients that listen for them."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from roundtrip import Context, Server
from roundtrip.ledger import LedgerDown, SqliteLedger
from roundtrip.ledger.memory import MemoryCallStore
from tests.kit.peer import Peer, peers, text_of
from tests.kit.shops import KEY
from tests.kit.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("each_class")]


def shop(folder: Path | None = None, **options: Any) -> Server[Any]:
    ledger = None if folder is None else SqliteLedger(folder / "tasks.db", durable=False)
    server = Server[Any]("shop", keys=[KEY], ledger=ledger, **options)

    @server.tool(task=True)
    async def order(title: str, ctx: Context) -> str:
        await ctx.task.status(f"looking for {title}")
        gift = await ctx.ask("gift", f"Wrap {title}?", bool)
        return f"{title}, {'wrapped' if gift else 'bare'}"

    @server.tool(task=True)
    async def nothing() -> dict[str, Any]:
        return {"here": None}

    return server


async def begun(peer: Peer, tool: str = "order", **arguments: Any) -> str:
    return (await peer.call(tool, **arguments))["taskId"]


async def test_listeners_on_any_instance_hear_of_a_task_until_it_ends(tmp_path: Path) -> None:
    async with peers(shop(tmp_path), shop(tmp_path)) as (one, two):
        task_id = await begun(one, title="Ulysses")
        async with one.listen(task_id) as here, two.listen(task_id) as there:
            assert here.acknowledged["notifications"] == {"taskIds": [task_id]}
            for stream in (here, there):
                asked = await stream.until("input_required")
                assert asked.items() <= (await two.get(task_id)).items()
            await two.answer(task_id, gift=True)
            for stream in (here, there):
                ended = await stream.until("completed")
                assert text_of(ended) == "Ulysses, wrapped"
                assert ended["statusMessage"] == "looking for Ulysses"


async def test_task_that_has_ended_before_is_sent_at_once() -> None:
    async with peers(shop()) as (peer,):
        task_id = await begun(peer, "nothing")
        await peer.until(task_id)
        async with peer.listen(task_id) as stream:
            ended = await stream.next()
    assert ended["result"]["structuredContent"] == {"here": None}


@pytest.mark.parametrize("each_class", ["Server"], indirect=True)
async def test_changes_of_lists_arrive_on_the_same_stream() -> None:
    server = shop()

    @server.tool()
    async def extend() -> str:
        server.add_tool(lambda: "new", name="new")
        return "extended"

    async with peers(server) as (peer,):
        task_id = await begun(peer, title="Ulysses")
        await peer.until(task_id, "input_required")
        async with peer.listen(task_id, toolsListChanged=True) as stream:
            assert stream.acknowledged["notifications"] == {"taskIds": [task_id], "toolsListChanged": True}
            assert (await stream.next())["status"] == "input_required"
            await peer.call("extend")
            await stream.next("notifications/tools/list_changed")
            await peer.answer(task_id, gift=True)
            assert (await stream.until("completed"))["taskId"] == task_id


def _principal(context: Any) -> str:
    return context.request.headers.get("x-user", "nobody")


async def test_foreign_and_unknown_tasks_are_not_acknowledged() -> None:
    async with peers(shop(principal=_principal)) as (peer,):
        task_id = await begun(peer, title="Ulysses")
        other = Peer(peer.http, peer.url, headers={"x-user": "mallory"})
        async with other.listen(task_id, "unknown", "x" * 5000) as stream:
            assert stream.acknowledged["notifications"] == {"taskIds": []}
            own = await begun(other, "nothing")
            await peer.until(task_id, "input_required")
        async with other.listen(task_id, own) as stream:
            assert stream.acknowledged["notifications"] == {"taskIds": [own]}
            assert (await stream.until("completed"))["taskId"] == own


async def test_malformed_lists_of_tasks_are_rejected() -> None:
    malformed: list[Any] = ["one", [1], {"a": "b"}, [f"id-{number}" for number in range(257)]]
    async with peers(shop()) as (peer,):
        told = [await peer.send("subscriptions/listen", notifications={"taskIds": given}) for given in malformed]
    errors = [reply["error"] for reply in told]
    assert [(error["code"], error["message"][:13]) for error in errors] == [(-32602, "taskIds must ")] * 4


async def test_states_that_look_the_same_are_sent_once() -> None:
    server, go_on, is_stored = shop(), anyio.Event(), anyio.Event()

    @server.tool(task=True)
    async def counts(ctx: Context) -> str:
        await go_on.wait()
        await ctx.step("count", lambda: 1)
        is_stored.set()
        await anyio.sleep_forever()
        return "done"

    async with peers(server) as (peer,):
        tasks = [await begun(peer, "counts"), *[await begun(peer, title=title) for title in ("Emma", "Ulysses")]]
        for task in tasks[1:]:
            await peer.until(task, "input_required")
        async with peer.listen(*tasks) as stream:
            assert {(await stream.next())["taskId"] for _ in tasks} == {*tasks}
            # Neither a stored step nor an unknown key is shown, so the next notification is that of the last task.
            go_on.set()
            await is_stored.wait()
            await peer.answer(tasks[1], unknown=True)
            await peer.answer(tasks[2], gift=False)
            assert (await stream.next())["taskId"] == tasks[2]


async def test_streams_that_end_leave_no_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    listening = 0
    listen = MemoryCallStore.listen

    def counted(self: MemoryCallStore, changed: Any) -> Any:
        nonlocal listening
        listening += 1
        stop = listen(self, changed)

        def stopped() -> None:
            nonlocal listening
            listening -= 1
            stop()

        return stopped

    monkeypatch.setattr(MemoryCallStore, "listen", counted)
    async with peers(shop()) as (peer,):
        task_id = await begun(peer, title="Ulysses")
        await peer.until(task_id, "input_required")
        before = listening
        for _ in range(3):
            async with peer.listen(task_id) as stream, peer.listen(task_id) as second:
                await stream.next()
                await second.next()
                assert listening == before + 2
        await until(lambda: listening == before)


async def test_store_that_is_down_for_a_moment_delays_the_notification(monkeypatch: pytest.MonkeyPatch) -> None:
    load = MemoryCallStore.load
    failures = 2

    async def flaky(self: MemoryCallStore, call_id: str) -> Any:
        nonlocal failures
        if failures and is_listening:
            failures -= 1
            raise LedgerDown("away")
        return await load(self, call_id)

    is_listening = False
    monkeypatch.setattr("roundtrip.tasks.extension._RETRY_SECONDS", 0.01)
    async with peers(shop()) as (peer,):
        task_id = await begun(peer, title="Ulysses")
        await peer.until(task_id, "input_required")
        async with peer.listen(task_id) as stream:
            await stream.next()
            await peer.answer(task_id, gift=True)
            is_listening = True
            monkeypatch.setattr(MemoryCallStore, "load", flaky)
            assert text_of(await stream.until("completed")) == "Ulysses, wrapped"
    assert not failures
