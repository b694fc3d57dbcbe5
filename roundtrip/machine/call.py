"""Provide the state machine of one call, which reports each transition to its watcher."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from roundtrip.machine.journal import Journal
from roundtrip.machine.table import CALL_MACHINE, Event, State

_NO_DETAIL: Final[Mapping[str, Any]] = MappingProxyType({})


# A tuple, as one is made for each transition of each call that is watched.
class Transition(NamedTuple):
    """One change of state of one call.

    `leg` counts requests of the call and `round` its batches of questions, both from 1 (`round` is 0 before the
    first). `detail` has the evidence of this transition alone: the keys asked, the reason of a failure.
    """

    call_id: str
    leg: int
    source: State
    event: Event
    target: State
    round: int
    detail: Mapping[str, Any] = _NO_DETAIL


@dataclass(slots=True, eq=False, repr=False)
class Call:
    """State machine of one call: apply events, read `state`.

    The id and the counters come from outside: a fresh id, or a journal. A call restored from a journal starts in
    `awaiting_input`. `watch` receives each transition, and the facts of `roundtrip.machine.facts`. It must not raise:
    an exception would end the leg.
    """

    id: str
    leg: int = 1
    round: int = 0
    state: State = State.RECEIVED
    watch: Callable[[Any], None] | None = None

    @classmethod
    def resumed(cls, journal: Journal) -> "Call":
        """Return the call of a journal on its next leg."""
        return cls(journal.call_id, leg=journal.leg + 1, round=journal.round, state=State.AWAITING_INPUT)

    def begin_leg(self) -> None:
        """Move to the state in which resolvers run, from a first request or from the answers to a round."""
        if self.state is State.AWAITING_INPUT:
            self.apply(Event.RESUME)
            self.apply(Event.RESOLVE)
        else:
            self.apply(Event.BEGIN)

    def apply(self, event: Event, **detail: Any) -> State:
        """Move the call by one event and report the transition.

        Raises:
            IllegalTransition: The table has no such arrow; the call keeps its state.
        """
        source = self.state
        # Looked up here, and not by `follow`, which is for the error: it happens for each event of each call.
        target = CALL_MACHINE.targets.get((source, event)) or CALL_MACHINE.follow(source, event)
        if event is Event.ASK:
            self.round += 1
        self.state = target
        if self.watch is not None:
            self.watch(Transition(self.id, self.leg, source, event, target, self.round, detail or _NO_DETAIL))
        return target
