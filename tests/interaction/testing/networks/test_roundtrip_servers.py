"""Everything that a roundtrip server can ask, and every way to keep its state, under hostile networks."""

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import pytest
from mcp.server.request_state import RequestStateSecurity
from mcp_types import Root
from pydantic import BaseModel, Field, FileUrl

from roundtrip import Context, Elicit, ElicitationResult, ElicitUrl, ListRoots, Resolve, Sample, Server
from roundtrip.testing import ACCEPT, DECLINE, Breach, Eavesdrop, Inapplicable, Swap, User
from tests.kit.shops import server_with

pytestmark = pytest.mark.anyio

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


async def confirmation(film: str, order: Annotated[str, Resolve(order, remember=True)]) -> Elicit[bool]:
    return Elicit(f"Pay {order} for {film}?", bool)


async def media(
    model: Annotated[Any, Resolve(lambda: Sample("Praise it", max_tokens=9))],
    roots: Annotated[Any, Resolve(lambda: ListRoots())],
) -> str:
    return f"{model.content.text} {[str(root.uri) for root in roots.roots]}"


async def page(ctx: Context) -> str:
    answer = await ctx.ask_outcome("page", ElicitUrl("Rate us", "https://rate.example/1"))
    return answer.action


async def review(
    stars: Annotated[Stars, Resolve(stars)], note: Annotated[ElicitationResult[Note], Resolve(note)]
) -> str:
    return f"{stars.value} {note.action}"


async def pay(
    film: str,
    confirmed: Annotated[bool, Resolve(confirmation)],
    order: Annotated[str, Resolve(order, remember=True)],
) -> str:
    return f"{order} {confirmed}"


async def praise(film: str, stars: Annotated[Stars, Resolve(stars)]) -> str:
    return f"{film}: {stars.value}"


async def film(title: str, stars: Annotated[Stars, Resolve(stars)]) -> str:
    return f"{title}: {stars.value}"


def shop(**options: Any) -> Server[Any]:
    server = server_with(media, page, review, pay, **options)
    server.prompt()(praise)
    server.resource("film://{title}")(film)
    return server


def make(keys: Sequence[bytes]) -> Server[Any]:
    return shop(keys=keys)


def encrypted(keys: Sequence[bytes]) -> Server[Any]:
    return shop(keys=keys, encrypt=True)


def secured(keys: Sequence[bytes]) -> Server[Any]:
    security = RequestStateSecurity(keys=list(keys))
    return shop(keys=None, request_state_security=security, seal_keys=list(keys))


CALLS: list[tuple[str, dict[str, Any], dict[Any, Any], str]] = [
    ("media", {}, {re.compile("Praise"): "fine"}, "fine ['file:///home/ada']"),
    ("page", {}, {"page": ACCEPT}, "accept"),
    ("page", {}, {"page": DECLINE}, "decline"),
    ("review", {}, {"stars": 4, "note": {"note": "loud"}}, "4 accept"),
    ("review", {}, {"stars": [9, 4], "note": DECLINE}, "4 decline"),
    ("pay", {"film": "Solaris"}, {"confirmation": True}, f"{ORDER} True"),
]


async def play(tool: str, arguments: dict[str, Any], answers: dict[Any, Any], **options: Any) -> str:
    """Play one of the calls as an authenticated user with roots, and return its value."""
    return str((await User(make, answers, principal="ada", roots=ROOTS, **options).call(tool, arguments)).value)


@pytest.mark.roundtrip(eras="retry", hostile=True)
async def test_hostile_network_gives_honest_results() -> None:
    assert await play("pay", {"film": "Solaris"}, {"confirmation": True}) == f"{ORDER} True"


@pytest.mark.parametrize(("tool", "arguments", "answers", "value"), CALLS, ids=[str(call[0::2]) for call in CALLS])
async def test_every_kind_of_question_is_asked_again_elsewhere(
    tool: str, arguments: dict[str, Any], answers: dict[Any, Any], value: str
) -> None:
    assert await play(tool, arguments, answers, network=("hop", "strip")) == value


@pytest.mark.roundtrip(eras="retry", hostile=["hop", "rotate", "delay", "drop", "tamper", "swap", "strip", "garble"])
async def test_prompts_and_resources_ask_under_every_network() -> None:
    user = User(make, {"stars": 4}, principal="ada")
    assert (await user.get_prompt("praise", film="Solaris")).text == "Solaris: 4"
    assert (await user.read_resource("film://Solaris")).text == "Solaris: 4"


@pytest.mark.roundtrip(eras="retry", hostile=["rotate", "tamper", "eavesdrop"])
@pytest.mark.parametrize("make", [encrypted, secured])
async def test_state_may_be_stored_anywhere(make: Callable[..., Server[Any]]) -> None:
    call = await User(make, {"confirmation": True}, principal="ada").call("pay", film="Solaris")
    assert call.value == f"{ORDER} True"


async def test_eavesdropper_knows_the_frozen_format() -> None:
    def leaking(keys: Sequence[bytes]) -> Server[Any]:
        async def pay(film: str, order: Annotated[str, Resolve(order, remember=True)], ctx: Context) -> str:
            # What was fixed once becomes the name of a question, which anybody can read.
            sure = await ctx.ask(order, "Sure?", bool)
            return f"{order} {sure}"

        return server_with(pay, keys=keys)

    user = User(leaking, {ORDER: True}, network=Eavesdrop())
    with pytest.raises(Breach, match=f"is readable without a key, and contains '{ORDER}'"):
        await user.call("pay", film="Solaris")


async def test_authenticated_user_is_known_in_memory_only() -> None:
    user = User(make, {"confirmation": True}, principal="ada", network=Swap(), over="http")
    with pytest.raises(Inapplicable, match="principal"):
        await user.call("pay", film="Solaris")


async def test_interleave_finds_state_shared_between_calls() -> None:
    kept: dict[str, bool] = {}

    async def book(ctx: Context) -> str:
        if "sure" not in kept:
            kept["sure"] = await ctx.ask("sure", "Sure?", bool)
        more = await ctx.ask("more", "More?", bool)
        return f"{kept['sure']} {more}"

    server = server_with(book)
    assert (await User(server, {"sure": True, "more": True}).call("book")).text == "True True"
    kept.clear()
    with pytest.raises(Breach, match="asked 'more', and the other asked 'sure'; does the server keep"):
        await User(server, {"sure": True, "more": True}, network="interleave").call("book")
