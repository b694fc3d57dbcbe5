"""Everything that a roundtrip server can ask, and every way to keep its state, under hostile networks."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import pytest

from roundtrip import Context, Resolve, Server
from roundtrip.testing import Breach, Eavesdrop, Inapplicable, Swap, User
from tests.interaction.testing.networks.everything import CALLS, ORDER, encrypted, make, order, play, secured

pytestmark = pytest.mark.anyio


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


async def test_authenticated_user_is_known_in_memory_only() -> None:
    user = User(make, {"confirmation": True}, principal="ada", network=Swap(), over="http")
    with pytest.raises(Inapplicable, match="principal"):
        await user.call("pay", film="Solaris")


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
