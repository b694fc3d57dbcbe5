"""Run the page of a playground, which ends with its command."""

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio

from roundtrip.client.failures import quiet
from roundtrip.client.targets import Target
from roundtrip.client.terminal import Terminal
from roundtrip.playground.hosting import NoticeHandler, PageHost
from roundtrip.playground.inbox import PlayedInbox
from roundtrip.playground.playground import Playground, ServedFacts
from roundtrip.playground.serving import PlaygroundApp
from roundtrip.playground.writing import TestWriter
from roundtrip.trace.page.loopback import Loopback

__all__ = ["RunningPage", "run_page"]

_FORMAT: Final = "roundtrip: %(message)s"
_END_SECONDS: Final = 2.0
_OPEN_SECONDS: Final = 60.0
_LEADS_TO: Final = '<!doctype html><meta http-equiv="refresh" content="0; url={url}"><title>Playground</title>'
_QUIET: Final = ("uvicorn.error",)


@dataclass(slots=True, eq=False)
class RunningPage:
    """One playground to run."""

    target: Target
    facts: ServedFacts
    listening: socket.socket
    """The socket from which the page is served."""
    opener: Mapping[str, str] | None = None
    """The environment of the browser that opens the page: the developer's own; None to open none."""
    folder: Path | None = None
    """The folder of the transcripts."""
    keys: Sequence[bytes] = ()
    writer: TestWriter | None = None
    inbox: PlayedInbox | None = None
    playground: Playground | None = field(default=None, init=False)
    loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    ended: anyio.Event = field(default_factory=anyio.Event, init=False)

    def note(self, level: str, text: str) -> None:
        """Show a line of the log, which any thread may write."""
        if self.playground is not None and self.loop is not None:
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.playground.note, level, text)

    def reloaded(self) -> None:
        """List the tools of the changed code."""
        if self.playground is not None:
            self.playground.reloaded()

    def not_reloaded(self, reason: str) -> None:
        """Show why changed code does not serve, until other code does."""
        if self.playground is not None:
            self.playground.not_reloaded(reason)

    def end(self) -> None:
        """End the page and its calls."""
        self.ended.set()

    @contextmanager
    def logged(self) -> Generator[None]:
        """Show the log of this process at the terminal and on the page inside a `with` block."""
        logger = logging.getLogger("roundtrip")
        terminal = logging.StreamHandler(sys.stderr)
        terminal.setFormatter(logging.Formatter(_FORMAT))
        handlers = [terminal, NoticeHandler(self.note)]
        before, propagates = logger.level, logger.propagate
        logger.setLevel(logging.INFO)
        logger.propagate = False
        for handler in handlers:
            logger.addHandler(handler)
        try:
            yield
        finally:
            for handler in handlers:
                logger.removeHandler(handler)
            logger.setLevel(before)
            logger.propagate = propagates


async def run_page(page: RunningPage, announce: Callable[[str], None]) -> None:
    """Serve the page, and call the function with its address, until `page.end`."""
    listening = page.listening
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    with quiet():
        async with anyio.create_task_group() as tasks:
            page.loop = asyncio.get_running_loop()
            page.playground = Playground(
                page.target,
                page.facts,
                Terminal(listen=False),
                folder=page.folder,
                keys=page.keys,
                inbox=page.inbox,
                tasks=tasks,
            )
            loopback = Loopback(listening.getsockname()[1])
            host = PageHost(PlaygroundApp(page.playground, loopback, page.writer))
            tasks.start_soon(page.playground.list_tools)
            tasks.start_soon(page.playground.watch_inbox)

            served = anyio.Event()

            async def serve() -> None:
                await host.serve(sockets=[listening])
                served.set()

            tasks.start_soon(serve)
            announce(loopback.url)
            if page.opener is not None:
                tasks.start_soon(_open, loopback.url, page.opener)
            try:
                await page.ended.wait()
            finally:
                # Answer the requests that wait, and end the calls then.
                host.should_exit = True
                page.playground.end()
                with anyio.move_on_after(_END_SECONDS, shield=True):
                    await served.wait()
                page.playground.close()
                tasks.cancel_scope.cancel()


async def _open(url: str, environment: Mapping[str, str]) -> None:
    """Open the page by a file: other users of the machine can read the address on a command line."""
    with TemporaryDirectory(prefix="roundtrip-open-") as folder:
        file = Path(folder) / "playground.html"
        file.write_text(_LEADS_TO.format(url=url), encoding="utf-8")
        with suppress(OSError):
            await anyio.run_process(
                [sys.executable, "-m", "webbrowser", file.as_uri()], env=dict(environment), check=False
            )
        # The browser may be slow.
        await anyio.sleep(_OPEN_SECONDS)
