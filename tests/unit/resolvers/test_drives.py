"""Plain functions that one thread runs after each other: facts, kept values, failures, trips to the thread."""

from collections.abc import Callable
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import pytest

from roundtrip import Elicit, Resolve
from roundtrip.machine.facts import NodeBegan, NodeEnded
from roundtrip.machine.journal import Action
from roundtrip.questions.outcomes import Outcome
from roundtrip.resolvers.plan import Plan
from roundtrip.resolvers.scheduler import Scheduler
from roundtrip.threads.leg_threads import LegThreads
from roundtrip.visibility.gates import failure_of, shared_outcomes
from tests.kit.waiting import WAIT
from tests.unit.resolvers.walking import Memory, plan_of, tool_of

pytestmark = pytest.mark.anyio


class CountedThreads(LegThreads):
    """Threads that count the trips from the event loop to a thread."""

    def __init__(self) -> None:
        super().__init__()
        self.trips = 0

    async def run(self, call: Callable[[], Any], /, **options: Any) -> Any:
        self.trips += 1
        return await super().run(call, **options)


class Walk:
    """Walk over a plan in the threads of a leg."""

    def __init__(
        self, plan: Plan, memory: Memory | None = None, isolated: Callable[[BaseException], bool] | None = None
    ) -> None:
        self.facts: list[tuple[str, str]] = []
        self.threads = CountedThreads()
        self.scheduler = Scheduler(
            plan,
            arguments={},
            context=lambda: None,
            outcomes=memory or Memory(),
            threads=self.threads,
            watch=self._note,
            is_isolated=isolated,
        )

    def _note(self, fact: Any) -> None:
        assert isinstance(fact, NodeBegan | NodeEnded)
        self.facts.append((fact.key, fact.how if isinstance(fact, NodeEnded) else "began"))

    async def advance(self) -> dict[str, Any]:
        """Run what can run, and return the values if there are all."""
        values: dict[str, Any] = {}
        try:
            with anyio.fail_after(WAIT):
                await self.scheduler.advance()
        finally:
            self.threads.close()
        if not self.scheduler.waiting and self.scheduler.declined is None and not self.scheduler.failed:
            self.scheduler.fill(values)
        return values


class Last:
    """Function that runs after all nodes."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.values: list[Any] = []
        self.filled: dict[str, Any] = {}
        self._call = call

    def next(self, fill: Callable[[dict[str, Any]], bool]) -> Callable[[], Any] | None:
        return self._call if not self.values and fill(self.filled) else None

    def settle(self, value: Any) -> bool:
        self.values.append(value)
        return True


def one() -> int:
    return 1


def two() -> int:
    return 2


def ask() -> Elicit[bool]:
    return Elicit("Sure?", bool)


def chain(ran: list[str] | None = None) -> Plan:
    """Return the plan of a question of a plain function, and of the functions before and after it."""

    def ask_after(value: Annotated[int, Resolve(one)]) -> Elicit[bool]:
        return ask()

    def last(sure: Annotated[bool, Resolve(ask_after, name="ask")]) -> str:
        if ran is not None:
            ran.append("last")
        return str(sure)

    def tool(value: Annotated[str, Resolve(last)]) -> None: ...

    return plan_of(tool)


@pytest.mark.parametrize(
    ("answers", "facts"),
    [
        ({}, [("one", "computed"), ("ask", "asked")]),
        ({"ask": True}, [("one", "computed"), ("ask", "answered"), ("last", "computed")]),
        ({"ask": Outcome(action=Action.DECLINE)}, [("one", "computed"), ("ask", "answered")]),
    ],
    ids=["asked", "answered", "declined"],
)
async def test_watcher_sees_driven_functions_begin_and_end(
    answers: dict[str, Any], facts: list[tuple[str, str]]
) -> None:
    ran: list[str] = []
    walk = Walk(chain(ran), Memory(answers))
    values = await walk.advance()
    assert walk.facts == [fact for key, how in facts for fact in ((key, "began"), (key, how))]
    assert (values, ran) == (({"value": "True"}, ["last"]) if ("last", "computed") in facts else ({}, []))
    assert walk.threads.trips == 1


@pytest.mark.parametrize("kept", [("n0",), ("n1",), ("n1", "n2"), ("n0", "n1", "n2")], ids=str)
async def test_kept_plain_value_is_recalled_without_its_function(kept: tuple[str, ...]) -> None:
    ran: list[str] = []

    def noting(key: str) -> Callable[[], str]:
        def note() -> str:
            ran.append(key)
            return f"new {key}"

        return note

    keys = ("n0", "n1", "n2")
    parts = [noting(key) for key in keys]

    def tool(
        p0: Annotated[str, Resolve(parts[0], name="n0", remember=True)],
        p1: Annotated[str, Resolve(parts[1], name="n1", remember=True)],
        p2: Annotated[str, Resolve(parts[2], name="n2", remember=True)],
    ) -> None: ...

    memory = Memory(kept={key: f"kept {key}" for key in kept})
    walk = Walk(plan_of(tool), memory)
    values = await walk.advance()
    assert values == {f"p{key[1]}": f"{'kept' if key in kept else 'new'} {key}" for key in keys}
    assert ran == [key for key in keys if key not in kept]
    assert memory.kept == {key: values[f"p{key[1]}"] for key in keys}
    expected = [fact for key in keys for fact in ((key, "began"), (key, "recalled" if key in kept else "computed"))]
    assert walk.facts == expected
    # Functions beside each other share one trip.
    assert walk.threads.trips == (0 if len(kept) == 3 else 1)


async def test_functions_after_a_coroutine_share_one_trip() -> None:
    async def waits() -> int:
        await anyio.lowlevel.checkpoint()
        return 1

    async def waits_too() -> int:
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        return 2

    def first(value: Annotated[int, Resolve(waits)], other: Annotated[int, Resolve(waits_too)]) -> int:
        return value + other

    def second(value: Annotated[int, Resolve(waits)], other: Annotated[int, Resolve(waits_too)]) -> int:
        return value - other

    def tool(a: Annotated[int, Resolve(first)], b: Annotated[int, Resolve(second)]) -> None: ...

    plan = plan_of(tool)
    for _ in range(3):
        walk = Walk(plan)
        assert await walk.advance() == {"a": 3, "b": -1}
        assert walk.threads.trips == 1


async def later_value() -> int:
    await anyio.lowlevel.checkpoint()
    return 7


async def later_error() -> int:
    await anyio.lowlevel.checkpoint()
    raise KeyError("boom")


def later_question() -> Any:
    async def later() -> Elicit[bool]:
        await anyio.lowlevel.checkpoint()
        return ask()

    return later()


def fail() -> int:
    raise KeyError("boom")


@pytest.mark.parametrize(
    ("made", "how", "value", "beside"),
    [
        (lambda: later_value(), "computed", 7, False),
        (lambda: later_value(), "computed", 7, True),
        (lambda: later_error(), "failed", None, True),
        (later_question, "asked", None, True),
        (fail, "failed", None, True),
    ],
    ids=["value", "value beside another", "late error", "question", "error"],
)
async def test_coroutine_of_a_plain_function_is_awaited_on_the_loop(
    made: Callable[[], Any], how: str, value: Any, beside: bool
) -> None:
    plan = plan_of(tool_of(made, two) if beside else tool_of(made))
    walk = Walk(plan)
    if how == "failed":
        with pytest.raises(KeyError, match="boom"):
            await walk.advance()
    else:
        values = await walk.advance()
        assert values.get("p0") == value
        assert values.get("p1") == (2 if beside and how == "computed" else None)
        assert [node.key for node in walk.scheduler.waiting_nodes()] == (["n0"] if how == "asked" else [])
    assert [found for key, found in walk.facts if key == "n0"] == ["began", how]


@pytest.mark.parametrize("made", [fail, lambda: later_error()], ids=["in the thread", "on the loop"])
async def test_isolated_failure_ends_only_its_driven_function(made: Callable[[], Any]) -> None:
    def after(value: Annotated[int, Resolve(made, name="made")]) -> int:
        raise AssertionError("it has nothing to run with")

    def tool(a: Annotated[int, Resolve(after)], b: Annotated[int, Resolve(two)]) -> None: ...

    walk = Walk(plan_of(tool), isolated=lambda error: isinstance(error, KeyError))
    await walk.advance()
    assert [(index, type(error)) for index, error in walk.scheduler.failed.items()] == [(0, KeyError)]
    assert isinstance(failure_of(walk.scheduler, 1), KeyError)
    assert [outcome.value for outcome in shared_outcomes(walk.scheduler).values()] == [2]
    assert {(key, how) for key, how in walk.facts if how != "began"} == {("made", "failed"), ("two", "computed")}


async def test_function_after_all_nodes_runs_in_the_same_trip() -> None:
    plan = chain()
    walk = Walk(plan, Memory({"ask": True}))
    walk.scheduler.last = last = Last(lambda: f"body {last.filled['value']}")
    await walk.advance()
    assert last.values == ["body True"]
    assert walk.threads.trips == 1


@pytest.mark.parametrize(
    ("answers", "left"), [({}, "waits"), ({"ask": Outcome(action=Action.DECLINE)}, "declined")], ids=["waits", "no"]
)
async def test_function_after_all_nodes_waits_for_the_answers(answers: dict[str, Any], left: str) -> None:
    walk = Walk(chain(), Memory(answers))
    walk.scheduler.last = last = Last(lambda: left)
    await walk.advance()
    assert last.values == []


async def test_question_that_is_answered_later_drives_on() -> None:
    memory = Memory()
    walk = Walk(chain(), memory)
    await walk.advance()
    memory.answers["ask"] = True
    walk.scheduler.settle_waiting()
    assert await walk.advance() == {"value": "True"}
    assert walk.threads.trips == 2
