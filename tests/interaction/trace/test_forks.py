"""`roundtrip trace fork`: a recorded call comes to each of its rounds again, and goes another way from there."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import anyio
import pytest

from roundtrip import Context, Elicit, Resolve, Server
from roundtrip.checking.checking import check_calls
from roundtrip.checking.fork_reports import fork_data, fork_text
from roundtrip.checking.forking import Fork, OwnAnswer, fork_call
from roundtrip.checking.recorded import NotReplayable, recorded_call
from roundtrip.checking.rehearsal import End
from roundtrip.checking.reports import CheckResult
from roundtrip.cli import main
from roundtrip.ledger import MemoryLedger, SqliteLedger
from roundtrip.machine.journal import Action
from roundtrip.testing import Era, User
from roundtrip.trace.index.rows import row_of
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.writing.recorder import Recorder
from tests.interaction.trace import desks
from tests.interaction.trace.deploys import Recording, changed, deploy
from tests.interaction.trace.transcribed import calls_of
from tests.kit.peer import peers
from tests.kit.tables import check_each
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio

KEY = "7f" * 32


async def fork(server: Server[Any], call: TracedCall, at: int, *, run: bool = False, **replies: Any) -> Fork:
    given = {key: one if isinstance(one, OwnAnswer) else OwnAnswer(Action.ACCEPT, one) for key, one in replies.items()}
    return await fork_call(server.internals, call, at=at, replies=given, run=run, now=time.time(), seconds=WAIT)


SHOP = """
from pathlib import Path
from typing import Annotated
from roundtrip import Context, Elicit, Resolve, Server

HERE = Path(__file__).parent
server = Server("shop", keys=["7f" * 32])

async def which(film: str) -> Elicit[str]:
    return Elicit(f"Which row for {film}?", str)

def charged(euros: int) -> int:
    with (HERE / "charged").open("a") as file:
        file.write(f"{euros}\\n")
    return euros

@server.tool(confirm="Book {film}?")
async def book(film: str, row: Annotated[str, Resolve(which)], ctx: Context) -> str:
    seats = await ctx.ask("seats", "How many?", int)
    if seats > 3:
        await ctx.ask("sure", f"{seats} seats. Sure?", bool)
    paid = await ctx.step("charge", charged, 10 * seats)
    return f"{film}, row {row}, {paid} euros"
"""


def fork_last(shop: Recording, *words: str, source: str = SHOP) -> int:
    return main(["trace", "fork", "last", "--server", deploy(shop.folder, "now", source), *words, str(shop.file)])


def charged(shop: Recording) -> list[str]:
    """Return the effects of all bodies."""
    return (shop.folder / "charged").read_text().split()


def record(shop: Recording, reveal: str = "all") -> None:
    server = shop.load(SHOP, reveal=reveal)
    answers: Any = {"confirm:book": {}, "which": "A", "seats": 2}
    call = anyio.run(lambda: User(server, answers, era=Era.RETRY).call("book", film="Dune"))
    assert call.value == "Dune, row A, 20 euros"
    assert charged(shop) == ["20"]


@pytest.fixture
def shop(recording: Recording) -> Recording:
    record(recording)
    return recording


def test_fork_ends_at_a_step_that_was_not_recorded(shop: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    assert fork_last(shop, "--at", "2", "--answer", "which=B") == 0
    shown = capsys.readouterr().out
    assert 'recorded: {"value": "A"}\n    fork:     "B"' in shown
    assert "recorded: completed: Dune, row A, 20 euros" in shown
    assert "it would now run the step 'charge', which has no result yet; use --run to run it" in shown
    assert '    recorded: {"value": 2}\n    fork:     {"value": 2} (as recorded)\n' in shown
    assert charged(shop) == ["20"]
    assert fork_last(shop, "--at", "3") == 0
    assert "    fork:     open (the recorded answer still fits)\n" in capsys.readouterr().out


def test_fork_with_another_answer_comes_to_other_questions_and_another_end(
    shop: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fork_last(shop, "--at", "3", "--answer", "seats=5") == 0
    shown = capsys.readouterr().out
    assert "'sure' '5 seats. Sure?'\n    fork:     open" in shown
    assert "it waits for answers to the last round" in shown
    assert fork_last(shop, "--at", "3", "--answer", "seats=5", "--answer", "sure=true", "--run", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [round_["round"] for round_ in told["rounds"]] == [3, 4]
    assert told["fork"]["end"] == "completed"
    assert told["fork"]["result"]["content"] == [{"type": "text", "text": "Dune, row A, 50 euros"}]
    assert charged(shop) == ["20", "50"]


def test_changed_code_is_forked_and_what_it_asks_otherwise_is_said(
    shop: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    reworded = changed(SHOP, ("How many?", "How many seats?"))
    assert fork_last(shop, "--at", "3", source=reworded) == 0
    assert "'How many seats?'" in capsys.readouterr().out
    renamed = changed(reworded, ('ctx.ask("seats"', 'ctx.ask("places"'))
    assert fork_last(shop, "--at", "3", "--answer", "places=2", "--run", source=renamed) == 1
    shown = capsys.readouterr().out
    assert "The call does not reach that round as recorded: the current code asks places, not seats." in shown
    assert "fork:     it waits" in shown
    assert charged(shop) == ["20"]


def test_answers_are_taken_and_shown(shop: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    def check(words: str, shown: list[str], code: int) -> None:
        assert fork_last(shop, "--at", *words.split()) == code
        printed = capsys.readouterr()
        assert [part for part in shown if part not in printed.out + printed.err] == []

    answered = "    fork:     "
    check_each(
        [
            *((f"3 --answer seats={given}", [f"{answered}{given}\n"], 0) for given in ("0", "false", '""', "{}")),
            ("3 --answer seats=", [f'{answered}""\n'], 0),
            (f"2 --answer which={'[' * 100_000}", ["[[["], 0),
            ("1 --answer confirm:book=:accept", ["it would now run the step 'charge'"], 0),
            ("2 --answer which=:decline", ["fork:     declined: "], 0),
            ("1 --answer confirm:book=:decline", ["fork:     declined: "], 0),
            (
                "3 --answer seats=many --run",
                ["round 4\n  'seats'", "fork:     asked again: ", "fork:     open"],
                0,
            ),
            ("3 --answer seats=5 --answer shure=:decline --run", ["not asked: 'shure'"], 1),
            ("9", ["it has no round 9 with questions; its rounds are: 1, 2, 3"], 2),
            ("2 --answer row=B", ["round 2 asks 'which', not 'row'"], 2),
            ("2 --answer which", ["--answer must be NAME=VALUE, got 'which'"], 2),
        ],
        check,
    )
    assert charged(shop) == ["20"]
    # A text that reads like a number stays a text.
    check("2 --answer which=7 --run", ["completed: Dune, row 7, 20 euros"], 0)


@pytest.mark.parametrize(
    ("reveal", "words", "code", "told"),
    [
        ("questions", ["--at", "2"], 2, "its values are not revealed; record with Server(trace=Recorder(path"),
        (
            "arguments,answers,questions,results,errors",
            ["--at", "1", "--run"],
            2,
            "its step results are not revealed",
        ),
        (
            "arguments,answers,questions,steps",
            ["--at", "2", "--answer", "which=B"],
            0,
            "recorded: completed, but its result is not revealed",
        ),
    ],
    ids=["no answers", "no steps", "no result"],
)
def test_what_is_not_revealed_is_said(
    recording: Recording, capsys: pytest.CaptureFixture[str], reveal: str, words: list[str], code: int, told: str
) -> None:
    record(recording, reveal)
    assert fork_last(recording, *words) == code
    printed = capsys.readouterr()
    assert told in (printed.err if code else printed.out)
    assert charged(recording) == ["20"]


async def test_bodies_run_only_with_run(tmp_path: Path) -> None:
    ran: list[str] = []
    trace = Recorder(tmp_path / "calls.jsonl", reveal="all")
    server = Server[Any]("shop", keys=[KEY], trace=trace, ledger=MemoryLedger())

    async def why() -> Elicit[str]:
        return Elicit("Why?", str)

    @server.tool()
    async def delete(why: Annotated[str, Resolve(why)]) -> str:
        ran.append(why)
        return why

    @server.tool(exactly_once=True)
    async def charge(why: Annotated[str, Resolve(why)], ctx: Context) -> str:
        sure = await ctx.ask("sure", "Sure?", bool)
        ran.append(why)
        return f"{why}: {sure}"

    @server.tool()
    async def careful(ctx: Context) -> str:
        why = await ctx.ask("why", "Why?", str)
        try:
            await ctx.step("send", ran.append, f"step of {why}")
        except Exception:  # noqa: BLE001 - as authors write
            ran.append("caught")
        return why

    @server.tool()
    async def order(ctx: Context) -> str:
        why = await ctx.ask("why", "Why?", str)
        await server.call_tool("delete_now", {})
        return why

    @server.tool()
    async def delete_now() -> str:
        ran.append("deleted")
        return "deleted"

    for tool in ("delete", "charge", "careful", "order"):
        await User(server, {"why": "old", "sure": True}, era=Era.RETRY, allow_unused=True).call(tool)
    before = [*ran]
    calls = {call.tool: call for call in calls_of(tmp_path / "calls.jsonl")}

    async def forked(tool: str, *, run: bool = False, **replies: Any) -> Fork:
        last = recorded_call(calls[tool], whole=True).rounds[-1].number
        return await fork(server, calls[tool], last, run=run, **replies)

    assert (await forked("delete", why="new")).end is End.BODY
    assert (await forked("charge", sure=False)).end is End.BODY
    assert (await forked("careful", why="new")).step == "send"
    with pytest.raises(
        NotReplayable, match=r"it calls tool 'delete_now', whose body runs only with `roundtrip trace fork --run`"
    ):
        await forked("order", why="new")
    assert ran == before
    assert (await forked("charge", run=True, sure=False)).end is End.COMPLETED
    assert (await forked("order", run=True, why="new")).end is End.COMPLETED
    assert ran == [*before, "old", "deleted"]


def test_approval_is_decided_by_the_fork_or_as_recorded(recording: Recording) -> None:
    server = desks.record(recording, "deliver")
    (call,) = calls_of(recording.file)
    *_, at = [each.number for each in recorded_call(call, whole=True).rounds if each.approvals]

    async def scenario() -> None:
        forked = await fork(server, call, at, run=True)
        assert "Rome, as sam approved" in str(forked.result)
        assert "    recorded: approved\n    fork:     approved (as recorded)\n" in fork_text(forked)
        forked = await fork(server, call, at, run=True, deliver=OwnAnswer(Action.ACCEPT))
        assert "Rome, as fork approved" in str(forked.result)
        forked = await fork(server, call, at, run=True, deliver=OwnAnswer(Action.DECLINE, "too much"))
        assert forked.end in (End.FAILED, End.DECLINED)
        assert "ApprovalRejected" in forked.reason
        assert "    recorded: approved\n    fork:     rejected: too much\n" in fork_text(forked)
        assert fork_data(forked)["rounds"][0]["answers"] == {"deliver": {"action": "rejected", "data": "too much"}}
        with pytest.raises(NotReplayable, match="'deliver' is an approval; answer it with :approve or :reject REASON"):
            await fork(server, call, at, run=True, deliver=OwnAnswer(Action.ACCEPT, True, "true"))

    anyio.run(scenario)
    desks.cut_at_the_approval(recording)
    (row,) = [row_of(one) for one in calls_of(recording.file)]
    assert (row["state"], row["pending"], row["awaited"]) == ("awaiting_input", [], ["large by finance"])


async def test_waiting_task_of_the_store_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Show that a fork, or a check, is no worker: that would end the task at its body."""
    path, taken = tmp_path / "calls.jsonl", anyio.Event()

    def make() -> Server[Any]:
        ledger = SqliteLedger(tmp_path / "ledger.db")
        server = Server[Any]("shop", keys=[KEY], trace=Recorder(path, reveal="all"), ledger=ledger)

        async def slow() -> Elicit[int]:
            # A worker would take the task meanwhile.
            with anyio.move_on_after(0.3):
                await taken.wait()
            return Elicit("How many?", int)

        @server.tool()
        async def book(seats: Annotated[int, Resolve(slow)]) -> str:
            return f"{seats} booked"

        @server.tool(task=True)
        async def later() -> str:
            taken.set()
            return "done"

        return server

    # No worker takes it before the fork.
    monkeypatch.setenv("ROUNDTRIP_RUN_TASKS", "0")
    async with peers(make()) as (peer,):
        await peer.call("later")
    await User(make(), {"slow": 2}, era=Era.RETRY).call("book")
    monkeypatch.delenv("ROUNDTRIP_RUN_TASKS")
    (call,) = [call for call in calls_of(path) if call.tool == "book"]
    assert (await fork(make(), call, 1, slow=3)).end is End.BODY
    found: list[CheckResult] = []
    await check_calls(make().internals, [call], found.append, now=time.time())
    assert found[0].headline == "compatible"
    assert not taken.is_set()
