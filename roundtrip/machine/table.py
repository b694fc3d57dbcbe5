"""Provide the state machines of roundtrip as tables: those of a call, of a ledger's entry, and of a task.

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
    "TASK_MACHINE",
    "Arrow",
    "CallArrow",
    "EntryEvent",
    "EntryState",
    "Event",
    "MachineTable",
    "State",
    "TaskEvent",
    "TaskState",
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


def _named(name: str, meaning: str) -> str:
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

    RECEIVED = _named("received", "A first request has arrived.")
    RESOLVING = _named("resolving", "Resolvers run and receive the answers that are known.")
    AWAITING_INPUT = _named("awaiting_input", "Questions are pending. Every token holds a call in this state.")
    RESUMED = _named("resumed", "Answers, or at least another request, have arrived.")
    EXECUTING = _named("executing", "The tool's body runs.")
    COMPLETED = _named("completed", "The client has the tool's result.")
    FAILED = _named("failed", "The author's code raised, an answer stayed invalid, or the request was cancelled.")
    DECLINED = _named("declined", "The user declined or cancelled a question that the call needs.")
    REJECTED = _named("rejected", "The server rejected the token, or the client cannot be asked.")


class Event(TableName):
    """Events of a call."""

    BEGIN = _named("begin", "The first leg starts.")
    ASK = _named("ask", "Everything that can run has run, and questions are left. A round begins.")
    RESUME = _named("resume", "The client came back. In the live era: the round has been answered.")
    RESOLVE = _named("resolve", "Resolvers run again, with the new answers.")
    EXECUTE = _named("execute", "Every parameter has its value.")
    REVISE = _named("revise", "The user changed an earlier answer. All that depends on it is resolved and run again.")
    FINISH = _named("finish", "The body returned.")
    RECALL = _named(
        "recall", "The ledger already has the call's result: the client gets it, and the body does not run."
    )
    DECLINE = _named("decline", "The user declined or cancelled a question, and a parameter needs the value.")
    REJECT = _named("reject", "The server rejects the token, or cannot ask the client a question of the call.")
    FAIL = _named("fail", "An error ends the call.")


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

    FREE = _named("free", "No leg has the claim. There may be notes of earlier holders.")
    HELD = _named("held", "A leg has the claim, and its body has not begun.")
    RUNNING = _named("running", "A leg has the claim, and its body runs.")
    LAPSED = _named("lapsed", "The lease ended while the body ran. Other legs get an error: the outcome is unknown.")
    SETTLED = _named("settled", "The body has ended, and the entry has its result.")
    UNKNOWN = _named("unknown", "The holder recorded that the outcome will never be known.")


class EntryEvent(TableName):
    """Events of a ledger's entry."""

    HOLD = _named("hold", "A leg claims the call tentatively. Only the holder may repeat it.")
    START = _named("start", "A leg claims the call for a body that begins now. In `held`, only the holder may do this.")
    RENEW = _named("renew", "The holder extends its lease.")
    NOTE = _named("note", "The holder notes a value for those who claim the call after it.")
    SETTLE = _named("settle", "The holder records the result. It may repeat the same one.")
    LOSE = _named("lose", "The holder records that the outcome will never be known.")
    RELEASE = _named("release", "The holder releases the claim.")
    LAPSE = _named("lapse", "The lease ends.")
    REOPEN = _named("reopen", 'A leg of a tool whose body may run again (`on_unknown="rerun"`) claims the call.')
    FORGET = _named("forget", "The time to keep the entry ends, and its notes go with it.")


def _arrows(states: type[S], sources: str, event: E, targets: str) -> list[Arrow[S, E]]:
    pairs = zip(sources.split(), targets.split(), strict=True)
    return [Arrow(states(source), event, states(target)) for source, target in pairs]


_entry_arrows: Final = partial(_arrows, EntryState)


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


class TaskState(TableName):
    """States of a task: a call that is stored, and that a worker continues."""

    DUE = _named("due", "A worker should run it. The client sees `working`.")
    RUNNING = _named("running", "A worker has a lease on it, and runs its body. The client sees `working`.")
    ASKING = _named("asking", "Questions are pending, and no worker has it. The client sees `input_required`.")
    WAITING = _named(
        "waiting", "It waits for a time, a signal or a page, and no worker has it. The client sees `working`."
    )
    COMPLETED = _named("completed", "It has a result, which may be an error of the tool.")
    FAILED = _named("failed", "It ended with a protocol error, its time is over, or its outcome is unknown.")
    CANCELLED = _named("cancelled", "The client cancelled it.")


class TaskEvent(TableName):
    """Events of a task."""

    CLAIM = _named("claim", "A worker takes the lease, with a new epoch.")
    RENEW = _named("renew", "The worker extends its lease.")
    NOTE = _named("note", "The worker stores the result of a step, or a status message.")
    ASK = _named("ask", "The body needs answers. The worker stores the journal, and gives the task up.")
    WAIT = _named("wait", "The body needs time, a signal or a page. The worker stores the journal, and gives it up.")
    YIELD = _named("yield", "The worker gives the task up without an end, because it shuts down or the leg is retried.")
    ANSWER = _named("answer", "Some answers arrive, and questions are left.")
    WAKE = _named("wake", "All answers, a signal, or the time for which it waits are there.")
    LAPSE = _named("lapse", "The lease ends, and another worker may continue behind the stored steps.")
    FINISH = _named("finish", "The worker stores the result.")
    FAIL = _named("fail", "The worker stores a protocol error.")
    LOSE = _named("lose", "The worker died inside a body that must not run twice: the outcome is unknown.")
    CANCEL = _named("cancel", "The client cancels it. A worker that runs it is stopped at its next write.")
    EXPIRE = _named("expire", "Its time to live is over.")


_task_arrows: Final = partial(_arrows, TaskState)

TASK_MACHINE: Final = MachineTable(
    "a task",
    tuple(TaskState),
    tuple(TaskEvent),
    (
        *_task_arrows("due", TaskEvent.CLAIM, "running"),
        *_task_arrows("running", TaskEvent.RENEW, "running"),
        *_task_arrows("running", TaskEvent.NOTE, "running"),
        *_task_arrows("running", TaskEvent.ASK, "asking"),
        *_task_arrows("running", TaskEvent.WAIT, "waiting"),
        *_task_arrows("running", TaskEvent.YIELD, "due"),
        *_task_arrows("asking", TaskEvent.ANSWER, "asking"),
        *_task_arrows("asking waiting", TaskEvent.WAKE, "due due"),
        *_task_arrows("running", TaskEvent.LAPSE, "due"),
        *_task_arrows("running", TaskEvent.FINISH, "completed"),
        *_task_arrows("running", TaskEvent.FAIL, "failed"),
        *_task_arrows("running", TaskEvent.LOSE, "failed"),
        *_task_arrows("due running asking waiting", TaskEvent.CANCEL, "cancelled cancelled cancelled cancelled"),
        *_task_arrows("due running asking waiting", TaskEvent.EXPIRE, "failed failed failed failed"),
    ),
)
"""The machine of every task, in every store. Writes of a worker whose epoch is not the task's are rejected."""
