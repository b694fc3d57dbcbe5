"""Parts of one server that every leg uses: its keys, its limits, and the places that serving changes.

Code reads the ledger, the tracers and the bus from `Effects` at the moment of use. A rehearsal replaces them, so that
the legs it serves leave no trace.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from threading import Lock
from typing import TYPE_CHECKING, Final

from mcp.server.subscriptions import SubscriptionBus

from roundtrip.engine.leg import Limits
from roundtrip.ledger.contract import Ledger
from roundtrip.server.keys import Protection
from roundtrip.system import SYSTEM, System
from roundtrip.trace.writing.tracers import Tracers

if TYPE_CHECKING:
    from roundtrip.server.rehearsal import Rehearsed

__all__ = ["Effects", "Parts"]


_MAKING: Final = Lock()


@dataclass(slots=True, eq=False)
class Effects:
    """Ledger, tracers and bus of one server, as they are now."""

    given_ledger: Ledger | None
    """None for one in the memory of this process, which few servers use."""
    tracers: Tracers
    bus: SubscriptionBus
    rehearsal: "Rehearsed | None" = None
    """Set while the server rehearses: no body runs then."""
    system: System = SYSTEM

    @property
    def ledger(self) -> Ledger:
        """Return the ledger."""
        with _MAKING:
            if self.given_ledger is None:
                from roundtrip.ledger.memory import MemoryLedger

                self.given_ledger = MemoryLedger(system=self.system)
            return self.given_ledger

    def use(self, other: "Effects") -> None:
        """Replace all of them."""
        for field in fields(self):
            setattr(self, field.name, getattr(other, field.name))

    @contextmanager
    def kept(self) -> Generator[None]:
        """Restore all of them at the end of a `with` block."""
        own = replace(self)
        try:
            yield
        finally:
            self.use(own)


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of one server that every leg uses; they exist before the SDK's server does."""

    protection: Protection
    effects: Effects
    limits: Limits
    system: System = SYSTEM
