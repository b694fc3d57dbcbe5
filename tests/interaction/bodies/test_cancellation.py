"""A body that waits for its user or for itself, and a client that does not wait for the body."""

import itertools
import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest
from mcp.client.session import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitResult

from roundtrip import Context, Event, Server, State
from roundtrip.testing import Era, Steps
from tests.interaction.bodies.shops import LEFT, shop
from tests.kit.hosts import WAIT
from tests.kit.players import Person, connect, text_of

pytestmark = pytest.mark.anyio


class Away(Person):
    """User who is away at the first question, and answers the others."""

    def __init__(self) -> None:
        super().__init__(answer=lambda params: {"value": 1})
        self.went = anyio.Event()

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        answer = await super().__call__(context, params)
        if len(self.asked) == 1:
            self.went.set()
            await anyio.sleep_forever()
        return answer


@pytest.mark.parametrize("blocking", [False, True])
async def test_cancelling_a_call_cancels_its_waiting_body(blocking: bool) -> None:
    trace = Steps()
    ended: list[str] = []
    over = anyio.Event()

    async def waits(ctx: Context[Any, Any]) -> int:
        try:
            return await ctx.ask("left", LEFT)
        except BaseException as error:
            ended.append(type(error).__name__)
            raise

    def blocks(ctx: Context[Any, Any]) -> int:
        try:
            return ctx.blocking.ask("left", LEFT)
        except BaseException as error:
            ended.append(type(error).__name__)
            raise

    def observe(step: Any) -> None:
        trace(step)
        if step.event is Event.FAIL:
            over.set()

    person = Away()
    with anyio.fail_after(WAIT):
        async with connect(shop(blocks if blocking else waits, trace=observe), Era.LIVE, person) as client:
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "order")
                await person.went.wait()
                group.cancel_scope.cancel()
            await over.wait()
            assert trace.states[-2:] == [State.AWAITING_INPUT, State.FAILED]
            # The connection lives on, and so do the threads.
            assert text_of(await client.call_tool("order")) == "1"
    assert ended == ["CancelledError"]


async def _wait_for_nothing() -> int:
    await anyio.lowlevel.checkpoint()
    return 1


GOES_ON: dict[str, Callable[[Context[Any, Any]], Any]] = {
    "ask": lambda ctx: ctx.blocking.ask("left", LEFT),
    "step": lambda ctx: ctx.blocking.step("computed", lambda: 1),
    "async step": lambda ctx: ctx.blocking.step("computed", _wait_for_nothing),
}


@pytest.mark.parametrize(
    ("era", "how", "seconds"),
    # A question of the retry era waits for nothing.
    [
        (Era.LIVE, "ask", None),
        (Era.LIVE, "ask", WAIT),
        *itertools.product((Era.RETRY, Era.LIVE), ["step", "async step"], [None]),
        (Era.RETRY, "step", WAIT),
    ],
)
async def test_cancelled_plain_body_ends_at_its_next_wait(era: Era, how: str, seconds: float | None) -> None:
    began, cancelled, over = anyio.Event(), threading.Event(), threading.Event()
    ended: list[str] = []

    def body(ctx: Context[Any, Any]) -> int:
        anyio.from_thread.run_sync(began.set)
        cancelled.wait(WAIT)
        try:
            return GOES_ON[how](ctx)
        except BaseException as error:
            ended.append(type(error).__name__)
            raise
        finally:
            over.set()

    server = Server("shop")
    server.tool(name="order", timeout=seconds)(body)
    server.tool(name="ping")(_wait_for_nothing)

    async def notice() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    async def noticing(ctx: Any, call_next: Any) -> Any:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        async with anyio.create_task_group() as group:
            group.start_soon(notice)
            try:
                return await call_next(ctx)
            finally:
                group.cancel_scope.cancel()

    server.middleware.append(noticing)
    with anyio.fail_after(WAIT):
        async with connect(server, era, Person()) as client:
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "order")
                await began.wait()
                group.cancel_scope.cancel()
            await anyio.to_thread.run_sync(over.wait, WAIT)
            assert text_of(await client.call_tool("ping")) == "1"
    # With a timeout its thread is left behind, and may find that its leg is over.
    assert ended in ([["CancelledError"]] if seconds is None else [["CancelledError"], ["AskedTooLate"]])
