"""The places outside of a call that serving it changes: the ledger, the tracers and the bus.

Everything that acts on one of them reads it here at that moment. A rehearsal puts others in their place, so that
nothing it serves leaves a trace.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Protocol

from mcp.server.subscriptions import SubscriptionBus

from roundtrip.ledger.contract import Ledger
from roundtrip.trace.writing.tracers import Tracers

__all__ = ["Effects", "Stopping"]


class Stopping(Protocol):
    """Stops legs in front of their bodies, for a rehearsal."""

    def stop(self, owner: str, *, outermost: bool) -> None:
        """Raise in front of a body: of the function that the request calls, or of one that is called from within."""
        ...

    def let_in(self, owner: str) -> None:
        """Take note of a tool, prompt or resource that the request may not see, and that is served all the same."""
        ...


@dataclass(slots=True, eq=False)
class Effects:
    """The ledger, the tracers and the bus of one server, as they are now."""

    ledger: Ledger
    tracers: Tracers
    bus: SubscriptionBus
    rehearsal: Stopping | None = None
    """Set while the server rehearses: no body runs then."""

    def use(self, other: "Effects") -> None:
        """Put others in the place of all of them."""
        for field in fields(self):
            setattr(self, field.name, getattr(other, field.name))

    @contextmanager
    def kept(self) -> Generator[None]:
        """Put everything back at the end of a `with` block."""
        own = replace(self)
        try:
            yield
        finally:
            self.use(own)
