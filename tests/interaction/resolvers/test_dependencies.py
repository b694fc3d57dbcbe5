"""Parameters filled by functions: unseen, unforgeable, run once per call, and asking only if needed."""

from typing import Annotated, Any

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client

from roundtrip import Context, Resolve, Server
from roundtrip.testing import DECLINE, Era, User, served
from roundtrip.testing.tap import Tap
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


async def test_dependent_questions_are_asked_one_after_another(era: Era) -> None:
    result = await User(bookshop(), {"confirm_backorder": {"confirm": True}, "how_many": {"copies": 3}}, era=era).call(
        "order", {"title": "Neuromancer"}
    )
    assert result.text == "3 x Neuromancer, in 2-3 weeks"
    assert result.asked == [
        "Neuromancer is out of stock. Order anyway?",
        "How many copies of Neuromancer?",
    ]


async def test_resolver_finds_an_argument_renamed_by_the_sdk() -> None:
    server = Server("shop")

    # Both are attributes of Pydantic's models, so the SDK's argument model calls its fields otherwise.
    async def loud(copy: str, json: str) -> str:
        return f"{copy} {json}".upper()

    @server.tool()
    async def order(copy: str, json: str, loud: Annotated[str, Resolve(loud)]) -> str:
        return f"{copy} {json} {loud}"

    assert (await User(server, era=Era.RETRY).call("order", {"copy": "a", "json": "b"})).text == "a b A B"


async def test_headers_reach_a_resolver_over_http(era: Era) -> None:
    server = Server("shop")

    async def language(ctx: Context[Any, Any]) -> str:
        return (ctx.headers or {}).get("accept-language", "none")

    @server.tool()
    async def greet(language: Annotated[str, Resolve(language)]) -> str:
        return language

    async with served(server) as url, httpx2.AsyncClient(headers={"Accept-Language": "de"}) as carrier:
        tap = Tap(streamable_http_client(url, http_client=carrier))
        assert (await User(tap, era=era).call("greet")).text == "de"
    assert (await User(server, era=era).call("greet")).text == "none"
