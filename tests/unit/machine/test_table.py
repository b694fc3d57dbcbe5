"""The tables of states and events, and the machines that `transitions` makes of them."""

from enum import StrEnum
from itertools import product
from typing import Any, Final, cast

import pytest
from transitions import MachineError

from roundtrip.errors import IllegalTransition
from roundtrip.machine.table import (
    CALL_MACHINE,
    ENTRY_MACHINE,
    CallArrow,
    EntryEvent,
    EntryState,
    Event,
    MachineTable,
    State,
)
from roundtrip.machine.tasks import TASK_MACHINE, TaskEvent, TaskState
from tests.kit.raised import raised
from tests.kit.tables import check_each

DRAWN: Final = """
received        begin    resolving
resolving       ask      awaiting_input
awaiting_input  resume   resumed
resumed         resolve  resolving
resolving       execute  executing
executing       ask      awaiting_input
executing       revise   resolving
executing       finish   completed
resolving       recall   completed
executing       decline   declined
resolving       decline   declined
received        reject   rejected
awaiting_input  reject   rejected
resolving       reject   rejected
executing       reject   rejected
received        fail     failed
resolving       fail     failed
awaiting_input  fail     failed
resumed         fail     failed
executing       fail     failed
"""
"""The diagram of the architecture page, one arrow a line."""


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
        (TASK_MACHINE, TaskState, TaskEvent),
    ],
)
def test_table_agrees_with_the_transitions_machine(
    table: MachineTable[Any, Any], states: type[StrEnum], events: type[StrEnum]
) -> None:
    machine = table.machine()
    for state, event in product(states, events):
        assert triggered(machine, state, event) == table.targets.get((state, event))
    assert len(cast("Any", machine).get_transitions()) == len(table.arrows) == len(table.targets)
    assert all(table.follow(arrow.source, arrow.event) is arrow.target for arrow in table.arrows)
    assert (list(table.states), list(table.events)) == (list(states), list(events))
    assert all(name.meaning for name in [*table.states, *table.events])


def test_the_table_is_the_diagram_of_the_architecture() -> None:
    lines = [line.split() for line in DRAWN.strip().splitlines()]
    drawn = {CallArrow(State(source), Event(event), State(target)) for source, event, target in lines}
    assert set(CALL_MACHINE.arrows) == drawn
    assert len(CALL_MACHINE.arrows) == len(drawn)


def test_five_states_live_and_four_are_final() -> None:
    assert set(CALL_MACHINE.final) == {State.COMPLETED, State.FAILED, State.DECLINED, State.REJECTED}
    assert all(CALL_MACHINE.allowed(state) == () for state in CALL_MACHINE.final)
    assert all(CALL_MACHINE.allowed(state) for state in set(State) - CALL_MACHINE.final)


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
    with pytest.raises(
        IllegalTransition, match="cannot 'renew' an entry that is 'settled'; allowed here: settle, forget"
    ):
        ENTRY_MACHINE.follow(EntryState.SETTLED, EntryEvent.RENEW)
