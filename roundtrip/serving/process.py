"""One serving process, either the only one or a worker: socket, logging, uvicorn, and graceful shutdown.

A worker sends its identity to the supervisor, waits for the start command, and then serves.
"""

import asyncio
import hashlib
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import anyio
import uvicorn
from pydantic import TypeAdapter
from sse_starlette.sse import AppStatus
from starlette.types import ASGIApp

from roundtrip.channels.access_log import hide_tickets
from roundtrip.ledger.lease import bury, name_process
from roundtrip.limited_logs import LimitedFilter
from roundtrip.sdk import remove_log_handlers
from roundtrip.server.attach import Attached
from roundtrip.server.probe import Identity
from roundtrip.server.server import Server
from roundtrip.serving.application import ProcessState, application_of
from roundtrip.serving.connection_limit import SURPLUS_CONNECTIONS, ConnectionLimit
from roundtrip.serving.foreign_servers import ForeignServer
from roundtrip.serving.plain_connection import PlainConnection
from roundtrip.serving.settings import ProcessSettings, ServeSettings
from roundtrip.text import printable

if TYPE_CHECKING:
    from roundtrip.serving.relay import SessionRelay

logger = logging.getLogger("roundtrip")

IDENTITY: Final = "identity"
READY: Final = "ready"
"""Message from a ready worker, with its process name. The names of the worker's lease holders begin with this name."""
DEAD: Final = "dead"
"""Message from the supervisor, with the name of a worker that has ended."""
FAILED: Final = "failed"
SERVE: Final = b"serve\n"
IDENTITY_FORMAT: Final = TypeAdapter(Identity)
_GROUP_CHARS: Final = 12
_MAX_FAILURE_CHARS: Final = 2000

_QUIET_LOGGERS: Final = ("mcp.server.streamable_http", "mcp.server.streamable_http_manager", "httpx", "httpx2")
"""Loggers that write a line for each request. They are silenced unless --log-level is debug."""
_FORMAT: Final = "%(asctime)s %(levelname)s [%(process)d] %(name)s: %(message)s"
_TICK_SECONDS: Final = 0.05
_LAST_REQUEST_SECONDS: Final = 0.25
"""Seconds to wait for requests on the last accepted connections."""
_ERROR_SECONDS: Final = 0.1
"""Seconds, at the end of the graceful shutdown, for sending errors to clients with unfinished requests."""
_EXIT_MARGIN_SECONDS: Final = 3.0
"""Seconds after which a stopping process exits, even if a thread is still running."""
_BACKLOG: Final = 2048
_ACCEPTS_IN_A_ROW: Final = 64
_SPARE_FILES: Final = 256
"""Number of open files for the ledger, tools and transcripts, in addition to the connections."""
_MIN_SPARE_FILES: Final = 32
_MIN_CONNECTIONS: Final = 8
_CLIENT_ERROR_LOGGERS: Final = (
    "asyncio",
    "uvicorn.error",
    "mcp.server.streamable_http",
    "mcp.server.streamable_http_manager",
)
"""Loggers that write a line or traceback for each malformed or aborted request, or when descriptors run out."""


WorkerServerT = TypeVar("WorkerServerT", bound=Server[Any] | ForeignServer | Attached)


class Ended(Enum):
    """Outcome of serving."""

    NOT_BEGUN = 0
    IN_TIME = 1
    BROKEN_OFF = 2
    """Requests were cut off before they finished."""


def set_up_logging(settings: ProcessSettings) -> None:
    """Log to standard error, unless the loaded module has configured logging."""
    remove_log_handlers()
    logging.basicConfig(format=_FORMAT, stream=sys.stderr)
    logging.getLogger().setLevel(settings.log_level.upper())
    if settings.log_level != "debug":
        for name in _QUIET_LOGGERS:
            logging.getLogger(name).setLevel(logging.WARNING)
    for name in _CLIENT_ERROR_LOGGERS:
        logging.getLogger(name).addFilter(LimitedFilter())
    hide_tickets()


def listen(settings: ServeSettings) -> socket.socket:
    """Open the socket from which all processes accept connections.

    All processes share one queue, so if a process is killed, another process serves the waiting connections. With one
    socket per process (SO_REUSEPORT), the connections in a killed process's queue would be lost.

    Raises:
        OSError: The process cannot listen on the address.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.create_server((settings.host, settings.port), family=family, backlog=_BACKLOG)
    # Accepted sockets inherit this option. asyncio sets it only on sockets that it creates. Without the option, a
    # response's second part waits about 40 ms for the acknowledgment of the first part.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def serve(
    server: Server[Any] | ForeignServer,
    settings: ServeSettings,
    listening: socket.socket,
    *,
    on_ready: Callable[[], None] = lambda: None,
    relay: "SessionRelay | None" = None,
) -> Ended:
    """Serve until a signal arrives.

    Args:
        server: The server.
        settings: The service's settings.
        listening: The socket from which to accept connections.
        on_ready: A function to call when the server is ready.
        relay: The relay to the sessions of other workers, if there are any.
    """
    state = ProcessState()
    app = application_of(server, settings, state, around=partial(relay.around, state) if relay is not None else None)
    # Turn this off, because sse_starlette would end every stream at the first signal, before the last responses are
    # sent.
    if hasattr(AppStatus, "disable_automatic_graceful_drain"):
        AppStatus.disable_automatic_graceful_drain()
    # A request that is passed on to another worker has two connections here.
    limit = connections_for(settings.limit_connections, files=1 if relay is None else 2)
    if limit < settings.limit_connections:
        logger.warning(
            "accepting at most %d connections, not %d, because of this process's open-file limit; raise it with "
            "ulimit -n",
            limit,
            settings.limit_connections,
        )
    connection_limit = ConnectionLimit(app, limit=limit, seconds=settings.timeout_request)
    config = uvicorn.Config(
        app,
        # This protocol enforces the limits, so do not let uvicorn choose a protocol from the installed packages.
        http=protocol_for(connection_limit),  # type: ignore[arg-type]
        # asyncio accepts up to this many connections in a row, and logs each failure.
        backlog=_ACCEPTS_IN_A_ROW,
        log_config=None,
        access_log=settings.access_log,
        ws="none",
        lifespan="on",
        timeout_keep_alive=settings.timeout_keep_alive,  # type: ignore[arg-type]
        timeout_graceful_shutdown=settings.timeout_graceful_shutdown,  # type: ignore[arg-type]
    )
    process = _Process(config, settings, state, on_ready, relay)
    # After uvicorn has stopped, it raises the caught signals again, which would end the process.
    previous = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        process.run(sockets=[listening])
    except SystemExit:
        return Ended.NOT_BEGUN
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if not process.started:
        return Ended.NOT_BEGUN
    return Ended.BROKEN_OFF if state.broken_off else Ended.IN_TIME


def connections_for(wanted: int, *, files: int = 1) -> int:
    """Raise the open-file limit if necessary, and return how many connections the limit allows, at most `wanted`.

    Args:
        wanted: The number of connections.
        files: The number of open files that a connection may need.
    """
    try:
        import resource
    except ImportError:  # not on Windows
        return wanted
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return wanted
    needed = files * wanted + SURPLUS_CONNECTIONS + _SPARE_FILES
    if allowed < needed:
        allowed = needed if most == resource.RLIM_INFINITY else min(needed, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    spare = min(_SPARE_FILES, max(_MIN_SPARE_FILES, allowed // 2))
    return min(wanted, max(_MIN_CONNECTIONS, (allowed - SURPLUS_CONNECTIONS - spare) // files))


def protocol_for(connection_limit: ConnectionLimit) -> Callable[..., asyncio.Protocol]:
    """Return uvicorn's connection factory. Connections parse requests with httptools if it is installed, else h11."""
    try:
        from roundtrip.serving.fast_connection import FastConnection
    except ImportError:
        return partial(PlainConnection, connection_limit)
    return partial(FastConnection, connection_limit)


def work(
    load: Callable[[], WorkerServerT],
    settings: ProcessSettings,
    *,
    channel: socket.socket,
    run: Callable[[WorkerServerT, Callable[[], None]], Ended],
) -> int:
    """Run a worker: load the server, report to the supervisor, wait for its command, and serve. Return the exit code.

    Args:
        load: A function that loads the server.
        settings: The settings that all workers share.
        channel: The channel to the supervisor.
        run: A function that runs the server until a signal arrives. It calls its second argument when the server is
            ready.
    """
    name = name_process()
    # The supervisor handles interrupts.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A SIGHUP sent to all of a service's processes is meant for the supervisor.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    try:
        server = load()
        set_up_logging(settings)
        identity = server.identity()
        supervisor = f"{socket.gethostname()} {os.getppid()}"
        group = hashlib.sha256(supervisor.encode()).hexdigest()[:_GROUP_CHARS]
        (server.internals if isinstance(server, Server) else server).is_one_of(settings.workers, group=group)
    except Exception as error:  # noqa: BLE001 - the supervisor reports any failure in the author's module
        text = str(error)[:_MAX_FAILURE_CHARS] or type(error).__name__
        _send(channel, FAILED, printable(text, keep_newlines=True))
        return 1
    _send(channel, IDENTITY, IDENTITY_FORMAT.dump_python(identity, mode="json"))
    if channel.recv(len(SERVE), socket.MSG_WAITALL) != SERVE:
        return 0
    threading.Thread(target=_follow_supervisor, args=(channel,), daemon=True).start()
    ended = run(server, lambda: _send(channel, READY, name))
    return 0 if ended is Ended.IN_TIME else 1


def _send(channel: socket.socket, kind: str, value: Any) -> None:
    channel.sendall(json.dumps({kind: value}).encode() + b"\n")


def _follow_supervisor(channel: socket.socket) -> None:
    """Record the dead workers that the supervisor reports, and end this process when the supervisor has ended."""
    with suppress(OSError, ValueError), channel.makefile("rb") as lines:
        for line in lines:
            bury(json.loads(line)[DEAD])
    os.kill(os.getpid(), signal.SIGTERM)


def break_off_after(seconds: float, message: str) -> threading.Timer:
    """Log a line and end this process after the given number of seconds, unless the timer is cancelled.

    A synchronous tool runs in a thread that cannot be interrupted, and Python waits for that thread at exit.
    """

    def break_off() -> None:
        logger.error("%s", message)
        os._exit(1)

    timer = threading.Timer(seconds, break_off)
    timer.daemon = True
    timer.start()
    return timer


class _Process(uvicorn.Server):
    """uvicorn server that continues to serve for a while after it reports that it is not ready."""

    def __init__(
        self,
        config: uvicorn.Config,
        settings: ServeSettings,
        state: ProcessState,
        on_ready: Callable[[], None],
        relay: "SessionRelay | None",
    ) -> None:
        super().__init__(config)
        self._relay = relay
        self._settings = settings
        self._state = state
        self._on_ready = on_ready
        self._interrupts = 0
        self._exit_timer: threading.Timer | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(_BACKLOG)
        if self._relay is not None:
            await self._listen_for_workers(self._relay)
        self._state.started = True
        self._on_ready()

    async def _listen_for_workers(self, relay: "SessionRelay") -> None:
        """Accept the requests that other workers pass on, within the same limits as those of clients."""
        make = cast("Any", self.config.http_protocol_class)
        entry = relay.entry(cast("ASGIApp", self.config.app))

        def connection() -> asyncio.Protocol:
            made = make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
            made.app = entry
            return made

        listening = relay.listen()
        loop = asyncio.get_running_loop()
        self.servers.append(await loop.create_unix_server(connection, sock=listening, backlog=_ACCEPTS_IN_A_ROW))
        listening.listen(_BACKLOG)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._state.stopping = True
        self._interrupts += sig == signal.SIGINT
        super().handle_exit(sig, frame)
        # Only a second interrupt forces the exit. uvicorn itself would exit after a SIGTERM and one interrupt.
        self.force_exit = self._interrupts > 1

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Give the load balancer time to notice the shutdown, and let clients with open connections send one more
        # request.
        remaining = self._settings.drain
        while not self._interrupts and remaining > 0:
            # Poll, because a signal handler cannot set an event.
            await anyio.sleep(min(_TICK_SECONDS, remaining))
            remaining -= _TICK_SECONDS
        # Stop accepting connections, and then pause, so that the last clients to connect can still send their requests.
        for server in self.servers:
            server.close()
        if self._relay is not None:
            self._relay.close()
        if not self._interrupts:
            await anyio.sleep(_LAST_REQUEST_SECONDS)
        self._state.end()
        grace = self._settings.timeout_graceful_shutdown
        self._force_exit_after(grace + _EXIT_MARGIN_SECONDS)
        answering = asyncio.get_running_loop().create_task(self._answer_after(max(0.0, grace - _ERROR_SECONDS)))
        await super().shutdown(sockets)
        answering.cancel()
        self._force_exit_after(_EXIT_MARGIN_SECONDS)

    async def _answer_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._state.answer_all(_ERROR_SECONDS)

    def _force_exit_after(self, seconds: float) -> None:
        if self._exit_timer is not None:
            self._exit_timer.cancel()
        self._exit_timer = break_off_after(seconds, "the process ended while work was still running")
