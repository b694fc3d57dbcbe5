"""The call state machine, which reports each transition to its watcher."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from roundtrip.machine.journal import Journal
from roundtrip.machine.table import CALL_MACHINE, Event, State

_NO_DETAIL: Final[Mapping[str, Any]] = MappingProxyType({})


# A named tuple is cheap to make, and each transition of each watched call makes one.
class Transition(NamedTuple):
    """A change of one call's state.

    `leg` counts the call's requests and starts at 1. `round` counts its question batches, and is 0 before the first
    batch. `detail` is evidence for this transition only: the question names, or the reason for a failure.
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
    """State machine for one call: `apply` takes an event, and `state` is the current state.

    The id and the counters come from a journal; a new call gets a fresh id. A call restored from a journal starts in
    `awaiting_input`. `watch` receives each transition, and the facts in `roundtrip.machine.facts`. It must not raise,
    because an exception would end the leg.
    """

    id: str
    leg: int = 1
    round: int = 0
    state: State = State.RECEIVED
    watch: Callable[[Any], None] | None = None

    @classmethod
    def resumed(cls, journal: Journal) -> "Call":
        """Return the call that a journal describes, ready for its next leg."""
        return cls(journal.call_id, leg=journal.leg + 1, round=journal.round, state=State.AWAITING_INPUT)

    def begin_leg(self) -> None:
        """Move to `resolving` when the first request or a round's answers arrive."""
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
        # Look the target up in the table first: `follow`, which raises the error for a missing arrow, is too slow for
        # every event.
        target = CALL_MACHINE.targets.get((source, event)) or CALL_MACHINE.follow(source, event)
        if event is Event.ASK:
            self.round += 1
        self.state = target
        if self.watch is not None:
            self.watch(Transition(self.id, self.leg, source, event, target, self.round, detail or _NO_DETAIL))
        return target
