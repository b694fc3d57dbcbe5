"""The shortest whole calls."""

from typing import Annotated

import pytest
from pydantic import BaseModel

from roundtrip import Elicit, Resolve, Server
from tests.players import Era, Hopper, call, text_of

pytestmark = pytest.mark.anyio
KEY = b"k" * 32


class Choice(BaseModel):
    ok: bool


def shop() -> Server:
    server = Server("shop", keys=[KEY])

    async def confirm(title: str) -> Elicit[Choice]:
        return Elicit(f"Order {title}?", Choice)

    @server.tool()
    async def order(title: str, choice: Annotated[Choice, Resolve(confirm)]) -> str:
        return f"{title}: {choice.ok}"

    return server


async def test_a_question_is_asked_and_answered(era: Era) -> None:
    assert text_of(await call(shop(), era, "order", {"title": "Dune"}, {"ok": True})) == "Dune: True"


async def test_each_leg_may_land_on_a_fresh_server() -> None:
    hopper = Hopper(shop)
    result = await hopper.play("order", {"title": "Dune"}, [{"confirm": {"ok": True}}])
    assert text_of(result) == "Dune: True"
