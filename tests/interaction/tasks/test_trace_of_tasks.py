"""The trace of a task says what it waits for, and how it ended."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.metrics.export import NumberDataPoint

from roundtrip import Context, Recorder, Server
from roundtrip.cli import main
from roundtrip.cli.trace.showing import show
from roundtrip.cli.trace.terminal import Screen
from roundtrip.ledger import MemoryLedger, lease
from roundtrip.ledger.lease import LEASE_SECONDS, bury
from roundtrip.system import SYSTEM, System
from roundtrip.testing import Clock, Era, TaskUnfinished, User
from roundtrip.trace.explaining.explanations import ExplainedSubject, explain
from roundtrip.trace.index.rows import row_of
from roundtrip.trace.page.data import data_of
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.reading.joining import join
from roundtrip.trace.reading.transcripts import files_of, read_files
from tests.kit.collected import Collected
from tests.kit.peer import WAIT_SECONDS, Peer, peers
from tests.kit.shops import KEY
from tests.kit.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("each_class")]


def shop(transcript: Path) -> Server[Any]:
    server = Server[Any]("shop", keys=[KEY], trace=Recorder(transcript))

    @server.tool(task="required")
    async def pay(ctx: Context) -> str:
        return await ctx.wait_for("payment")

    @server.tool(task="required")
    async def nap(ctx: Context) -> str:
        await ctx.sleep(0.01)
        return "awake"

    @server.tool(task=True, confirm="Ship?")
    async def ship() -> str:
        return "shipped"

    return server


@pytest.fixture
def trace_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def said(*command: str) -> str:
        capsys.readouterr()
        assert main(["trace", *command, "last", str(tmp_path / "calls.jsonl")]) == 0
        return capsys.readouterr().out

    return said


async def test_waiting_task_names_its_signal(tmp_path: Path, trace_of: Callable[..., str]) -> None:
    server = shop(tmp_path / "calls.jsonl")
    with pytest.raises(TaskUnfinished):
        await User(server, era=Era.TASK, patience=0.05).call("pay")
    assert "waited for the signal 'payment', and is still waiting" in trace_of("show")
    assert "The task waits for the signal 'payment', and no worker holds it" in trace_of("explain")


async def test_task_that_slept_shows_until_when(tmp_path: Path, trace_of: Callable[..., str]) -> None:
    await User(shop(tmp_path / "calls.jsonl"), era=Era.TASK).call("nap")
    shown = trace_of("show")
    assert "tools/call · task" in shown
    assert "waited until 2" in shown
    assert "continued after" in shown
    assert "Nothing to explain" in trace_of("explain")


# Tasks that end without a leg.


def office(transcript: Path, began: anyio.Event, *traces: Any, system: System = SYSTEM) -> Server[Any]:
    ledger, traced = MemoryLedger(system=system), [Recorder(transcript), *traces]
    server = Server[Any]("office", keys=[KEY], trace=traced, ledger=ledger, system=system)

    @server.tool(task="required", task_ttl=100)
    async def ask(ctx: Context) -> str:
        return str(await ctx.ask("sure", "Sure?", bool))

    @server.tool(task="required", exactly_once=True, uncovered="round")
    async def pay() -> str:
        began.set()
        await anyio.sleep_forever()
        return ""

    return server


async def test_leg_that_becomes_a_task_says_so_and_task_has_no_token(
    tmp_path: Path, trace_of: Callable[..., str]
) -> None:
    await User(office(tmp_path / "calls.jsonl", anyio.Event()), era=Era.TASK, answers={"sure": True}).call("ask")
    shown = trace_of("show")
    assert shown.index("the call became a task, and its client got the handle") < shown.index("round 1 · leg 1")
    assert "no token, because the server stores the state: + asked:" in shown
    page = json.dumps(data_of(call_in(tmp_path / "calls.jsonl")))
    assert "no token, because the server stores the state" in page
    assert "0 B" not in shown + page


async def task_of(peer: Peer, tool: str) -> str:
    reply = await peer.call(tool)
    if "requestState" in reply:
        reply = await peer.ask("tools/call", name=tool, arguments={}, requestState=reply["requestState"])
    return reply["taskId"]


def call_in(path: Path, tool: str = "ask") -> TracedCall:
    calls = join(read_files(files_of([path])).lines).calls.values()
    (call,) = [call for call in calls if call.tool == tool]
    return call


def ended_as(path: Path, tool: str = "ask") -> tuple[str, str | None, list[list[str]], list[str]]:
    """Return the state and failure of the call of a tool, as lists show them, with its questions and explanations."""
    call = call_in(path, tool)
    row = row_of(call)
    return row["state"], row["failure"], [list(left) for left in row["left"]], [one.text for one in explain(call)]


async def test_cancelled_tasks_have_ended_and_are_counted_once(tmp_path: Path, trace_of: Callable[..., str]) -> None:
    transcript, began, collected = tmp_path / "calls.jsonl", anyio.Event(), Collected()
    async with peers(office(transcript, began, collected.telemetry)) as (peer,):
        running, asking = await task_of(peer, "pay"), await task_of(peer, "ask")
        await peer.asked(asking, "sure")
        with anyio.fail_after(WAIT_SECONDS):
            await began.wait()
        for task in (running, asking, asking):
            await peer.ask("tasks/cancel", taskId=task)
    assert asking.split(".")[1] not in transcript.read_text()
    state, failure, left, texts = ended_as(transcript, "ask")
    assert (state, failure, left) == ("failed", "cancelled", [["sure", "cancelled"]])
    assert "its client cancelled its task" in texts[-1]
    shown = trace_of("show")
    assert "the call was cancelled" in shown
    assert "waiting for" not in shown
    state, failure, _, texts = ended_as(transcript, "pay")
    assert (state, failure) == ("failed", "cancelled")
    assert [text for text in texts if "ended" in text or "failed" in text] == [
        "The call ended because its client cancelled its task; nothing needs to be fixed if that was intended."
    ]
    points = [point for point in collected.points["roundtrip.calls"] if isinstance(point, NumberDataPoint)]
    counted = [(dict(point.attributes or {}), point.value) for point in points]
    failed = {"roundtrip.state": "failed"}
    assert sorted(counted, key=str) == [
        ({"roundtrip.tool": "ask", **failed, "error.type": "cancelled"}, 1),
        ({"roundtrip.tool": "pay", **failed, "error.type": "CallTakenOver"}, 1),
    ]


async def test_expired_task_has_ended(tmp_path: Path) -> None:
    clock = Clock()
    async with peers(office(tmp_path / "calls.jsonl", anyio.Event(), system=System(time=clock))) as (peer,):
        task = await task_of(peer, "ask")
        await peer.asked(task, "sure")
        clock.advance(99)
        assert (await peer.get(task))["status"] == "input_required"
        clock.advance(2)
        assert (await peer.send("tasks/cancel", taskId=task))["error"]["code"] == -32602
        assert (await peer.send("tasks/get", taskId=task))["error"]["message"] == "Task not found"
        await until(lambda: call_in(tmp_path / "calls.jsonl").stopped)
    state, failure, left, texts = ended_as(tmp_path / "calls.jsonl")
    assert (state, failure, left) == ("failed", "expired", [["sure", "expired"]])
    assert "because its time expired while it waited for an answer to 'sure'; raise task_ttl=" in texts[-1]


@pytest.mark.parametrize(("asks", "dies"), [(False, False), (True, False), (True, True)])
async def test_takeover_from_a_silent_or_dead_worker_is_told_in_all_views(
    asks: bool, dies: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, began, go_on, transcript = Clock(), list[str](), anyio.Event(), tmp_path / "calls.jsonl"
    system = System(time=clock)
    ledger = MemoryLedger(system=system)

    def instance(name: str) -> Server[Any]:
        trace = Recorder(transcript, instance=name)
        server = Server[Any]("office", keys=[KEY], ledger=ledger, trace=trace, system=system)

        @server.tool(task="required")
        async def ask(ctx: Context) -> str:
            if asks:
                await ctx.ask("sure", "Sure?", bool)
            began.append(name)
            if len(began) == 1:
                await go_on.wait()
            return "done"

        return server

    monkeypatch.setattr(lease, "_buried", {})
    monkeypatch.setattr(lease, "_own", ("a5", os.getpid()))
    ash, birch = instance("ash"), instance("birch")
    async with peers(ash) as (peer,):
        task = await task_of(peer, "ask")
        if asks:
            await peer.asked(task, "sure")
            await peer.answer(task, sure=True)
        await until(lambda: began)
        monkeypatch.setattr(lease, "_own", None)
        async with peers(birch) as (other,):
            if dies:
                bury("a5")
            else:
                # The renewals of the first worker are timed by the process, and come too late.
                clock.advance(LEASE_SECONDS + 1)
            await other.until(task, "completed")
        # A process that is killed records no end.
        lines = [line for line in read_files([transcript]).lines if (line.instance, line.event) != ("ash", "ended")]
        (told,) = join(lines).calls.values()
        go_on.set()
    assert began == ["ash", "birch"]
    leg, times = (2, "twice") if asks else (1, "once")
    (text,) = [one.text for one in explain(told) if one.subject is ExplainedSubject.TAKEOVER]
    assert text.startswith(f"Leg {leg} was taken over from 'ash' by 'birch' ")
    assert "because the previous worker died or stopped renewing its lease" in text
    shown = io.StringIO()
    show(told, Screen(shown), now=clock())
    words = " ".join(shown.getvalue().split())
    assert f"the body ran {times}, and 1 worker that fell silent may have begun it" in words
    assert f"takeover: {text}" in words
    page = data_of(told)
    assert ["Taken over", "once, from a silent worker"] in page["facts"]
    assert ["Body began", f"{times}, and perhaps in 1 silent worker"] in page["facts"]
    assert text in [why for step in page["steps"] for why in step["replays"]]
    assert "a worker takes over from a silent worker" in json.dumps(page["messages"])
