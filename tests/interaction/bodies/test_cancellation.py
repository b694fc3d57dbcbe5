"""A body of the live era that waits for a person, and a client that does not wait for the body."""

from typing import Any

import anyio
import pytest
from mcp.client.session import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitResult

from roundtrip import Context, Event, State
from roundtrip.testing import Era, Steps
from tests.hosts import WAIT
from tests.interaction.bodies.shops import LEFT, shop
from tests.players import Person, connect, text_of

pytestmark = pytest.mark.anyio


class Away(Person):
    """Is away at the first question, and answers the others."""

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
async def test_a_body_that_waits_for_a_person_is_cancelled_with_its_call(blocking: bool) -> None:
    trace = Steps()
    ended: list[str] = []
    over = anyio.Event()

    async def waits(ctx: Context[Any, Any]) -> int:
        try:
            return await ctx.ask("left", LEFT, unwrap=True)
        except BaseException as error:
            ended.append(type(error).__name__)
            raise

    def blocks(ctx: Context[Any, Any]) -> int:
        try:
            return ctx.blocking.ask("left", LEFT, unwrap=True)
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


async def test_what_a_cancelled_body_holds_is_let_go() -> None:
    log: list[str] = []
    closed = anyio.Event()

    async def body(ctx: Context[Any, Any]) -> int:
        log.append("open")
        try:
            return await ctx.ask("left", LEFT, unwrap=True)
        finally:
            log.append("close")
            closed.set()

    person = Away()
    with anyio.fail_after(WAIT):
        async with connect(shop(body), Era.LIVE, person) as client:
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "order")
                await person.went.wait()
                group.cancel_scope.cancel()
            await closed.wait()
    assert log == ["open", "close"]
