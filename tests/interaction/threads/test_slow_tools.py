"""A slow plain function takes no threads that others need: bodies, resolvers, steps and visibility gates."""

from typing import Annotated, Any, Final

import anyio
import pytest

from roundtrip import Context, Resolve, Server
from roundtrip.server.slots import SHARED
from roundtrip.testing import Era
from tests.kit.held_threads import Held
from tests.kit.players import connect, text_of
from tests.kit.waiting import WAIT, until

pytestmark = pytest.mark.anyio
CALLS: Final = 45


def shop(held: Held) -> Server[Any]:
    server = Server[Any]("shop", keys=["7f" * 32])
    server.tool(name="slow_body")(held.__call__)

    def kind() -> str:
        return "kind"

    async def slow_resolver(value: Annotated[str, Resolve(held.__call__, key="value")]) -> str:
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
        async with connect(shop(held), Era.RETRY) as client:

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
