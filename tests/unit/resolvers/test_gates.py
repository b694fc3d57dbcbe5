"""A walk that begins with the values of another, and a walk in which a failure ends its own node only."""

from collections.abc import Iterator
from typing import Any

import pytest

from roundtrip import Depends, Elicit, InvalidSignature
from roundtrip.machine.journal import Action
from roundtrip.questions.outcomes import Outcome
from roundtrip.resolvers.scheduler import Scheduler
from roundtrip.visibility.gates import failure_of, shared_outcomes
from tests.unit.resolvers.walking import keys, plan_of, start, tool_of

pytestmark = pytest.mark.anyio


async def values_of(walk: Scheduler) -> dict[str, Any]:
    await walk.advance()
    values: dict[str, Any] = {}
    walk.fill(values)
    return values


async def test_known_node_and_its_exclusive_requirements_do_not_run() -> None:
    runs: list[str] = []

    def session() -> str:
        runs.append("session")
        return "s"

    def account(session: str = Depends(session)) -> str:
        runs.append("account")
        return f"{session}a"

    def beside(session: str = Depends(session)) -> str:
        runs.append("beside")
        return f"{session}b"

    gate = start(plan_of(tool_of(account)))
    await gate.advance()
    found = shared_outcomes(gate)
    assert [outcome.value for outcome in found.values()] == ["s", "sa"]
    runs.clear()
    assert await values_of(start(plan_of(tool_of(account)), known=found)) == {"p0": "sa"}
    assert runs == []
    assert await values_of(start(plan_of(tool_of(account, beside)), known=found)) == {"p0": "sa", "p1": "sb"}
    assert runs == ["beside"]
    # The session alone was not kept: it runs for who needs it, and not for the account.
    known = {who: outcome for who, outcome in found.items() if outcome.value == "sa"}
    runs.clear()
    assert await values_of(start(plan_of(tool_of(account)), known=known)) == {"p0": "sa"}
    assert runs == []
    assert await values_of(start(plan_of(tool_of(account, beside)), known=known)) == {"p0": "sa", "p1": "sb"}
    assert runs == ["session", "beside"]


async def test_known_decline_ends_consumers_of_its_value() -> None:
    def ask() -> Elicit[bool]:
        raise AssertionError("its outcome is known")

    def after(sure: bool = Depends(ask)) -> bool:
        raise AssertionError("it has nothing to run with")

    declined = Outcome(action=Action.DECLINE)
    for consumer, parameter in ((ask, "p0"), (after, "sure")):
        plan = plan_of(tool_of(consumer))
        walk = start(plan, known={plan.nodes[0].shared_as: declined})
        await walk.advance()
        if walk.declined is None:
            walk.fill({})
        assert walk.declined == (parameter, declined)


async def test_node_failure_affects_only_its_consumers() -> None:
    boom = KeyError("boom")

    def fails() -> int:
        raise boom

    def needs(number: int = Depends(fails)) -> int:
        raise AssertionError("it has nothing to run with")

    def zero() -> int:
        return 0

    def far(number: int = Depends(needs), other: int = Depends(zero)) -> int:
        raise AssertionError("it has nothing to run with")

    def beside() -> int:
        return 7

    plan = plan_of(tool_of(far, beside))
    walk = start(plan, is_isolated=lambda error: isinstance(error, KeyError))
    await walk.advance()
    places = {node.label: node.index for node in plan.nodes}
    assert walk.failed == {places["fails"]: boom}
    assert [failure_of(walk, places[name]) for name in ("fails", "needs", "far")] == [boom, boom, boom]
    assert failure_of(walk, places["beside"]) is None
    assert [outcome.value for outcome in shared_outcomes(walk).values()] == [0, 7]


async def test_foreign_failure_ends_the_scheduler() -> None:
    def fails() -> int:
        raise KeyError("boom")

    walk = start(plan_of(tool_of(fails)), is_isolated=lambda error: isinstance(error, ValueError))
    with pytest.raises(KeyError, match="boom"):
        await walk.advance()
    assert walk.failed == {}


async def test_waiting_node_has_not_failed() -> None:
    def ask() -> Elicit[bool]:
        return Elicit("Sure?", bool)

    def after(answer: bool = Depends(ask)) -> int:
        return int(answer)

    plan = plan_of(tool_of(after))
    walk = start(plan, is_isolated=lambda error: True)
    await walk.advance()
    assert keys(plan) == ["ask", "n0"]
    assert failure_of(walk, 1) is None
    assert shared_outcomes(walk) == {}


@pytest.mark.parametrize("inline", [False, True])
async def test_context_manager_is_rejected_where_nothing_exits_it(inline: bool) -> None:
    def session() -> Iterator[int]:
        yield 1

    def tool(a: int = Depends(session, inline=inline)) -> None: ...

    with pytest.raises(InvalidSignature, match="'session' must not make a context manager here"):
        await start(plan_of(tool)).advance()


def test_downstream_of_a_node_is_everything_needing_it() -> None:
    def base() -> int: ...
    def other() -> int: ...
    def near(base: int = Depends(base)) -> int: ...
    def far(near: int = Depends(near)) -> int: ...
    def beside(other: int = Depends(other)) -> int: ...

    plan = plan_of(tool_of(far, beside, near))
    places = {node.label: node.index for node in plan.nodes}
    named = {
        label: sorted(plan.nodes[index].label for index in plan.downstream(place)) for label, place in places.items()
    }
    assert named == {"base": ["far", "near"], "near": ["far"], "far": [], "other": ["beside"], "beside": []}
