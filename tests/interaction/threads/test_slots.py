"""Slots of plain functions: a slow one leaves some for others, and each comes back when its thread ends."""

import threading
from collections.abc import Callable, Generator
from typing import Annotated, Any, Final

import anyio
import pytest
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestParams, ElicitResult

from roundtrip import Context, Depends, Elicit, Resolve, Server
from roundtrip.testing import Era, Steps
from roundtrip.threads.slots import SHARED
from tests.interaction.threads.leaving import leave
from tests.kit.held_threads import Held
from tests.kit.players import Person, connect, text_of
from tests.kit.time_limits import LIMIT, TimeLimits
from tests.kit.waiting import WAIT, until

pytestmark = pytest.mark.anyio


def body_of(kind: str, held: Held) -> Callable[..., Any]:
    """Return a body that holds its thread, or one of whose functions does."""

    def entering() -> Generator[str]:
        yield held()

    def plain() -> str:
        return held()

    def with_resolver(one: Annotated[str, Resolve(held.__call__, name="held")]) -> str:
        return one

    async def with_dependency(one: Annotated[str, Depends(entering)]) -> str:
        return one

    async def with_step(ctx: Context) -> str:
        return await ctx.step("held", held.__call__)

    return {"body": plain, "resolver": with_resolver, "dependency": with_dependency, "step": with_step}[kind]


KINDS = pytest.mark.parametrize("kind", ["body", "resolver", "dependency", "step"])


def shop(body: Callable[..., Any], trace: Steps, timeout: float | None) -> Server[Any]:
    server = Server[Any]("shop", trace=trace)
    server.tool(name="tool", timeout=timeout)(body)

    @server.tool
    def another() -> str:
        return "served"

    return server


def slots_in_use() -> float:
    return SHARED.slots().limiter.borrowed_tokens


@KINDS
async def test_timed_out_function_keeps_its_slot_until_it_ends(kind: str, held: Held, limits: TimeLimits) -> None:
    with anyio.fail_after(WAIT):
        async with connect(shop(body_of(kind, held), Steps(), LIMIT), Era.RETRY) as client:
            for number in (1, 2):
                async with limits.expiring(lambda number=number: held.started == number):
                    with pytest.raises(MCPError, match="timed out"):
                        await client.call_tool("tool")
                assert slots_in_use() == number
            assert text_of(await client.call_tool("another")) == "served"
            await until(lambda: slots_in_use() == 2)
            held.release.set()
            await until(lambda: not slots_in_use())
            assert held.ended == 2


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        ("body", None),
        ("body", LIMIT),
        ("resolver", LIMIT),
        ("dependency", None),
        ("step", LIMIT),
    ],
)
async def test_function_keeps_its_slot_after_its_client_left(kind: str, seconds: float | None, held: Held) -> None:
    trace = Steps()
    with anyio.fail_after(WAIT):
        async with connect(shop(body_of(kind, held), trace, seconds), Era.RETRY) as client:
            await leave(client, held, trace, waits=seconds is None)
            if seconds is not None:
                assert (held.ended, slots_in_use()) == (0, 1)
                held.release.set()
            await until(lambda: not slots_in_use())
            assert held.ended == 1


CALLS: Final = 45


def slow_shop(held: Held) -> Server[Any]:
    server = Server[Any]("shop", keys=["7f" * 32])
    server.tool(name="slow_body")(held.__call__)

    def kind() -> str:
        return "kind"

    async def slow_resolver(value: Annotated[str, Resolve(held.__call__, name="value")]) -> str:
        return value

    server.tool(name="slow_resolver")(slow_resolver)

    @server.tool
    async def slow_step(ctx: Context) -> str:
        return await ctx.step("held", held.__call__)

    @server.tool
    def body() -> str:
        return "body"

    @server.tool
    async def resolver(value: Annotated[str, Resolve(kind)]) -> str:
        return value

    @server.tool
    async def step(ctx: Context) -> str:
        return await ctx.step("kind", kind)

    @server.tool(enabled=lambda: True)
    async def gated() -> str:
        return "gated"

    return server


@pytest.mark.parametrize("slow", ["slow_body", "slow_resolver", "slow_step"])
async def test_slow_tool_leaves_threads_for_others(held: Held, slow: str) -> None:
    answers: list[str] = []
    with anyio.fail_after(WAIT):
        async with connect(slow_shop(held), Era.RETRY) as client:

            async def call() -> None:
                answers.append(text_of(await client.call_tool(slow)))

            async with anyio.create_task_group() as group:
                for _ in range(CALLS):
                    group.start_soon(call)
                await until(lambda: SHARED.slots().limiter.borrowed_tokens >= 40)
                told = [text_of(await client.call_tool(tool)) for tool in ("body", "resolver", "step", "gated")]
                assert (told, answers) == (["body", "kind", "kind", "gated"], [])
                held.release.set()
    assert answers == ["done"] * CALLS


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
