"""The terminal: text on standard error, and lines that a person types."""

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
"""A text, or a text with its style."""

Line = tuple[int, tuple[Part, ...]]
"""A line of a report: its indent, and its parts."""


class Terminal:
    """Prints on standard error, so that standard output holds the result alone, and reads lines."""

    def __init__(self, *, listen: bool = True) -> None:
        is_shown = sys.stderr.isatty()
        self._console = console_on(sys.stderr, force_terminal=True) if is_shown else None
        self._pending: Future[str | None] | None = None
        self.has_person = listen and is_shown and sys.stdin is not None and sys.stdin.isatty()
        """True if a person can be asked."""

    def say(self, text: str = "", *, style: str = "", end: str = "\n") -> None:
        """Print some text, with control characters spelled out."""
        shown = printable(text, keep_newlines=True)
        if self._console is None:
            sys.stderr.write(shown + end)
            sys.stderr.flush()
            return
        from rich.text import Text

        self._console.print(Text(shown, style), soft_wrap=True, end=end)

    def quote(self, text: str) -> None:
        """Print text of the server, each line marked so that it cannot pass for the client's own."""
        for line in text.splitlines() or [""]:
            self.say(f"| {printable(line)}", style="bold")

    async def ask(self, prompt: str) -> str | None:
        """Read the next line; None at the end of the input."""
        self.say(prompt, end=" ")
        line = await self._next_line()
        if line is None:
            self.say()
        return line

    async def _next_line(self) -> str | None:
        # A read of a canceled question is still under way, and cannot be undone: it reads this line.
        if self._pending is None:
            self._pending = Future()
            self._pending.set_running_or_notify_cancel()
            # Not a thread of the event loop: the process would wait for it at its end.
            Thread(target=_read_line, args=(sys.stdin.fileno(), self._pending), daemon=True).start()
        line = await asyncio.wrap_future(self._pending)
        self._pending = None
        return line


def console_on(terminal: TextIO, *, force_terminal: bool | None = None, width: int | None = None) -> "Console | None":
    """Return rich's console on a terminal; None if rich is not installed."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(
        file=terminal, force_terminal=force_terminal, width=width, markup=False, emoji=False, highlight=False
    )


def _read_line(source: int, line: "Future[str | None]") -> None:
    # Not through `sys.stdin`: its lock, held by a daemon thread, breaks the interpreter's shutdown. One byte at a time:
    # the rest of a pipe belongs to the next line.
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
