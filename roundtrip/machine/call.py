"""One call on its way through the table, telling whoever watches each step."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from roundtrip.machine.table import FINAL, Event, State, follow

__all__ = ["Call", "Step"]

NO_DETAIL: Final[Mapping[str, Any]] = MappingProxyType({})


# A tuple, as one is made for each change of each call that is watched.
class Step(NamedTuple):
    """One change of state of one call, as who watches is told it.

    `leg` counts requests of the call and `round` its batches of questions, both from one (`round` is 0 before the
    first). `detail` says what only this step knows: the keys asked, why a call failed.
    """

    call_id: str
    leg: int
    source: State
    event: Event
    target: State
    round: int
    detail: Mapping[str, Any] = NO_DETAIL


class Call:
    """The state machine of one call: apply events, read `state`.

    The id and the counters come from outside (a fresh id, or a journal); a call restored from a journal starts
    in `awaiting_input`, as every journal was written there. `watch` is told each step, and by those who serve the
    call what else happens (`roundtrip.machine.facts`); what it raises would end the leg, so it must not raise.
    """

    __slots__ = ("id", "leg", "round", "state", "watch")

    def __init__(
        self,
        id: str,
        *,
        leg: int = 1,
        round: int = 0,
        state: State = State.RECEIVED,
        watch: Callable[[Any], None] | None = None,
    ) -> None:
        self.id = id
        self.leg = leg
        self.round = round
        self.state = state
        self.watch = watch

    @property
    def ended(self) -> bool:
        """Whether the call is in a state that nothing leads out of."""
        return self.state in FINAL

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
        if self.watch is not None:
            self.watch(Step(self.id, self.leg, source, event, target, self.round, detail or NO_DETAIL))
        return target
