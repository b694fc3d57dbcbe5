"""Provide the state machines of roundtrip as tables: that of a call, and that of a ledger's entry.

A table is the only source of its machine. The lookup of the hot path, the `transitions` machine, the diagrams,
`specs/machine.md` and the tests are derived from it. Importing this module does not import `transitions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Self, TypeVar

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
    "TableName",
    "arrows_of",
    "named",
]


class TableName(StrEnum):
    """Names of states or events, each with its meaning."""

    meaning: str

    # An enum hashes by a function written in Python, and the table is looked up at every transition.
    __hash__ = str.__hash__

    def __new__(cls, name: str) -> Self:
        """Make a member, whose value is the name."""
        member = str.__new__(cls, name)
        member._value_ = str(name)
        member.meaning = name.meaning if isinstance(name, _Name) else ""
        return member


class _Name(str):
    """Name of a state or an event that carries its meaning into the enum."""

    meaning: str


def named(name: str, meaning: str) -> str:
    """Return a name that carries its meaning into a `TableName`."""
    # To type checkers it is text: they would take a tuple for the value of the member.
    made = _Name(name)
    made.meaning = meaning
    return made


S = TypeVar("S", bound=TableName)
E = TypeVar("E", bound=TableName)


class Arrow(NamedTuple, Generic[S, E]):
    """One permitted change of state."""

    source: S
    event: E
    target: S


class MachineTable(Generic[S, E]):
    """States, events and arrows of one machine. It starts in the first state."""

    __slots__ = ("arrows", "events", "final", "states", "subject", "targets")

    def __init__(
        self, subject: str, states: tuple[S, ...], events: tuple[E, ...], arrows: tuple[Arrow[S, E], ...]
    ) -> None:
        self.subject: Final = subject
        """The thing that has the states, as in "a call"."""
        self.states: Final = states
        self.events: Final = events
        self.arrows: Final = arrows
        self.targets: Final[Mapping[tuple[S, E], S]] = {(source, event): target for source, event, target in arrows}
        """The arrows as a lookup: 0.1 µs where `trigger` of `transitions` takes 10. A test compares the two."""
        self.final: Final = frozenset(states) - {arrow.source for arrow in arrows}
        """The states that no event leads out of."""

    @property
    def initial(self) -> S:
        """Return the state in which the machine starts."""
        return self.states[0]

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


class State(TableName):
    """States of a call."""

    RECEIVED = named("received", "A first request has arrived.")
    RESOLVING = named("resolving", "Resolvers run and receive the answers that are known.")
    AWAITING_INPUT = named("awaiting_input", "Questions are pending. Every token holds a call in this state.")
    RESUMED = named("resumed", "Answers, or at least another request, have arrived.")
    EXECUTING = named("executing", "The tool's body runs.")
    COMPLETED = named("completed", "The client has the tool's result.")
    FAILED = named("failed", "The author's code raised, an answer stayed invalid, or the request was cancelled.")
    DECLINED = named("declined", "The user declined or cancelled a question that the call needs.")
    REJECTED = named("rejected", "The server rejected the token, or the client cannot be asked.")


class Event(TableName):
    """Events of a call."""

    BEGIN = named("begin", "The first leg starts.")
    ASK = named("ask", "Everything that can run has run, and questions are left. A round begins.")
    RESUME = named("resume", "The client came back. In the live era: the round has been answered.")
    RESOLVE = named("resolve", "Resolvers run again, with the new answers.")
    EXECUTE = named("execute", "Every parameter has its value.")
    REVISE = named("revise", "The user changed an earlier answer. All that depends on it is resolved and run again.")
    FINISH = named("finish", "The body returned.")
    RECALL = named("recall", "The ledger already has the call's result: the client gets it, and the body does not run.")
    DECLINE = named("decline", "The user declined or cancelled a question, and a parameter needs the value.")
    REJECT = named("reject", "The server rejects the token, or cannot ask the client a question of the call.")
    FAIL = named("fail", "An error ends the call.")


CallArrow = Arrow[State, Event]

CALL_MACHINE: Final = MachineTable(
    "a call",
    tuple(State),
    tuple(Event),
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
"""The machine of every call, in both eras."""


class EntryState(TableName):
    """States of a ledger's entry."""

    FREE = named("free", "No leg has the claim. There may be notes of earlier holders.")
    HELD = named("held", "A leg has the claim, and its body has not begun.")
    RUNNING = named("running", "A leg has the claim, and its body runs.")
    LAPSED = named("lapsed", "The lease ended while the body ran. Other legs get an error: the outcome is unknown.")
    SETTLED = named("settled", "The body has ended, and the entry has its result.")
    UNKNOWN = named("unknown", "The holder recorded that the outcome will never be known.")


class EntryEvent(TableName):
    """Events of a ledger's entry."""

    HOLD = named("hold", "A leg claims the call tentatively. Only the holder may repeat it.")
    START = named("start", "A leg claims the call for a body that begins now. In `held`, only the holder may do this.")
    RENEW = named("renew", "The holder extends its lease.")
    NOTE = named("note", "The holder notes a value for those who claim the call after it.")
    SETTLE = named("settle", "The holder records the result. It may repeat the same one.")
    LOSE = named("lose", "The holder records that the outcome will never be known.")
    RELEASE = named("release", "The holder releases the claim.")
    LAPSE = named("lapse", "The lease ends.")
    REOPEN = named("reopen", 'A leg of a tool whose body may run again (`on_unknown="rerun"`) claims the call.')
    FORGET = named("forget", "The time to keep the entry ends, and its notes go with it.")


def arrows_of(states: type[S], sources: str, event: E, targets: str) -> list[Arrow[S, E]]:
    """Return the arrows of an event, from each source to its target; names are divided by spaces."""
    pairs = zip(sources.split(), targets.split(), strict=True)
    return [Arrow(states(source), event, states(target)) for source, target in pairs]


_entry_arrows: Final = partial(arrows_of, EntryState)


ENTRY_MACHINE: Final = MachineTable(
    "an entry",
    tuple(EntryState),
    tuple(EntryEvent),
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
