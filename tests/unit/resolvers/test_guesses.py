"""The guess that a resolver never waits: learned by watching, and harmless when wrong."""

import asyncio
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import pytest

from roundtrip import Resolve
from tests.unit.resolvers.walking import plan_of, start, tool_of, walk

pytestmark = pytest.mark.anyio


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
