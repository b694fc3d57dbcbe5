"""Provide the parts of a server that every leg uses: its keys, its limits and its effects.

Read the ledger, the tracers and the bus from `Effects` at each use, and do not store them: a rehearsal replaces them,
so that its legs have no effect on the service.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypedDict

from mcp.server.request_state import RequestStateSecurity
from mcp.server.subscriptions import InMemorySubscriptionBus, SubscriptionBus

from roundtrip.machine.journal import Limits
from roundtrip.on_demand import load_on_use
from roundtrip.system import SYSTEM, System
from roundtrip.tokens.protection import Protection, limits_of, protect
from roundtrip.trace.writing.tracers import Tracers, tracers_of

if TYPE_CHECKING:
    from roundtrip.ledger import contract, memory
    from roundtrip.legs.functions import AskingFunction
    from roundtrip.tokens.protection import Keys, Principal
    from roundtrip.trace.writing.tracers import Trace
else:
    load_on_use(globals(), "roundtrip.ledger.contract", "roundtrip.ledger.memory")

PROBE_TOOL: Final = "roundtrip_probe"
"""The tool that answers `roundtrip doctor`."""
_MAKING: Final = Lock()


class LegRehearsal(Protocol):
    """Rehearsal of one leg, which stops before its body."""

    decided: Mapping[str, Any]
    """The decisions of persons who are no clients, by the names of their questions."""

    def stop(self, function: AskingFunction, *, outermost: bool) -> None:
        """End a leg before its body, unless the body may run here."""
        ...

    def let_in(self, owner: str) -> None:
        """Note an item that was served although the request cannot see it."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class Effects:
    """Current ledger, tracers and bus of one server."""

    given_ledger: contract.Ledger | None
    """None until the first use of a ledger in memory, which few servers need."""
    tracers: Tracers
    bus: SubscriptionBus
    rehearsal: LegRehearsal | None = None
    """Set while the server rehearses: no body runs then."""
    system: System = SYSTEM

    @property
    def ledger(self) -> contract.Ledger:
        """Return the ledger; make one in memory if none was given."""
        with _MAKING:
            if self.given_ledger is None:
                self.given_ledger = memory.MemoryLedger(system=self.system)
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
    no_empty_rounds: frozenset[str] = frozenset()
    """Names of clients that fail on a round without questions, and receive none.

    The OpenAI Agents SDK (0.24) fails, but is not listed: its name is `mcp`, the default of the Python SDK, and most
    clients with that name do not fail.
    """

    @property
    def may_forget(self) -> bool:
        """Return True if the ledger is this process's alone, and other processes may have the keys of its calls."""
        return self.effects.given_ledger is None and not self.protection.own_key


class PartsOptions(TypedDict, total=False):
    """Options of a server for the parts that every leg uses; the docstring of `Server` says more."""

    keys: Keys | None
    """Secrets of at least 32 bytes, newest first, the same on every instance. By default those of ROUNDTRIP_KEYS or
    ROUNDTRIP_KEY_FILE; without either, only this process can resume its calls."""
    ttl: float | None
    """Seconds a client may take over one leg's questions. The default is 600."""
    max_age: float | None
    """Seconds after which a call cannot be resumed. The default is 3600."""
    encrypt: bool
    """True to encrypt whole tokens."""
    principal: Principal | Literal[False] | None
    """Returns the owner of a token, given the request's context; False binds tokens to no one."""
    audience: str | None
    """The service that tokens are for. By default the server's name."""
    seal_keys: Keys | None
    """With `request_state_security=` of the server, the keys that seal values which the server computed."""
    trace: Trace
    """The place to record calls, as `Server(trace=...)` takes it. By default the one that ROUNDTRIP_TRACE names."""
    ledger: contract.Ledger | None
    """Keeps the results of tools that run once. By default in the memory of this process."""
    max_token_bytes: int
    """A longer token is neither made nor accepted."""
    max_journal_bytes: int
    """The most bytes that a call may remember."""
    system: System
    """The clocks, randomness and sleep to use."""


def _check_ledger(given: object) -> None:
    if not isinstance(given, contract.Ledger):
        raise TypeError(f"ledger= must be a ledger, such as SqliteLedger('calls.db'), got {type(given).__name__}")


def parts_of(
    name: str | None,
    *,
    given: RequestStateSecurity | None,
    bus: SubscriptionBus | None,
    ttl: float | None = None,
    max_age: float | None = None,
    trace: Trace = None,
    ledger: contract.Ledger | None = None,
    system: System = SYSTEM,
    **protection: Any,
) -> Parts:
    """Make the parts of a server from its arguments; `protection` are those of `protect`.

    Raises:
        ValueError: A key is too short, or the arguments contradict each other.
        TypeError: The ledger is none.
    """
    if ledger is not None:
        _check_ledger(ledger)
    limits = limits_of(given, ttl=ttl, max_age=max_age)
    made = protect(name, given=given, ttl=limits.ttl, environment=os.environ, system=system, **protection)
    tracers = tracers_of(trace, environment=os.environ, key=made.trace_key)
    bus = bus if bus is not None else InMemorySubscriptionBus()
    return Parts(made, Effects(ledger, tracers, bus, system=system), limits, system)
