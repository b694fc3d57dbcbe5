"""Mistakes with tasks that would pass unseen, and are errors."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from roundtrip import Context, Pages, Server, after
from roundtrip.cli import main
from roundtrip.errors import AskedTooLate
from roundtrip.ledger import MemoryLedger, SqliteLedger
from roundtrip.serving.agreement import cautions, objection
from roundtrip.testing import Era, User
from tests.kit.shops import KEY


@pytest.mark.anyio
@pytest.mark.parametrize("is_awaited", [False, True])
async def test_wait_that_does_not_end_the_leg_fails_the_body(is_awaited: bool) -> None:
    server = Server[Any]("shop", keys=[KEY])

    @server.tool(task="required")
    async def ship(kind: str, ctx: Context) -> str:
        wait = ctx.sleep(60) if kind == "sleep" else ctx.wait_for("paid")
        if is_awaited:
            with suppress(BaseException):
                await wait
        return "shipped"

    said = "the exception with which '{}' ended the leg" if is_awaited else "without awaiting '{}'"
    calls = {kind: await User(server, era=Era.TASK).call("ship", kind=kind) for kind in ("sleep", "wait")}
    assert [call.is_error for call in calls.values()] == [True, True]
    assert said.format("ctx.sleep") in calls["sleep"].failure
    assert said.format("paid") in calls["wait"].failure


@pytest.mark.anyio
async def test_wait_after_the_end_of_the_body_is_named() -> None:
    server, kept = Server[Any]("shop", keys=[KEY]), list[Context]()

    @server.tool(task="required")
    async def ship(ctx: Context) -> str:
        kept.append(ctx)
        return "shipped"

    await User(server, era=Era.TASK).call("ship")
    (ctx,) = kept
    with pytest.raises(AskedTooLate, match=r"ctx\.sleep"):
        await ctx.sleep(60)
    with pytest.raises(AskedTooLate, match="'paid'"):
        await ctx.wait_for("paid")


def tasks_in(ledger: Any) -> Server[Any]:
    server = Server[Any]("shop", keys=[KEY], ledger=ledger)

    @server.tool(task=True)
    async def work() -> str:
        return "done"

    return server


def pages_in(ledger: Any) -> Server[Any]:
    return Server[Any]("shop", keys=[KEY], ledger=ledger, pages=Pages(base_url="https://shop.example"))


@pytest.mark.parametrize("server_in", [tasks_in, pages_in])
def test_workers_with_stored_calls_in_memory_do_not_start(server_in: Any, tmp_path: Path) -> None:
    in_memory, in_file = server_in(MemoryLedger()).identity(), server_in(SqliteLedger(tmp_path / "tasks.db")).identity()
    why = objection([in_memory, in_memory])
    assert why is not None
    assert "another worker would not find them" in why
    assert objection([in_file, in_file]) is None
    assert any("approvals) end with this process" in text for text in cautions(in_memory))


def test_ledger_in_memory_is_warned_of_once() -> None:
    server = pages_in(MemoryLedger())

    @server.tool(exactly_once=True, uncovered="round")
    def pay() -> str:
        return "paid"

    (caution,) = cautions(server.identity())
    assert caution.startswith("exactly_once= and once_per= hold only within this process, and waiting calls (tasks, ")


@pytest.mark.anyio
async def test_quick_call_is_no_task_where_others_run_tasks() -> None:
    server = Server[Any]("shop", keys=[KEY], run_tasks=False)

    @server.tool(task=after(20))
    async def quick() -> str:
        return "now"

    assert (await User(server, era=Era.TASK).call("quick")).text == "now"


def test_user_needs_an_era() -> None:
    era: Any = "task"
    with pytest.raises(TypeError, match=r"Era\.TASK"):
        User(tasks_in(MemoryLedger()), era=era)


@pytest.mark.anyio
async def test_test_of_a_recorded_task_plays_a_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    transcript = tmp_path / "calls.jsonl"
    from roundtrip import Recorder

    recorder = Recorder(transcript, reveal="all")
    server = Server[Any]("shop", keys=[KEY], trace=recorder)

    @server.tool(task="required", confirm="Work?")
    async def work(ctx: Context) -> str:
        return str(await ctx.ask("number", "Which?", int))

    await User(server, {"confirm:work": {}, "number": 3}, era=Era.TASK).call("work")
    recorder.flush()
    capsys.readouterr()
    assert main(["trace", "to-test", "last", "--server", "shop:server", str(transcript)]) == 0
    assert 'eras="task"' in capsys.readouterr().out
