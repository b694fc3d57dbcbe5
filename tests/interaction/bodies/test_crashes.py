"""A crash beside a pending question is reported, and the connection stays open."""

import asyncio
from typing import Any

import anyio
import pytest
from mcp.client.session import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitResult

from roundtrip import Context, Elicit, Server, ToolError
from roundtrip.testing import Era, LegByLeg, served
from tests.kit.players import Person, connect, text_of
from tests.kit.shops import KEY
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio

SURE = Elicit("Sure?", bool)


def shop() -> Server[Any]:
    server = Server[Any]("shop", keys=[KEY])

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
        asking = anyio.Event()
        async with anyio.create_task_group() as group:
            group.start_soon(crash, anyio.Event())
            group.start_soon(ask, ctx, asking)
            group.start_soon(crash, asking)
        return "never"

    @server.tool()
    async def fine(ctx: Context[Any, Any]) -> bool:
        return await ctx.ask("sure", SURE)

    return server


class Slow(Person):
    """User who answers nothing while away, and says yes afterwards.

    A call that crashes may be over before its question is sent, so the number of questions does not tell calls apart.
    """

    def __init__(self) -> None:
        super().__init__(answer=lambda params: {"value": True})
        self.is_away = True

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        if self.is_away:
            await anyio.sleep_forever()
        return await super().__call__(context, params)


@pytest.mark.parametrize(
    ("era", "tool"),
    [
        (Era.RETRY, "anyio_group"),
        (Era.RETRY, "asyncio_group"),
        (Era.RETRY, "cleanup"),
        (Era.LIVE, "anyio_group"),
        (Era.LIVE, "asyncio_group"),
    ],
)
async def test_crash_beside_a_waiting_question_wins_and_the_connection_survives(era: Era, tool: str) -> None:
    async with served(shop()) as url:
        for target in (shop(), url):
            person = Slow() if era is Era.LIVE else Person({"value": True})
            with anyio.fail_after(WAIT):
                async with connect(target, era, person) as client:
                    crashed = await client.call_tool(tool)
                    if isinstance(person, Slow):
                        person.is_away = False
                    again = await client.call_tool("fine")
            assert crashed.is_error
            assert text_of(crashed) == f"Error executing tool {tool}: out of paper"
            assert text_of(again) == "true"


async def test_several_crashes_beside_a_question_are_one_error(caplog: pytest.LogCaptureFixture) -> None:
    text = text_of(await LegByLeg([shop()]).leg("two_crashes"))
    assert text.startswith("Error executing tool two_crashes: ")
    assert "2 sub-exceptions" in text
    assert caplog.text.count("ToolError: out of paper") >= 2
