"""Telling clients on older revisions what has changed elsewhere, over the connection that they keep open.

On 2026-07-28 clients listen to the server's bus through streams that they open. On the older revisions it is the
server that listens for each of them: to changes of the lists, and to updates of what they have subscribed to.
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
from roundtrip.server.effects import Effects
from roundtrip.server.sdk_private import connection_of, session_id_of

__all__ = ["OlderClients", "told_already"]

_KEPT_AT: Final = "roundtrip.older_clients"
_MOST_URIS: Final = 1024
_LONGEST_URI: Final = 2048

_TOLD: ContextVar[object | None] = ContextVar("roundtrip_told", default=None)


@contextmanager
def told_already(session: ServerSession) -> Generator[None]:
    """What is published within is not told to the client of a session, which has been told otherwise."""
    reset = _TOLD.set(connection_of(session))
    try:
        yield
    finally:
        _TOLD.reset(reset)


class OlderClients:
    """The connections of one server that are kept open, and are told of what is published on its bus."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects

    def notice(self, ctx: ServerRequestContext[Any, Any]) -> None:
        """Take note of a message that was served: it may begin a connection, or a subscription."""
        if is_retry_era(ctx.protocol_version):
            return
        connection = connection_of(ctx.session)
        if ctx.method == "notifications/initialized":
            # Without either there is nothing that stays open: the next message is another connection's.
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
    """One connection. What waits to be told waits once, so a client that does not read holds up nothing."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._uris: dict[str, None] = {}
        self._waiting: dict[ServerEvent, None] = {}
        self._telling: asyncio.Task[None] | None = None
        # The SDK's own bus calls its listeners on whichever loop publishes.
        self._loop = asyncio.get_running_loop()

    def subscribe(self, uri: str) -> None:
        if len(self._uris) < _MOST_URIS and len(uri) <= _LONGEST_URI:
            self._uris[uri] = None

    def unsubscribe(self, uri: str) -> None:
        self._uris.pop(uri, None)

    def hear(self, event: ServerEvent) -> None:
        if _TOLD.get() is connection_of(self._session):
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
