"""Foreign, expired and misused tokens: one reply for all, the reason in the log, and nothing runs."""

import json
import logging
import string
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from roundtrip import Context, Elicit, Resolve, Server
from roundtrip.testing import Clock, Era, LegByLeg, Steps, served
from specs.tokens import RESTARTED, read_vectors
from tests.interaction.protocol.frozen import FROZEN
from tests.kit.players import text_of
from tests.kit.shops import KEY, Choice, server_with, sure
from tests.kit.wire import accept, wire

pytestmark = pytest.mark.anyio

ARGUMENTS = {"title": "Dune"}
ANSWER = {"confirm": {"ok": True}}


SURE = {"sure": {"ok": True}}


async def agree(choice: Annotated[Choice, Resolve(sure)]) -> bool:
    return choice.ok


class Shop:
    """Server with a record of its runs and traced transitions."""

    def __init__(self, name: str = "shop", *, keys: tuple[bytes, ...] = (KEY,), **options: Any) -> None:
        self.ran: list[str] = []
        self.trace = Steps()
        self.server: Server[Any] = Server(name, keys=keys, trace=self.trace, **options)

        async def confirm(title: str) -> Elicit[Choice]:
            self.ran.append("confirm")
            return Elicit(f"Order {title}?", Choice)

        async def order(title: str, choice: Annotated[Choice, Resolve(confirm)]) -> str:
            self.ran.append("order")
            return f"{title}: {choice.ok}"

        self.server.add_tool(order)
        self.server.add_tool(order, name="buy")

        @self.server.prompt(name="order")
        def prompt(title: str) -> str:
            self.ran.append("prompt")
            return title

    def forget(self) -> None:
        self.ran.clear()
        self.trace.transitions.clear()
        self.trace.rejections.clear()

    async def leg(self, token: str) -> Any:
        return await LegByLeg([self.server]).leg("order", ARGUMENTS, answers=ANSWER, state=token)


async def token_of(shop: Shop) -> str:
    hopper = LegByLeg([shop.server])
    await hopper.leg("order", ARGUMENTS)
    shop.forget()
    return hopper.token


async def rejection(shop: Shop, caplog: pytest.LogCaptureFixture, token: str) -> str:
    """Return why a leg is rejected: the client is told nothing, and nothing runs."""
    shop.forget()
    caplog.clear()
    with pytest.raises(MCPError) as caught:
        await shop.leg(token)
    return reason_of(caught.value, shop, caplog)


def reason_of(error: MCPError, shop: Shop, caplog: pytest.LogCaptureFixture) -> str:
    assert error.error == FROZEN
    assert (shop.ran, shop.trace.events) == ([], [])
    (rejection,) = shop.trace.rejections
    (logged,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert not any("let me in" in record.getMessage() for record in caplog.records)
    assert logged.endswith(f": {rejection.reason}")
    return rejection.reason


def flip(token: str, position: int) -> str:
    """Change one bit of one character's value."""
    alphabet = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
    other = alphabet[alphabet.index(token[position]) ^ 1]
    spoilt = list(token)
    spoilt[position] = other
    return "".join(spoilt)


SPOILED: dict[str, tuple[Callable[[str], str], str]] = {
    "cut by one character": (lambda token: token[:-1], "malformed"),
    "empty": (lambda token: "", "malformed"),
    "without its signature": (lambda token: token.rpartition(".")[0], "malformed"),
    "a bit of the body flipped": (lambda token: flip(token, 10), "tampered"),
    "a bit of the signature flipped": (lambda token: flip(token, -20), "tampered"),
    "of another kind": (lambda token: "r3e" + token[3:], "tampered"),
    "with the hint of another key": (lambda token: flip(token, 3), "unknown key"),
    "of the format before": (lambda token: "r2" + token[2:], "malformed"),
    "followed by a line end": (lambda token: token + "\n", "malformed"),
    # It carries four bits that decode to nothing: itsdangerous takes any of the sixteen spellings.
    "spelt with another last character": (lambda token: flip(token, -1), "malformed"),
    "oversized": (lambda token: token[:10] + "A" * 70_000 + token[10:], "oversized"),
    "invented": (lambda token: "let me in", "malformed"),
    "invented with a hint": (lambda token: "r3sAAAA." + "A" * 40 + "." + "A" * 22, "unknown key"),
    "invented under the true hint": (lambda token: token[:8] + "A" * 40 + "." + "A" * 22, "tampered"),
}


async def test_spoiled_token_is_rejected_without_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    """Shows S4."""
    caplog.set_level(logging.DEBUG, logger="roundtrip")
    shop = Shop()
    token = await token_of(shop)
    told = {name: await rejection(shop, caplog, spoil(token)) for name, (spoil, _) in SPOILED.items()}
    assert told == {name: reason for name, (_, reason) in SPOILED.items()}
    assert text_of(await shop.leg(token)) == "Dune: True"


async def test_token_works_only_with_its_key_and_audience(caplog: pytest.LogCaptureFixture) -> None:
    """Shows S4, S5."""
    token = await token_of(Shop("shop-eu", audience="shop"))
    assert await rejection(Shop(keys=(b"x" * 32,)), caplog, token) == "unknown key"
    assert await rejection(Shop("library"), caplog, token) == "another audience"
    assert text_of(await Shop("shop-us", audience="shop").leg(token)) == "Dune: True"


async def test_server_without_keys_accepts_only_tokens_of_its_process() -> None:
    ours, theirs = server_with(agree, keys=None), server_with(agree, keys=None)
    hopper = LegByLeg([ours, theirs, ours])
    await hopper.leg("agree")
    with pytest.raises(MCPError) as caught:
        await hopper.leg("agree", answers=SURE, state=hopper.token)
    assert caught.value.error == FROZEN
    assert text_of(await hopper.leg("agree", answers=SURE, state=hopper.token)) == "true"


async def test_a_token_for_another_method_is_rejected(caplog: pytest.LogCaptureFixture) -> None:
    """Shows S5."""
    shop = Shop()
    token = await token_of(shop)
    caplog.clear()
    async with Client(shop.server, mode=Era.RETRY.value) as client:
        with pytest.raises(MCPError) as caught:
            await client.session.get_prompt("order", {"title": "Dune"}, request_state=token)
    assert reason_of(caught.value, shop, caplog) == "another method"


async def test_no_leg_extends_the_age_of_a_call(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """Shows S5."""
    shop = Shop(ttl=60, max_age=100)
    token = await token_of(shop)
    for _ in range(2):
        clock.advance(45)
        hopper = LegByLeg([shop.server])
        await hopper.leg("order", ARGUMENTS, answers={}, state=token)
        token = hopper.token
    clock.advance(15)
    assert await rejection(shop, caplog, token) == "expired"


async def test_a_tool_s_own_clocks_hold_beside_the_server_s(clock: Clock) -> None:
    """Shows S5."""
    server = Server("shop", keys=[KEY], ttl=60)
    server.add_tool(agree, "hasty", ttl=10)
    server.add_tool(agree, "patient", ttl=300)

    hasty_call, patient_call = LegByLeg([server]), LegByLeg([server])
    await hasty_call.leg("hasty")
    await patient_call.leg("patient")
    clock.advance(11)
    with pytest.raises(MCPError) as caught:
        await hasty_call.leg("hasty", answers=SURE, state=hasty_call.token)
    assert caught.value.error == FROZEN
    clock.advance(280)
    result = await patient_call.leg("patient", answers=SURE, state=patient_call.token)
    assert result.result_type == "complete"


async def test_restarted_call_of_0_2_asks_again_until_it_expires(clock: Clock) -> None:
    (vector,) = read_vectors(RESTARTED)
    server = Server(
        "bookshop", keys=[bytes.fromhex(key) for key in vector.keys], principal=lambda ctx: vector.principal
    )

    @server.tool()
    async def order(ctx: Context) -> str:
        return str(await ctx.ask("confirm", "Sure?", Choice))

    legs = LegByLeg(server)
    clock.now = vector.journal.born + 599
    # Its questions were pinned to the expired call, so a late answer to them does not count.
    asked = await legs.leg("order", answers=ANSWER, state=vector.token)
    assert asked.result_type == "input_required"
    assert text_of(await legs.leg("order", answers=ANSWER, state=legs.token)) == "ok=True"
    clock.now = vector.journal.born + 600
    with pytest.raises(MCPError) as caught:
        await legs.leg("order", answers=ANSWER, state=vector.token)
    assert caught.value.error == FROZEN


async def test_every_http_rejection_is_byte_identical() -> None:
    """Shows S4."""
    shop = Shop()
    async with served(shop.server, stateless_http=True) as url, wire(url) as post:
        # An explicit null is no token.
        token = (await post.result("order", ARGUMENTS, requestState=None))["requestState"]
        answers = {"confirm": accept(ok=True)}
        spoilt: list[Any] = [spoil(token) for spoil, _ in SPOILED.values()]
        errors = [
            await post.error("order", ARGUMENTS, requestState=state, inputResponses=answers)
            for state in [*spoilt, 7, ["r3s"], {"state": token}]
        ]
        errors.append(await post.error("buy", ARGUMENTS, requestState=token, inputResponses=answers))
        errors.append(await post.error("order", {"title": "Emma"}, requestState=token, inputResponses=answers))
    assert [json.dumps(error) for error in errors] == [json.dumps(FROZEN.model_dump(mode="json"))] * len(errors)
    assert shop.ran == ["confirm"]
