"""The terminal: what is said on standard error, and what a person types."""

import asyncio
import os
import sys
from concurrent.futures import Future
from threading import Thread
from typing import Final

from rich.console import Console
from rich.text import Text

from roundtrip.safe_text import printable

__all__ = ["Terminal"]

_CHUNK: Final = 4096


class Terminal:
    """Speaks on standard error, so that standard output is the result alone; reads lines where there is a person."""

    def __init__(self, *, listen: bool = True) -> None:
        told = sys.stderr.isatty()
        self._console = Console(file=sys.stderr, force_terminal=told, markup=False, emoji=False, highlight=False)
        self._pending: Future[str | None] | None = None
        self.has_person = listen and told and sys.stdin is not None and sys.stdin.isatty()
        """Whether somebody can be asked."""

    def say(self, text: str = "", *, style: str = "", end: str = "\n") -> None:
        """Print some text. What a terminal would obey in it is spelled out."""
        self._console.print(Text(printable(text, keep_newlines=True), style), soft_wrap=True, end=end)

    def quote(self, text: str) -> None:
        """Print text of the server, marked line by line so that it cannot pass for ours."""
        for line in text.splitlines() or [""]:
            self.say(f"| {printable(line)}", style="bold")

    async def ask(self, prompt: str) -> str | None:
        """The next line that is typed; None at the end of the input."""
        self.say(prompt, end=" ")
        line = await self._next_line()
        if line is None:
            self.say()
        return line

    async def _next_line(self) -> str | None:
        # A line that somebody was asked for before, in vain, is this line: the terminal cannot be told to forget it.
        if self._pending is None:
            self._pending = Future()
            self._pending.set_running_or_notify_cancel()
            # Not one of the event loop's threads: the process would wait for those at its end.
            Thread(target=_read_line, args=(sys.stdin.fileno(), self._pending), daemon=True).start()
        line = await asyncio.wrap_future(self._pending)
        self._pending = None
        return line


def _read_line(source: int, line: "Future[str | None]") -> None:
    # Not through `sys.stdin`: a thread that waits in there makes the interpreter's end fail.
    read = bytearray()
    while not read.endswith(b"\n"):
        try:
            chunk = os.read(source, _CHUNK)
        except OSError:
            chunk = b""
        if not chunk:
            break
        read += chunk
    line.set_result(read.decode(sys.stdin.encoding or "utf-8", "replace").rstrip("\r\n") if read else None)
