"""Provide the state machines of roundtrip as tables: that of a call, and that of a ledger's entry.

A table is the only source of its machine. The lookup of the hot path, the `transitions` machine, the diagrams,
`specs/machine.md` and the tests are derived from it. Importing this module does not import `transitions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from roundtrip.errors import IllegalTransition

if TYPE_CHECKING:
    from transitions import Machine

__all__ = [
    "CALL_MACHINE",
    "ENTRY_MACHINE",
    "Arrow",
    "CallArrow",
    "EntryEvent",
    "EntryState",
    "Event",
    "MachineTable",
    "State",
]

S = TypeVar("S", bound=StrEnum)
E = TypeVar("E", bound=StrEnum)


class Arrow(NamedTuple, Generic[S, E]):
    """One permitted change of state."""

    source: S
    event: E
    target: S


@dataclass(frozen=True, slots=True, eq=False)
class MachineTable(Generic[S, E]):
    """States, events and arrows of one machine, each state and event with its meaning. It starts in the first state."""

    subject: str
    """The thing that has the states, as in "a call"."""
    states: Mapping[S, str]
    events: Mapping[E, str]
    arrows: tuple[Arrow[S, E], ...]
    targets: Mapping[tuple[S, E], S] = field(init=False)
    """The arrows as a lookup: 0.1 µs where `trigger` of `transitions` takes 10. A test compares the two."""
    final: frozenset[S] = field(init=False)
    """The states that no event leads out of."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "targets", {(source, event): target for source, event, target in self.arrows})
        object.__setattr__(self, "final", frozenset(self.states) - {arrow.source for arrow in self.arrows})

    @property
    def initial(self) -> S:
        """The state that every one of them starts in."""
        return next(iter(self.states))

    def allowed(self, state: S) -> tuple[E, ...]:
        """Return the events that may happen in a state."""
        return tuple(event for event in self.events if (state, event) in self.targets)

    def follow(self, state: S, event: E) -> S:
        """Return the state that an event leads to.

        Raises:
            IllegalTransition: The table has no such arrow.
        """
        target = self.targets.get((state, event))
        if target is None:
            allowed = [event.value for event in self.allowed(state)]
            raise IllegalTransition(state.value, event.value, allowed, subject=self.subject)
        return target

    def machine(self, kind: type[Machine] | None = None, **options: Any) -> Machine:
        """Build a `transitions` machine of the table, to attach models to or to draw.

        Args:
            kind: A class of machines of `transitions`; by default its `Machine`.
            options: Further arguments of that class.
        """
        if kind is None:
            from transitions import Machine as kind
        given: dict[str, Any] = {
            "model": None,
            "states": [state.value for state in self.states],
            "transitions": [
                {"trigger": arrow.event.value, "source": arrow.source.value, "dest": arrow.target.value}
                for arrow in self.arrows
            ],
            "initial": self.initial.value,
            "auto_transitions": False,
        }
        return kind(**given, **options)


class State(StrEnum):
    """States of a call."""

    # An enum hashes by a function written in Python, and the table is looked up at every transition.
    __hash__ = str.__hash__

    RECEIVED = "received"
    RESOLVING = "resolving"
    AWAITING_INPUT = "awaiting_input"
    RESUMED = "resumed"
    EXECUTING = "executing"
    COMPLETED = "completed"
    FAILED = "failed"
    DECLINED = "declined"
    REJECTED = "rejected"


class Event(StrEnum):
    """Events of a call."""

    __hash__ = str.__hash__

    BEGIN = "begin"
    ASK = "ask"
    RESUME = "resume"
    RESOLVE = "resolve"
    EXECUTE = "execute"
    REVISE = "revise"
    FINISH = "finish"
    RECALL = "recall"
    DECLINE = "decline"
    REJECT = "reject"
    FAIL = "fail"


CallArrow = Arrow[State, Event]

CALL_MACHINE: Final = MachineTable(
    "a call",
    MappingProxyType(
        {
            State.RECEIVED: "A first request has arrived.",
            State.RESOLVING: "Resolvers run and receive the answers that are known.",
            State.AWAITING_INPUT: "Questions are out. Every token holds a call in this state.",
            State.RESUMED: "Answers, or at least another request, have arrived.",
            State.EXECUTING: "The tool's body runs.",
            State.COMPLETED: "The client has the tool's result.",
            State.FAILED: "The author's code raised, an answer stayed invalid, or the request was cancelled.",
            State.DECLINED: "The user declined or cancelled a question that the call needs.",
            State.REJECTED: "The server rejected the token, or the client cannot be asked.",
        }
    ),
    MappingProxyType(
        {
            Event.BEGIN: "The first leg starts.",
            Event.ASK: "Everything that can run has run, and questions are left. A round begins.",
            Event.RESUME: "The client came back. In the live era: the round has been answered.",
            Event.RESOLVE: "Resolvers run again, with the new answers.",
            Event.EXECUTE: "Every parameter has its value.",
            Event.REVISE: "The user changed an earlier answer. All that depends on it is resolved and run again.",
            Event.FINISH: "The body returned.",
            Event.RECALL: "The ledger already has the call's result: the client gets it, and the body does not run.",
            Event.DECLINE: "A parameter that needs the value met a user who declined or cancelled.",
            Event.REJECT: "The server rejects the token, or cannot ask the client a question of the call.",
            Event.FAIL: "An error ends the call.",
        }
    ),
    (
        Arrow(State.RECEIVED, Event.BEGIN, State.RESOLVING),
        Arrow(State.RESOLVING, Event.ASK, State.AWAITING_INPUT),
        Arrow(State.EXECUTING, Event.ASK, State.AWAITING_INPUT),
        Arrow(State.AWAITING_INPUT, Event.RESUME, State.RESUMED),
        Arrow(State.RESUMED, Event.RESOLVE, State.RESOLVING),
        Arrow(State.RESOLVING, Event.EXECUTE, State.EXECUTING),
        Arrow(State.EXECUTING, Event.REVISE, State.RESOLVING),
        Arrow(State.EXECUTING, Event.FINISH, State.COMPLETED),
        Arrow(State.RESOLVING, Event.RECALL, State.COMPLETED),
        Arrow(State.RESOLVING, Event.DECLINE, State.DECLINED),
        Arrow(State.EXECUTING, Event.DECLINE, State.DECLINED),
        Arrow(State.RECEIVED, Event.REJECT, State.REJECTED),
        Arrow(State.AWAITING_INPUT, Event.REJECT, State.REJECTED),
        Arrow(State.RESOLVING, Event.REJECT, State.REJECTED),
        Arrow(State.EXECUTING, Event.REJECT, State.REJECTED),
        Arrow(State.RECEIVED, Event.FAIL, State.FAILED),
        Arrow(State.RESOLVING, Event.FAIL, State.FAILED),
        Arrow(State.AWAITING_INPUT, Event.FAIL, State.FAILED),
        Arrow(State.RESUMED, Event.FAIL, State.FAILED),
        Arrow(State.EXECUTING, Event.FAIL, State.FAILED),
    ),
)
"""The machine of every call, on both eras."""


class EntryState(StrEnum):
    """States of a ledger's entry."""

    __hash__ = str.__hash__

    FREE = "free"
    HELD = "held"
    RUNNING = "running"
    LAPSED = "lapsed"
    SETTLED = "settled"
    UNKNOWN = "unknown"


class EntryEvent(StrEnum):
    """Events of a ledger's entry."""

    __hash__ = str.__hash__

    HOLD = "hold"
    START = "start"
    RENEW = "renew"
    NOTE = "note"
    SETTLE = "settle"
    LOSE = "lose"
    RELEASE = "release"
    LAPSE = "lapse"
    REOPEN = "reopen"
    FORGET = "forget"


def _entry_arrows(sources: str, event: EntryEvent, targets: str) -> list[Arrow[EntryState, EntryEvent]]:
    pairs = zip(sources.split(), targets.split(), strict=True)
    return [Arrow(EntryState(source), event, EntryState(target)) for source, target in pairs]


ENTRY_MACHINE: Final = MachineTable(
    "an entry",
    MappingProxyType(
        {
            EntryState.FREE: "No leg has the claim. There may be notes of earlier holders.",
            EntryState.HELD: "A leg has the claim, and its body has not begun.",
            EntryState.RUNNING: "A leg has the claim, and its body runs.",
            EntryState.LAPSED: "The lease ended while the body ran. Others are told that the outcome is unknown.",
            EntryState.SETTLED: "The body has ended, and the entry has its result.",
            EntryState.UNKNOWN: "The holder said that the outcome will never be known.",
        }
    ),
    MappingProxyType(
        {
            EntryEvent.HOLD: "A leg claims the call tentatively. Only the holder may repeat it.",
            EntryEvent.START: "A leg claims the call for a body that begins now. Only the holder may leave `held` so.",
            EntryEvent.RENEW: "The holder extends its lease.",
            EntryEvent.NOTE: "The holder notes a value for those who claim the call after it.",
            EntryEvent.SETTLE: "The holder records the result. It may repeat the same one.",
            EntryEvent.LOSE: "The holder records that the outcome will never be known.",
            EntryEvent.RELEASE: "The holder gives the claim back.",
            EntryEvent.LAPSE: "The lease ends.",
            EntryEvent.REOPEN: 'A leg of a tool whose body may run again (`on_unknown="rerun"`) claims the call.',
            EntryEvent.FORGET: "The time to keep the entry ends, and its notes go with it.",
        }
    ),
    (
        *_entry_arrows("free held running", EntryEvent.HOLD, "held held running"),
        *_entry_arrows("free held running", EntryEvent.START, "running running running"),
        *_entry_arrows("held running lapsed", EntryEvent.RENEW, "held running running"),
        *_entry_arrows("held running lapsed", EntryEvent.NOTE, "held running lapsed"),
        *_entry_arrows("running lapsed settled unknown", EntryEvent.SETTLE, "settled settled settled settled"),
        *_entry_arrows("running lapsed unknown", EntryEvent.LOSE, "unknown unknown unknown"),
        *_entry_arrows("held running lapsed", EntryEvent.RELEASE, "free free free"),
        *_entry_arrows("held running", EntryEvent.LAPSE, "free lapsed"),
        *_entry_arrows("lapsed unknown", EntryEvent.REOPEN, "free free"),
        *_entry_arrows("free held running lapsed settled unknown", EntryEvent.FORGET, "free free free free free free"),
    ),
)
"""The machine of a ledger's entry. Every claim of a free entry has a new epoch; writes of older epochs are rejected."""
