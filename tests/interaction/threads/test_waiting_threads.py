"""Threads of calls that wait for their users: live calls keep theirs, and give them back when they end."""

import threading
from typing import Annotated, Any

import anyio
import pytest
from mcp.client.session import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitResult

from roundtrip import Context, Elicit, Resolve, Server
from roundtrip.server.slots import SHARED
from roundtrip.testing import Era
from tests.kit.hosts import WAIT
from tests.kit.players import Person, connect, text_of
from tests.kit.waiting import until

pytestmark = pytest.mark.anyio

TOGETHER = 70
"""More than there are slots."""


class Patient(Person):
    """Person who answers nothing until all questions are there."""

    def __init__(self) -> None:
        super().__init__()
        self.open = 0
        self.may_answer = anyio.Event()

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        del context, params
        self.open += 1
        await self.may_answer.wait()
        return ElicitResult(action="accept", content={"value": True})


def alive(threads: set[int]) -> set[int]:
    return threads & {thread.ident for thread in threading.enumerate() if thread.ident is not None}


@pytest.mark.parametrize(("era", "tool"), [(Era.RETRY, "order"), (Era.LIVE, "order"), (Era.LIVE, "ask")])
async def test_waiting_calls_keep_a_thread_each_in_the_live_era(era: Era, tool: str) -> None:
    server, local, asked = Server[Any]("shop"), threading.local(), list[int]()

    def begin(number: int) -> int:
        local.number = number
        asked.append(threading.get_ident())
        return number

    def sure(begun: Annotated[int, Resolve(begin)]) -> Elicit[bool]:
        return Elicit(f"Sure of {begun}?", bool)

    @server.tool
    def order(number: int, sure: Annotated[bool, Resolve(sure)]) -> bool:
        return sure and local.number == number

    @server.tool
    def ask(ctx: Context, number: int) -> bool:
        begin(number)
        return ctx.blocking.ask("sure", f"Sure of {number}?", bool) and local.number == number

    @server.tool
    def another() -> str:
        return "served"

    person, results = Patient(), list[str]()
    with anyio.fail_after(WAIT):
        async with connect(server, era, person) as client, anyio.create_task_group() as group:

            async def call(number: int) -> None:
                results.append(text_of(await client.call_tool(tool, {"number": number})))

            for number in range(TOGETHER):
                group.start_soon(call, number)
            await until(lambda: person.open == TOGETHER)
            assert text_of(await client.call_tool("another")) == "served"
            first = set(asked)
            if era is Era.LIVE:
                assert len(first) == TOGETHER
            else:
                # No leg waits for a user.
                await until(lambda: not SHARED.slots().limiter.borrowed_tokens)
            person.may_answer.set()
        if era is Era.LIVE:
            await until(lambda: not alive(set(asked)))
    assert results == ["true"] * TOGETHER
