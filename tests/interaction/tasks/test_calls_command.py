"""`roundtrip calls`: looking at calls of transcripts and stores, and acting on them with an operator log."""

import json
import os
import stat
from pathlib import Path

import anyio
import pytest

from roundtrip.cli import main
from roundtrip.trace.writing.operator_log import user_of_system
from tests.interaction.tasks import workshops
from tests.interaction.tasks.operators import asking, logged
from tests.kit.peer import peers, text_of
from tests.kit.transcripts import acted, write

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("workshop_folder")]
SHOP = "tests.interaction.tasks.workshops:shop"
NOTE = "this action is not logged; name an operator log with --operator-log, or set ROUNDTRIP_OPERATOR_LOG"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "operators.jsonl"


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Record the servers of a test in a folder, which holds the operator log then."""
    monkeypatch.setenv("ROUNDTRIP_TRACE", str(tmp_path / "calls.jsonl"))
    return tmp_path / "calls.jsonl"


async def run(*words: str) -> int:
    """Run a command in a thread: it has an event loop of its own."""
    return await anyio.to_thread.run_sync(main, [*words])


async def test_actions_print_their_outcome_and_are_logged(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with peers(workshops.shop()) as (peer,):
        task, call = await asking(peer, "build", secret="this")
        other, _ = await asking(peer, "build", secret="that")
        options = ("--server", SHOP, "--operator-log", str(log))
        assert await run("calls", "cancel", task, "unknown", call, *options) == 1
        assert await run("calls", "expire", other, *options) == 0
        assert await run("calls", "retry", call, *options) == 1
        assert await run("calls", "remind", call, *options) == 1
        assert (await peer.get(task))["status"] == "cancelled"
    said = capsys.readouterr()
    assert said.err == ""
    out = said.out.splitlines()
    assert out[0] == f"{call}: cancelled"
    assert out[1].startswith("unknown: 'unknown' matches no stored call")
    assert out[2:5] == [
        f"{call}: the call has already ended; its state is cancelled",
        f"{other.split('.')[0]}: expired",
        f"{call}: only lost tasks can be retried, and this task is cancelled",
    ]
    assert out[5].startswith(f"{call}: the server does not notify groups; give it")
    lines = logged(log)
    assert [(line.action, line.outcome) for line in lines] == [
        ("cancel", "done"),
        ("cancel", "rejected"),
        ("expire", "done"),
        ("retry", "rejected"),
        ("remind", "rejected"),
    ]
    assert {(line.by, line.instance, line.tool) for line in lines} == {(user_of_system(), "command", "build")}
    assert stat.S_IMODE(os.stat(log).st_mode) == 0o600


async def test_action_without_a_place_for_the_log_is_done_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROUNDTRIP_OPERATOR_LOG", raising=False)
    monkeypatch.delenv("ROUNDTRIP_TRACE", raising=False)
    async with peers(workshops.shop()) as (peer,):
        task, call = await asking(peer, "build", secret="this")
        assert await run("calls", "cancel", call, "--server", SHOP) == 0
        assert (await peer.get(task))["status"] == "cancelled"
    assert capsys.readouterr().err == f"roundtrip calls: {NOTE}\n"
    assert not any(name.endswith(".jsonl") for name in os.listdir(tmp_path))


async def test_nothing_is_done_if_the_log_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with peers(workshops.shop()) as (peer,):
        task, call = await asking(peer, "build", secret="this")
        assert await run("calls", "cancel", call, "--server", SHOP, "--operator-log", str(tmp_path)) == 2
        assert (await peer.get(task))["status"] == "input_required"
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("nothing was done; name another file with --operator-log or ROUNDTRIP_OPERATOR_LOG") == 1


async def test_former_variable_of_the_log_is_not_ignored(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROUNDTRIP_AUDIT", "audit.jsonl")
    async with peers(workshops.shop()) as (peer,):
        task, call = await asking(peer, "build", secret="this")
        assert await run("calls", "cancel", call, "--server", SHOP) == 2
        assert (await peer.get(task))["status"] == "input_required"
    assert "nothing was done: ROUNDTRIP_AUDIT is now named ROUNDTRIP_OPERATOR_LOG" in capsys.readouterr().err


async def test_log_is_beside_the_named_transcripts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "traces").mkdir()
    async with peers(workshops.shop()) as (peer,):
        _, call = await asking(peer, "build", secret="this")
        assert await run("calls", "cancel", call, str(tmp_path / "traces"), "--server", SHOP) == 0
    assert capsys.readouterr().out == f"{call}: cancelled\n"
    assert [line.call for line in logged(tmp_path / "traces" / "operators.jsonl")] == [call]


async def test_views_have_the_actions_and_what_is_stored(
    trace: Path, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with peers(workshops.shop()) as (peer,):
        _, call = await asking(peer, "build", secret="argument-4711")
        assert await run("calls", "show", call, "--server", SHOP) == 0
        shown = capsys.readouterr().out
        assert f"{call}  build  awaiting_input" in shown
        assert 'asking             ["size"]' in shown
        assert "argument-4711" not in shown
        assert await run("calls", "show", "last", "--server", SHOP, "--reveal", "--json") == 0
        data = json.loads(capsys.readouterr().out)
        assert (data["call"], data["stored"]["state"]) == (call, "asking")
        assert data["stored"]["arguments"] == {"secret": "argument-4711"}
        assert await run("calls", "expire", call, "--server", SHOP) == 0
        capsys.readouterr()
        assert await run("calls", "show", call, "--server", SHOP) == 0
        gone = capsys.readouterr().out
    assert f"expired by {user_of_system()}\n" in gone
    assert "this server has not stored the call" in gone
    assert await run("calls", "ls") == 0
    assert [line.split()[4:5] for line in capsys.readouterr().out.splitlines()[1:]] == [["failed"]]
    assert await run("calls", "show", call, str(trace)) == 0
    assert f"expired by {user_of_system()}\n" in capsys.readouterr().out
    for indexed, name in enumerate((trace.parent, trace, trace)):
        assert await run("trace", "explain", call, str(name)) == 1
        assert "expired it with a command" in capsys.readouterr().out
        assert indexed or await run("trace", "index", str(trace)) == 0
    assert [line.action for line in logged(log)] == ["expire"]


async def test_stored_call_is_shown_without_its_transcript(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ROUNDTRIP_TRACE", raising=False)
    other = write(tmp_path / "other.jsonl", [])
    async with peers(workshops.shop()) as (peer,):
        _, call = await asking(peer, "build", secret="this")
        for files in ((), (str(other),)):
            assert await run("calls", "show", call[:8], *files, "--server", SHOP) == 0
            assert capsys.readouterr().out.startswith(f"call               {call}\n")
        assert await run("calls", "show", "unknown", str(other), "--server", SHOP) == 2
        assert await run("calls", "show", "unknown", "--server", SHOP) == 2
        assert await run("calls", "show", call, str(other), "--reveal") == 2


@pytest.mark.parametrize(
    ("value", "result"),
    [("3", "first this 3"), ('{"value": 4}', "first this 4"), (":decline", None)],
)
async def test_test_user_answers(value: str, result: str | None, log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with peers(workshops.shop()) as (peer,):
        task, call = await asking(peer, "build", secret="this")
        options = ("--server", SHOP, "--test-user", "--operator-log", str(log))
        for wrong in ("large", "3.5", "[]", '{"size": 3}'):
            assert await run("calls", "answer", call, "size", wrong, *options) == 1
        said = capsys.readouterr().out
        assert f'{call}: the answer to "size"' not in said
        assert f'{call}: "size", field "value": it must be a whole number' in said
        assert await run("calls", "answer", call, "color", "3", *options) == 1
        assert await run("calls", "answer", call, "size", value, *options) == 0
        ended = await peer.until(task)
    assert text_of(ended) == result if result is not None else ended["result"]["isError"]
    lines = logged(log)
    assert [line.outcome for line in lines] == ["rejected"] * 5 + ["done"]
    assert lines[-1].why == "size"
    assert "large" not in str(lines)


async def test_answer_needs_the_flag_for_test_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with peers(workshops.shop()) as (peer,):
        task, call = await asking(peer, "build", secret="this")
        options = ("--server", SHOP, "--operator-log", str(tmp_path / "log"))
        assert await run("calls", "answer", call, "size", "3", *options) == 2
        assert (await peer.get(task))["status"] == "input_required"
    assert "is allowed only on development servers" in capsys.readouterr().err
    assert "log" not in os.listdir(tmp_path)


def test_action_needs_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["calls", "cancel", "call-1"])
    assert "--server" in capsys.readouterr().err


def test_hostile_lines_of_a_log_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.unit.trace.tales import HOSTILE, Tale

    tale = Tale("call-1").began(1).asked({"key": "a", "kind": "form", "reason": "new"})
    (tmp_path / "calls.jsonl").write_text(tale.write())
    lines = [acted(by=HOSTILE, tool=HOSTILE), acted(6, "retry", by=HOSTILE, outcome="rejected")]
    write(tmp_path / "operators.jsonl", lines)
    for words in (["show", "call-1"], ["ls"]):
        assert main(["calls", *words, str(tmp_path / "calls.jsonl")]) == 0
    for words in (["explain", "call-1"], ["show", "call-1", "--json"]):
        main(["trace", *words, str(tmp_path)])
    out = capsys.readouterr().out
    assert not any(char in out for char in "\x1b\x00\u202e\u2028")
    assert "cancelled by" in out
