"""Facts that a scheduler reports, and context managers that it enters."""

from collections.abc import AsyncGenerator, Iterator
from typing import Annotated, Any

import pytest

from roundtrip import Depends, Elicit, Resolve
from roundtrip.machine.facts import NodeBegan, NodeEnded, NodeHow
from roundtrip.resolvers.entering import PlainEntry
from roundtrip.resolvers.plan import Node
from tests.unit.resolvers.walking import Memory, plan_of, start, tool_of

pytestmark = pytest.mark.anyio


def ask() -> Elicit[bool]:
    return Elicit("Sure?", bool)


class Managers:
    """Context managers that the test exits."""

    def __init__(self) -> None:
        self.made: dict[str, Any] = {}
        self.entries: list[PlainEntry] = []

    async def enter(self, label: str, made: Any) -> Any:
        self.made[label] = made
        return await anext(made)

    def keep(self, entry: PlainEntry) -> None:
        self.entries.append(entry)


async def test_watcher_sees_each_node_begin_and_end() -> None:
    def entered() -> Iterator[int]:
        yield 1

    def computed() -> int:
        return 2

    def kept() -> int:
        raise AssertionError("its first outcome is final")

    def tool(
        a: Annotated[int, Resolve(computed)],
        b: Annotated[int, Resolve(kept, remember=True)],
        c: Annotated[bool, Resolve(ask)],
        d: int = Depends(entered),
    ) -> None: ...

    plan = plan_of(tool)
    ways: list[tuple[dict[str, Any], NodeHow]] = [({}, "asked"), ({"ask": True}, "answered")]
    for answers, how in ways:
        seen: list[Any] = []
        await start(plan, Memory(answers, kept={"kept": 3}), managers=Managers(), watch=seen.append).advance()
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
        await start(plan_of(tool_of(fails)), watch=seen.append).advance()
    assert seen == [NodeBegan("n0"), NodeEnded("n0", "failed")]


async def test_watcher_sees_what_ends_one_function_alone() -> None:
    async def fails() -> int:
        raise KeyError("boom")

    seen: list[Any] = []
    walk = start(plan_of(tool_of(fails, lambda: 1)), is_isolated=lambda error: True, watch=seen.append)
    await walk.advance()
    ended = {fact.key: fact.how for fact in seen if isinstance(fact, NodeEnded)}
    assert ended == {"n0": "failed", "n1": "computed"}


def test_question_is_reported_for_its_first_value_parameter() -> None:
    def first(one: bool = Depends(ask)) -> bool:
        return one

    def second(two: bool = Depends(ask)) -> bool:
        return two

    def tool(a: bool = Depends(first), b: bool = Depends(second), c: bool = Depends(ask)) -> None: ...

    assert {node.label: node.consumer for node in plan_of(tool).nodes} == {"ask": "one", "first": "a", "second": "b"}


async def test_generator_value_is_passed_on_under_its_name() -> None:
    def seven() -> int:
        return 7

    def session(number: int, *, more: int = Depends(seven)) -> Iterator[int]:
        yield number + more

    async def later(number: int) -> AsyncGenerator[int]:
        yield number

    def tool(a: Any = Depends(session, seven), b: Any = Depends(later, seven)) -> None: ...

    managers = Managers()
    walk = start(plan_of(tool), managers=managers)
    await walk.advance()
    values: dict[str, Any] = {}
    walk.fill(values)
    assert values == {"a": 14, "b": 7}
    assert list(managers.made) == ["later"]
    await managers.made["later"].aclose()
    (entry,) = managers.entries
    await entry.leave(None)
    assert entry.is_exited


class Keeping(Memory):
    """Memory that tells beforehand what it keeps."""

    def can_recall(self, node: Node) -> bool:
        return node.key in self.kept


async def test_watcher_sees_only_the_kept_values_that_are_needed() -> None:
    def first() -> int:
        raise AssertionError("only a kept value needs it")

    def second(value: Annotated[int, Resolve(first, remember=True)]) -> int:
        raise AssertionError("its first outcome is final")

    def tool(value: Annotated[int, Resolve(second, remember=True)]) -> None: ...

    seen: list[Any] = []
    await start(plan_of(tool), Keeping(kept={"first": 1, "second": 2}), watch=seen.append).advance()
    assert seen == [NodeBegan("second"), NodeEnded("second", "recalled")]
