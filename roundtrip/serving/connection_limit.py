"""Connection limit of a process, and time limits for clients that send an incomplete request or no request.

At the limit, a new connection closes the oldest connection that is idle or has an incomplete request. If all
connections are serving requests, the server accepts a few more connections. On these, it answers health checks, and
rejects other requests with a 503.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, cast

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import override

from roundtrip.limited_logs import LimitedLog
from roundtrip.serving.application import closing
from roundtrip.serving.settings import LIVE_PATH, READY_PATH

if TYPE_CHECKING:

    class _Protocol(asyncio.Protocol):
        loop: asyncio.AbstractEventLoop
        transport: asyncio.Transport
        app: ASGIApp

        def on_response_complete(self) -> None: ...
else:
    # Each connection class combines `BoundedConnection` with one of uvicorn's protocol classes.
    _Protocol = object

SURPLUS_CONNECTIONS: Final = 32
_UNREAD_SECONDS: Final = 60.0
"""Seconds after which a client is disconnected if it does not read its response."""
_UNAVAILABLE: Final = 503

_log = LimitedLog(logging.getLogger("roundtrip"))


class ConnectionLimit:
    """Connection limit of one process.

    Args:
        app: The application that answers health checks beyond the limit.
        limit: The maximum number of connections.
        seconds: The seconds that a client may take to send a request.
    """

    def __init__(self, app: ASGIApp, *, limit: int, seconds: float) -> None:
        self.seconds = seconds
        self._app = app
        self._limit = limit
        self._connections = 0
        self._waiting: dict[BoundedConnection, None] = {}
        self._surplus: dict[BoundedConnection, None] = {}

    def enter(self, connection: "BoundedConnection") -> None:
        """Add a new connection. At the limit, close an older one, or answer only health checks on the new one."""
        if self._connections < self._limit:
            self._connections += 1
        elif self._waiting:
            # Close the oldest idle connection.
            self._evict(self._waiting)
        else:
            connection.app = self._reject_surplus
            self._surplus[connection] = None
            if len(self._surplus) > SURPLUS_CONNECTIONS:
                self._evict(self._surplus)
            return
        connection.counts = True
        self._waiting[connection] = None

    def leave(self, connection: "BoundedConnection") -> None:
        """Remove a connection that has ended."""
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
        # The new connection counts in place of the closed connection.
        oldest.counts = False
        _log.warning(
            "reached --limit-connections (%d open); closed a connection whose request had not arrived",
            self._limit,
        )
        oldest.transport.abort()

    async def _reject_surplus(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["path"] not in (LIVE_PATH, READY_PATH):
            _log.warning(
                "rejected a request because of --limit-connections: %d connections are being served",
                self._limit,
            )
            app = PlainTextResponse("Service Unavailable", _UNAVAILABLE, {"retry-after": "1"})
        await app(scope, receive, closing(send))


class _JoinedWrites:
    """Transport that joins a response's head with data that follows in the same event-loop iteration.

    uvicorn writes head and body separately, and each write costs as much as a token check. A complete response is never
    held back.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send data, but hold back a response's head, because its body may follow immediately."""
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/1."):
            self._head = data
            self._loop.call_soon(self.flush)
            return
        self._transport.write(data)

    def close(self) -> None:
        """Send held data, and close."""
        self.flush()
        self._transport.close()

    def flush(self) -> None:
        """Send held data, unless the client has disconnected."""
        head, self._head = self._head, b""
        if head and not self.is_closing():
            self._transport.write(head)


class BoundedConnection(_Protocol):
    """Mixin that closes a uvicorn connection if the client sends a request or reads a response too slowly.

    The subclass for each parsing library reports the request's state.
    """

    def __init__(self, connection_limit: ConnectionLimit, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.counts = False
        """True if the connection counts toward the limit."""
        self._connection_limit = connection_limit
        self._timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None

    def is_served(self) -> bool:
        """Return True while a complete request is being served."""
        raise NotImplementedError

    def is_arriving(self) -> bool:
        """Return True while a request has arrived only in part."""
        raise NotImplementedError

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # Another connection class may already have wrapped the transport.
        joined: Any = transport if isinstance(transport, _JoinedWrites) else _JoinedWrites(transport, self.loop)
        super().connection_made(joined)
        self._connection_limit.enter(self)
        self._timer = self.loop.call_later(self._connection_limit.seconds, self._close_late)

    def leave(self) -> None:
        """Stop this connection's timers, and remove it from the limit."""
        self._stop_clock()
        self.resume_writing()
        self._connection_limit.leave(self)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.leave()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._update_timer()

    @override
    def on_response_complete(self) -> None:
        # A response to HEAD has no body, so send its head now; nothing later would send it.
        cast("_JoinedWrites", self.transport).flush()
        super().on_response_complete()
        self._update_timer()

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread_timer is None:
            self._unread_timer = self.loop.call_later(_UNREAD_SECONDS, self.transport.abort)

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _update_timer(self) -> None:
        """Run the timer while a request is incomplete, and stop the timer when the request has arrived."""
        if self.is_served():
            self._stop_clock()
            self._connection_limit.serve(self)
            return
        self._connection_limit.wait(self)
        if not self.is_arriving():
            self._stop_clock()
        elif self._timer is None and not self.transport.is_closing():
            self._timer = self.loop.call_later(self._connection_limit.seconds, self._close_late)

    def _stop_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_late(self) -> None:
        self._timer = None
        if self.is_arriving():
            _log.warning(
                "closed a connection whose request had not arrived within %g s (--timeout-request)",
                self._connection_limit.seconds,
            )
        self.transport.abort()
