"""The tables of states and events, the machines that `transitions` makes of them, and calls that follow them."""

from enum import StrEnum
from itertools import product
from typing import Any, cast

import pytest
from transitions import Machine, MachineError

from roundtrip.errors import IllegalTransition
from roundtrip.ledger.machines import ENTRY_MACHINE, TASK_MACHINE, EntryEvent, EntryState, StoredEvent, StoredState
from roundtrip.machine.call import Call, Transition
from roundtrip.machine.journal import Journal
from roundtrip.machine.table import CALL_MACHINE, Event, MachineTable, State
from roundtrip.trace.drawings.machine import transitions_machine
from tests.kit.raised import raised
from tests.kit.tables import check_each


class Model:
    """Smallest model for `transitions`: an object with a state."""

    state: str


def triggered(machine: Any, state: StrEnum, event: StrEnum) -> str | None:
    """Return the state in which the machine leaves a model; None if it does not move the model."""
    model = Model()
    machine.add_model(model, initial=state.value)
    try:
        cast("Any", model).trigger(event.value)
        return model.state
    except MachineError:
        return None
    finally:
        machine.remove_model(model)


@pytest.mark.parametrize(
    ("table", "states", "events"),
    [
        (CALL_MACHINE, State, Event),
        (ENTRY_MACHINE, EntryState, EntryEvent),
        (TASK_MACHINE, StoredState, StoredEvent),
    ],
)
def test_table_agrees_with_the_transitions_machine(
    table: MachineTable[Any, Any], states: type[StrEnum], events: type[StrEnum]
) -> None:
    machine = transitions_machine(table, Machine)
    for state, event in product(states, events):
        assert triggered(machine, state, event) == table.targets.get((state, event))
    assert len(cast("Any", machine).get_transitions()) == len(table.arrows) == len(table.targets)
    assert all(table.follow(arrow.source, arrow.event) is arrow.target for arrow in table.arrows)
    assert (list(table.states), list(table.events)) == (list(states), list(events))
    assert all(name.meaning for name in [*table.states, *table.events])


def test_missing_arrow_is_an_error_with_evidence() -> None:
    def check(state: State, event: Event) -> None:
        error = raised(CALL_MACHINE.follow, state, event)
        assert isinstance(error, IllegalTransition)
        assert (error.state, error.event) == (state.value, event.value)
        assert error.allowed == tuple(possible.value for possible in CALL_MACHINE.allowed(state))
        assert [word for word in (state.value, event.value, *error.allowed) if word not in str(error)] == []
        assert ("the state is final" in str(error)) == (state in CALL_MACHINE.final)

    check_each(set(product(State, Event)) - CALL_MACHINE.targets.keys(), check)


def test_an_illegal_event_of_an_entry_names_the_entry() -> None:
    told = "cannot 'renew' an entry that is 'settled'; allowed here: settle, void, forget"
    with pytest.raises(IllegalTransition, match=told):
        ENTRY_MACHINE.follow(EntryState.SETTLED, EntryEvent.RENEW)


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
