"""Telling clients that a list of the server's has changed, once per request and list, when the request is done.

A change is only noted where it is made, which may be a worker thread; the `Announcer`, a middleware around every
request, sends what was noted: on older revisions a notification to the client whose request it was, and in any case an
event to the others: those that listen on 2026-07-28, and those whose connection stays open. Changes outside of a
request are announced to nobody.
"""

import logging
from collections.abc import Mapping
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any, Final, Literal, cast

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ServerEvent,
    ToolsListChanged,
)
from mcp_types import (
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ServerNotification,
    ToolListChangedNotification,
)

from roundtrip.runtime.eras import is_retry_era
from roundtrip.server.effects import Effects
from roundtrip.server.older_clients import OlderClients, told_already
from roundtrip.server.seams import session_id_of

__all__ = ["Announcer", "Listing"]

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

_NOTED: ContextVar[tuple["Announcer", set[Listing]] | None] = ContextVar("roundtrip_changes", default=None)


class Announcer:
    """One server's outermost middleware: it announces the changes that were noted during each request."""

    def __init__(self, effects: Effects) -> None:
        self._effects = effects
        self._older_clients = OlderClients(effects)

    def note(self, listing: Listing) -> None:
        """Have a list announced when the current request is done; outside of a request nothing happens.

        Any thread may call it that the request's own code runs in.
        """
        current = _NOTED.get()
        # A tool of one server may change another, whose clients made no request.
        if current is not None and current[0] is self:
            current[1].add(listing)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve one message, as the SDK's middlewares do."""
        if ctx.request_id is None:
            result = await call_next(ctx)
            self._older_clients.notice(ctx)
            return result
        noted: set[Listing] = set()
        reset = _NOTED.set((self, noted))
        try:
            result = await call_next(ctx)
        finally:
            _NOTED.reset(reset)
            if noted:
                # The change has been made, even if the client has gone or cancelled its request.
                with anyio.move_on_after(_PATIENCE, shield=True):
                    await self._announce(ctx, noted)
        self._older_clients.notice(ctx)
        return _promise(result) if ctx.method == "initialize" else result

    async def _announce(self, ctx: ServerRequestContext[Any, Any], noted: set[Listing]) -> None:
        # On 2026-07-28 a change may reach a client only through a stream that it listens on, and before `initialize`
        # is answered on the older revisions there is no client yet.
        notifies = not is_retry_era(ctx.protocol_version) and ctx.method != "initialize"
        for listing, event, notification in _LISTINGS:
            if listing not in noted:
                continue
            try:
                if notifies:
                    await ctx.session.send_notification(notification, related_request_id=_stream_of(ctx))
            except Exception:
                logger.warning("could not tell the client that the %s changed", listing, exc_info=True)
            try:
                with told_already(ctx.session) if notifies else nullcontext():
                    await self._effects.bus.publish(event)
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
