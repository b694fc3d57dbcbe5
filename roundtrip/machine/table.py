"""The one table of states and events; every change of state anywhere goes through it.

`ARROWS` is the whole truth. The machine is built from it with `transitions`, and everything else
(the index the hot path looks up, the diagrams, the spec file, the tests) is read from that machine.

A call starts `received`. It is `resolving` while its resolvers run, `executing` while its body runs, and
`awaiting_input` while questions are out: the only state that ever crosses the wire, inside a token.
The five others are ends.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from transitions import Machine

from roundtrip.errors import IllegalTransition

__all__ = ["ARROWS", "FINAL", "INDEX", "MACHINE", "Arrow", "Event", "State", "allowed", "follow"]


class State(StrEnum):
    """Where a call is."""

    # An enum hashes by a function written in Python, and the index is looked up with every step.
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
    """What moves a call."""

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


class Arrow(NamedTuple):
    """One permitted change of state."""

    source: State
    event: Event
    target: State


_LIVING: Final = (State.RECEIVED, State.RESOLVING, State.AWAITING_INPUT, State.RESUMED, State.EXECUTING)

ARROWS: Final[tuple[Arrow, ...]] = (
    Arrow(State.RECEIVED, Event.BEGIN, State.RESOLVING),
    Arrow(State.RESOLVING, Event.ASK, State.AWAITING_INPUT),
    Arrow(State.EXECUTING, Event.ASK, State.AWAITING_INPUT),
    Arrow(State.AWAITING_INPUT, Event.RESUME, State.RESUMED),
    Arrow(State.RESUMED, Event.RESOLVE, State.RESOLVING),
    Arrow(State.RESOLVING, Event.EXECUTE, State.EXECUTING),
    # The user changed an earlier answer: what depended on it is resolved and run again.
    Arrow(State.EXECUTING, Event.REVISE, State.RESOLVING),
    Arrow(State.EXECUTING, Event.FINISH, State.COMPLETED),
    # The ledger already holds this call's result: the body does not run again.
    Arrow(State.RESOLVING, Event.RECALL, State.COMPLETED),
    Arrow(State.RESOLVING, Event.DECLINE, State.DECLINED),
    Arrow(State.EXECUTING, Event.DECLINE, State.DECLINED),
    Arrow(State.RECEIVED, Event.REJECT, State.REJECTED),
    Arrow(State.AWAITING_INPUT, Event.REJECT, State.REJECTED),
    Arrow(State.RESOLVING, Event.REJECT, State.REJECTED),
    Arrow(State.EXECUTING, Event.REJECT, State.REJECTED),
    *(Arrow(state, Event.FAIL, State.FAILED) for state in _LIVING),
)


def _build() -> Machine:
    return Machine(
        model=None,
        states=[state.value for state in State],
        transitions=[
            {"trigger": arrow.event.value, "source": arrow.source.value, "dest": arrow.target.value} for arrow in ARROWS
        ],
        initial=State.RECEIVED.value,
        auto_transitions=False,
        send_event=False,
    )


MACHINE: Final[Machine] = _build()
"""The `transitions` machine of `ARROWS`; models can be attached to it, as the tests do."""


def _compile(machine: Machine) -> dict[tuple[State, Event], State]:
    index: dict[tuple[State, Event], State] = {}
    for name, event in machine.events.items():
        # `Event.transitions` is a defaultdict: indexing it would add states to the machine.
        for source, transitions in event.transitions.items():
            for transition in transitions:
                if transition.dest is None:
                    raise TypeError(f"the table has an arrow without a target: {source} --{name}-->")
                index[State(source), Event(name)] = State(transition.dest)
    return index


_INDEX: Final = _compile(MACHINE)
INDEX: Final[Mapping[tuple[State, Event], State]] = MappingProxyType(_INDEX)
"""The machine as a lookup: 0.1 µs a step where `trigger` takes 10. A test compares the two."""

FINAL: Final[frozenset[State]] = frozenset(State) - {source for source, _ in INDEX}
"""The states no event leads out of."""


def allowed(state: State) -> tuple[Event, ...]:
    """The events that may happen in a state, in the order of the `Event` class."""
    return tuple(event for event in Event if (state, event) in INDEX)


def follow(state: State, event: Event) -> State:
    """The state that an event leads to.

    Raises:
        IllegalTransition: The table has no such arrow.
    """
    target = _INDEX.get((state, event))
    if target is None:
        raise IllegalTransition(state.value, event.value, [event.value for event in allowed(state)])
    return target
