"""A review may show a `once` resolver's question, although its function does not run again."""

from typing import Annotated, Any

import pytest

from roundtrip import Context, Elicit, Resolve, Server
from roundtrip.testing import Era, User

pytestmark = pytest.mark.anyio


async def how_many() -> Elicit[int]:
    return Elicit("How many?", int)


async def test_once_answer_can_be_reviewed(era: Era) -> None:
    server = Server[Any]("shop")

    @server.tool()
    async def order(copies: Annotated[int, Resolve(how_many, once=True)], ctx: Context) -> str:
        kept = await ctx.ask("wrap", f"Wrap {copies}?", bool)
        await ctx.review("check", "Is this right?", of=["how_many"])
        return f"{copies}, {'wrapped' if kept else 'bare'}"

    call = await User(
        server,
        {"how_many": {"value": 2}, "wrap": [{"value": True}, {"value": False}], "check": {"how_many": 3}},
        era=era,
    ).call("order")
    assert call.text == "3, bare"
    assert call.asked == ["How many?", "Wrap 2?", "Is this right?", "Wrap 3?"]
