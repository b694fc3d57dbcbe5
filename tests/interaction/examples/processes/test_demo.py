"""`roundtrip demo` prints the events as they happened, and leaves no process behind."""

import os
import pty
import re
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from roundtrip.cli import main
from roundtrip.machine.table import CALL_MACHINE, Event, State
from tests.kit.forks import ForkedProcess, start
from tests.kit.hosts import ROOT
from tests.kit.waiting import WAIT, until_plain

LEG: Final = re.compile(r"^Leg \d+ is served by (\w+) \(pid (\d+)\)$", re.MULTILINE)
CHANGE: Final = re.compile(r"^ *(\w+) -- (\w+) -*> (\w+)(?:  (.*))?$", re.MULTILINE)
FIRST_QUESTION: Final = "Paperback or hardcover"


class Demo:
    """A demo in a process of its own, and what it has printed so far."""

    def __init__(self, process: ForkedProcess, output: Path) -> None:
        self.process = process
        self._output = output

    @property
    def text(self) -> str:
        return self._output.read_text(encoding="utf-8")

    @property
    def legs(self) -> list[tuple[str, str]]:
        """Return the instance and the process of each leg."""
        return LEG.findall(self.text)

    @property
    def path(self) -> list[State]:
        """Return the states of the call, checked against the table."""
        states = [State.RECEIVED]
        for source, event, target, _ in CHANGE.findall(self.text):
            assert source == states[-1]
            assert CALL_MACHINE.targets[State(source), Event(event)] == target
            states.append(State(target))
        return states

    @property
    def asked(self) -> list[str]:
        """Return the questions of each round, with the reasons of repeated ones."""
        return [remark for _, event, _, remark in CHANGE.findall(self.text) if event == Event.ASK]

    @property
    def processes(self) -> set[str]:
        """Return every process that it names."""
        return set(re.findall(r"\bpid (\d+)", self.text))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, and repeat it: the demo may miss one that arrives between a prompt and its read."""
        for _ in range(int(WAIT)):
            self.process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                # A second one, while it is shutting down, would end it the hard way.
                self.process.wait(5)
                return

    def expect_end(self, exit_code: int) -> None:
        """Wait until it has ended, and all of its processes."""
        assert self.process.wait(WAIT) == exit_code, self.text
        until_plain(lambda: not any(is_running(pid) for pid in self.processes), what="the end of all processes")


def is_running(pid: str) -> bool:
    try:
        # An orphan that was not collected yet has ended all the same.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def demo(folder: Path, *options: str, stdin: int | None = None) -> Generator[Demo]:
    output = folder / "printed"
    with output.open("wb") as file:
        process = start(main, ["demo", *options], cwd=ROOT, stdin=stdin, stdout=file.fileno(), stderr=file.fileno())
    try:
        yield Demo(process, output)
    finally:
        process.kill()
        process.wait(WAIT)


@contextmanager
def terminal() -> Generator[tuple[int, int]]:
    """Yield both ends of a terminal; it keeps what is typed ahead until it is asked for."""
    ends = pty.openpty()
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def test_every_leg_of_the_order_is_served_by_another_process(tmp_path: Path) -> None:
    with demo(tmp_path) as printed:
        printed.expect_end(0)
    assert [name for name, _ in printed.legs] == ["ash", "birch", "cedar", "ash"]
    assert len({pid for _, pid in printed.legs}) == 4
    assert printed.path[-1] is State.COMPLETED
    assert printed.asked == ["edition", "delivery", "consent"]
    assert re.search(r"^Killed ash \(pid \d+\), and restarted it as pid \d+$", printed.text, re.MULTILINE)
    assert len(re.findall(r"^  token: [1-9]\d* bytes$", printed.text, re.MULTILINE)) == 3
    # The price that the first process looked up is charged by the last, which never saw it but in the token.
    assert f"for 27.50 as quoted by ash (pid {printed.legs[0][1]})" in printed.text
    assert printed.text.endswith("The order went through.\n")


def test_invalid_terminal_answer_is_asked_again_on_another_instance(tmp_path: Path) -> None:
    with terminal() as (ours, theirs), demo(tmp_path, "--ask", stdin=theirs) as printed:
        os.write(ours, b"leather\npaperback\npickup\n\nyes\n")
        printed.expect_end(0)
    assert printed.asked == ["edition", "edition (invalid)", "delivery", "consent"]
    assert len({pid for _, pid in printed.legs}) == len(printed.legs) == 5
    assert printed.text.count(FIRST_QUESTION) == 2
    assert "The last answer was not valid" in printed.text
    assert "'Dune', paperback, for pickup, for 9.50" in printed.text


@pytest.mark.parametrize(("number", "exit_code"), [("SIGKILL", -9), ("SIGINT", 130), ("SIGTERM", 143)])
def test_no_instance_outlives_the_demo_however_it_ends(number: str, exit_code: int, tmp_path: Path) -> None:
    with terminal() as (_, theirs), demo(tmp_path, "--ask", stdin=theirs) as printed:
        until_plain(lambda: FIRST_QUESTION in printed.text, what="the first question")
        printed.signal(signal.Signals[number])
        printed.expect_end(exit_code)
    assert "Traceback" not in printed.text
    assert len(printed.processes) == 4
