"""A crash beside a pending question is reported, and the connection stays open."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from mcp.client.session import ClientRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY, ElicitRequestParams, ElicitResult

from roundtrip import Context, Elicit, Event, Server, ToolError
from roundtrip.testing import DECLINE, Era, LegByLeg, Steps, User, served
from roundtrip.testing.networks.fleet import Instance
from tests.kit.hosts import WAIT, stdio
from tests.kit.players import Person, connect, text_of

pytestmark = pytest.mark.anyio
KEY = b"k" * 32

SURE = Elicit("Sure?", bool)


def shop(trace: Steps | None = None) -> Server[Any]:
    server = Server[Any]("shop", keys=[KEY], trace=trace)

    async def ask(ctx: Context[Any, Any], asking: anyio.Event) -> bool:
        asking.set()
        return await ctx.ask("sure", SURE)

    async def crash(asking: anyio.Event) -> None:
        try:
            await asking.wait()
        finally:
            # On the retry era the question has ended its leg, and cancelled this, by now.
            raise ToolError("out of paper")

    @server.tool()
    async def anyio_group(ctx: Context[Any, Any]) -> str:
        asking = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(ask, ctx, asking)
            group.start_soon(crash, asking)
        return "never"

    @server.tool()
    async def asyncio_group(ctx: Context[Any, Any]) -> str:
        asking = anyio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(ask(ctx, asking))
            group.create_task(crash(asking))
        return "never"

    @server.tool()
    async def cleanup(ctx: Context[Any, Any]) -> str:
        try:
            await ctx.ask("sure", SURE)
        finally:
            raise ToolError("out of paper")

    @server.tool()
    async def two_crashes(ctx: Context[Any, Any]) -> str:
        async def crash_late() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                raise ToolError("and out of ink")

        asking = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(crash_late)
            group.start_soon(ask, ctx, asking)
            group.start_soon(crash, asking)
        return "never"

    @server.tool()
    async def alone(ctx: Context[Any, Any]) -> str:
        async with anyio.create_task_group() as group:
            group.start_soon(ask, ctx, anyio.Event())
        return "never"

    @server.tool()
    async def fine(ctx: Context[Any, Any]) -> bool:
        return await ctx.ask("sure", SURE)

    return server


@asynccontextmanager
async def serving(transport: str) -> AsyncGenerator[Instance]:
    if transport == "memory":
        yield shop()
    elif transport == "stdio":
        yield stdio(shop)
    else:
        async with served(shop()) as url:
            yield url


class Slow(Person):
    """User who never answers the first question, and says yes to the others."""

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        if not self.asked:
            await super().__call__(context, params)
            await anyio.sleep_forever()
        return await super().__call__(context, params)


@pytest.mark.parametrize(
    ("transport", "tool"),
    [
        ("memory", "anyio_group"),
        ("memory", "asyncio_group"),
        ("stdio", "anyio_group"),
        ("http", "anyio_group"),
        ("http", "asyncio_group"),
    ],
)
async def test_crash_beside_a_waiting_question_wins_and_the_connection_survives(
    transport: str, tool: str, era: Era
) -> None:
    person = Slow(answer=lambda params: {"value": True}) if era is Era.LIVE else Person({"value": True})
    with anyio.fail_after(WAIT):
        async with serving(transport) as target, connect(target, era, person) as client:
            crashed = await client.call_tool(tool)
            again = await client.call_tool("fine")
    assert crashed.is_error
    assert text_of(crashed) == f"Error executing tool {tool}: out of paper"
    assert text_of(again) == "true"


@pytest.mark.parametrize("transport", ["memory", "http"])
async def test_crashing_cleanup_of_an_ending_leg_becomes_the_call_error(transport: str) -> None:
    with anyio.fail_after(WAIT):
        async with serving(transport) as target:
            crashed = await User(target, era=Era.RETRY).call("cleanup")
            again = await User(target, {"sure": {"value": True}}, era=Era.RETRY).call("fine")
    assert crashed.text == "Error executing tool cleanup: out of paper"
    assert again.text == "true"


async def test_task_group_question_beyond_client_capabilities_is_rejected(era: Era) -> None:
    """Shows S6."""
    trace = Steps()
    server = shop(trace)
    with pytest.raises(MCPError) as rejected:
        await User(server, era=era, lacks=["elicitation"]).call("alone")
    assert rejected.value.error.code == MISSING_REQUIRED_CLIENT_CAPABILITY
    assert trace.events[-1] is Event.REJECT


async def test_declined_question_of_a_task_group_ends_the_call(era: Era) -> None:
    trace = Steps()
    result = await User(shop(trace), {"sure": DECLINE}, era=era).call("alone")
    assert result.text == "Error executing tool alone: Question 'sure' was not answered: elicitation was decline"
    assert trace.events[-1] is Event.DECLINE


async def test_several_crashes_beside_a_question_are_one_error(caplog: pytest.LogCaptureFixture) -> None:
    hopper = LegByLeg([shop()])
    result = await hopper.leg("two_crashes")
    assert text_of(result).startswith("Error executing tool two_crashes: ")
    assert "2 sub-exceptions" in text_of(result)
    assert "out of paper" in caplog.text
    assert "and out of ink" in caplog.text
