"""Limit the connections of a process, and close those of clients that send nothing or half a request.

At the limit, a new connection closes the oldest one that is idle or has an incomplete request. If every connection is
being served, a few more are accepted: their health checks are answered, and their other requests get a 503.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import h11
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import override
from uvicorn.protocols.http.h11_impl import H11Protocol

from roundtrip.server.limited_logs import LimitedLog
from roundtrip.serving.application import closing
from roundtrip.serving.settings import LIVE_PATH, READY_PATH

if TYPE_CHECKING:

    class _Protocol(asyncio.Protocol):
        loop: asyncio.AbstractEventLoop
        transport: asyncio.Transport
        app: ASGIApp

        def on_response_complete(self) -> None: ...
else:
    # One of uvicorn's protocols is the next class of a connection.
    _Protocol = object

__all__ = ["BoundedConnection", "Intake", "connections_for"]

_SURPLUS_CONNECTIONS: Final = 32
_UNREAD_SECONDS: Final = 60.0
"""Seconds after which a client that does not read its response is disconnected."""
_SPARE_FILES: Final = 256
"""Open files requested beyond the connections: for the ledger, tools and transcripts."""
_LEAST_SPARE_FILES: Final = 32
_LEAST_CONNECTIONS: Final = 8
_UNAVAILABLE: Final = 503

_log = LimitedLog(logging.getLogger("roundtrip"))


def connections_for(wanted: int) -> int:
    """Raise the limit of open files as far as needed, and return the possible number of connections."""
    try:
        import resource
    except ImportError:  # not on Windows
        return wanted
    allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return wanted
    needed = wanted + _SURPLUS_CONNECTIONS + _SPARE_FILES
    if allowed < needed:
        allowed = needed if most == resource.RLIM_INFINITY else min(needed, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))
    spare = min(_SPARE_FILES, max(_LEAST_SPARE_FILES, allowed // 2))
    return min(wanted, max(_LEAST_CONNECTIONS, allowed - _SURPLUS_CONNECTIONS - spare))


class Intake:
    """Connection limit of one process.

    Args:
        app: Application that answers health checks beyond the limit.
        limit: Connections at a time.
        seconds: Seconds that a client may take to send a request.
    """

    def __init__(self, app: ASGIApp, *, limit: int, seconds: float) -> None:
        self.seconds = seconds
        self._app = app
        self._limit = limit
        self._connections = 0
        self._waiting: dict[BoundedConnection, None] = {}
        self._surplus: dict[BoundedConnection, None] = {}

    @property
    def protocol(self) -> Callable[..., asyncio.Protocol]:
        """Return the factory of uvicorn's connections, which read requests with httptools where it is installed."""
        try:
            from roundtrip.serving.fast_connection import FastConnection
        except ImportError:
            return partial(_PlainConnection, self)
        return partial(FastConnection, self)

    def enter(self, connection: "BoundedConnection") -> None:
        """Make room for a connection."""
        if self._connections < self._limit:
            self._connections += 1
        elif self._waiting:
            # The oldest idle connection makes room.
            self._evict(self._waiting)
        else:
            connection.app = self._turn_away
            self._surplus[connection] = None
            if len(self._surplus) > _SURPLUS_CONNECTIONS:
                self._evict(self._surplus)
            return
        connection.counts = True
        self._waiting[connection] = None

    def leave(self, connection: "BoundedConnection") -> None:
        """Forget a connection that has ended."""
        if connection.counts:
            connection.counts = False
            self._connections -= 1
        self._waiting.pop(connection, None)
        self._surplus.pop(connection, None)

    def wait(self, connection: "BoundedConnection") -> None:
        """Mark a connection as idle."""
        if connection.counts:
            self._waiting.setdefault(connection, None)

    def serve(self, connection: "BoundedConnection") -> None:
        """Mark a connection as being served."""
        self._waiting.pop(connection, None)

    def _evict(self, connections: "dict[BoundedConnection, None]") -> None:
        oldest = next(iter(connections))
        del connections[oldest]
        # The new connection counts instead.
        oldest.counts = False
        _log.warning(
            "%d connections are open, the limit of --limit-connections; closed one whose request had not arrived",
            self._limit,
        )
        oldest.transport.abort()

    async def _turn_away(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["path"] not in (LIVE_PATH, READY_PATH):
            _log.warning(
                "turned a request away, as %d connections are being served, the limit of --limit-connections",
                self._limit,
            )
            app = PlainTextResponse("Service Unavailable", _UNAVAILABLE, {"retry-after": "1"})
        await app(scope, receive, closing(send))


class BoundedConnection(_Protocol):
    """Mixin of uvicorn's connections: closed if the client is too slow to send a request or to read a response."""

    def __init__(self, intake: Intake, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.counts = False
        """True if the connection counts toward the limit."""
        self._intake = intake
        self._due: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def is_served(self) -> bool:
        """Return True while a whole request is answered."""
        raise NotImplementedError

    def is_arriving(self) -> bool:
        """Return True while no request is answered, and a part of one is there."""
        raise NotImplementedError

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._intake.enter(self)
        self._due = self.loop.call_later(self._intake.seconds, self._end_late)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        self.resume_writing()
        self._intake.leave(self)
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(_UNREAD_SECONDS, self.transport.abort)

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _look(self) -> None:
        """Start the clock while a request is incomplete, and stop it once it has arrived."""
        if self.is_served():
            self._stop_clock()
            self._intake.serve(self)
            return
        self._intake.wait(self)
        if not self.is_arriving():
            self._stop_clock()
        elif self._due is None and not self.transport.is_closing():
            self._due = self.loop.call_later(self._intake.seconds, self._end_late)

    def _stop_clock(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _end_late(self) -> None:
        self._due = None
        if self.is_arriving():
            _log.warning(
                "closed a connection whose request had not arrived within %g s (--timeout-request)",
                self._intake.seconds,
            )
        self.transport.abort()


class _PlainConnection(BoundedConnection, H11Protocol):
    """Connection whose requests h11 reads."""

    @override
    def is_served(self) -> bool:
        return self.conn.their_state not in (h11.IDLE, h11.SEND_BODY)

    @override
    def is_arriving(self) -> bool:
        theirs = self.conn.their_state
        return theirs is h11.SEND_BODY or (theirs is h11.IDLE and bool(self.conn.trailing_data[0]))
