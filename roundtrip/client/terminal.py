"""The terminal, which prints text on standard error and reads typed lines."""

import asyncio
import os
import sys
from concurrent.futures import Future
from threading import Thread
from typing import TYPE_CHECKING, TextIO

from roundtrip.text import printable

if TYPE_CHECKING:
    from rich.console import Console

Part = str | tuple[str, str]
"""A text, or a pair of a text and its style."""

Line = tuple[int, tuple[Part, ...]]
"""A line in a report: its indent and its parts."""


class Terminal:
    """A terminal that prints text and reads lines. It prints on standard error, because only the result may go to
    standard output.
    """

    def __init__(self, *, listen: bool = True) -> None:
        is_terminal = sys.stderr.isatty()
        self._console = console_on(sys.stderr, force_terminal=True) if is_terminal else None
        self._pending_line: Future[str | None] | None = None
        self.has_person = listen and is_terminal and sys.stdin is not None and sys.stdin.isatty()
        """True if a person can answer questions here."""

    def say(self, text: str = "", *, style: str = "", end: str = "\n") -> None:
        """Print text, with control characters escaped."""
        shown = printable(text, keep_newlines=True)
        if self._console is None:
            sys.stderr.write(shown + end)
            sys.stderr.flush()
            return
        from rich.text import Text

        self._console.print(Text(shown, style), soft_wrap=True, end=end)

    def quote(self, text: str) -> None:
        """Print text from the server. Mark each line, so that nobody can mistake it for the client's own text."""
        for line in text.splitlines() or [""]:
            self.say(f"| {printable(line)}", style="bold")

    async def ask(self, prompt: str) -> str | None:
        """Read the next line; return None at the end of the input."""
        self.say(prompt, end=" ")
        line = await self._next_line()
        if line is None:
            self.say()
        return line

    async def _next_line(self) -> str | None:
        # A cancelled question's thread still waits for a line. If there is such a thread, it reads this line.
        if self._pending_line is None:
            self._pending_line = Future()
            self._pending_line.set_running_or_notify_cancel()
            # Use a daemon thread. At exit, the process would wait for any worker thread that the event loop started.
            Thread(target=_read_line, args=(sys.stdin.fileno(), self._pending_line), daemon=True).start()
        line = await asyncio.wrap_future(self._pending_line)
        self._pending_line = None
        return line


def console_on(terminal: TextIO, *, force_terminal: bool | None = None, width: int | None = None) -> "Console | None":
    """Return a rich console for a terminal; None if rich is not installed."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(
        file=terminal, force_terminal=force_terminal, width=width, markup=False, emoji=False, highlight=False
    )


def _read_line(source: int, line: "Future[str | None]") -> None:
    # Do not use `sys.stdin`: if a daemon thread held its lock, the interpreter could not shut down. Read one byte at a
    # time, because the bytes after the line belong to later lines.
    read = bytearray()
    while not read.endswith(b"\n"):
        try:
            byte = os.read(source, 1)
        except OSError:
            byte = b""
        if not byte:
            break
        read += byte
    line.set_result(read.decode(sys.stdin.encoding or "utf-8", "replace").rstrip("\r\n") if read else None)
