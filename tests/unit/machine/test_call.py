"""One call on its way through the table, and the facts that its watcher receives."""

import pytest

from roundtrip.errors import IllegalTransition
from roundtrip.machine.call import Call, Transition
from roundtrip.machine.journal import Journal
from roundtrip.machine.table import CALL_MACHINE, Event, State


def test_a_call_starts_received_in_leg_one_before_any_round() -> None:
    call = Call("c1")
    assert (call.id, call.state, call.leg, call.round) == ("c1", State.RECEIVED, 1, 0)


def test_each_event_is_reported_as_one_step_in_order() -> None:
    steps: list[Transition] = []
    call = Call("c1", watch=steps.append)
    for event in (Event.BEGIN, Event.EXECUTE, Event.FINISH):
        call.apply(event)
    assert steps == [
        Transition("c1", 1, State.RECEIVED, Event.BEGIN, State.RESOLVING, 0),
        Transition("c1", 1, State.RESOLVING, Event.EXECUTE, State.EXECUTING, 0),
        Transition("c1", 1, State.EXECUTING, Event.FINISH, State.COMPLETED, 0),
    ]


def test_watcher_is_notified_after_the_transition() -> None:
    seen: list[tuple[State, State]] = []
    call = Call("c1", watch=lambda step: seen.append((call.state, step.target)))
    call.apply(Event.BEGIN)
    assert seen == [(State.RESOLVING, State.RESOLVING)]


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


def test_detail_of_a_transition_comes_from_its_event() -> None:
    steps: list[Transition] = []
    call = Call("c1", watch=steps.append)
    call.apply(Event.BEGIN)
    call.apply(Event.FAIL, error="boom")
    assert [dict(step.detail) for step in steps] == [{}, {"error": "boom"}]


def test_illegal_event_changes_and_reports_nothing() -> None:
    steps: list[Transition] = []
    call = Call("c1", state=State.RESUMED, round=1, watch=steps.append)
    with pytest.raises(IllegalTransition) as caught:
        call.apply(Event.ASK)
    assert (call.state, call.round, steps) == (State.RESUMED, 1, [])
    assert caught.value.allowed == (Event.RESOLVE.value, Event.FAIL.value)


@pytest.mark.parametrize("event", [Event.FAIL, Event.REJECT], ids=str)
def test_ended_call_accepts_no_event(event: Event) -> None:
    call = Call("c1")
    call.apply(event)
    assert call.state in CALL_MACHINE.final
    with pytest.raises(IllegalTransition, match="the state is final"):
        call.apply(Event.BEGIN)


def test_a_call_is_moved_by_apply_alone() -> None:
    assert not hasattr(Call("c1"), "__dict__")
