"""List-change tracking: changes are noted during a request, and each changed list is announced once at the request's
end.

Code in any thread can note that it changed a list. The `Announcer`, a middleware around every request, then announces
the noted changes (`changes.py`). A change that the author's code has announced is not announced again. Changes made
outside a request are not announced.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.subscriptions import SubscriptionBus
from mcp_types import CacheableResult

from roundtrip.legs.parts import Effects
from roundtrip.on_demand import load_on_use
from roundtrip.revisions import is_retry_era
from roundtrip.visibility.rules import Listing

if TYPE_CHECKING:
    from roundtrip.visibility import changes
    from roundtrip.visibility.changes import Changes, OlderClients

load_on_use(globals(), "roundtrip.visibility.changes")

_CHANGES_LOCK: Final = Lock()


class ListRequest:
    """Request during which lists may change."""

    __slots__ = ("announcer", "changes", "ctx")

    def __init__(self, announcer: "Announcer", ctx: ServerRequestContext[Any, Any]) -> None:
        self.announcer = announcer
        self.ctx = ctx
        self.changes: Changes | None = None

    @contextmanager
    def announced_by_author(self, listing: Listing, bus: SubscriptionBus | None) -> Generator[None]:
        """Wrap the author's own event for a list, so that roundtrip does not publish a second event."""
        if self.announcer.effects.bus is not bus or self.changes is None:
            yield
            return
        with self.changes.publishing(listing):
            yield
        self.changes.forget(listing)


LIST_REQUEST: ContextVar[ListRequest | None] = ContextVar("roundtrip_changes", default=None)
"""The request being served. `REQUEST` cannot be used, because middlewares may change lists before `REQUEST` is set."""


class Announcer:
    """A server's outermost middleware. It announces changed lists, and keeps clients from caching private lists."""

    def __init__(self, effects: Effects) -> None:
        self.effects = effects
        self.private: dict[str, Callable[[], bool]] = {}
        """For each list method, a function that returns True while the list depends on the caller."""
        self._older_clients: OlderClients | None = None

    def note(self, listing: Listing) -> None:
        """Announce a changed list when the current request ends. Outside a request, do nothing.

        Any thread that runs the request's code may call this method.
        """
        served = LIST_REQUEST.get()
        # A tool on one server may change another server, whose clients did not make this request.
        if served is None or served.announcer is not self:
            return
        with _CHANGES_LOCK:
            if served.changes is None:
                served.changes = changes.Changes(served.ctx)
        served.changes.note(listing)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve one message, as an SDK middleware."""
        if ctx.request_id is None:
            result = await call_next(ctx)
            return result if is_retry_era(ctx.protocol_version) else self._notice(ctx, result)
        served = ListRequest(self, ctx)
        reset = LIST_REQUEST.set(served)
        try:
            result = await call_next(ctx)
        finally:
            LIST_REQUEST.reset(reset)
            if served.changes is not None:
                await served.changes.announce(self.effects.bus)
        if not is_retry_era(ctx.protocol_version):
            return self._notice(ctx, result)
        is_private = self.private.get(ctx.method)
        return _uncached(result) if is_private is not None and is_private() else result

    def _notice(self, ctx: ServerRequestContext[Any, Any], result: HandlerResult) -> HandlerResult:
        """Subscribe a client on an older revision to the bus, and declare that list changes are announced."""
        if self._older_clients is None:
            self._older_clients = changes.OlderClients(self.effects)
        self._older_clients.notice(ctx)
        return changes.promise_changes(result) if ctx.method == "initialize" else result


def _uncached(result: HandlerResult) -> HandlerResult:
    """Mark a list that depends on the caller as private and stale, overriding the author's cache hints."""
    if isinstance(result, CacheableResult):
        return result.model_copy(update={"ttl_ms": 0, "cache_scope": "private"})
    if isinstance(result, dict) and result.get("resultType") != "input_required":
        return {**result, "ttlMs": 0, "cacheScope": "private"}
    return result
