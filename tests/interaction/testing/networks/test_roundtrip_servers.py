"""Everything that a roundtrip server can ask, and every way to keep its state, under all networks."""

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import pytest
from mcp.server.request_state import RequestStateSecurity
from mcp_types import Root
from pydantic import BaseModel, Field, FileUrl

from roundtrip import Context, Elicit, ElicitationResult, ElicitUrl, ListRoots, Resolve, Sample, Server
from roundtrip.testing import (
    ACCEPT,
    CANCEL,
    DECLINE,
    Breach,
    Delay,
    Deploy,
    Eavesdrop,
    Inapplicable,
    Invent,
    Swap,
    User,
)

pytestmark = pytest.mark.anyio
hostile = pytest.mark.roundtrip(eras="retry", hostile=True)

ROOTS = [Root(uri=FileUrl("file:///home/ada"))]
ORDER = "order-4711"


class Stars(BaseModel):
    value: int = Field(ge=1, le=5)


class Note(BaseModel):
    note: str | None = None


async def stars() -> Elicit[Stars]:
    return Elicit("How many stars?", Stars)


async def note() -> Elicit[Note]:
    return Elicit("A note?", Note)


async def order() -> str:
    return ORDER


async def confirmation(film: str, order: Annotated[str, Resolve(order, once=True)]) -> Elicit[bool]:
    return Elicit(f"Pay {order} for {film}?", bool)


async def confirmation_of_another_build(film: str) -> Elicit[bool]:
    return Elicit(f"Pay for {film}?", bool)


def shop(server: Server[Any]) -> Server[Any]:
    @server.tool()
    async def media(
        model: Annotated[Any, Resolve(lambda: Sample("Praise it", max_tokens=9))],
        roots: Annotated[Any, Resolve(lambda: ListRoots())],
    ) -> str:
        return f"{model.content.text} {[str(root.uri) for root in roots.roots]}"

    @server.tool()
    async def page(ctx: Context) -> str:
        answer = await ctx.ask_outcome("page", ElicitUrl("Rate us", "https://rate.example/1"))
        return answer.action

    @server.tool()
    async def review(
        stars: Annotated[Stars, Resolve(stars)], note: Annotated[ElicitationResult[Note], Resolve(note)]
    ) -> str:
        return f"{stars.value} {note.action}"

    @server.tool()
    async def survey(ctx: Context) -> str:
        given = await ctx.ask("stars", "How many stars?", Stars)
        sure = await ctx.ask("sure", "Sure?", bool)
        return f"{given.value} {sure}"

    @server.tool()
    async def pay(
        film: str,
        confirmed: Annotated[bool, Resolve(confirmation)],
        order: Annotated[str, Resolve(order, once=True)],
    ) -> str:
        return f"{order} {confirmed}"

    @server.tool()
    async def silent(film: str) -> str:
        return film

    @server.prompt()
    async def praise(film: str, stars: Annotated[Stars, Resolve(stars)]) -> str:
        return f"{film}: {stars.value}"

    @server.resource("film://{title}")
    async def film(title: str, stars: Annotated[Stars, Resolve(stars)]) -> str:
        return f"{title}: {stars.value}"

    return server


def make(keys: Sequence[bytes]) -> Server[Any]:
    return shop(Server[Any]("shop", keys=keys))


def encrypted(keys: Sequence[bytes]) -> Server[Any]:
    return shop(Server[Any]("shop", keys=keys, encrypt=True))


def secured(keys: Sequence[bytes]) -> Server[Any]:
    return shop(Server[Any]("shop", request_state_security=RequestStateSecurity(keys=list(keys)), seal_keys=list(keys)))


CALLS: list[tuple[str, dict[str, Any], dict[Any, Any], str]] = [
    ("media", {}, {re.compile("Praise"): "fine"}, "fine ['file:///home/ada']"),
    ("page", {}, {"page": ACCEPT}, "accept"),
    ("page", {}, {"page": DECLINE}, "decline"),
    ("review", {}, {"stars": 4, "note": {"note": "loud"}}, "4 accept"),
    ("review", {}, {"stars": [9, 4], "note": DECLINE}, "4 decline"),
    ("survey", {}, {"stars": [9, 4], "sure": True}, "4 True"),
    ("pay", {"film": "Solaris"}, {"confirmation": True}, f"{ORDER} True"),
    ("silent", {"film": "Solaris"}, {}, "Solaris"),
]


@hostile
@pytest.mark.parametrize(("tool", "arguments", "answers", "value"), CALLS, ids=[str(call[0::2]) for call in CALLS])
async def test_hostile_network_gives_honest_results(
    tool: str, arguments: dict[str, Any], answers: dict[Any, Any], value: str
) -> None:
    call = await User(make, answers, principal="ada", roots=ROOTS).call(tool, arguments)
    assert str(call.value) == value


@hostile
async def test_abandoning_is_heard_under_every_network() -> None:
    call = await User(make, {"stars": 4, "sure": CANCEL}).call("survey")
    assert call.is_error
    assert call.states is not None
    assert call.states[-1].value == "declined"


@hostile
async def test_prompts_and_resources_ask_under_every_network() -> None:
    user = User(make, {"stars": 4}, principal="ada")
    assert (await user.get_prompt("praise", film="Solaris")).text == "Solaris: 4"
    assert (await user.read_resource("film://Solaris")).text == "Solaris: 4"


@hostile
@pytest.mark.parametrize("make", [encrypted, secured])
async def test_state_may_be_stored_anywhere(make: Callable[..., Server[Any]]) -> None:
    call = await User(make, {"confirmation": True}, principal="ada").call("pay", film="Solaris")
    assert call.value == f"{ORDER} True"


@pytest.mark.roundtrip(eras="retry", hostile=["hop", "rotate", "delay", "duplicate-at-once", "tamper"], over="http")
async def test_networks_go_over_http_as_well() -> None:
    call = await User(make, {"confirmation": True}).call("pay", film="Solaris")
    assert call.value == f"{ORDER} True"


async def test_eavesdropper_knows_the_frozen_format() -> None:
    def leaking(keys: Sequence[bytes]) -> Server[Any]:
        server = Server[Any]("shop", keys=keys)

        @server.tool()
        async def pay(film: str, order: Annotated[str, Resolve(order, once=True)], ctx: Context) -> str:
            # What was fixed once becomes the name of a question, which anybody can read.
            sure = await ctx.ask(order, "Sure?", bool)
            return f"{order} {sure}"

        return server

    user = User(leaking, {ORDER: True}, network=Eavesdrop())
    with pytest.raises(Breach, match=f"is readable without a key, and contains '{ORDER}'"):
        await user.call("pay", film="Solaris")


async def test_other_build_asks_its_own_question_beside_the_first() -> None:
    def other(keys: Sequence[bytes]) -> Server[Any]:
        server = Server[Any]("shop", keys=keys)

        @server.tool()
        async def pay(film: str, confirmed: Annotated[bool, Resolve(confirmation_of_another_build)]) -> str:
            return f"another build {confirmed}"

        return server

    answers = {"confirmation": True, "confirmation_of_another_build": False}
    call = await User(make, answers, network=Deploy(other)).call("pay", film="Solaris")
    assert (call.value, call.keys) == ("another build False", ["confirmation", "confirmation_of_another_build"])


async def test_authenticated_user_is_known_in_memory_only() -> None:
    user = User(make, {"confirmation": True}, principal="ada", network=Swap(), over="http")
    with pytest.raises(Inapplicable, match="principal"):
        await user.call("pay", film="Solaris")


@pytest.mark.parametrize("network", [Delay(), Invent()], ids=lambda network: network.name)
async def test_a_server_object_serves_where_one_instance_is_enough(network: Any) -> None:
    server = make([b"k" * 32])
    call = await User(server, {"confirmation": True}, network=network).call("pay", film="Solaris")
    assert call.value == f"{ORDER} True"


async def test_interleave_finds_state_shared_between_calls() -> None:
    kept: dict[str, bool] = {}
    server = Server[Any]("cinema", keys=[b"k" * 32])

    @server.tool()
    async def book(ctx: Context) -> str:
        if "sure" not in kept:
            kept["sure"] = await ctx.ask("sure", "Sure?", bool)
        more = await ctx.ask("more", "More?", bool)
        return f"{kept['sure']} {more}"

    assert (await User(server, {"sure": True, "more": True}).call("book")).text == "True True"
    kept.clear()
    with pytest.raises(Breach, match="asked 'more' where this one had been asked 'sure': is something kept"):
        await User(server, {"sure": True, "more": True}, network="interleave").call("book")
