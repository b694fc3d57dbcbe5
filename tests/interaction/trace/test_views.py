"""`roundtrip trace` on recordings of real servers, on both eras and as a process."""

import fcntl
import json
import os
import pty
import queue
import signal
import struct
import termios
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import anyio
import pytest
from mcp.client import Client
from mcp_types import ElicitResult
from pydantic import BaseModel

from roundtrip import Context, Elicit, Recorder, Resolve, Server
from roundtrip.cli import main
from roundtrip.client.legs import ERAS
from roundtrip.testing import DECLINE, Answers, Era, LegByLeg, User
from roundtrip.trace.reading.transcripts import files_of
from tests.interaction.trace.transcribed import calls_of
from tests.kit.forks import Piped, piped, start
from tests.kit.hosts import ROOT, WAIT
from tests.kit.transcripts import acted, asked, began, write

pytestmark = pytest.mark.anyio

KEY: Final = b"k" * 32
ARGUMENTS: Final = {"title": "Dune"}


class Choice(BaseModel):
    ok: bool


class Name(BaseModel):
    name: str


def shop(path: Path, *, instance: str = "one", reveal: Any = "all", **options: Any) -> Server[Any]:
    """Make an instance of a shop whose tool asks by resolvers and from its body."""
    recorder = Recorder(path, reveal=reveal, instance=instance, **options)
    server = Server[Any]("shop", keys=[KEY], build="1", trace=recorder)

    async def confirm() -> Elicit[Choice]:
        return Elicit("Sure?", Choice)

    async def name(choice: Annotated[Choice, Resolve(confirm)]) -> Elicit[Name]:
        return Elicit("For whom?", Name)

    @server.tool()
    async def order(title: str, name: Annotated[Name, Resolve(name)], ctx: Context[Any, Any]) -> str:
        await ctx.step("reserve", lambda: 17)
        await ctx.ask("gift", "A gift?", Choice)
        return f"{title} for {name.name}"

    return server


async def order(server: Server[Any], era: Era, *, gift: bool = True) -> None:
    answers: Answers = {"confirm": {"ok": True}, "name": {"name": "Ada"}, "gift": {"ok": gift}}
    await User(server, answers, era=era).call("order", ARGUMENTS)


def listed(path: Path, capsys: pytest.CaptureFixture[str], *filters: str) -> list[dict[str, Any]]:
    main(["trace", "ls", "--json", *filters, str(path)])
    return json.loads(capsys.readouterr().out)


async def test_a_call_is_listed_and_shown(era: Era, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "calls.jsonl"
    await order(shop(path), era)
    (found,) = listed(path, capsys)
    assert (found["tool"], found["state"], found["rounds"]) == ("order", "completed", 3)
    assert found["legs"] == (4 if era is Era.RETRY else 1)
    assert main(["trace", "show", found["call"], str(path)]) == 0
    text = capsys.readouterr().out
    for words in (
        'arguments {"title": "Dune"}',
        "● confirm  asked\n",
        'message "For whom?"',
        'answer to name: accepted {"name": "Ada"}',
        "step reserve  ran in ",
        "the body ran twice" if era is Era.RETRY else "the body ran once",
        "Dune for Ada",
    ):
        assert words in text
    assert ("✓ name  reused\n" in text) == (era is Era.RETRY)
    assert main(["trace", "explain", found["call"], str(path)]) == 0


async def test_the_same_call_on_both_eras_differs_in_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "calls.jsonl"
    for era in ERAS:
        await order(shop(path), era)
    await order(shop(path), Era.LIVE, gift=False)
    first, second, third = (found["call"] for found in listed(path, capsys))
    assert main(["trace", "diff", first, second, str(path)]) == 0
    assert main(["trace", "diff", second, third, "--json", str(path)]) == 1
    capsys.readouterr()
    assert main(["trace", "diff", second, third, "--json", str(path)]) == 1
    (difference,) = json.loads(capsys.readouterr().out)["differences"]
    assert (difference["round"], difference["key"], difference["what"]) == (3, "gift", "answer")


async def test_replayed_and_waiting_legs_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "calls.jsonl"
    hopper = LegByLeg([shop(path, instance=name) for name in ("one", "two", "three")])
    await hopper.leg("order", ARGUMENTS)
    token = hopper.token
    for _ in range(2):
        await hopper.leg("order", ARGUMENTS, answers={"confirm": {"ok": True}}, state=token)
    (found,) = listed(path, capsys)
    assert (found["legs"], found["rounds"], found["replays"], found["pending"]) == (2, 2, 1, ["name"])
    assert found["instances"] == ["one", "two", "three"]
    assert main(["trace", "show", found["call"], str(path)]) == 0
    text = capsys.readouterr().out
    assert "replay: Leg 2 was served again, by 'three', because its request came again " in text
    assert "○ name  pending\n" in text
    assert "waits for 'name' since " in text
    assert main(["trace", "explain", found["call"], str(path)]) == 1


async def test_abandoned_question_is_not_reported_as_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "calls.jsonl"
    server = Server[Any]("shop", trace=Recorder(path))
    given_up = anyio.Event()
    patience = anyio.CancelScope()

    @server.tool()
    async def order(ctx: Context[Any, Any]) -> str:
        with patience:
            await ctx.ask("late", "Sure?", bool)
        given_up.set()
        return "without you"

    async def hesitate(context: Any, params: Any) -> ElicitResult:
        patience.cancel()
        await given_up.wait()
        return ElicitResult(action="cancel")

    with anyio.fail_after(10):
        async with Client(server, mode=Era.LIVE.value, elicitation_callback=hesitate) as client:
            await client.call_tool("order", {})
    (found,) = calls_of(path)
    assert main(["trace", "show", found.id, str(path)]) == 0
    shown = capsys.readouterr().out
    assert "asked by the body, given up after" in shown
    assert "the body stopped waiting for the answer after" in shown
    assert "answered after" not in shown
    assert main(["trace", "export", found.id, "--mermaid", str(path)]) == 0
    assert "stops waiting" in capsys.readouterr().out


async def test_unrevealed_value_is_shown_and_compared_by_digest(
    era: Era, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "calls.jsonl"
    for gift in (True, True, False):
        await order(shop(path, reveal=()), era, gift=gift)
    first, second, third = (found["call"] for found in listed(path, capsys))
    assert main(["trace", "diff", first, second, str(path)]) == 0
    assert main(["trace", "diff", first, third, str(path)]) == 1
    capsys.readouterr()
    assert main(["trace", "show", first, str(path)]) == 0
    text = capsys.readouterr().out
    assert not [word for word in ("Dune", "Ada", "Sure", "whom") if word in text]
    assert "digest" in text


class Tail:
    """Running `roundtrip trace tail`, read line by line."""

    def __init__(self, piped: Piped) -> None:
        self.process = piped.process
        self.stderr = piped.stderr
        self._stdout = piped.stdout
        self._lines: queue.Queue[str] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        for line in self._stdout:
            self._lines.put(line.rstrip("\n"))

    def until(self, holds: Callable[[str], bool]) -> list[str]:
        """Return the lines up to the first that passes the check."""
        deadline = time.monotonic() + WAIT
        lines: list[str] = []
        while not lines or not holds(lines[-1]):
            lines.append(self._lines.get(timeout=max(0.01, deadline - time.monotonic())))
        return lines


@contextmanager
def tailing(*arguments: str) -> Generator[Tail]:
    with piped(main, "trace", "tail", *arguments, cwd=ROOT) as running:
        tail = Tail(running)
        try:
            yield tail
        finally:
            tail.process.kill()
            tail.reader.join(WAIT)


async def test_tail_follows_instances_rotation_and_files_that_appear_later(tmp_path: Path) -> None:
    await order(shop(tmp_path / "one.jsonl", instance="one", max_bytes=1500, keep=50), Era.RETRY)
    with tailing("--json", "--lines", "2", str(tmp_path)) as tail:
        past = [json.loads(line) for line in tail.until(lambda line: '"ended"' in line)]
        assert [line["event"] for line in past] == ["began", "ended"]
        await order(shop(tmp_path / "one.jsonl", instance="one", max_bytes=1500, keep=50), Era.RETRY)
        again = [json.loads(line) for line in tail.until(lambda line: '"ended"' in line)]
        assert [line["event"] for line in again] == ["began", "asked"] * 3 + ["began", "ended"]
        await order(shop(tmp_path / "two.jsonl", instance="two"), Era.LIVE)
        live = [json.loads(line) for line in tail.until(lambda line: '"ended"' in line)]
        assert [line["event"] for line in live] == ["began", *["asked", "answered"] * 3, "ended"]
        assert {line["instance"] for line in live} == {"two"}
    assert len(files_of([tmp_path])) > 4


async def test_tail_shows_one_line_for_each_event_and_filters_them(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    answers: Answers = {"confirm": [{"ok": "perhaps"}, DECLINE]}
    await User(shop(path), answers, era=Era.LIVE).call("order", ARGUMENTS)
    await order(shop(path), Era.LIVE)
    with tailing("--lines", "100", "--reason", "invalid", str(path)) as tail:
        (line,) = tail.until(lambda line: True)
        assert line.endswith("  order  asked confirm (invalid), round 2 in leg 1")
    with tailing("--lines", "100", "--tool", "ord*", str(path)) as tail:
        lines = tail.until(lambda line: "completed" in line)
        assert len(lines) == 14
        last = lines[-1].split("  ")[2]
    with tailing("--lines", "100", "--call", last[:6], str(path)) as tail:
        lines = tail.until(lambda line: "completed" in line)
        assert len(lines) == 8


async def test_tail_shows_actions_of_operators_by_their_tools(tmp_path: Path) -> None:
    write(tmp_path / "calls.jsonl", [began(), asked(1)])
    write(tmp_path / "audit.jsonl", [acted(5, by="a\x1bna", tool=None), acted(6, call="other", tool="pay")])
    with tailing("--lines", "100", "--tool", "order", str(tmp_path)) as tail:
        lines = tail.until(lambda line: " by " in line)
    assert lines[-1].split("  ")[1:] == ["command", "call-1", "order", "cancelled by a\\x1bna"]


async def test_tail_ends_when_it_is_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    await order(shop(path), Era.LIVE)
    with tailing("--lines", "1", str(path)) as tail:
        tail.until(lambda line: "completed" in line)
        tail.process.send_signal(signal.SIGINT)
        assert tail.process.wait(WAIT) == 130


def code_once_unread(*arguments: str, after: str) -> int:
    """Return the exit of a command whose output closes after its first line."""
    with piped(main, *arguments, cwd=ROOT) as running:
        assert after in running.stdout.readline()
        running.stdout.close()
        return running.process.wait(WAIT)


async def test_tail_ends_when_its_reader_leaves(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    await order(shop(path), Era.LIVE)
    assert code_once_unread("trace", "tail", "--lines", "1", str(path), after="completed") == 141


async def test_tail_waits_for_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    path = tmp_path / "later.jsonl"
    with tailing(str(path)) as tail:
        assert "'" + str(path) + "' does not exist yet" in tail.stderr.readline()
        await order(shop(path), Era.LIVE)
        assert len(tail.until(lambda line: "completed" in line)) == 8


def test_tail_follows_files_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert main(["trace", "tail", str(tmp_path / "pipe")]) == 2
    assert "is neither a file nor a directory" in capsys.readouterr().err
    assert main(["trace", "tail"]) == 2
    assert "name a transcript" in capsys.readouterr().err


def on_a_terminal(*arguments: str, columns: int, **environment: str) -> str:
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


async def test_terminal_output_adapts_colors_and_width(tmp_path: Path) -> None:
    path = tmp_path / "calls.jsonl"
    await order(shop(path), Era.RETRY)
    shown = on_a_terminal("ls", str(path), columns=60)
    assert "\x1b[32mcompleted" in shown
    assert "instances" not in shown
    assert "instances" in on_a_terminal("ls", str(path), columns=160)
    assert "\x1b[32m" not in on_a_terminal("ls", str(path), columns=60, NO_COLOR="1")
