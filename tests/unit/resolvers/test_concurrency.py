"""Resolvers side by side: overlap, cancellation, context variables, and the guess that one never waits."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import pytest

from roundtrip import Elicit, Resolve
from roundtrip.machine.journal import Action
from roundtrip.questions.outcomes import Outcome
from tests.kit.shops import Choice
from tests.kit.waiting import WAIT
from tests.unit.resolvers.walking import Memory, plan_of, start, tool_of, walk

pytestmark = pytest.mark.anyio


VAR: ContextVar[str] = ContextVar("VAR", default="unset")


async def test_resolver_runs_once_its_requirements_are_ready() -> None:
    done = anyio.Event()

    async def quick() -> int:
        await anyio.lowlevel.checkpoint()
        return 1

    async def slow() -> str:
        await done.wait()
        return "slow"

    async def after(value: Annotated[int, Resolve(quick)]) -> str:
        done.set()
        return "after"

    plan = plan_of(tool_of(slow, after))
    assert await walk(plan) == {"p0": "slow", "p1": "after"}


@pytest.mark.parametrize("known", [False, True], ids=["on the first walk", "when it is known who waits"])
async def test_a_failing_resolver_cancels_those_beside_it(known: bool) -> None:
    cancelled: list[str] = []
    fails = False
    started = anyio.Event()

    async def beside() -> None:
        try:
            if fails:
                started.set()
                await anyio.sleep_forever()
            await anyio.lowlevel.checkpoint()
        except anyio.get_cancelled_exc_class():
            cancelled.append("beside")
            raise

    async def fail() -> None:
        await anyio.lowlevel.checkpoint()
        if fails:
            await started.wait()
            raise ValueError("boom")

    plan = plan_of(tool_of(beside, fail))
    if known:
        await walk(plan)
    fails = True
    with pytest.raises(ValueError, match="boom"):
        await walk(plan)
    assert cancelled == ["beside"]
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await anyio.lowlevel.checkpoint()


async def test_decline_cancels_concurrent_resolvers() -> None:
    cancelled: list[str] = []
    started = anyio.Event()

    async def beside() -> None:
        try:
            started.set()
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append("beside")
            raise

    async def ask() -> Elicit[Choice]:
        await started.wait()
        return Elicit("Sure?", Choice)

    one = start(plan_of(tool_of(beside, ask)), Memory(answers={"n1": Outcome(action=Action.DECLINE)}))
    with anyio.fail_after(WAIT):
        await one.advance()
    assert one.declined is not None
    assert cancelled == ["beside"]


async def test_cancelling_the_leg_cancels_its_resolvers() -> None:
    cancelled: list[int] = []
    started = [anyio.Event(), anyio.Event()]

    def waiter(number: int) -> Callable[[], Any]:
        async def wait() -> None:
            try:
                started[number].set()
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                cancelled.append(number)
                raise

        return wait

    one = start(plan_of(tool_of(waiter(0), waiter(1))))
    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as group:
            group.start_soon(one.advance)
            for event in started:
                await event.wait()
            group.cancel_scope.cancel()
    assert sorted(cancelled) == [0, 1]


# Context variables and cancel scopes.


async def test_resolver_may_reset_a_context_variable_beside_another() -> None:
    both = (anyio.Event(), anyio.Event())

    def setter(number: int) -> Callable[[], Any]:
        async def set_and_reset() -> str:
            token = VAR.set(f"set by {number}")
            both[number].set()
            await both[1 - number].wait()
            seen = VAR.get()
            VAR.reset(token)
            return seen

        return set_and_reset

    plan = plan_of(tool_of(setter(0), setter(1)))
    for _ in range(3):
        assert await walk(plan) == {"p0": "set by 0", "p1": "set by 1"}
    assert VAR.get() == "unset"


async def test_resolvers_may_use_timeouts_and_task_groups_beside_each_other() -> None:
    async def bounded() -> str:
        with anyio.fail_after(WAIT):
            await anyio.lowlevel.checkpoint()
        return "in time"

    async def gives_up() -> str:
        with anyio.move_on_after(0):
            await anyio.sleep_forever()
        return "gave up"

    async def too_late() -> str:
        try:
            with anyio.fail_after(0):
                await anyio.sleep_forever()
        except TimeoutError:
            return "too late"
        return "in time"

    async def grouped() -> str:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.lowlevel.checkpoint)
        return "grouped"

    async def asyncios() -> str:
        async with asyncio.timeout(WAIT):
            await asyncio.sleep(0)
        return "asyncio's"

    plan = plan_of(tool_of(bounded, gives_up, too_late, grouped, asyncios))
    for _ in range(3):
        assert list((await walk(plan)).values()) == ["in time", "gave up", "too late", "grouped", "asyncio's"]


async def test_plan_learns_nodes_that_never_wait() -> None:
    tasks: list[Any] = []

    async def quick() -> None:
        tasks.append(asyncio.current_task())

    async def waits() -> None:
        await anyio.lowlevel.checkpoint()

    plan = plan_of(tool_of(quick, waits))
    assert plan.never_suspended == [False, False]
    await walk(plan)
    assert plan.never_suspended == [True, False]
    await walk(plan)
    assert tasks[0] is not asyncio.current_task()
    assert tasks[1] is asyncio.current_task()


async def test_misjudged_resolver_may_wait_for_a_later_one() -> None:
    reached = anyio.Event()

    async def waits() -> None:
        await reached.wait()

    async def reaches() -> None:
        reached.set()

    plan = plan_of(tool_of(waits, reaches))
    plan.never_suspended[:] = [True, True]
    assert await walk(plan) == {"p0": None, "p1": None}
    assert plan.never_suspended == [False, True]


async def test_every_wrong_guess_gives_the_same_values() -> None:
    async def quick() -> int:
        return 1

    async def slow(quick: Annotated[int, Resolve(quick)]) -> int:
        await anyio.lowlevel.checkpoint()
        return quick + 1

    def threaded(slow: Annotated[int, Resolve(slow)]) -> int:
        return slow + 1

    tool = tool_of(quick, slow, threaded)
    for guess in range(8):
        plan = plan_of(tool)
        plan.never_suspended[:] = [bool(guess & 1), bool(guess & 2), bool(guess & 4)]
        assert await walk(plan) == {"p0": 1, "p1": 2, "p2": 3}


async def test_misjudged_resolver_is_cancelled_when_it_waits() -> None:
    waits = False
    cancelled: list[bool] = []

    async def changing() -> None:
        if waits:
            try:
                await anyio.sleep_forever()
            finally:
                cancelled.append(True)

    plan = plan_of(tool_of(changing))
    await walk(plan)
    waits = True
    with anyio.move_on_after(0):
        await start(plan).advance()
    assert cancelled == [True]
