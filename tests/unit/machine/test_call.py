"""One call on its way through the table, and the facts that its watcher receives."""

import pytest

from roundtrip.errors import IllegalTransition
from roundtrip.machine.call import Call, Transition
from roundtrip.machine.journal import Journal
from roundtrip.machine.table import Event, State


def test_asking_opens_a_round_and_the_step_already_counts_it() -> None:
    steps: list[Transition] = []
    call = Call("c1", watch=steps.append)
    for event in (Event.BEGIN, Event.ASK, Event.RESUME, Event.RESOLVE, Event.ASK):
        call.apply(event)
    assert [step.round for step in steps] == [0, 1, 1, 1, 2]
    assert call.round == 2


def test_a_restored_call_goes_on_counting_where_its_journal_ended() -> None:
    steps: list[Transition] = []
    call = Call.resumed(Journal("c1", born=1, deadline=2, end=3, leg=2, round=2, written=1))
    call.watch = steps.append
    call.apply(Event.RESUME)
    call.apply(Event.RESOLVE)
    call.apply(Event.ASK)
    assert [(step.leg, step.round) for step in steps] == [(3, 2), (3, 2), (3, 3)]


def test_illegal_event_changes_and_reports_nothing() -> None:
    steps: list[Transition] = []
    call = Call("c1", state=State.RESUMED, round=1, watch=steps.append)
    with pytest.raises(IllegalTransition) as caught:
        call.apply(Event.ASK)
    assert (call.state, call.round, steps) == (State.RESUMED, 1, [])
    assert caught.value.allowed == (Event.RESOLVE.value, Event.FAIL.value)


def test_each_event_is_reported_as_one_step_in_order() -> None:
    """The watcher is notified after the transition."""
    call, steps = Call("c1"), list[tuple[State, Transition]]()
    assert (call.id, call.state, call.leg, call.round) == ("c1", State.RECEIVED, 1, 0)
    call.watch = lambda step: steps.append((call.state, step))
    call.apply(Event.BEGIN)
    call.apply(Event.FAIL, error="boom")
    assert steps == [
        (State.RESOLVING, Transition("c1", 1, State.RECEIVED, Event.BEGIN, State.RESOLVING, 0)),
        (
            State.FAILED,
            Transition("c1", 1, State.RESOLVING, Event.FAIL, State.FAILED, 0, detail={"error": "boom"}),
        ),
    ]
