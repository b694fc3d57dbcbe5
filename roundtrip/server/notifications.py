"""Telling clients that a list of the server's has changed, once per request and list, when the request is done.

A change is only noted where it is made, which may be a worker thread; the `Announcer`, a middleware around every
request, sends what was noted: on older revisions a notification to the client whose request it was, and in any case an
event to the others: those that listen on 2026-07-28, and those whose connection stays open. What the author's code
announces itself, after the change, is not announced again. Changes outside of a request are announced to nobody.
"""

import logging
from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Final, Literal, cast

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
    PromptListChangedNotification,
    RequestId,
    ResourceListChangedNotification,
    ServerNotification,
    ToolListChangedNotification,
)

from roundtrip.revisions import is_retry_era
from roundtrip.server.effects import Effects
from roundtrip.server.older_clients import OlderClients, told_already
from roundtrip.server.sdk_private import session_id_of

__all__ = ["Announcer", "Listing", "announced_by_author"]

logger = logging.getLogger("roundtrip")

Listing = Literal["tools", "prompts", "resources"]
"""A list that clients keep; templates are listed with the resources."""

_LISTINGS: Final[tuple[tuple[Listing, ServerEvent, ServerNotification], ...]] = (
    ("tools", ToolsListChanged(), ToolListChangedNotification()),
    ("prompts", PromptsListChanged(), PromptListChangedNotification()),
    ("resources", ResourcesListChanged(), ResourceListChangedNotification()),
)
_PATIENCE: Final = 5.0
"""Seconds that a response waits for its announcements."""

_LISTING_OF: Final[Mapping[type, Listing]] = {type(notification): listing for listing, _, notification in _LISTINGS}


class _Noted:
    """The changes that were made during one request, and are still to be announced."""

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
        """Whether the client of the request is sent notifications."""
        # On 2026-07-28 a change may reach a client only through a stream that it listens on, and before `initialize`
        # is answered on the older revisions there is no client yet.
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
        """Notice what the author's code sends to the client itself, and send it where it arrives."""
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
        """Surround what publishes an event: a client that is sent a notification is not told by the event as well."""
        if self.notifies and (listing in self.by_session or listing in self._told):
            return told_already(self.ctx.session)
        return nullcontext()


_NOTHING: Final[set[Listing]] = set()
_NOTED: ContextVar[_Noted | None] = ContextVar("roundtrip_changes", default=None)


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
    """One server's outermost middleware: it announces the changes that were noted during each request."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._older_clients = OlderClients(effects)

    @property
    def bus(self) -> SubscriptionBus:
        """What changes are published on."""
        return self._effects.bus

    def note(self, listing: Listing) -> None:
        """Have a list announced when the current request is done; outside of a request nothing happens.

        Any thread may call it that the request's own code runs in.
        """
        current = _NOTED.get()
        # A tool of one server may change another, whose clients made no request.
        if current is not None and current.announcer is self:
            current.note(listing)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve one message, as the SDK's middlewares do."""
        if ctx.request_id is None:
            result = await call_next(ctx)
            self._older_clients.notice(ctx)
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
                with anyio.move_on_after(_PATIENCE, shield=True):
                    await self._announce(noted)
        self._older_clients.notice(ctx)
        return _promise(result) if ctx.method == "initialize" else result

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
    """The request whose stream carries a notification, or None for the connection's own."""
    # The request's stream reaches clients that keep no other open. A JSON response has no stream, and then whether
    # the client is told depends on its opening the session's.
    if not ctx.session.can_send_request and session_id_of(ctx.session) is not None:
        return None
    return ctx.request_id


def _promise(result: HandlerResult) -> HandlerResult:
    """An answer to `initialize` that says that changes are announced."""
    # The SDK derives it from options that its own transports do not pass.
    capabilities: object = result.get("capabilities") if isinstance(result, dict) else None
    if not isinstance(result, dict) or not isinstance(capabilities, dict):
        return result
    offered = dict(cast("Mapping[str, Any]", capabilities))
    for listing, _, _ in _LISTINGS:
        if isinstance(offered.get(listing), dict):
            offered[listing] = {**offered[listing], "listChanged": True}
    return {**result, "capabilities": offered}
