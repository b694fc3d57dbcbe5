"""A crash beside a pending question is reported, and the connection stays open."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY

from roundtrip import Event
from roundtrip.testing import DECLINE, Era, LegByLeg, Steps, User, served
from roundtrip.testing.networks.fleet import Instance
from tests.interaction.bodies.crashing import check_crash, shop
from tests.kit.hosts import WAIT
from tests.kit.players import text_of

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def serving(transport: str) -> AsyncGenerator[Instance]:
    if transport == "memory":
        yield shop()
    else:
        async with served(shop()) as url:
            yield url


@pytest.mark.parametrize(
    ("transport", "tool"),
    [
        ("memory", "anyio_group"),
        ("memory", "asyncio_group"),
        ("http", "anyio_group"),
    ],
)
async def test_crash_beside_a_waiting_question_wins_and_the_connection_survives(
    transport: str, tool: str, era: Era
) -> None:
    async with serving(transport) as target:
        await check_crash(target, tool, era)


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
