"""`roundtrip trace` as a process: on terminals, in pipes, and following files."""

import fcntl
import json
import os
import pty
import signal
import struct
import termios
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roundtrip.cli import main
from roundtrip.testing import DECLINE, Answers, Era, User
from roundtrip.trace.reading.transcripts import files_of
from tests.interaction.trace.orders import ARGUMENTS, order, shop
from tests.kit.forks import PipedProcess, run_piped, start
from tests.kit.hosts import ROOT, WAIT
from tests.kit.transcripts import acted, asked, began, write
from tests.unit.cli.trace.tokens import hostile_token

pytestmark = pytest.mark.anyio


@contextmanager
def tailing(*arguments: str) -> Generator[PipedProcess]:
    with run_piped(main, "trace", "tail", *arguments, cwd=ROOT) as running:
        yield running


def until(tail: PipedProcess, end: str) -> list[str]:
    """Return the lines up to the first that has a text."""
    lines: list[str] = []
    while not lines or end not in lines[-1]:
        lines.append(tail.stdout.readline().rstrip("\n"))
        assert lines[-1], "the process ended"
    return lines


async def test_tail_follows_instances_rotation_and_files_that_appear_later(tmp_path: Path) -> None:
    await order(shop(tmp_path / "one.jsonl", instance="one", max_bytes=1500, keep=50), Era.RETRY)
    with tailing("--json", "--lines", "2", str(tmp_path)) as tail:
        past = [json.loads(line) for line in until(tail, '"ended"')]
        assert [line["event"] for line in past] == ["began", "ended"]
        await order(shop(tmp_path / "one.jsonl", instance="one", max_bytes=1500, keep=50), Era.RETRY)
        again = [json.loads(line) for line in until(tail, '"ended"')]
        assert [line["event"] for line in again] == ["began", "asked"] * 3 + ["began", "ended"]
        await order(shop(tmp_path / "two.jsonl", instance="two"), Era.LIVE)
        live = [json.loads(line) for line in until(tail, '"ended"')]
        assert [line["event"] for line in live] == ["began", *["asked", "answered"] * 3, "ended"]
        assert {line["instance"] for line in live} == {"two"}
    assert len(files_of([tmp_path])) > 4


async def test_tail_shows_one_line_for_each_event_and_filters_them(path: Path) -> None:
    answers: Answers = {"confirm": [{"ok": "perhaps"}, DECLINE]}
    await User(shop(path), answers, era=Era.LIVE).call("order", ARGUMENTS)
    await order(shop(path), Era.LIVE)
    with tailing("--lines", "100", "--reason", "invalid", str(path)) as tail:
        (line,) = until(tail, "")
        assert line.endswith("  order  asked confirm (invalid), round 2 in leg 1")
    with tailing("--lines", "100", "--tool", "ord*", str(path)) as tail:
        lines = until(tail, "completed")
        assert len(lines) == 14
        last = lines[-1].split("  ")[2]
    with tailing("--lines", "100", "--call", last[:6], str(path)) as tail:
        lines = until(tail, "completed")
        assert len(lines) == 8


async def test_tail_shows_actions_of_operators_by_their_tools(tmp_path: Path) -> None:
    write(tmp_path / "calls.jsonl", [began(), asked(1)])
    write(tmp_path / "operators.jsonl", [acted(5, by="a\x1bna", tool=None), acted(6, call="other", tool="pay")])
    with tailing("--lines", "100", "--tool", "order", str(tmp_path)) as tail:
        lines = until(tail, " by ")
    assert lines[-1].split("  ")[1:] == ["command", "call-1", "order", "cancelled by a\\x1bna"]


async def test_tail_ends_when_it_is_interrupted_or_unread(path: Path) -> None:
    await order(shop(path), Era.LIVE)
    with tailing("--lines", "1", str(path)) as tail:
        until(tail, "completed")
        tail.process.send_signal(signal.SIGINT)
        assert tail.process.wait(WAIT) == 130
    with tailing("--lines", "1", str(path)) as tail:
        until(tail, "completed")
        tail.stdout.close()
        assert tail.process.wait(WAIT) == 141


async def test_tail_waits_for_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    path = tmp_path / "later.jsonl"
    with tailing(str(path)) as tail:
        assert "'" + str(path) + "' does not exist yet" in tail.stderr.readline()
        await order(shop(path), Era.LIVE)
        assert len(until(tail, "completed")) == 8


def on_a_terminal(*arguments: str, columns: int = 80, **environment: str) -> str:
    """Return the output on a real terminal of some width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")}
    environment = {**plain, "TERM": "xterm-256color", **environment}
    process = start(main, ["trace", *arguments], cwd=ROOT, stdout=theirs, env=environment)
    os.close(theirs)
    chunks: list[bytes] = []

    def read() -> None:
        try:
            while chunk := os.read(ours, 65536):
                chunks.append(chunk)
        except OSError:
            # What Linux says when the other side of a terminal has gone.
            return

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        assert process.wait(WAIT) in (0, 1)
        reader.join(WAIT)
    finally:
        process.kill()
        os.close(ours)
    return b"".join(chunks).decode()


async def test_terminal_output_adapts_colors_and_width(tmp_path: Path, path: Path) -> None:
    await order(shop(path), Era.RETRY)
    shown = on_a_terminal("ls", str(path), columns=60)
    assert "\x1b[32mcompleted" in shown
    assert "instances" not in shown
    assert "instances" in on_a_terminal("ls", str(path), columns=160)
    assert "\x1b[32m" not in on_a_terminal("ls", str(path), columns=60, NO_COLOR="1")
    (tmp_path / "token").write_text(hostile_token(), encoding="utf-8")
    shown = on_a_terminal("token", str(tmp_path / "token"))
    assert "\x1b[" in shown
    assert r"\x1b[31m\x07\u202e" in shown
    assert "\x07" not in shown
    assert "\x1b[31m" not in shown
