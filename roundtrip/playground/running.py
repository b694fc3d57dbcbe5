"""Runtime of a playground: its page, and a server process that is replaced when the code changes."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio

from roundtrip.client.failures import quiet
from roundtrip.playground.hosting import PageHost
from roundtrip.playground.playground import Playground
from roundtrip.playground.serving import PlaygroundApp
from roundtrip.playground.writing import TestWriter
from roundtrip.server.probe import Identity
from roundtrip.serving.agreement import cautions
from roundtrip.serving.reloading import ReloadingSupervisor
from roundtrip.serving.supervisor import WorkerPlan
from roundtrip.trace.page.loopback import Loopback

_FORMAT: Final = "roundtrip: %(message)s"
_END_SECONDS: Final = 2.0
_OPEN_SECONDS: Final = 60.0
_REDIRECT_PAGE: Final = '<!doctype html><meta http-equiv="refresh" content="0; url={url}"><title>Playground</title>'


class NoticeHandler(logging.Handler):
    """Log handler that shows log records on the page.

    Args:
        show: A function that is called with the level and text of each record.
    """

    def __init__(self, show: Callable[[str, str], None]) -> None:
        super().__init__(logging.INFO)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        """Show one record."""
        try:
            self._show(record.levelname.lower(), record.getMessage())
        except Exception:  # noqa: BLE001 - standard library handlers do the same
            self.handleError(record)


@dataclass(slots=True, eq=False)
class RunningPage:
    """A playground page, with its socket and its events."""

    playground: Playground
    listening: socket.socket
    """The socket that the page listens on."""
    opener: Mapping[str, str] | None = None
    """The environment in which to start the browser; if it is None, no browser is opened."""
    writer: TestWriter | None = None
    ready: anyio.Event = field(default_factory=anyio.Event, init=False)
    """Set once the first worker accepts requests."""
    ended: anyio.Event = field(default_factory=anyio.Event, init=False)
    """Set to end the page and its calls."""

    @contextmanager
    def show_log(self) -> Generator[None]:
        """During the `with` block, show this process's log in the terminal and on the page."""
        loop = asyncio.get_running_loop()

        def note(level: str, text: str) -> None:
            # Any thread may write to the log, even after the event loop has closed.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self.playground.note, level, text)

        logger = logging.getLogger("roundtrip")
        terminal = logging.StreamHandler(sys.stderr)
        terminal.setFormatter(logging.Formatter(_FORMAT))
        handlers = [terminal, NoticeHandler(note)]
        old_level, was_propagating = logger.level, logger.propagate
        logger.setLevel(logging.INFO)
        logger.propagate = False
        for handler in handlers:
            logger.addHandler(handler)
        try:
            yield
        finally:
            for handler in handlers:
                logger.removeHandler(handler)
            logger.setLevel(old_level)
            logger.propagate = was_propagating


class WatchedSupervisor(ReloadingSupervisor):
    """Supervisor that tells the page when the worker is ready, replaced or broken, and when the page must stop.

    Args:
        plan: See `ReloadingSupervisor`.
        page: The page.
        folders: See `ReloadingSupervisor`.
    """

    def __init__(self, plan: WorkerPlan, page: RunningPage, *, folders: Iterable[Path]) -> None:
        super().__init__(plan, on_ready=self._tell_ready, folders=folders)
        self._page = page

    def _tell_ready(self, identity: Identity) -> None:
        for caution in cautions(identity):
            logging.getLogger("roundtrip").warning("%s", caution)
        self._page.ready.set()

    def _begin(self, tasks: asyncio.TaskGroup) -> None:
        super()._begin(tasks)
        # When the terminal is closed, the playground stops. In `roundtrip serve`, SIGHUP replaces the workers instead.
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_stop, signal.SIGTERM)

    def _tell_success(self) -> None:
        super()._tell_success()
        self._page.playground.show_reload()

    def _tell_failure(self, text: str) -> None:
        super()._tell_failure(text)
        self._page.playground.show_reload_failure(text)

    def _on_stop(self, number: int) -> None:
        self._page.ended.set()
        super()._on_stop(signal.SIGTERM if not self._stop.is_set() else number)


async def run_page(page: RunningPage, announce: Callable[[str], None]) -> None:
    """Call `announce` with the page's address, and serve the page until `page.ended` is set."""
    playground, listening = page.playground, page.listening
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    with quiet():
        async with anyio.create_task_group() as tasks:
            playground.tasks = tasks
            loopback = Loopback(listening.getsockname()[1])
            host = PageHost(PlaygroundApp(playground, loopback, page.writer))
            tasks.start_soon(playground.watch_tools)
            tasks.start_soon(playground.watch_inbox)

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
                # Let the requests that wait for a change return before the calls are ended.
                host.should_exit = True
                playground.end()
                with anyio.move_on_after(_END_SECONDS, shield=True):
                    await served.wait()
                playground.close()
                tasks.cancel_scope.cancel()


async def _open(url: str, environment: Mapping[str, str]) -> None:
    """Open the page through a temporary file, because other users can read command lines, but not the file."""
    with TemporaryDirectory(prefix="roundtrip-open-") as folder:
        file = Path(folder) / "playground.html"
        file.write_text(_REDIRECT_PAGE.format(url=url), encoding="utf-8")
        with suppress(OSError):
            await anyio.run_process(
                [sys.executable, "-m", "webbrowser", file.as_uri()], env=dict(environment), check=False
            )
        # Keep the file for a while, because the browser may take time to start.
        await anyio.sleep(_OPEN_SECONDS)
