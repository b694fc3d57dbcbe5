"""Run the parts of a playground: the process of the server, which changes replace, and the page."""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import uvicorn

from roundtrip.server.probe import Identity
from roundtrip.serving.agreement import cautions
from roundtrip.serving.reloading import ReloadingSupervisor
from roundtrip.serving.settings import ProcessSettings

__all__ = ["NoticeHandler", "PageHost", "WatchedSupervisor"]

_CLOSING_SECONDS: Final = 1


class WatchedSupervisor(ReloadingSupervisor):
    """Supervisor that tells when it has replaced its worker, and when it is to stop.

    Args:
        command: As for `ReloadingSupervisor`.
        settings: As for `ReloadingSupervisor`.
        listening: As for `ReloadingSupervisor`.
        folders: As for `ReloadingSupervisor`.
        on_ready: Called once the first worker serves.
        on_reload: Called when another worker serves.
        on_failure: Called with the reason why changed code does not serve.
        on_end: Called at a signal, before the worker ends.
    """

    def __init__(
        self,
        command: Sequence[str],
        settings: ProcessSettings,
        listening: socket.socket,
        *,
        folders: Iterable[Path],
        on_ready: Callable[[], None],
        on_reload: Callable[[], None],
        on_failure: Callable[[str], None],
        on_end: Callable[[], None],
    ) -> None:
        def ready(identity: Identity) -> None:
            for caution in cautions(identity):
                logging.getLogger("roundtrip").warning("%s", caution)
            on_ready()

        super().__init__(command, settings, listening, on_ready=ready, folders=folders)
        self._on_reload = on_reload
        self._on_failure = on_failure
        self._on_end = on_end

    def _begin(self, tasks: asyncio.TaskGroup) -> None:
        super()._begin(tasks)
        # A closed terminal ends it, where it makes a service replace its workers.
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_stop, signal.SIGTERM)

    def _tell_success(self) -> None:
        super()._tell_success()
        self._on_reload()

    def _tell_failure(self, text: str) -> None:
        super()._tell_failure(text)
        self._on_failure(text)

    def _on_stop(self, number: int) -> None:
        self._on_end()
        super()._on_stop(signal.SIGTERM if not self._stop.is_set() else number)


class PageHost(uvicorn.Server):
    """Server of the page, which leaves signals to the supervisor.

    Args:
        app: The page.
    """

    def __init__(self, app: Any) -> None:
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            # A server that is imported here may have set up the log; its own requests are none of the page's.
            log_level="warning",
            access_log=False,
            server_header=False,
            # The address of the peer tells its user, and a header could claim another.
            proxy_headers=False,
            timeout_graceful_shutdown=_CLOSING_SECONDS,
        )
        super().__init__(config)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Handle no signals."""
        yield


class NoticeHandler(logging.Handler):
    """Shows log records on the page.

    Args:
        show: Called with the level and the text of each.
    """

    def __init__(self, show: Callable[[str, str], None]) -> None:
        super().__init__(logging.INFO)
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        """Show one record."""
        try:
            self._show(record.levelname.lower(), record.getMessage())
        except Exception:  # noqa: BLE001 - as every handler of the standard library does
            self.handleError(record)
