"""Tools with `once_per=` and the testing kit: repeated calls in both eras, and a client that begins again."""

import re
from typing import Any

import pytest
from pydantic import BaseModel, Field

from roundtrip import Context, Server
from roundtrip.ledger import Ledger, MemoryLedger
from roundtrip.machine.table import State
from roundtrip.testing import BeginAgain, Breach, Era, Inapplicable, LegByLeg, Unused, User
from roundtrip.testing.user_defaults import NETWORKS
from tests.interaction.testing.networks.hand_made import Flaw, maker
from tests.interaction.testing.networks.hand_made import call as call_by_hand
from tests.kit.shops import KEY

pytestmark = pytest.mark.anyio

ANSWERS = {"title": "Dune", "copies": {"number": 2}, "gift": True}


class Copies(BaseModel):
    number: int = Field(le=10)


class Shop:
    """Instances with one ledger, and what their steps and bodies have done."""

    def __init__(self) -> None:
        self.ledger: Ledger = MemoryLedger()
        self.done: list[str] = []

    def __call__(self, keys: Any = (KEY,)) -> Server[Any]:
        server = Server("shop", keys=keys, ledger=self.ledger)

        @server.tool(once_per="{number}")
        async def order(number: int, ctx: Context) -> str:
            title = await ctx.ask("title", "Which book?", str)
            copies = await ctx.ask("copies", "How many?", Copies)
            await ctx.step("take", lambda: self.done.append("take"))
            gift = await ctx.ask("gift", "A gift?", bool)
            self.done.append("body")
            return f"{copies.number} x {title}, {gift}"

        @server.tool()
        async def search(ctx: Context) -> str:
            self.done.append("began")
            return await ctx.ask("words", "Which words?", str)

        return server


async def test_second_call_of_a_user_gets_the_first_one_s_result(era: Era) -> None:
    shop = Shop()
    user = User(shop, ANSWERS, era=era, principal="ann", allow_unused=True)
    first, second = [await user.call("order", number=7) for _ in range(2)]
    assert first.value == second.value == "2 x Dune, True"
    assert (first.names, second.names) == (["title", "copies", "gift"], [])
    assert first.states is not None
    assert first.states.count(State.AWAITING_INPUT) == 3
    assert second.states == [State.RECEIVED, State.RESOLVING, State.COMPLETED]
    assert (len(second.rounds), second.legs) == (0, 1)
    assert "roundtrip/recalled" not in (first.result.meta or {})
    assert "roundtrip/recalled" in (second.result.meta or {})
    assert shop.done == ["take", "body"]
    with pytest.raises(Unused, match="the recalled end of an earlier call; each test needs its own ledger\n"):
        await User(shop, ANSWERS, era=era, principal="ann").call("order", number=7)


async def test_instances_with_several_ledgers_are_named_as_the_cause() -> None:
    done: list[int] = []

    def make(keys: Any) -> Server[Any]:
        server = Server("shop", keys=keys)

        @server.tool(exactly_once=True)
        async def order(number: int, ctx: Context) -> int:
            if await ctx.ask("sure", "Sure?", bool):
                done.append(number)
            return len(done)

        return server

    with pytest.raises(Breach, match="need one ledger for all instances"):
        await User(make, {"sure": True}, principal="ann", network=["duplicate", "hop"]).call("order", number=7)
    with pytest.raises(Inapplicable, match="needs a tool with task="):
        await User(make, {"sure": True}, principal="ann", era=Era.TASK, network="kill").call("order", number=7)


async def test_call_that_a_user_left_is_continued_by_the_next_user(era: Era) -> None:
    shop = Shop()
    legs = LegByLeg(shop, principal="ann")
    await legs.leg("order", {"number": 7})
    await legs.leg("order", {"number": 7}, answers={"title": "Dune"}, state=legs.token)
    rest = {name: answer for name, answer in ANSWERS.items() if name != "title"}
    call = await User(shop, rest, era=era, principal="ann").call("order", number=7)
    assert (call.value, call.names) == ("2 x Dune, True", ["copies", "gift"])
    assert shop.done == ["take", "body"]


@pytest.mark.parametrize("network", NETWORKS)
async def test_body_and_steps_run_once_on_every_network(network: str) -> None:
    for stack in ([network], [network, "begin-again"], ["begin-again", network]):
        shop = Shop()
        call = await User(shop, ANSWERS, network=stack, principal="ann").call("order", number=7)
        assert (call.value, call.names) == ("2 x Dune, True", ["title", "copies", "gift"])
        assert shop.done == ["take", "body"]


async def test_answer_that_did_not_count_keeps_its_place_when_a_client_begins_again() -> None:
    answers = {**ANSWERS, "copies": [{"number": 99}, {"number": 3}]}
    call = await User(Shop(), answers, network=BeginAgain(), principal="ann").call("order", number=7)
    assert (call.value, call.names) == ("3 x Dune, True", ["title", "copies", "copies", "gift"])


async def test_network_that_begins_again_lets_the_legs_of_other_tools_pass() -> None:
    shop = Shop()
    call = await User(shop, {"words": "sand"}, network=BeginAgain()).call("search")
    assert (call.value, shop.done) == ("sand", ["began", "began"])
    assert (await call_by_hand(maker(Flaw.BOOKS_TWICE), "book", BeginAgain())).legs == 3


async def test_server_that_does_not_ask_in_the_same_order_is_found() -> None:
    ledger, asked = MemoryLedger(), list[int]()

    def make(keys: Any = (KEY,)) -> Server[Any]:
        server = Server("shop", keys=keys, ledger=ledger)

        @server.tool(once_per="{number}")
        async def order(number: int, ctx: Context) -> bool:
            asked.append(number)
            return await ctx.ask(f"question {len(asked)}", "Sure?", bool)

        return server

    user = User(make, {re.compile("Sure"): True}, network=BeginAgain(), principal="ann")
    with pytest.raises(Breach, match="a client began again, and in round 1, the server answered with a question"):
        await user.call("order", number=7)
