"""List-change announcements, sent at the end of the request that changed a list.

On older revisions, the client that sent the request gets a notification. All other clients get an event over the bus.
In revision 2026-07-28, clients open streams that carry these events. For each older client, the server itself
subscribes to the bus. It forwards list changes, and updates to resources that the client has subscribed to.
"""

import asyncio
import contextvars
import logging
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from typing import Any, Final, cast

import anyio
from mcp.server import subscriptions
from mcp.server.context import HandlerResult, ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.subscriptions import event_to_notification
from mcp_types import (
    PromptListChangedNotification,
    RequestId,
    ResourceListChangedNotification,
    ServerNotification,
    ToolListChangedNotification,
)

from roundtrip.legs.parts import Effects
from roundtrip.legs.requests import holding
from roundtrip.revisions import is_retry_era
from roundtrip.sdk import connection_of, session_id_of
from roundtrip.visibility.rules import Listing

logger = logging.getLogger("roundtrip")

_LISTINGS: Final[tuple[tuple[Listing, subscriptions.ServerEvent, ServerNotification], ...]] = (
    ("tools", subscriptions.ToolsListChanged(), ToolListChangedNotification()),
    ("prompts", subscriptions.PromptsListChanged(), PromptListChangedNotification()),
    ("resources", subscriptions.ResourcesListChanged(), ResourceListChangedNotification()),
)
_LISTING_OF: Final[Mapping[type, Listing]] = {type(notification): listing for listing, _, notification in _LISTINGS}
_MAX_ANNOUNCE_SECONDS: Final = 5.0
"""Maximum number of seconds that a response waits for its announcements."""
_STATE_KEY: Final = "roundtrip.older_clients"
_MAX_URIS: Final = 1024
_MAX_URI_CHARS: Final = 2048

_NOTIFIED: ContextVar[object | None] = ContextVar("roundtrip_notified", default=None)
"""The connection that must skip the event being published. It is in a context variable, because a bus passes on only
the event itself.
"""


class Changes:
    """Changes that one request has made and that have not been announced yet."""

    __slots__ = ("_by_session", "_ctx", "_notified", "_notifies", "_on_bus")

    def __init__(self, ctx: ServerRequestContext[Any, Any]) -> None:
        self._ctx = ctx
        self._on_bus: set[Listing] = set()
        self._by_session: set[Listing] = set()
        self._notified: set[Listing] = set()
        # On 2026-07-28, clients learn of changes only through a stream that they open. On older revisions, there is no
        # client to notify before `initialize` is answered.
        self._notifies = not is_retry_era(ctx.protocol_version) and ctx.method != "initialize"
        if self._notifies:
            self._intercept_notifications()

    def note(self, listing: Listing) -> None:
        """Announce a changed list at the end of the request."""
        self._on_bus.add(listing)
        if self._notifies:
            self._by_session.add(listing)

    def forget(self, listing: Listing) -> None:
        """Do not announce a list on the bus, because the author's code has already done so."""
        self._on_bus.discard(listing)

    def _intercept_notifications(self) -> None:
        """Intercept notifications from the author's code, and send them on a stream that the client reads."""
        send = self._ctx.session.send_notification

        async def send_and_notice(
            notification: ServerNotification, related_request_id: RequestId | None = None
        ) -> None:
            listing = _LISTING_OF.get(type(notification))
            if listing is None or listing not in self._by_session:
                await send(notification, related_request_id)
                return
            await send(notification, related_request_id if related_request_id is not None else _stream_of(self._ctx))
            self._by_session.discard(listing)
            self._notified.add(listing)

        # A session object serves only one request, so patching it affects no other request.
        self._ctx.session.send_notification = send_and_notice  # type: ignore[method-assign]

    def publishing(self, listing: Listing) -> Any:
        """Return a context manager for publishing an event. A client that gets a notification does not also get the
        event.
        """
        is_notified = listing in self._by_session or listing in self._notified
        return holding(_NOTIFIED, connection_of(self._ctx.session)) if is_notified else nullcontext()

    async def announce(self, bus: subscriptions.SubscriptionBus) -> None:
        """Announce the changes at the end of the request."""
        if self._notifies:
            # Break the reference cycle, so that the request is freed immediately.
            del self._ctx.session.send_notification
        # Announce even if the client has left or cancelled its request: the list has changed for all clients.
        with anyio.move_on_after(_MAX_ANNOUNCE_SECONDS, shield=True):
            for listing, event, notification in _LISTINGS:
                if listing in self._by_session:
                    try:
                        stream = _stream_of(self._ctx)
                        await self._ctx.session.send_notification(notification, related_request_id=stream)
                    except Exception:
                        logger.warning("could not notify the client that the %s changed", listing, exc_info=True)
                if listing in self._on_bus:
                    try:
                        with self.publishing(listing):
                            await bus.publish(event)
                    except Exception:
                        logger.warning("could not publish that the %s changed", listing, exc_info=True)


def _stream_of(ctx: ServerRequestContext[Any, Any]) -> str | int | None:
    """Return the id of the request whose stream carries the notification; None for the connection's own stream."""
    # Some clients keep only the request's stream open. A JSON response has no stream, so the notification needs the
    # session's stream.
    if not ctx.session.can_send_request and session_id_of(ctx.session) is not None:
        return None
    return ctx.request_id


def promise_changes(result: HandlerResult) -> HandlerResult:
    """Declare `listChanged` for each list in an `initialize` result."""
    # The SDK declares `listChanged` only for transports that pass an option, and the SDK's own transports do not pass
    # it.
    capabilities: object = result.get("capabilities") if isinstance(result, dict) else None
    if not isinstance(result, dict) or not isinstance(capabilities, dict):
        return result
    offered = dict(cast("Mapping[str, Any]", capabilities))
    for listing, _, _ in _LISTINGS:
        if isinstance(offered.get(listing), dict):
            offered[listing] = {**offered[listing], "listChanged": True}
    return {**result, "capabilities": offered}


class OlderClients:
    """A server's open connections to older clients. These clients are notified about events on the server's bus."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects

    def notice(self, ctx: ServerRequestContext[Any, Any]) -> None:
        """Inspect a message that has been served. The message may open a connection, or start or end a subscription."""
        if is_retry_era(ctx.protocol_version):
            return
        connection = connection_of(ctx.session)
        if ctx.method == "notifications/initialized":
            # If the server cannot send requests and there is no session, the next message arrives on another
            # connection.
            is_lasting = ctx.session.can_send_request or session_id_of(ctx.session) is not None
            if is_lasting and _STATE_KEY not in connection.state:
                client = connection.state[_STATE_KEY] = _OlderClient(ctx.session)
                connection.exit_stack.callback(client.end, self._effects.bus.subscribe(client.receive))
            return
        client = connection.state.get(_STATE_KEY)
        uri = (ctx.params or {}).get("uri")
        if isinstance(client, _OlderClient) and isinstance(uri, str):
            if ctx.method == "resources/unsubscribe":
                client.uris.discard(uri)
            elif ctx.method == "resources/subscribe" and len(client.uris) < _MAX_URIS and len(uri) <= _MAX_URI_CHARS:
                client.uris.add(uri)


class _OlderClient:
    """Connection to one older client. Equal events are queued once, to limit memory if the client does not read."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self.uris: set[str] = set()
        """URIs of the resources that the client has subscribed to."""
        self._waiting: dict[subscriptions.ServerEvent, None] = {}
        self._send_task: asyncio.Task[None] | None = None
        # The SDK's own bus calls listeners on the publisher's event loop, which can differ from this one.
        self._loop = asyncio.get_running_loop()

    def receive(self, event: subscriptions.ServerEvent) -> None:
        if _NOTIFIED.get() is connection_of(self._session):
            return
        if isinstance(event, subscriptions.ResourceUpdated) and event.uri not in self.uris:
            return
        if asyncio.get_running_loop() is self._loop:
            self._note(event)
            return
        with suppress(RuntimeError):
            # A RuntimeError means that the client's event loop is closed, so its connection is gone.
            self._loop.call_soon_threadsafe(self._note, event)

    def _note(self, event: subscriptions.ServerEvent) -> None:
        self._waiting[event] = None
        if self._send_task is None or self._send_task.done():
            work = self._send_waiting()
            self._send_task = asyncio.get_running_loop().create_task(work, context=contextvars.Context())

    def end(self, unsubscribe: Any) -> None:
        unsubscribe()
        if self._send_task is not None:
            self._send_task.cancel()

    async def _send_waiting(self) -> None:
        while self._waiting:
            event = next(iter(self._waiting))
            del self._waiting[event]
            await self._session.send_notification(event_to_notification(event, {}))
