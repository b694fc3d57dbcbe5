"""One process that serves."""

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from enum import Enum
from types import FrameType
from typing import Any, Final

import anyio
import uvicorn
from sse_starlette.sse import AppStatus

from roundtrip.questions.wire import TICKET
from roundtrip.server.limited_logs import LimitedFilter
from roundtrip.server.server import Server
from roundtrip.serving.application import application_of
from roundtrip.serving.intake import Intake, connections_for
from roundtrip.serving.settings import ServeSettings
from roundtrip.serving.standing import ProcessState

__all__ = ["Ended", "listen", "logger", "serve", "set_up_logging"]

logger = logging.getLogger("roundtrip")

_QUIET: Final = ("mcp.server.streamable_http", "mcp.server.streamable_http_manager", "httpx")
"""What logs every request; with --log-level debug it may."""
_FORMAT: Final = "%(asctime)s %(levelname)s [%(process)d] %(name)s: %(message)s"
_TICK: Final = 0.05
_LAST_REQUESTS: Final = 0.25
"""Seconds for the requests of connections that were accepted last."""
_MARGIN: Final = 3.0
"""Seconds after which a process that should have ended does, whatever a thread of it is still at."""
_SDK_FORMAT: Final = "%(message)s"
_BACKLOG: Final = 2048
_ACCEPTS: Final = 64
_CAUSED_BY_CLIENTS: Final = (
    "asyncio",
    "uvicorn.error",
    "mcp.server.streamable_http",
    "mcp.server.streamable_http_manager",
)
"""What logs a line, or a traceback, for each request that is malformed or broken off, and when files run out."""


class Ended(Enum):
    """How serving ended."""

    NOT_BEGUN = 0
    IN_TIME = 1
    BROKEN_OFF = 2
    """Requests were still running."""


def set_up_logging(settings: ServeSettings) -> None:
    """Log to standard error, unless the module that was loaded has said how to log."""
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if _is_the_sdks(handler)]:
        root.removeHandler(handler)
    logging.basicConfig(format=_FORMAT, stream=sys.stderr)
    logging.getLogger().setLevel(settings.log_level.upper())
    if settings.log_level != "debug":
        for name in _QUIET:
            logging.getLogger(name).setLevel(logging.WARNING)
    for name in _CAUSED_BY_CLIENTS:
        logging.getLogger(name).addFilter(LimitedFilter())
    logging.getLogger("uvicorn.access").addFilter(_without_tickets)


def _without_tickets(record: logging.LogRecord) -> bool:
    """Take the tickets out of the paths in a line of the access log, as whoever reads it could use them."""
    if isinstance(record.args, tuple):
        record.args = tuple(TICKET.sub("<ticket>", one) if isinstance(one, str) else one for one in record.args)
    return True


def _is_the_sdks(handler: logging.Handler) -> bool:
    # It folds lines to the width of a terminal, and draws tracebacks for so long that requests have to wait.
    return (
        type(handler).__module__ == "rich.logging"
        and bool(getattr(handler, "rich_tracebacks", False))
        and getattr(handler.formatter, "_fmt", None) == _SDK_FORMAT
    )


def listen(settings: ServeSettings) -> socket.socket:
    """The socket that all processes accept from.

    One queue for all: when a process is killed, what waits in it is served by another. With a socket for each
    (SO_REUSEPORT), what waits in its queue would be lost with it.

    Raises:
        OSError: The address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    # What is accepted inherits it. asyncio sets it on sockets that it has made itself only; without it, the second part
    # of a response waits for the client's word on the first, some 40 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def serve(
    server: Server[Any],
    settings: ServeSettings,
    listening: socket.socket,
    *,
    on_ready: Callable[[], None] = lambda: None,
) -> Ended:
    """Serve until a signal ends it."""
    # It would end every stream at the first signal, with the answers that are still to come.
    if hasattr(AppStatus, "disable_automatic_graceful_drain"):
        AppStatus.disable_automatic_graceful_drain()
    standing = ProcessState()
    limit = connections_for(settings.limit_connections)
    if limit < settings.limit_connections:
        logger.warning(
            "at most %d connections at a time, not %d, as this process may have few files open; raise that limit "
            "(ulimit -n)",
            limit,
            settings.limit_connections,
        )
    app = application_of(server, settings, standing)
    intake = Intake(app, limit=limit, seconds=settings.timeout_request)
    config = uvicorn.Config(
        app,
        # Not another one because a package happens to be installed: the bounds are in it.
        http=intake.protocol,  # type: ignore[arg-type]
        # As often asyncio accepts in one go, and logs that it cannot.
        backlog=_ACCEPTS,
        log_config=None,
        access_log=settings.access_log,
        ws="none",
        lifespan="on",
        timeout_keep_alive=settings.timeout_keep_alive,  # type: ignore[arg-type]
        timeout_graceful_shutdown=settings.timeout_graceful_shutdown,  # type: ignore[arg-type]
    )
    process = _Process(config, settings, standing, on_ready)
    # uvicorn raises the signals that it has caught once more when it is done, which would end the process.
    kept = {number: signal.signal(number, _ignore) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        process.run(sockets=[listening])
    except SystemExit:
        return Ended.NOT_BEGUN
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
    if not process.started:
        return Ended.NOT_BEGUN
    return Ended.BROKEN_OFF if standing.broken_off else Ended.IN_TIME


def _ignore(number: int, frame: FrameType | None) -> None:
    del number, frame


class _Process(uvicorn.Server):
    """uvicorn's server, which goes on for a while after it has said that it is not ready."""

    def __init__(
        self, config: uvicorn.Config, settings: ServeSettings, standing: ProcessState, on_ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._settings = settings
        self._standing = standing
        self._on_ready = on_ready
        self._hurried = False
        self._last_resort: threading.Timer | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(_BACKLOG)
        self._standing.started = True
        self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._standing.stopping = True
        self._hurried = self._hurried or sig == signal.SIGINT
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # A balancer has to notice, and clients with open connections to ask once more.
        left = self._settings.drain
        while not self._hurried and left > 0:
            # A signal handler cannot set an event.
            await anyio.sleep(min(_TICK, left))
            left -= _TICK
        # Who was accepted last has not sent its request yet, and would be hung up on.
        for server in self.servers:
            server.close()
        if not self._hurried:
            await anyio.sleep(_LAST_REQUESTS)
        self._standing.end()
        self._ends_within(self._settings.timeout_graceful_shutdown + _MARGIN)
        await super().shutdown(sockets)
        self._ends_within(_MARGIN)

    def _ends_within(self, seconds: float) -> None:
        # A tool that is a plain function runs in a thread, which nothing can interrupt, and Python waits for it.
        if self._last_resort is not None:
            self._last_resort.cancel()
        self._last_resort = threading.Timer(seconds, _break_off)
        self._last_resort.daemon = True
        self._last_resort.start()


def _break_off() -> None:
    logger.error("ended with work still running")
    os._exit(1)
