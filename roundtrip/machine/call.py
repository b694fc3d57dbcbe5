"""One call on its way through the table, telling observers each step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from roundtrip.machine.table import FINAL, Event, State, follow

__all__ = ["Call", "Observer", "Step"]

NO_DETAIL: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Step:
    """One change of state of one call, as observers are told it.

    `leg` counts requests of the call and `round` its batches of questions, both from one (`round` is 0 before the
    first). `detail` says what only this step knows: the keys asked, why a call failed.
    """

    call_id: str
    leg: int
    source: State
    event: Event
    target: State
    round: int
    detail: Mapping[str, Any] = field(default_factory=lambda: NO_DETAIL)


Observer = Callable[[Step], None]
"""Called with every step of every call, in order; what it raises would end the leg, so it should not raise."""


class Call:
    """The state machine of one call: apply events, read `state`.

    The id and the counters come from outside (a fresh id, or a journal); a call restored from a journal starts
    in `awaiting_input`, as every journal was written there.
    """

    __slots__ = ("_observers", "id", "leg", "round", "state")

    def __init__(
        self,
        id: str,
        *,
        leg: int = 1,
        round: int = 0,
        state: State = State.RECEIVED,
        observers: Sequence[Observer] = (),
    ) -> None:
        self.id = id
        self.leg = leg
        self.round = round
        self.state = state
        self._observers = observers

    @property
    def ended(self) -> bool:
        """Whether the call is in a state that nothing leads out of."""
        return self.state in FINAL

    @property
    def observed(self) -> bool:
        """Whether anybody is told of steps, so that details are worth collecting."""
        return bool(self._observers)

    def apply(self, event: Event, **detail: Any) -> State:
        """Move the call by one event and report the step.

        Raises:
            IllegalTransition: The table has no such arrow; the call stays where it was.
        """
        source = self.state
        target = follow(source, event)
        if event is Event.ASK:
            self.round += 1
        self.state = target
        if self._observers:
            step = Step(self.id, self.leg, source, event, target, self.round, detail or NO_DETAIL)
            for observer in self._observers:
                observer(step)
        return target
