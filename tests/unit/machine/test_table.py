"""The table of states and events, the machine `transitions` makes of it, and the index compiled from that machine."""

from itertools import product
from typing import Any, Final, cast

import pytest
from transitions import MachineError

from roundtrip.errors import IllegalTransition
from roundtrip.machine.table import ARROWS, FINAL, INDEX, MACHINE, Arrow, Event, State, allowed, follow

EVERY_PAIR: Final = list(product(State, Event))

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
    """What `transitions` moves: anything with a state."""

    state: str


def triggered(state: State, event: Event) -> str | None:
    """Where the machine itself takes a model; None if it will not move it."""
    model = Model()
    machine = cast("Any", MACHINE)
    machine.add_model(model, initial=state.value)
    try:
        cast("Any", model).trigger(event.value)
        return model.state
    except MachineError:
        return None
    finally:
        machine.remove_model(model)


@pytest.mark.parametrize(("state", "event"), EVERY_PAIR, ids=str)
def test_index_agrees_with_the_transitions_machine(state: State, event: Event) -> None:
    assert triggered(state, event) == INDEX.get((state, event))


def test_triggering_every_event_leaves_the_machine_as_it_was() -> None:
    before = MACHINE.get_transitions()
    for state, event in EVERY_PAIR:
        triggered(state, event)
    assert len(MACHINE.get_transitions()) == len(before) == len(ARROWS)


def test_the_table_is_the_diagram_of_the_architecture() -> None:
    lines = [line.split() for line in DRAWN.strip().splitlines()]
    drawn = {Arrow(State(source), Event(event), State(target)) for source, event, target in lines}
    assert set(ARROWS) == drawn
    assert len(ARROWS) == len(drawn)


def test_no_state_and_event_have_two_arrows() -> None:
    assert len({(arrow.source, arrow.event) for arrow in ARROWS}) == len(ARROWS) == len(INDEX)


def test_five_states_live_and_four_are_final() -> None:
    assert set(FINAL) == {State.COMPLETED, State.FAILED, State.DECLINED, State.REJECTED}
    assert all(allowed(state) == () for state in FINAL)
    assert all(allowed(state) for state in set(State) - FINAL)


def test_every_live_state_is_reachable_and_can_fail() -> None:
    reached = {State.RECEIVED}
    while more := {INDEX[pair] for pair in INDEX if pair[0] in reached} - reached:
        reached |= more
    assert reached == set(State)
    assert all((state, Event.FAIL) in INDEX for state in set(State) - FINAL)


def test_only_an_answer_or_rejection_leaves_awaiting_input() -> None:
    assert set(allowed(State.AWAITING_INPUT)) == {Event.RESUME, Event.REJECT, Event.FAIL}


@pytest.mark.parametrize(("state", "event"), [pair for pair in EVERY_PAIR if pair not in INDEX], ids=str)
def test_missing_arrow_is_an_error_with_evidence(state: State, event: Event) -> None:
    with pytest.raises(IllegalTransition) as caught:
        follow(state, event)
    error = caught.value
    assert (error.state, error.event) == (state.value, event.value)
    assert error.allowed == tuple(possible.value for possible in allowed(state))
    assert state.value in str(error)
    assert event.value in str(error)
    assert all(possible in str(error) for possible in error.allowed)
    assert ("the state is final" in str(error)) == (state in FINAL)


def test_following_an_arrow_gives_its_target() -> None:
    assert all(follow(arrow.source, arrow.event) is arrow.target for arrow in ARROWS)
