"""Health checks of one process: `/health/live` and `/health/ready`, and the state that they report."""

import logging
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from roundtrip.ledger.contract import Ledger, LedgerDown
from roundtrip.server.connections import take_no_answers
from roundtrip.server.server import Server

__all__ = ["LIVE_PATH", "READY_PATH", "Health", "ProcessState"]

logger = logging.getLogger("roundtrip")

LIVE_PATH: Final = "/health/live"
READY_PATH: Final = "/health/ready"
_PATIENCE: Final = 2.0
"""Seconds after which a ledger that has not answered counts as down."""
_FRESH: Final = 1.0
"""Seconds for which an answer of the ledger is reused, as any client may ask often."""
_PROBE: Final = "health"
_OK: Final = 200
_NOT_ALLOWED: Final = 405
_UNAVAILABLE: Final = 503


@dataclass(slots=True)
class ProcessState:
    """State of one serving process: changed by signal handlers, read by requests."""

    started: bool = False
    stopping: bool = False
    broken_off: bool = False
    """True if a request was still running when the time to finish was over."""
    requests: dict[int, Scope] = field(default_factory=dict[int, Scope])
    """Scopes of the running requests by `id`."""
    ended: anyio.Event = field(default_factory=anyio.Event)
    """Event that ends listening streams and live questions."""

    def end(self) -> None:
        """End the streams that only listen, and the live questions, whose answers could no longer arrive."""
        self.ended.set()
        for scope in self.requests.values():
            take_no_answers(scope)


class Health:
    """Answers `/health/live` and `/health/ready`."""

    def __init__(self, server: Server[Any], state: ProcessState) -> None:
        # A ledger that no tool needs must not take the instance out of service.
        self._ledger: Ledger | None = server.ledger if server.identity().exactly_once else None
        self._state = state
        self._lock = anyio.Lock()
        self._looked = -_FRESH
        self._reached = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        status, report = await self._ready() if scope["path"] == READY_PATH else (_OK, {"status": "live"})
        headers = {"cache-control": "no-store"}
        if scope["method"] not in ("GET", "HEAD"):
            status, headers["allow"] = _NOT_ALLOWED, "GET, HEAD"
        await JSONResponse(report, status, headers)(scope, receive, send)

    async def _ready(self) -> tuple[int, dict[str, str]]:
        if self._state.stopping:
            return _UNAVAILABLE, {"status": "stopping"}
        if not self._state.started:
            return _UNAVAILABLE, {"status": "starting"}
        if self._ledger is not None and not await self._reaches(self._ledger):
            return _UNAVAILABLE, {"status": "unavailable", "reason": "the ledger cannot be reached"}
        return _OK, {"status": "ready"}

    async def _reaches(self, ledger: Ledger) -> bool:
        async with self._lock:
            if anyio.current_time() - self._looked < _FRESH:
                return self._reached
            reached, why = False, f"no answer within {_PATIENCE:g} s"
            with anyio.move_on_after(_PATIENCE):
                try:
                    await ledger.wait(_PROBE, patience=0)
                    reached = True
                except LedgerDown as error:
                    why = str(error)
            if not reached and self._reached:
                logger.error("not ready: the ledger cannot be reached: %s", why)
            self._looked, self._reached = anyio.current_time(), reached
            return reached
