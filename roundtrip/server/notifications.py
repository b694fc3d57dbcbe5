"""Announce changed lists to clients, once per request and list, when the request is done.

Code that changes a list only notes it, in any thread. The `Announcer`, a middleware around every request, announces the
noted changes. On older revisions the client of the request is sent a notification. All other clients are sent an event:
those that listen on 2026-07-28, and those whose connection stays open. A change that the author's code announces itself
is not announced again. Changes outside of a request are not announced.
"""

import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ServerEvent,
    SubscriptionBus,
    ToolsListChanged,
)
from mcp_types import (
    CacheableResult,
    PromptListChangedNotification,
    RequestId,
    ResourceListChangedNotification,
    ServerNotification,
    ToolListChangedNotification,
)

from roundtrip.revisions import is_retry_era
from roundtrip.server.parts import Effects
from roundtrip.server.sdk_private import session_id_of

if TYPE_CHECKING:
    from roundtrip.server.older_clients import OlderClients

__all__ = ["Announcer", "Listing", "announced_by_author"]

logger = logging.getLogger("roundtrip")

Listing = Literal["tools", "prompts", "resources"]
"""A list that clients cache; templates are listed with the resources."""

_LISTINGS: Final[tuple[tuple[Listing, ServerEvent, ServerNotification], ...]] = (
    ("tools", ToolsListChanged(), ToolListChangedNotification()),
    ("prompts", PromptsListChanged(), PromptListChangedNotification()),
    ("resources", ResourcesListChanged(), ResourceListChangedNotification()),
)
_PATIENCE_SECONDS: Final = 5.0
"""How long a response waits for its announcements."""

_LISTING_OF: Final[Mapping[type, Listing]] = {type(notification): listing for listing, _, notification in _LISTINGS}


class _Noted:
    """Changes that were made during one request, and are still to be announced."""

    __slots__ = ("_told", "_watches", "announcer", "by_session", "ctx", "on_bus")

    def __init__(self, announcer: "Announcer", ctx: ServerRequestContext[Any, Any]) -> None:
        self.announcer = announcer
        self.ctx = ctx
        self.on_bus: set[Listing] | None = None
        self.by_session: set[Listing] = _NOTHING
        self._told: set[Listing] = _NOTHING
        self._watches = False

    @property
    def notifies(self) -> bool:
        """Return True if the client of the request is sent notifications."""
        # On 2026-07-28 clients hear of changes only through a stream that they listen on. On the older revisions there
        # is no client before `initialize` is answered.
        return not is_retry_era(self.ctx.protocol_version) and self.ctx.method != "initialize"

    def note(self, listing: Listing) -> None:
        if self.on_bus is None:
            self.on_bus = set()
            if self.notifies:
                self.by_session, self._told = set(), set()
                self._watch()
        self.on_bus.add(listing)
        if self._watches:
            self.by_session.add(listing)

    def _watch(self) -> None:
        """Notice the notifications of the author's code, and send them on a stream that the client reads."""
        send = self.ctx.session.send_notification
        self._watches = True

        async def send_and_notice(
            notification: ServerNotification, related_request_id: RequestId | None = None
        ) -> None:
            listing = _LISTING_OF.get(type(notification))
            if listing is None or listing not in self.by_session:
                await send(notification, related_request_id)
                return
            await send(notification, related_request_id if related_request_id is not None else _stream_of(self.ctx))
            self.by_session.discard(listing)
            self._told.add(listing)

        # The session is made for each request.
        self.ctx.session.send_notification = send_and_notice  # type: ignore[method-assign]

    def close(self) -> None:
        """Break the reference cycle, so that the request is freed at once."""
        if self._watches:
            del self.ctx.session.send_notification

    def publishing(self, listing: Listing) -> Any:
        """Surround the publication of an event: a client that is sent a notification is not sent the event as well."""
        if self.notifies and (listing in self.by_session or listing in self._told):
            from roundtrip.server.older_clients import told_already

            return told_already(self.ctx.session)
        return nullcontext()


_NOTHING: Final[set[Listing]] = set()
_NOTED: ContextVar[_Noted | None] = ContextVar("roundtrip_changes", default=None)
"""The changes of the request. Not in its record, which begins further inside: middlewares may change lists, too."""


@contextmanager
def announced_by_author(listing: Listing, bus: SubscriptionBus | None) -> Generator[None]:
    """Surround the author's own event for a list, so that it is not published again."""
    noted = _NOTED.get()
    if noted is None or noted.announcer.bus is not bus:
        yield
        return
    with noted.publishing(listing):
        yield
    if noted.on_bus:
        noted.on_bus.discard(listing)


class Announcer:
    """Outermost middleware of one server: it announces changed lists, and keeps private lists out of caches.

    Args:
        effects: The bus of the server.
        is_private: Returns True for a method whose answers depend on the caller.
    """

    def __init__(self, effects: Effects, *, is_private: Callable[[str], bool]) -> None:
        self._effects = effects
        self._is_private = is_private
        self._older_clients: OlderClients | None = None

    @property
    def bus(self) -> SubscriptionBus:
        """Return the bus that changes are published on."""
        return self._effects.bus

    def note(self, listing: Listing) -> None:
        """Announce a list when the current request is done; outside of a request nothing happens.

        Any thread may call it in which the request's own code runs.
        """
        current = _NOTED.get()
        # A tool of one server may change another, whose clients made no request.
        if current is not None and current.announcer is self:
            current.note(listing)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve one message, as the SDK's middlewares do."""
        if ctx.request_id is None:
            result = await call_next(ctx)
            self._notice(ctx)
            return result
        noted = _Noted(self, ctx)
        reset = _NOTED.set(noted)
        try:
            result = await call_next(ctx)
        finally:
            _NOTED.reset(reset)
            if noted.on_bus is not None:
                noted.close()
                # The change has been made, even if the client has gone or cancelled its request.
                with anyio.move_on_after(_PATIENCE_SECONDS, shield=True):
                    await self._announce(noted)
        if not is_retry_era(ctx.protocol_version):
            self._notice(ctx)
            return _promise(result) if ctx.method == "initialize" else result
        return _uncached(result) if self._is_private(ctx.method) else result

    def _notice(self, ctx: ServerRequestContext[Any, Any]) -> None:
        """Listen to the bus for a client on an older revision."""
        if is_retry_era(ctx.protocol_version):
            return
        if self._older_clients is None:
            from roundtrip.server.older_clients import OlderClients

            self._older_clients = OlderClients(self._effects)
        self._older_clients.notice(ctx)

    async def _announce(self, noted: _Noted) -> None:
        ctx, to_publish = noted.ctx, noted.on_bus or _NOTHING
        for listing, event, notification in _LISTINGS:
            if listing in noted.by_session:
                try:
                    await ctx.session.send_notification(notification, related_request_id=_stream_of(ctx))
                except Exception:
                    logger.warning("could not tell the client that the %s changed", listing, exc_info=True)
            if listing in to_publish:
                try:
                    with noted.publishing(listing):
                        await self.bus.publish(event)
                except Exception:
                    logger.warning("could not publish that the %s changed", listing, exc_info=True)


def _stream_of(ctx: ServerRequestContext[Any, Any]) -> str | int | None:
    """Return the request whose stream carries a notification, or None for the connection's own stream."""
    # The request's stream reaches clients that keep no other open. A JSON response has no stream; then the client must
    # have opened the session's.
    if not ctx.session.can_send_request and session_id_of(ctx.session) is not None:
        return None
    return ctx.request_id


def _promise(result: HandlerResult) -> HandlerResult:
    """Say in an answer to `initialize` that changes are announced."""
    # The SDK derives that from options that its own transports do not pass.
    capabilities: object = result.get("capabilities") if isinstance(result, dict) else None
    if not isinstance(result, dict) or not isinstance(capabilities, dict):
        return result
    offered = dict(cast("Mapping[str, Any]", capabilities))
    for listing, _, _ in _LISTINGS:
        if isinstance(offered.get(listing), dict):
            offered[listing] = {**offered[listing], "listChanged": True}
    return {**result, "capabilities": offered}


def _uncached(result: HandlerResult) -> HandlerResult:
    """Mark an answer that depends on the caller as private and stale, whatever the author's cache hints are."""
    if isinstance(result, CacheableResult):
        return result.model_copy(update={"ttl_ms": 0, "cache_scope": "private"})
    if isinstance(result, dict) and result.get("resultType") != "input_required":
        return {**result, "ttlMs": 0, "cacheScope": "private"}
    return result
