"""Resolvers beside each other: nothing blocks, nothing leaks, nothing changes its task; and a client that goes away."""

from typing import Annotated

import anyio
import pytest

from roundtrip import Elicit, Event, Resolve, Server, State, Transition
from roundtrip.testing import Era, LegByLeg, Steps, served
from roundtrip.tracing import TokenRejection
from tests.kit.hosts import WAIT
from tests.kit.players import Person, connect, text_of
from tests.kit.shops import KEY, Choice, sure
from tests.kit.wire import wire

pytestmark = pytest.mark.anyio


async def test_many_calls_at_once_keep_their_answers_apart(era: Era) -> None:
    server = Server("shop", keys=[KEY])

    async def confirm(number: int) -> Elicit[Choice]:
        return Elicit(f"Number {number}?", Choice)

    @server.tool()
    async def order(number: int, choice: Annotated[Choice, Resolve(confirm)]) -> str:
        return f"{number} {choice.ok}"

    person = Person(answer=lambda params: {"ok": int(params.message[7:-1]) % 2 == 0})
    results: dict[int, str] = {}
    async with connect(server, era, person) as client:

        async def one(number: int) -> None:
            results[number] = text_of(await client.call_tool("order", {"number": number}))

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(one, number)
    assert results == {number: f"{number} {number % 2 == 0}" for number in range(20)}


class Watch(Steps):
    """Trace with an event for the end of a call."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = anyio.Event()

    def __call__(self, fact: Transition | TokenRejection) -> None:
        super().__call__(fact)
        if isinstance(fact, Transition) and fact.event in (Event.FAIL, Event.FINISH):
            self.ended.set()


@pytest.mark.parametrize("where", ["resolver", "body"])
async def test_client_hanging_up_cancels_the_leg_as_failed(where: str) -> None:
    """Shows S10."""
    watch = Watch()
    server = Server("shop", trace=watch)
    reached = anyio.Event()
    cleaned: list[str] = []

    async def linger() -> int:
        reached.set()
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append(where)
        return 0

    async def at_once() -> int:
        return 0

    @server.tool()
    async def order(x: Annotated[int, Resolve(linger if where == "resolver" else at_once)]) -> int:
        return await linger() if where == "body" else x

    async with served(server) as url:
        with anyio.fail_after(WAIT):
            async with anyio.create_task_group() as group:

                async def hang_up_later() -> None:
                    await reached.wait()
                    group.cancel_scope.cancel()

                group.start_soon(hang_up_later)
                async with wire(url) as post:
                    await post.call("order")
            await watch.ended.wait()
    assert cleaned == [where]
    assert watch.events[-1] is Event.FAIL
    assert watch.transitions[-1].detail == {"error": "cancelled"}
    assert watch.states[-2] is (State.RESOLVING if where == "resolver" else State.EXECUTING)


async def test_a_leg_that_was_cancelled_can_be_sent_again() -> None:
    """Shows S10."""
    server = Server("shop", keys=[KEY])
    reached = anyio.Event()
    slow = {"first": True}

    @server.tool()
    async def order(choice: Annotated[Choice, Resolve(sure)]) -> bool:
        if slow.pop("first", False):
            reached.set()
            await anyio.sleep_forever()
        return choice.ok

    async with served(server, stateless_http=True) as url:
        hopper = LegByLeg([url])
        await hopper.leg("order")
        with anyio.fail_after(WAIT):
            async with anyio.create_task_group() as group:

                async def hang_up_later() -> None:
                    await reached.wait()
                    group.cancel_scope.cancel()

                group.start_soon(hang_up_later)
                await hopper.leg("order", answers={"sure": {"ok": True}}, state=hopper.token)
            result = await hopper.leg("order", answers={"sure": {"ok": True}}, state=hopper.token)
    assert text_of(result) == "true"
