"""Code that awaits a cancelled task fails its own call, and neither the session nor other calls."""

import asyncio
from typing import Annotated, Any

import anyio
import pytest

from roundtrip import Context, Resolve, Server
from roundtrip.testing import Era
from tests.kit.hosts import WAIT
from tests.kit.players import connect, text_of

pytestmark = pytest.mark.anyio

SAID = "it awaited something that was cancelled, although the call itself was not cancelled"


async def stray() -> int:
    background = asyncio.ensure_future(asyncio.sleep(WAIT))
    background.cancel()
    await background
    return 1


async def beside() -> int:
    await anyio.lowlevel.checkpoint()
    return 2


async def in_a_silent_body() -> str:
    return str(await stray())


async def in_a_body_with_a_context(ctx: Context[Any, Any]) -> str:
    return str(await stray())


async def in_a_step(ctx: Context[Any, Any]) -> str:
    return str(await ctx.step("one", stray))


async def in_a_resolver(one: Annotated[int, Resolve(stray)]) -> str:
    return str(one)


async def in_one_of_two_resolvers(one: Annotated[int, Resolve(stray)], two: Annotated[int, Resolve(beside)]) -> str:
    return str(one + two)


@pytest.mark.parametrize(
    ("order", "era"),
    [
        (in_a_silent_body, Era.RETRY),
        (in_a_body_with_a_context, Era.RETRY),
        (in_a_body_with_a_context, Era.LIVE),
        (in_a_step, Era.RETRY),
        (in_a_resolver, Era.RETRY),
        (in_one_of_two_resolvers, Era.RETRY),
        (in_one_of_two_resolvers, Era.LIVE),
    ],
)
async def test_stray_cancellation_fails_only_its_call(era: Era, order: Any) -> None:
    server = Server[Any]("stray")
    server.add_tool(order, "order")
    server.add_tool(lambda: "pong", "ping")

    async with connect(server, era) as client:
        with anyio.fail_after(WAIT):
            failed = await client.call_tool("order", {})
            after = await client.call_tool("ping", {})

    assert failed.is_error
    assert text_of(failed) == f"Error executing tool order: {SAID}"
    assert text_of(after) == "pong"
