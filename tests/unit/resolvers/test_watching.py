"""Facts that a scheduler reports, and context managers that it enters."""

import asyncio
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import pytest

from roundtrip import Depends, Elicit, Resolve
from roundtrip.machine.facts import NodeBegan, NodeEnded, NodeHow
from roundtrip.resolvers.entering import PlainEntry
from roundtrip.resolvers.plan import Plan
from roundtrip.resolvers.scheduler import Scheduler
from roundtrip.resolvers.signatures import is_async
from tests.kit.waiting import WAIT
from tests.unit.resolvers.walking import Memory, plan_of, tool_of

pytestmark = pytest.mark.anyio


def ask() -> Elicit[bool]:
    return Elicit("Sure?", bool)


class Kept:
    """Context managers that the test exits."""

    def __init__(self, enter: Callable[[str, Any], Awaitable[Any]]) -> None:
        self._enter = enter
        self.entries: list[PlainEntry] = []

    async def enter(self, label: str, made: Any) -> Any:
        return await self._enter(label, made)

    def keep(self, entry: PlainEntry) -> None:
        self.entries.append(entry)


async def hand_back(label: str, made: Any) -> Any:
    """Return the made value without entering it."""
    return (label, made)


def watched(
    plan: Plan,
    seen: list[Any],
    memory: Memory | None = None,
    *,
    enter: Callable[[str, Any], Awaitable[Any]] = hand_back,
) -> Scheduler:
    known = memory if memory is not None else Memory()
    return Scheduler(
        plan,
        arguments={},
        context=lambda: None,
        outcomes=known,
        managers=Kept(enter),
        watch=seen.append,
    )


def told(key: str, how: NodeHow) -> list[Any]:
    return [NodeBegan(key), NodeEnded(key, how)]


async def test_watcher_sees_each_node_begin_and_end() -> None:
    def entered() -> Iterator[int]:
        yield 1

    def computed() -> int:
        return 2

    def kept() -> int:
        raise AssertionError("its first outcome is final")

    def tool(
        a: Annotated[int, Resolve(computed)],
        b: Annotated[int, Resolve(kept, once=True)],
        c: Annotated[bool, Resolve(ask)],
        d: int = Depends(entered),
    ) -> None: ...

    plan = plan_of(tool)
    ways: list[tuple[dict[str, Any], NodeHow]] = [({}, "asked"), ({"ask": True}, "answered")]
    for answers, how in ways:
        seen: list[Any] = []
        await watched(plan, seen, Memory(answers, kept={"kept": 3})).advance()
        # Those that run side by side begin in the plan's order, and end as they do.
        assert {fact for fact in seen if isinstance(fact, NodeEnded)} == {
            NodeEnded("computed", "computed"),
            NodeEnded("kept", "recalled"),
            NodeEnded("ask", how),
            NodeEnded("entered", "entered"),
        }
        assert [fact.key for fact in seen if isinstance(fact, NodeBegan)] == ["computed", "kept", "ask", "entered"]


async def test_watcher_sees_a_failure_before_it_is_raised() -> None:
    def fails() -> int:
        raise KeyError("boom")

    seen: list[Any] = []
    with pytest.raises(KeyError, match="boom"):
        await watched(plan_of(tool_of(fails)), seen).advance()
    assert seen == told("n0", "failed")


async def test_generator_value_is_passed_on_under_its_name() -> None:
    def seven() -> int:
        return 7

    def session(number: int, *, more: int = Depends(seven)) -> Iterator[int]:
        yield number + more

    async def later(number: int) -> AsyncGenerator[int]:
        yield number

    def tool(a: Any = Depends(session, seven), b: Any = Depends(later, seven)) -> None: ...

    made: list[tuple[str, Any]] = []

    async def enter(label: str, maker: Any) -> Any:
        made.append((label, maker))
        return await anext(maker)

    walk = watched(plan_of(tool), [], enter=enter)
    await walk.advance()
    values: dict[str, Any] = {}
    walk.fill(values)
    assert values == {"a": 14, "b": 7}
    assert [label for label, _ in made] == ["later"]
    await made[0][1].aclose()
    assert isinstance(walk.managers, Kept)
    (entry,) = walk.managers.entries
    await entry.leave(None)
    assert entry.is_exited


async def test_dependency_is_entered_in_the_scheduler_task() -> None:
    """A separate task would end, with its cancel scopes and context variables, before the body begins."""
    order: list[str] = []

    async def session() -> AsyncGenerator[int]:
        yield 1

    async def other_session() -> AsyncGenerator[int]:
        yield 2

    async def beside() -> None:
        await anyio.lowlevel.checkpoint()
        order.append("beside")

    async def enter(label: str, maker: Any) -> Any:
        order.append(label if asyncio.current_task() is own else "in another task")
        value = await anext(maker)
        await maker.aclose()
        return value

    own = asyncio.current_task()

    def tool(a: Any = Depends(session), b: Any = Depends(other_session), c: Any = Depends(beside)) -> None: ...

    with anyio.fail_after(WAIT):
        await watched(plan_of(tool), [], enter=enter).advance()
    assert order == ["beside", "session", "other_session"]


async def test_coroutine_making_a_generator_is_awaited_first() -> None:
    def session() -> Iterator[int]:
        yield 1

    @functools.wraps(session)
    async def wrapped() -> Iterator[int]:
        return iter((7,))

    async def enter(label: str, maker: Any) -> Any:
        return next(maker)

    def tool(a: Any = Depends(wrapped)) -> None: ...

    walk = watched(plan_of(tool), [], enter=enter)
    await walk.advance()
    assert [outcome.value for outcome in walk.shared_outcomes().values()] == [7]


def test_question_is_reported_for_its_first_value_parameter() -> None:
    def first(one: bool = Depends(ask)) -> bool:
        return one

    def second(two: bool = Depends(ask)) -> bool:
        return two

    def tool(a: bool = Depends(first), b: bool = Depends(second), c: bool = Depends(ask)) -> None: ...

    assert {node.label: node.consumer for node in plan_of(tool).nodes} == {"ask": "one", "first": "a", "second": "b"}


def test_callable_object_with_coroutine_call_is_awaited() -> None:
    class Later:
        async def __call__(self) -> int:
            return 1

    class Now:
        def __call__(self) -> int:
            return 1

    async def coroutine() -> int:
        return 1

    assert [is_async(fn) for fn in (Later(), Now(), Later, coroutine, ask)] == [True, False, False, True, False]
