"""Slots of plain functions come back when their threads end, and not before, however the call ends."""

from collections.abc import Callable, Generator
from typing import Annotated, Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from roundtrip import Context, Depends, Resolve, Server
from roundtrip.server.slots import SHARED
from roundtrip.testing import Era, Steps
from tests.interaction.threads.leaving import leave
from tests.kit.held_threads import Held
from tests.kit.hosts import WAIT
from tests.kit.players import connect, text_of
from tests.kit.time_limits import LIMIT, TimeLimits
from tests.kit.waiting import until

pytestmark = pytest.mark.anyio


def body_of(kind: str, held: Held) -> Callable[..., Any]:
    """Return a body that holds its thread, or one of whose functions does."""

    def entering() -> Generator[str]:
        yield held()

    def plain() -> str:
        return held()

    def with_resolver(one: Annotated[str, Resolve(held.__call__, key="held")]) -> str:
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
