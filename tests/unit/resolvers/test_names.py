"""Names of questions: by function, by key, by path, and stable when a tool is rearranged."""

import functools
import os
from collections.abc import Callable
from typing import Annotated, Any

from roundtrip import Depends, Resolve
from roundtrip.resolvers.signatures import identity
from tests.unit.resolvers.walking import keys, plan_of


def asker(value: int) -> Callable[[], int]:
    """Closures of this factory share their name."""

    def ask() -> int:
        return value

    return ask


ONE, TWO, THREE = asker(1), asker(2), asker(3)


class Counter:
    def method(self) -> int:
        return 1

    def other(self) -> int:
        return 3

    def __call__(self) -> int:
        return 2


def by_fn(tool: Callable[..., Any]) -> dict[Any, str]:
    return {node.fn: node.key for node in plan_of(tool).nodes}


def test_question_is_named_after_its_function() -> None:
    counter = Counter()

    def tool(
        a: Annotated[int, Resolve(ONE)],
        b: Annotated[int, Resolve(counter.method)],
        c: Annotated[int, Resolve(counter)],
        d: Annotated[int, Resolve(Counter)],
        e: Annotated[int, Resolve(functools.partial(functools.partial(pow, 2), 3))],
        f: Annotated[int, Resolve(lambda: 1)],
    ) -> None: ...

    assert keys(plan_of(tool)) == ["ask", "method", "Counter@c", "Counter@d", "pow", "<lambda>"]


def test_reordering_parameters_moves_no_name() -> None:
    def tool(
        a: Annotated[int, Resolve(ONE)], b: Annotated[int, Resolve(TWO)], c: Annotated[int, Resolve(THREE)]
    ) -> None: ...
    def turned(
        c: Annotated[int, Resolve(THREE)], b: Annotated[int, Resolve(TWO)], a: Annotated[int, Resolve(ONE)]
    ) -> None: ...

    assert by_fn(tool) == by_fn(turned)
    assert plan_of(tool).fingerprint == plan_of(turned).fingerprint


def test_key_keeps_its_name_and_claims_the_bare_one() -> None:
    def tool(a: Annotated[int, Resolve(ONE, name="ask")], b: Annotated[int, Resolve(TWO)]) -> None: ...

    assert by_fn(tool) == {ONE: "ask", TWO: "ask@b"}


def test_the_path_is_the_shortest_and_then_the_alphabetically_first() -> None:
    def deep(zz: Annotated[int, Resolve(ONE)]) -> int:
        return zz

    def tool(
        m: Annotated[int, Resolve(deep)],
        y: Annotated[int, Resolve(ONE)],
        x: Annotated[int, Resolve(ONE)],
        b: Annotated[int, Resolve(TWO)],
    ) -> None: ...

    assert by_fn(tool) == {deep: "deep", ONE: "ask@x", TWO: "ask@b"}


def test_a_path_leads_through_the_parameters_of_resolvers() -> None:
    def left(value: Annotated[int, Resolve(ONE)]) -> int:
        return value

    def right(value: Annotated[int, Resolve(TWO)]) -> int:
        return value

    def tool(a: Annotated[int, Resolve(left)], b: Annotated[int, Resolve(right)]) -> None: ...

    assert by_fn(tool) == {left: "left", ONE: "ask@a.value", right: "right", TWO: "ask@b.value"}


def test_repeated_mentions_of_a_function_make_one_node() -> None:
    counter = Counter()

    def nested(value: Annotated[int, Resolve(counter.method)], same: Annotated[int, Resolve(ONE)]) -> int:
        return value + same

    def tool(
        a: Annotated[int, Resolve(ONE)],
        b: Annotated[int, Resolve(ONE, name="named", former_names=("old",))],
        c: Annotated[int, Resolve(counter.method)],
        d: Annotated[int, Resolve(nested)],
        e: Annotated[int, Resolve(ONE, former_names=("older",), remember=True)],
    ) -> None: ...

    plan = plan_of(tool)
    assert keys(plan) == ["named", "method", "nested"]
    assert plan.nodes[0].names == ("named", "old", "older")
    assert plan.nodes[0].remember
    assert [root.node for root in plan.roots] == [0, 0, 1, 2, 0]


def test_bound_methods_are_identified_by_function_and_instance() -> None:
    counter, words = Counter(), ["b", "a"]
    assert identity(counter.method) == identity(counter.method) != identity(counter.other)
    assert identity(words.copy) == identity(words.copy) != identity(words.reverse)
    assert identity(words.copy) != identity(["b", "a"].copy)
    assert len({identity(fn) for fn in (os.getcwd, os.getpid, counter, Counter, asker)}) == 5


def test_unshared_function_has_a_node_per_parameter() -> None:
    def left(one: int = Depends(ONE, use_cache=False), two: int = Depends(ONE, use_cache=False)) -> int:
        return one + two

    def right(one: int = Depends(ONE, use_cache=False)) -> int:
        return one

    def tool(
        left: int = Depends(left), right: int = Depends(right), one: int = Depends(ONE, use_cache=False)
    ) -> None: ...

    assert sorted(keys(plan_of(tool))) == ["ask@left.one", "ask@left.two", "ask@one", "ask@right.one", "left", "right"]


def test_a_plan_knows_all_names_a_node_answers_to() -> None:
    def tool(
        a: Annotated[int, Resolve(ONE, former_names=("old", "older"))], b: Annotated[int, Resolve(TWO, name="b")]
    ) -> None: ...

    plan = plan_of(tool)
    assert dict(plan.names) == {"ask": 0, "old": 0, "older": 0, "b": 1}
    assert [node.bare_key for node in plan.nodes] == ["ask", "b"]


def test_fingerprint_distinguishes_added_renamed_kept_and_moved_nodes() -> None:
    def tool(a: Annotated[int, Resolve(ONE)]) -> None: ...
    def moved(z: int, renamed: Annotated[int, Resolve(ONE)]) -> None: ...
    def added(a: Annotated[int, Resolve(ONE)], b: Annotated[int, Resolve(asker, name="b")]) -> None: ...
    def named(a: Annotated[int, Resolve(ONE, name="n")]) -> None: ...
    def kept(a: Annotated[int, Resolve(ONE, remember=True)]) -> None: ...

    def fingerprint(fn: Callable[..., Any]) -> str:
        return plan_of(fn, "value").fingerprint

    assert fingerprint(tool) == fingerprint(moved)
    assert len({fingerprint(tool), fingerprint(added), fingerprint(named), fingerprint(kept)}) == 4
