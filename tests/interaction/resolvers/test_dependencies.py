"""Parameters filled by functions: unseen, unforgeable, run once per call, and asking only if needed."""

import functools
from typing import Annotated, Any

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client

from roundtrip import Context, Resolve, Server
from roundtrip.testing import DECLINE, Era, User, served
from roundtrip.testing.tap import Tap
from tests.kit.bookshop import bookshop
from tests.kit.players import connect

pytestmark = pytest.mark.anyio


async def test_filled_parameter_is_absent_from_the_input_schema(era: Era) -> None:
    async with connect(bookshop(), era) as client:
        (tool,) = [tool for tool in (await client.list_tools()).tools if tool.name == "reserve"]
    assert tool.input_schema == {
        "type": "object",
        "properties": {"title": {"title": "Title", "type": "string"}},
        "required": ["title"],
        "title": "reserveArguments",
    }


async def test_client_value_for_a_filled_parameter_is_ignored(era: Era) -> None:
    arguments = {"title": "Dune", "stock": {"title": "Dune", "copies": 999}}
    assert (await User(bookshop(), era=era).call("reserve", arguments)).text == "Dune: 7 left"


async def test_a_client_cannot_answer_ahead_by_naming_the_asking_parameter(era: Era) -> None:
    arguments = {"title": "Neuromancer", "backorder": {"confirm": True}, "copies": {"copies": 5}}
    result = await User(bookshop(), {"confirm_backorder": DECLINE}, era=era).call("order", arguments)
    assert result.is_error


async def test_one_lookup_serves_two_consumers_per_call(era: Era) -> None:
    server = Server("shop")
    lookups: list[str] = []

    async def look_up(title: str) -> int:
        lookups.append(title)
        return 7

    async def estimate(copies: Annotated[int, Resolve(look_up)]) -> str:
        return "tomorrow" if copies else "later"

    @server.tool()
    async def order(
        title: str, copies: Annotated[int, Resolve(look_up)], delivery: Annotated[str, Resolve(estimate)]
    ) -> str:
        return f"{title}, {copies}, {delivery}"

    user = User(server, era=era)
    assert (await user.call("order", {"title": "Dune"})).text == "Dune, 7, tomorrow"
    assert lookups == ["Dune"]
    await user.call("order", {"title": "Emma"})
    assert lookups == ["Dune", "Emma"]


async def test_a_resolver_sees_the_validated_object_that_the_body_sees(era: Era) -> None:
    server = Server("shop")
    seen: list[Any] = []

    async def measure(tags: list[str]) -> int:
        seen.append(tags)
        return len(tags)

    @server.tool()
    async def tag(tags: list[str], count: Annotated[int, Resolve(measure)]) -> int:
        seen.append(tags)
        return count

    assert (await User(server, era=era).call("tag", {"tags": ["a", "b"]})).text == "2"
    first, second = seen
    assert first is second


async def test_resolver_knowing_the_answer_asks_no_user(era: Era) -> None:
    made = await User(bookshop(), {"how_many": {"copies": 2}}, era=era).call("order", {"title": "Dune"})
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


async def test_answering_no_is_an_answer_and_the_body_runs(era: Era) -> None:
    assert (
        await User(bookshop(), {"confirm_backorder": {"confirm": False}}, era=era).call(
            "order", {"title": "Neuromancer"}
        )
    ).text == "no order"


async def test_resolvers_and_bodies_may_take_the_context(era: Era) -> None:
    server = Server("shop")

    async def server_name(ctx: Context[Any, Any]) -> str:
        return ctx.mcp_server.name

    async def no_request(ctx: Context[Any, Any] | None) -> bool:
        return ctx is None

    @server.tool()
    async def name(
        ctx: Context[Any, Any], shop: Annotated[str, Resolve(server_name)], lost: Annotated[bool, Resolve(no_request)]
    ) -> str:
        return f"{shop} {bool(ctx.request_id)} {lost}"

    assert (await User(server, era=era).call("name")).text == "shop True False"


async def test_every_kind_of_callable_serves(era: Era) -> None:
    class Till:
        def __init__(self) -> None:
            self.open = True

        def price(self, title: str) -> int:
            return len(title)

        async def __call__(self) -> str:
            return "object"

    till = Till()

    def scaled(factor: int, title: str) -> int:
        return factor * len(title)

    server = Server("shop")

    @server.tool()
    async def order(
        title: str,
        method: Annotated[int, Resolve(till.price)],
        made: Annotated[Till, Resolve(Till)],
        called: Annotated[str, Resolve(till)],
        part: Annotated[int, Resolve(functools.partial(scaled, 10))],
    ) -> str:
        return f"{method} {made.open} {called} {part}"

    assert (await User(server, era=era).call("order", {"title": "Dune"})).text == "4 True object 40"


async def test_resolver_finds_an_argument_renamed_by_the_sdk(era: Era) -> None:
    server = Server("shop")

    # Both are attributes of Pydantic's models, so the SDK's argument model calls its fields otherwise.
    async def loud(copy: str, json: str) -> str:
        return f"{copy} {json}".upper()

    @server.tool()
    async def order(copy: str, json: str, loud: Annotated[str, Resolve(loud)]) -> str:
        return f"{copy} {json} {loud}"

    assert (await User(server, era=era).call("order", {"copy": "a", "json": "b"})).text == "a b A B"


async def test_a_parameter_that_nothing_fills_keeps_its_default(era: Era) -> None:
    server = Server("shop")

    async def shelve(title: str, floor: int = 3) -> str:
        return f"{title} on floor {floor}"

    @server.tool()
    async def find(title: str, place: Annotated[str, Resolve(shelve)]) -> str:
        return place

    # Not even a client that knows its name can set it.
    assert (await User(server, era=era).call("find", {"title": "Dune", "floor": 9})).text == "Dune on floor 3"


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
