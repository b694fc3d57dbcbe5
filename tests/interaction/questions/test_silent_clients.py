"""Live clients that stay and never answer: the server releases what they hold in the end."""

from collections.abc import Callable
from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp.client.session import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitResult

from roundtrip import Context, Server
from roundtrip.errors import CallOutlived
from roundtrip.testing import Era
from tests.kit.hosts import WAIT
from tests.kit.players import text_of

pytestmark = pytest.mark.anyio

LIVES = 0.3


async def think_for_ever(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
    del context, params
    await anyio.sleep_forever()
    raise AssertionError


async def told(body: Callable[..., Any]) -> str:
    server = Server[Any]("shop", ttl=LIVES, max_age=LIVES)
    server.tool(body)
    with anyio.fail_after(WAIT):
        async with Client(server, mode=Era.LIVE.value, elicitation_callback=think_for_ever) as client:
            return text_of(await client.call_tool(body.__name__, {}))


async def asks(ctx: Context) -> str:
    return str(await ctx.ask_outcome("how_many", "How many?", int))


def asks_in_a_thread(ctx: Context) -> str:
    return str(ctx.blocking.ask_outcome("how_many", "How many?", int))


async def goes_on_without_the_answer(ctx: Context) -> str:
    try:
        await ctx.ask("how_many", "How many?", int)
    except CallOutlived as error:
        return f"without {', '.join(error.keys)}"
    return "with it"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (asks, "the call is over its max_age and still has to ask 'how_many'"),
        (asks_in_a_thread, "the call is over its max_age"),
        (goes_on_without_the_answer, "without how_many"),
    ],
)
async def test_a_call_ends_at_its_whole_age(body: Callable[..., Any], said: str) -> None:
    assert said in await told(body)
