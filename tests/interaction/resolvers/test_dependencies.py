"""Parameters filled by functions: unseen, unforgeable, run once per call, and asking only if needed."""

from typing import Annotated

import pytest

from roundtrip import Resolve, Server
from roundtrip.testing import DECLINE, Era, User
from tests.kit.bookshop import bookshop

pytestmark = pytest.mark.anyio


async def test_a_client_cannot_answer_ahead_by_naming_the_asking_parameter(era: Era) -> None:
    arguments = {"title": "Neuromancer", "backorder": {"confirm": True}, "copies": {"copies": 5}}
    result = await User(bookshop(), {"confirm_backorder": DECLINE}, era=era).call("order", arguments)
    assert result.is_error


async def test_resolver_knowing_the_answer_asks_no_user() -> None:
    made = await User(bookshop(), {"how_many": {"copies": 2}}, era=Era.RETRY).call("order", {"title": "Dune"})
    assert made.text == "2 x Dune, now"
    assert made.asked == ["How many copies of Dune?"]


async def test_resolver_finds_an_argument_renamed_by_the_sdk() -> None:
    server = Server("shop")

    # Both are attributes of Pydantic's models, so the SDK's argument model calls its fields otherwise.
    async def loud(copy: str, json: str) -> str:
        return f"{copy} {json}".upper()

    @server.tool()
    async def order(copy: str, json: str, loud: Annotated[str, Resolve(loud)]) -> str:
        return f"{copy} {json} {loud}"

    assert (await User(server, era=Era.RETRY).call("order", {"copy": "a", "json": "b"})).text == "a b A B"
