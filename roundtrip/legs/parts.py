"""The parts of a server that every leg uses: its keys, its limits and its effects.

Read the ledger, the tracers and the bus from `Effects` at each use, and do not store them. A dry run replaces them, so
that its legs have no effect on the service.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from mcp.server.subscriptions import SubscriptionBus

from roundtrip.machine.journal import Limits
from roundtrip.on_demand import load_on_use
from roundtrip.system import SYSTEM, System
from roundtrip.tokens.protection import Protection
from roundtrip.trace.writing.tracers import Tracers

if TYPE_CHECKING:
    from roundtrip.ledger import memory
    from roundtrip.ledger.contract import Ledger

load_on_use(globals(), "roundtrip.ledger.memory")

_MAKING: Final = Lock()


class DryRun(Protocol):
    """A run of the server without a client and without effects on the service."""

    decided: Mapping[str, Any]
    """Decisions that people other than the client's user make, keyed by question name."""

    def let_in(self, owner: str) -> None:
        """Note that an item was served although its visibility gate hides it from the request."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class Effects:
    """The ledger, tracers and bus that one server uses now."""

    given_ledger: Ledger | None
    """The ledger; None until the default in-memory ledger is first used."""
    tracers: Tracers
    bus: SubscriptionBus
    dry_run: DryRun | None = None
    system: System = SYSTEM

    @property
    def ledger(self) -> Ledger:
        """Return the ledger. If the server was given no ledger, make one in memory."""
        with _MAKING:
            if self.given_ledger is None:
                self.given_ledger = memory.MemoryLedger(system=self.system)
            return self.given_ledger

    def use(self, other: Effects) -> None:
        """Copy all fields from another `Effects`."""
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
    """The parts of one server that every leg uses. They are made before the SDK's server."""

    protection: Protection
    effects: Effects
    limits: Limits
    system: System = SYSTEM
    no_empty_rounds: frozenset[str] = frozenset()
    """Names of clients that fail on a round without questions. They never receive such a round.

    The OpenAI Agents SDK (0.24) fails, but is not listed. It announces itself as `mcp`, the Python SDK's default name,
    and most clients with that name do not fail.
    """

    @property
    def may_forget(self) -> bool:
        """Return True if other processes have the keys to this server's calls, but only this process has the ledger."""
        return self.effects.given_ledger is None and not self.protection.own_key
