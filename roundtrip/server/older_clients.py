"""Notify clients on older revisions of changes elsewhere, over the connection that they keep open.

On 2026-07-28 clients listen to the server's bus through streams that they open. On the older revisions the server
listens for each client: to changes of the lists, and to updates of the resources that it has subscribed to.
"""

import asyncio
import contextvars
from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final

from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import ResourceUpdated, ServerEvent
from mcp.shared.subscriptions import event_to_notification

from roundtrip.revisions import is_retry_era
from roundtrip.server.parts import Effects
from roundtrip.server.sdk_private import connection_of, session_id_of

__all__ = ["OlderClients", "told_already"]

_KEPT_AT: Final = "roundtrip.older_clients"
_MAX_URIS: Final = 1024
_MAX_URI_CHARS: Final = 2048

_NOTIFIED: ContextVar[object | None] = ContextVar("roundtrip_notified", default=None)
"""The connection that must not hear the event being published. A bus passes only the event on to its listeners."""


@contextmanager
def told_already(session: ServerSession) -> Generator[None]:
    """Surround the publication of an event that the client of a session has already been notified of."""
    reset = _NOTIFIED.set(connection_of(session))
    try:
        yield
    finally:
        _NOTIFIED.reset(reset)


class OlderClients:
    """Open connections of one server, which are notified of events on its bus."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects

    def notice(self, ctx: ServerRequestContext[Any, Any]) -> None:
        """Inspect a message that was served: it may begin a connection or a subscription."""
        if is_retry_era(ctx.protocol_version):
            return
        connection = connection_of(ctx.session)
        if ctx.method == "notifications/initialized":
            # Without either nothing stays open: the next message comes over another connection.
            stays = ctx.session.can_send_request or session_id_of(ctx.session) is not None
            if stays and _KEPT_AT not in connection.state:
                line = connection.state[_KEPT_AT] = _Line(ctx.session)
                connection.exit_stack.callback(line.end, self._effects.bus.subscribe(line.hear))
            return
        line = connection.state.get(_KEPT_AT)
        uri = (ctx.params or {}).get("uri")
        if isinstance(line, _Line) and isinstance(uri, str):
            if ctx.method == "resources/subscribe":
                line.subscribe(uri)
            elif ctx.method == "resources/unsubscribe":
                line.unsubscribe(uri)


class _Line:
    """One connection. An event waits at most once, so that a client which does not read holds up nothing."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._uris: dict[str, None] = {}
        self._waiting: dict[ServerEvent, None] = {}
        self._telling: asyncio.Task[None] | None = None
        # The SDK's own bus calls its listeners on whichever loop publishes.
        self._loop = asyncio.get_running_loop()

    def subscribe(self, uri: str) -> None:
        if len(self._uris) < _MAX_URIS and len(uri) <= _MAX_URI_CHARS:
            self._uris[uri] = None

    def unsubscribe(self, uri: str) -> None:
        self._uris.pop(uri, None)

    def hear(self, event: ServerEvent) -> None:
        if _NOTIFIED.get() is connection_of(self._session):
            return
        if isinstance(event, ResourceUpdated) and event.uri not in self._uris:
            return
        if asyncio.get_running_loop() is self._loop:
            self._note(event)
            return
        with suppress(RuntimeError):
            # A loop that has ended has no clients any more.
            self._loop.call_soon_threadsafe(self._note, event)

    def _note(self, event: ServerEvent) -> None:
        self._waiting[event] = None
        if self._telling is None or self._telling.done():
            work = self._tell()
            self._telling = asyncio.get_running_loop().create_task(work, context=contextvars.Context())

    def end(self, unsubscribe: Any) -> None:
        unsubscribe()
        if self._telling is not None:
            self._telling.cancel()

    async def _tell(self) -> None:
        while self._waiting:
            event = next(iter(self._waiting))
            del self._waiting[event]
            await self._session.send_notification(event_to_notification(event, {}))
