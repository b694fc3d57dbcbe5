"""`roundtrip demo` prints the events as they happened, and leaves no process behind."""

import os
import pty
import re
import signal
import subprocess
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from roundtrip.cli import main
from roundtrip.machine.table import CALL_MACHINE, Event, State
from tests.kit.forks import Started, start
from tests.kit.hosts import ROOT
from tests.kit.waiting import WAIT, until_plain

LEG = re.compile(r"^Leg (\d+) is served by (\w+) \(pid (\d+)\)$", re.MULTILINE)
CHANGE = re.compile(r"^ *(\w+) -- (\w+) -*> (\w+)(?:  (.*))?$", re.MULTILINE)
FIRST_QUESTION = "Paperback or hardcover"


@dataclass(frozen=True, slots=True)
class Printed:
    """The output of one run."""

    exit_code: int
    text: str

    @property
    def legs(self) -> list[tuple[str, str]]:
        """Return the instance and the process of each leg."""
        return [(name, pid) for _, name, pid in LEG.findall(self.text)]

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
    def processes(self) -> set[int]:
        """Return every process that it names."""
        return {int(pid) for pid in re.findall(r"\bpid (\d+)", self.text)}


class Demo:
    """Running demo, read as it prints."""

    def __init__(self, process: Started, *, typed: int | None, printed: int) -> None:
        self._process = process
        self._typed = typed
        self._output = printed
        self._printed = b""
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while chunk := os.read(self._output, 4096):
            with self._more:
                self._printed += chunk
                self._more.notify()

    @property
    def text(self) -> str:
        return self._printed.decode()

    def wait_for(self, words: str) -> None:
        with self._more:
            assert self._more.wait_for(lambda: words in self.text, WAIT), self.text

    def type(self, line: str) -> None:
        assert self._typed is not None
        os.write(self._typed, line.encode() + b"\n")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, and repeat it: the demo may miss one that arrives between a prompt and its read."""
        for _ in range(int(WAIT)):
            self._process.send_signal(number)
            with suppress(subprocess.TimeoutExpired):
                # A second one, while it is shutting down, would end it the hard way.
                self._process.wait(5)
                return

    def end(self) -> Printed:
        exit_code = self._process.wait(WAIT)
        self._reader.join(WAIT)
        return Printed(exit_code, self.text)


@contextmanager
def demo(*options: str, stdin: int | None = None) -> Generator[Demo]:
    """Run the demo in a separate process, which reads a test's input or a descriptor."""
    with ExitStack() as stack:
        printed, output = os.pipe()
        stack.callback(os.close, printed)
        typed = None
        if stdin is None:
            given, typed = os.pipe()
            stack.callback(os.close, typed)
        else:
            given = os.dup(stdin)
        with open(given, "rb"), open(output, "wb"):
            process = start(main, ["demo", *options], cwd=ROOT, stdin=given, stdout=output, stderr=output)
        running = Demo(process, typed=typed, printed=printed)
        stack.callback(running.end)
        stack.callback(process.kill)
        yield running


def is_running(pid: int) -> bool:
    try:
        # An orphan that was not collected yet has ended all the same.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def expect_none_left_behind(printed: Printed) -> None:
    until_plain(lambda: not any(is_running(pid) for pid in printed.processes), what="the end of all processes")


def test_every_leg_of_the_order_is_served_by_another_process() -> None:
    with demo() as running:
        printed = running.end()
    assert printed.exit_code == 0, printed.text
    assert [name for name, _ in printed.legs] == ["ash", "birch", "cedar", "ash"]
    assert len({pid for _, pid in printed.legs}) == 4
    assert printed.path[-1] is State.COMPLETED
    assert printed.asked == ["edition", "delivery", "consent"]
    assert re.search(r"^ash \(pid \d+\) is killed, and started again as pid \d+$", printed.text, re.MULTILINE)
    assert len(re.findall(r"^  token: [1-9]\d* bytes$", printed.text, re.MULTILINE)) == 3
    # The price that the first process looked up is charged by the last, which never saw it but in the token.
    assert f"for 27.50 as quoted by ash (pid {printed.legs[0][1]})" in printed.text
    assert printed.text.endswith("The order went through.\n")
    expect_none_left_behind(printed)


def test_invalid_terminal_answer_is_asked_again_on_another_instance() -> None:
    ours, theirs = pty.openpty()
    try:
        with demo("--ask", stdin=theirs) as running:
            # Typed ahead: the terminal keeps it until it is asked for.
            os.write(ours, b"leather\npaperback\npickup\n\nyes\n")
            printed = running.end()
    finally:
        os.close(ours)
        os.close(theirs)
    assert printed.exit_code == 0, printed.text
    assert printed.asked == ["edition", "edition (invalid)", "delivery", "consent"]
    assert len({pid for _, pid in printed.legs}) == len(printed.legs) == 5
    assert printed.text.count(FIRST_QUESTION) == 2
    assert "The last answer was not valid" in printed.text
    assert "'Dune', paperback, for pickup, for 9.50" in printed.text
    expect_none_left_behind(printed)


def test_an_order_that_the_person_declines_does_not_go_through() -> None:
    with demo("--ask") as running:
        running.type("hardcover")
        running.type(":decline")
        printed = running.end()
    assert printed.exit_code == 1, printed.text
    assert printed.path[-1] is State.DECLINED
    assert "could not resolve: elicitation was decline" in printed.text
    assert printed.text.endswith("The order did not go through.\n")
    expect_none_left_behind(printed)


@pytest.mark.parametrize(("number", "exit_code"), [("SIGKILL", -9), ("SIGINT", 130), ("SIGTERM", 143)])
def test_no_instance_outlives_the_demo_however_it_ends(number: str, exit_code: int) -> None:
    with demo("--ask") as running:
        running.wait_for(FIRST_QUESTION)
        running.signal(signal.Signals[number])
        printed = running.end()
    assert printed.exit_code == exit_code, printed.text
    assert "Traceback" not in printed.text
    assert len(printed.processes) == 4
    expect_none_left_behind(printed)
