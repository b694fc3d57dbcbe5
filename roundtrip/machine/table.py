"""State machines as tables, and the call's machine. The ledger's machines use the same form.

A machine is defined only by its table. The fast lookup, the diagrams, `specs/machine.md` and the tests are derived from
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, Generic, NamedTuple, Self, TypeVar, cast

from roundtrip.errors import IllegalTransition


class TableName(StrEnum):
    """State or event names, each with its meaning."""

    meaning: str

    # `Enum.__hash__` runs Python code, which would slow down the table lookup in every transition.
    __hash__ = str.__hash__

    def __new__(cls, name: str, meaning: str = "") -> Self:
        """Make a member whose value is the name."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.meaning = meaning
        return member


def named(name: str, meaning: str) -> str:
    """Define a `TableName` member."""
    # Without the cast, type checkers would treat the tuple as the member's value.
    return cast("str", (name, meaning))


S = TypeVar("S", bound=TableName)
E = TypeVar("E", bound=TableName)


class Arrow(NamedTuple, Generic[S, E]):
    """One permitted state change."""

    source: S
    event: E
    target: S


def _pairs(sources: list[str], targets: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each source with its target."""
    return zip(sources, targets * len(sources) if len(targets) == 1 else targets, strict=True)


class MachineTable(Generic[S, E]):
    """One machine's states, events and arrows. The machine starts in the first state.

    Each row in `arrows` has source states, an event, and target states. States are separated by spaces. A row has one
    target for all its sources, or one target for each source.
    """

    __slots__ = ("arrows", "events", "final", "states", "subject", "targets")

    def __init__(self, subject: str, states: type[S], events: type[E], arrows: Iterable[tuple[str, E, str]]) -> None:
        self.subject: Final = subject
        """What the machine describes, such as "a call"."""
        self.states: Final = tuple(states)
        self.events: Final = tuple(events)
        self.arrows: Final = tuple(
            Arrow(states(source), event, states(target))
            for sources, event, targets in arrows
            for source, target in _pairs(sources.split(), targets.split())
        )
        self.targets: Final[Mapping[tuple[S, E], S]] = {
            (source, event): target for source, event, target in self.arrows
        }
        """Maps a state and an event to the target state. This lookup takes 0.1 µs; `trigger` in the `transitions`
        library takes 10 µs. A test checks that both lead to the same states.
        """
        self.final: Final = frozenset(states) - {arrow.source for arrow in self.arrows}
        """The states without outgoing arrows."""

    def allowed(self, state: S) -> tuple[E, ...]:
        """Return the events that a state allows."""
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


class State(TableName):
    """Call states."""

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
    """Call events."""

    BEGIN = named("begin", "The first leg starts.")
    ASK = named("ask", "Everything that can run has run, and questions are left. A round begins.")
    RESUME = named("resume", "The client came back. In the live era: the round has been answered.")
    RESOLVE = named("resolve", "Resolvers run again, with the new answers.")
    EXECUTE = named("execute", "Every parameter has its value.")
    REVISE = named("revise", "The user changed an earlier answer. What depends on it is resolved and run again.")
    FINISH = named("finish", "The body returned.")
    RECALL = named("recall", "The ledger already has the call's result: the client gets it, and the body does not run.")
    DECLINE = named("decline", "The user declined or cancelled a question, and a parameter needs the value.")
    REJECT = named("reject", "The server rejects the token, or cannot ask the client one of the questions.")
    FAIL = named("fail", "An error ends the call.")


CallArrow = Arrow[State, Event]

CALL_MACHINE: Final = MachineTable(
    "a call",
    State,
    Event,
    [
        ("received", Event.BEGIN, "resolving"),
        ("resolving executing", Event.ASK, "awaiting_input"),
        ("awaiting_input", Event.RESUME, "resumed"),
        ("resumed", Event.RESOLVE, "resolving"),
        ("resolving", Event.EXECUTE, "executing"),
        ("executing", Event.REVISE, "resolving"),
        ("executing", Event.FINISH, "completed"),
        ("resolving", Event.RECALL, "completed"),
        ("resolving executing", Event.DECLINE, "declined"),
        ("received awaiting_input resolving executing", Event.REJECT, "rejected"),
        ("received resolving awaiting_input resumed executing", Event.FAIL, "failed"),
    ],
)
"""The machine that every call follows, in both eras."""
