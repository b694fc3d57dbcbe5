"""Questions inside the control flow of ordinary code: exception handlers, finally, task groups and gather."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from roundtrip import Context, Elicit, Server
from roundtrip.testing import Answers, Era, LegByLeg, Steps, User
from tests.interaction.bodies.shops import LEFT, RIGHT, shop
from tests.kit.hosts import WAIT
from tests.kit.players import text_of
from tests.kit.shops import KEY

pytestmark = pytest.mark.anyio


BOTH: Answers = {re.compile("Left"): 1, re.compile("Right"): 2}


async def _left(ctx: Context[Any, Any]) -> int:
    return await ctx.ask("left", LEFT)


async def _right(ctx: Context[Any, Any]) -> int:
    return await ctx.ask("right", RIGHT)


async def test_only_base_exception_sees_that_a_leg_ends(era: Era) -> None:
    server = Server("shop")
    seen: list[str] = []

    @server.tool()
    async def order(ctx: Context[Any, Any]) -> int:
        try:
            return await ctx.ask("left", LEFT)
        except Exception:  # noqa: BLE001 - as careful code does
            return 0
        except BaseException as error:
            seen.append(type(error).__name__)
            raise

    assert (await User(server, {"left": 1}, era=era).call("order")).text == "1"
    assert seen == (["Suspension"] if era is Era.RETRY else [])


async def test_finally_and_async_with_run_on_every_entering_leg(era: Era) -> None:
    server = Server("shop")
    log: list[str] = []

    @asynccontextmanager
    async def connection() -> AsyncGenerator[None]:
        log.append("open")
        try:
            yield
        finally:
            # Cleaning up may wait: nothing of the leg is cancelled.
            await anyio.lowlevel.checkpoint()
            log.append("close")

    @server.tool()
    async def order(ctx: Context[Any, Any]) -> int:
        async with connection():
            try:
                return await ctx.ask("left", LEFT)
            finally:
                log.append("finally")

    assert (await User(server, {"left": 1}, era=era).call("order")).text == "1"
    assert log == ["open", "finally", "close"] * (2 if era is Era.RETRY else 1)


async def test_question_in_finally_is_asked_beside_the_suspending_question(era: Era) -> None:
    trace = Steps()
    server = Server("shop", trace=trace)

    @server.tool()
    async def order(ctx: Context[Any, Any]) -> str:
        left = right = 0
        try:
            left = await ctx.ask("left", LEFT)
        finally:
            right = await ctx.ask("right", RIGHT)
        return f"{left} {right}"

    call = await User(server, BOTH, era=era).call("order")
    assert call.text == "1 2"
    assert call.asked == ["Left?", "Right?"]
    rounds = [{"left": "new", "right": "new"}] if era is Era.RETRY else [{"left": "new"}, {"right": "new"}]
    assert trace.asked == rounds


async def in_an_anyio_group(ctx: Context[Any, Any]) -> str:
    answers: dict[str, int] = {}

    async def put(key: str, question: Elicit[int]) -> None:
        answers[key] = await ctx.ask(key, question)

    async with anyio.create_task_group() as group:
        group.start_soon(put, "left", LEFT)
        group.start_soon(put, "right", RIGHT)
    return f"{answers['left']} {answers['right']}"


async def in_an_asyncio_group(ctx: Context[Any, Any]) -> str:
    async with asyncio.TaskGroup() as group:
        left = group.create_task(_left(ctx))
        right = group.create_task(_right(ctx))
    return f"{left.result()} {right.result()}"


async def in_gather(ctx: Context[Any, Any]) -> str:
    left, right = await asyncio.gather(_left(ctx), _right(ctx))
    return f"{left} {right}"


@pytest.mark.parametrize("body", [in_an_anyio_group, in_an_asyncio_group, in_gather])
async def test_asks_beside_each_other_end_the_leg_cleanly(era: Era, body: Callable[..., Any]) -> None:
    server = shop(body)
    with anyio.fail_after(WAIT):
        for _ in range(2):
            call = await User(server, BOTH, era=era).call("order")
            assert call.text == "1 2"
            assert sorted(call.asked) == ["Left?", "Right?"]


async def test_question_outliving_its_leg_is_asked_on_the_next() -> None:
    server = Server("shop", keys=[KEY])
    leg_is_over = asyncio.Event()
    late: list[str] = []
    refused = asyncio.Event()

    @server.tool()
    async def order(ctx: Context[Any, Any]) -> str:
        async def straggler() -> int:
            await leg_is_over.wait()
            try:
                return await _right(ctx)
            except Exception as error:
                late.append(str(error))
                refused.set()
                raise

        left, right = await asyncio.gather(_left(ctx), straggler())
        return f"{left} {right}"

    hopper = LegByLeg([server])
    with anyio.fail_after(WAIT):
        await hopper.leg("order")
        assert list(hopper.questions) == ["left"]
        leg_is_over.set()
        await refused.wait()
        assert late[0].startswith("'right' is asked outside") or late[0].startswith("'right' was asked after")
        await hopper.leg("order", answers={"left": {"value": 1}}, state=hopper.token)
        assert list(hopper.questions) == ["right"]
        result = await hopper.leg("order", answers={"right": {"value": 2}}, state=hopper.token)
    assert text_of(result) == "1 2"
