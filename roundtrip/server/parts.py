"""Provide the parts of a server that every leg uses: its keys, its limits and its effects.

Read the ledger, the tracers and the bus from `Effects` at each use, and do not store them: a rehearsal replaces them,
so that its legs have no effect on the service.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from mcp.server.subscriptions import SubscriptionBus

from roundtrip.engine.leg import Limits
from roundtrip.server.keys import Protection
from roundtrip.system import SYSTEM, System
from roundtrip.trace.writing.tracers import Tracers

if TYPE_CHECKING:
    from roundtrip.ledger.contract import Ledger
    from roundtrip.server.rehearsal import Rehearsed

__all__ = ["Effects", "Parts"]


_MAKING: Final = Lock()


@dataclass(slots=True, eq=False, repr=False)
class Effects:
    """Current ledger, tracers and bus of one server."""

    given_ledger: Ledger | None
    """None until the first use of a ledger in memory, which few servers need."""
    tracers: Tracers
    bus: SubscriptionBus
    rehearsal: Rehearsed | None = None
    """Set while the server rehearses: no body runs then."""
    system: System = SYSTEM

    @property
    def ledger(self) -> Ledger:
        """Return the ledger; make one in memory if none was given."""
        with _MAKING:
            if self.given_ledger is None:
                from roundtrip.ledger.memory import MemoryLedger

                self.given_ledger = MemoryLedger(system=self.system)
            return self.given_ledger

    def use(self, other: Effects) -> None:
        """Copy all fields from another."""
        for field in fields(self):
            setattr(self, field.name, getattr(other, field.name))

    @contextmanager
    def kept(self) -> Generator[None]:
        """Restore all fields at the end of a `with` block."""
        own = replace(self)
        try:
            yield
        finally:
            self.use(own)


class Parts(NamedTuple):
    """Parts of one server that every leg uses; they exist before the SDK's server does."""

    protection: Protection
    effects: Effects
    limits: Limits
    system: System = SYSTEM
