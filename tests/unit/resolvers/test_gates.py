"""A walk that begins with the values of another, and a walk in which a failure ends its own node only."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Annotated, Any

import pytest

from roundtrip import Depends, Elicit, InvalidSignature, Resolve
from roundtrip.machine.journal import Action
from roundtrip.questions.outcomes import Outcome
from roundtrip.resolvers.plan import Plan
from roundtrip.resolvers.scheduler import Scheduler
from tests.unit.resolvers.walking import Memory, keys, plan_of, tool_of

pytestmark = pytest.mark.anyio


def start(
    plan: Plan,
    known: Mapping[Hashable, Outcome] | None = None,
    *,
    arguments: Mapping[str, Any] | None = None,
    isolated: Callable[[BaseException], bool] | None = None,
) -> Scheduler:
    memory = Memory()
    return Scheduler(
        plan,
        arguments=arguments or {},
        context=lambda: None,
        outcomes=memory,
        known=known,
        is_isolated=isolated,
    )


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
    found = gate.shared_outcomes()
    assert [outcome.value for outcome in found.values()] == ["s", "sa"]
    runs.clear()
    assert await values_of(start(plan_of(tool_of(account)), found)) == {"p0": "sa"}
    assert runs == []
    assert await values_of(start(plan_of(tool_of(account, beside)), found)) == {"p0": "sa", "p1": "sb"}
    assert runs == ["beside"]
    # The session alone was not kept: it runs for who needs it, and not for the account.
    known = {who: outcome for who, outcome in found.items() if outcome.value == "sa"}
    runs.clear()
    assert await values_of(start(plan_of(tool_of(account)), known)) == {"p0": "sa"}
    assert runs == []
    assert await values_of(start(plan_of(tool_of(account, beside)), known)) == {"p0": "sa", "p1": "sb"}
    assert runs == ["session", "beside"]


async def test_known_decline_ends_consumers_of_its_value() -> None:
    def ask() -> Elicit[bool]:
        raise AssertionError("its outcome is known")

    def after(sure: bool = Depends(ask)) -> bool:
        raise AssertionError("it has nothing to run with")

    declined = Outcome(action=Action.DECLINE)
    for consumer, parameter in ((ask, "p0"), (after, "sure")):
        plan = plan_of(tool_of(consumer))
        walk = start(plan, {plan.nodes[0].shared_as: declined})
        await walk.advance()
        if walk.declined is None:
            walk.fill({})
        assert walk.declined == (parameter, declined)


async def test_parameterized_or_fixed_node_differs_from_the_known_one() -> None:
    runs: list[str] = []

    def of_call(title: str = "none") -> str:
        runs.append("of_call")
        return title

    def above(of_call: str = Depends(of_call)) -> str:
        runs.append("above")
        return of_call

    def kept() -> str:
        runs.append("kept")
        return "k"

    def plain() -> str:
        runs.append("plain")
        return "p"

    def tool(
        above: Annotated[str, Resolve(above)],
        kept: Annotated[str, Resolve(kept, once=True)],
        plain: Annotated[str, Resolve(plain)],
    ) -> None: ...

    before = start(plan_of(tool))
    await before.advance()
    runs.clear()
    walk = start(plan_of(tool, "title"), before.shared_outcomes(), arguments={"title": "Dune"})
    assert await values_of(walk) == {"above": "Dune", "kept": "k", "plain": "p"}
    assert sorted(runs) == ["above", "kept", "of_call"]


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
    walk = start(plan, isolated=lambda error: isinstance(error, KeyError))
    await walk.advance()
    places = {node.label: node.index for node in plan.nodes}
    assert walk.failed == {places["fails"]: boom}
    assert [walk.failure_of(places[name]) for name in ("fails", "needs", "far")] == [boom, boom, boom]
    assert walk.failure_of(places["beside"]) is None
    assert [outcome.value for outcome in walk.shared_outcomes().values()] == [0, 7]


async def test_foreign_failure_ends_the_scheduler() -> None:
    def fails() -> int:
        raise KeyError("boom")

    walk = start(plan_of(tool_of(fails)), isolated=lambda error: isinstance(error, ValueError))
    with pytest.raises(KeyError, match="boom"):
        await walk.advance()
    assert walk.failed == {}


async def test_waiting_node_has_not_failed() -> None:
    def ask() -> Elicit[bool]:
        return Elicit("Sure?", bool)

    def after(answer: bool = Depends(ask)) -> int:
        return int(answer)

    plan = plan_of(tool_of(after))
    walk = start(plan, isolated=lambda error: True)
    await walk.advance()
    assert keys(plan) == ["ask", "n0"]
    assert walk.failure_of(1) is None
    assert walk.shared_outcomes() == {}


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
