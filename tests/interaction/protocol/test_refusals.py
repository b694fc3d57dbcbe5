"""Foreign, expired and misused tokens: one reply for all, the reason in the log, and nothing runs."""

import json
import logging
import re
import string
import time
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from mcp.client import Client
from mcp.server import MCPServer
from mcp.server.mcpserver import Resolve as SdkResolve
from mcp.server.request_state import RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types import ErrorData
from pydantic import BaseModel

from roundtrip import Elicit, Resolve, Server
from roundtrip.testing import Clock, Era, LegByLeg, Steps, served
from tests.kit.players import text_of
from tests.kit.wire import accept, wire

pytestmark = pytest.mark.anyio

KEY = b"k" * 32
FROZEN = ErrorData(code=-32602, message="Invalid or expired requestState", data={"reason": "invalid_request_state"})
ARGUMENTS = {"title": "Dune"}
ANSWER = {"confirm": {"ok": True}}


class Choice(BaseModel):
    ok: bool


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
        self.trace.steps.clear()
        self.trace.rejections.clear()

    async def leg(self, token: str, tool: str = "order", arguments: dict[str, Any] = ARGUMENTS) -> Any:
        return await LegByLeg([self.server]).leg(tool, arguments, answers=ANSWER, state=token)


async def token_of(shop: Shop) -> str:
    hopper = LegByLeg([shop.server])
    await hopper.leg("order", ARGUMENTS)
    shop.forget()
    return hopper.token


def expect_refused(caught: MCPError, shop: Shop, caplog: pytest.LogCaptureFixture, reason: str) -> None:
    assert caught.error == FROZEN
    assert shop.ran == []
    assert shop.trace.events == []
    assert [rejection.reason for rejection in shop.trace.rejections] == [reason]
    (logged,) = [record.getMessage() for record in caplog.records if record.name == "roundtrip"]
    assert logged.endswith(f": {reason}")


def flip(token: str, position: int) -> str:
    """Change one bit of one character's value."""
    alphabet = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
    other = alphabet[alphabet.index(token[position]) ^ 1]
    spoilt = list(token)
    spoilt[position] = other
    return "".join(spoilt)


def same_signature_otherwise_spelt(token: str) -> str:
    """The last character carries four bits that decode to nothing: itsdangerous takes any of the sixteen spellings."""
    alphabet = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
    return token[:-1] + alphabet[alphabet.index(token[-1]) ^ 1]


SPOILED: dict[str, tuple[Callable[[str], str], str]] = {
    "cut by one character": (lambda token: token[:-1], "malformed"),
    "cut in half": (lambda token: token[: len(token) // 2], "malformed"),
    "empty": (lambda token: "", "malformed"),
    "without its signature": (lambda token: token.rpartition(".")[0], "malformed"),
    "a bit of the body flipped": (lambda token: flip(token, 10), "tampered"),
    "a bit of the signature flipped": (lambda token: flip(token, -20), "tampered"),
    "of another kind": (lambda token: "r3e" + token[3:], "tampered"),
    "with the hint of another key": (lambda token: flip(token, 3), "unknown key"),
    "without its hint": (lambda token: token[:3] + token[7:], "malformed"),
    "of the format before": (lambda token: "r2" + token[2:], "malformed"),
    "of the first format": (lambda token: "r1p" + token[3:], "malformed"),
    "of a later format": (lambda token: "r4" + token[2:], "malformed"),
    "padded": (lambda token: token + "=", "malformed"),
    "padded twice": (lambda token: token + "==", "malformed"),
    "with foreign characters": (lambda token: token + "!!!!", "malformed"),
    "followed by a line end": (lambda token: token + "\n", "malformed"),
    "with a space inside": (lambda token: token[:8] + " " + token[8:], "malformed"),
    "spelt with another last character": (same_signature_otherwise_spelt, "malformed"),
    "beyond ASCII": (lambda token: token[:-1] + "\u00e9", "malformed"),
    "oversized": (lambda token: token[:10] + "A" * 70_000 + token[10:], "oversized"),
    "invented": (lambda token: "let me in", "malformed"),
    "invented without a hint": (lambda token: "r3s." + "A" * 40 + "." + "A" * 22, "malformed"),
    "invented with a hint": (lambda token: "r3sAAAA." + "A" * 40 + "." + "A" * 22, "unknown key"),
    "invented under the true hint": (lambda token: token[:8] + "A" * 40 + "." + "A" * 22, "tampered"),
    "signed at full length": (lambda token: token + "A" * 21, "malformed"),
    "a journal without a signature": (
        lambda token: token.split(".")[1],
        "malformed",
    ),
}


@pytest.mark.parametrize("name", SPOILED)
async def test_spoiled_token_is_rejected_without_a_reason(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """Shows S4."""
    spoil, reason = SPOILED[name]
    shop = Shop()
    token = await token_of(shop)
    with pytest.raises(MCPError) as caught:
        await shop.leg(spoil(token))
    expect_refused(caught.value, shop, caplog, reason)
    assert text_of(await shop.leg(token)) == "Dune: True"


async def test_a_token_in_the_other_alphabet_is_rejected(caplog: pytest.LogCaptureFixture) -> None:
    """Shows S4."""
    shop = Shop()
    token = await token_of(shop)
    while not re.search("[-_]", token):
        token = await token_of(shop)
    with pytest.raises(MCPError) as caught:
        await shop.leg(token.replace("-", "+").replace("_", "/"))
    expect_refused(caught.value, shop, caplog, "malformed")


async def test_a_token_under_another_key_is_rejected(caplog: pytest.LogCaptureFixture) -> None:
    """Shows S4."""
    stranger = Shop(keys=(b"x" * 32,))
    with pytest.raises(MCPError) as caught:
        await stranger.leg(await token_of(Shop()))
    expect_refused(caught.value, stranger, caplog, "unknown key")


async def test_server_without_keys_accepts_only_tokens_of_its_process() -> None:
    ours, theirs = Server("shop"), Server("shop")
    for server in (ours, theirs):

        async def confirm() -> Elicit[Choice]:
            return Elicit("Sure?", Choice)

        @server.tool()
        async def order(choice: Annotated[Choice, Resolve(confirm)]) -> bool:
            return choice.ok

    hopper = LegByLeg([ours, theirs, ours])
    await hopper.leg("order")
    with pytest.raises(MCPError) as caught:
        await hopper.leg("order", answers=ANSWER, state=hopper.token)
    assert caught.value.error == FROZEN
    assert text_of(await hopper.leg("order", answers=ANSWER, state=hopper.token)) == "true"


async def test_a_token_for_another_tool_is_rejected(caplog: pytest.LogCaptureFixture) -> None:
    """Shows S5."""
    shop = Shop()
    token = await token_of(shop)
    with pytest.raises(MCPError) as caught:
        await shop.leg(token, tool="buy")
    expect_refused(caught.value, shop, caplog, "another tool")


@pytest.mark.parametrize("arguments", [{"title": "Emma"}, {}, {"title": "Dune", "gift": True}])
async def test_a_token_for_other_arguments_is_rejected(
    arguments: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Shows S5."""
    shop = Shop()
    token = await token_of(shop)
    with pytest.raises(MCPError) as caught:
        await shop.leg(token, arguments=arguments)
    expect_refused(caught.value, shop, caplog, "other arguments")


async def test_a_token_for_another_method_is_rejected(caplog: pytest.LogCaptureFixture) -> None:
    """Shows S5."""
    shop = Shop()
    token = await token_of(shop)
    async with Client(shop.server, mode=Era.RETRY.value) as client:
        with pytest.raises(MCPError) as caught:
            await client.session.get_prompt("order", {"title": "Dune"}, request_state=token)
    expect_refused(caught.value, shop, caplog, "another method")


async def test_token_of_another_service_with_equal_key_is_rejected(caplog: pytest.LogCaptureFixture) -> None:
    """Shows S5."""
    library = Shop("library")
    with pytest.raises(MCPError) as caught:
        await library.leg(await token_of(Shop()))
    expect_refused(caught.value, library, caplog, "another audience")


async def test_services_sharing_an_audience_share_calls() -> None:
    token = await token_of(Shop("shop-eu", audience="shop"))
    assert text_of(await Shop("shop-us", audience="shop").leg(token)) == "Dune: True"


async def test_token_expires_when_the_client_outlasts_its_ttl(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """Shows S5."""
    shop = Shop(ttl=60)
    token = await token_of(shop)
    clock.advance(59)
    assert text_of(await shop.leg(token)) == "Dune: True"
    shop.forget()
    clock.advance(1)
    with pytest.raises(MCPError) as caught:
        await shop.leg(token)
    expect_refused(caught.value, shop, caplog, "expired")


async def test_no_leg_extends_the_age_of_a_call(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """Shows S5."""
    shop = Shop(ttl=60, max_age=100)
    token = await token_of(shop)
    for _ in range(2):
        clock.advance(45)
        hopper = LegByLeg([shop.server])
        await hopper.leg("order", ARGUMENTS, answers={}, state=token)
        token = hopper.token
    shop.forget()
    clock.advance(15)
    with pytest.raises(MCPError) as caught:
        await shop.leg(token)
    expect_refused(caught.value, shop, caplog, "expired")


async def test_a_tool_s_own_clocks_hold_beside_the_server_s(clock: Clock) -> None:
    """Shows S5."""
    server = Server("shop", keys=[KEY], ttl=60)

    async def confirm() -> Elicit[Choice]:
        return Elicit("Sure?", Choice)

    @server.tool(ttl=10)
    async def hasty(choice: Annotated[Choice, Resolve(confirm)]) -> str:
        return "done"

    @server.tool(ttl=300)
    async def patient(choice: Annotated[Choice, Resolve(confirm)]) -> str:
        return "done"

    hasty_call, patient_call = LegByLeg([server]), LegByLeg([server])
    await hasty_call.leg("hasty")
    await patient_call.leg("patient")
    clock.advance(11)
    with pytest.raises(MCPError) as caught:
        await hasty_call.leg("hasty", answers=ANSWER, state=hasty_call.token)
    assert caught.value.error == FROZEN
    clock.advance(280)
    result = await patient_call.leg("patient", answers=ANSWER, state=patient_call.token)
    assert result.result_type == "complete"


async def test_a_token_from_the_future_is_rejected(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    """Shows S4."""
    shop = Shop()
    token = await token_of(shop)
    clock.advance(-120)
    with pytest.raises(MCPError) as caught:
        await shop.leg(token)
    expect_refused(caught.value, shop, caplog, "minted in the future")


async def test_token_of_the_sdk_server_with_equal_key_is_rejected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Shows S4."""
    sdk = MCPServer("shop", request_state_security=RequestStateSecurity(keys=[KEY]))

    async def confirm(title: str) -> Elicit[Choice]:
        return Elicit(f"Order {title}?", Choice)

    @sdk.tool()
    async def order(title: str, choice: Annotated[Choice, SdkResolve(confirm)]) -> str:
        return title

    hopper = LegByLeg([sdk])
    await hopper.leg("order", ARGUMENTS)
    shop = Shop()
    with pytest.raises(MCPError) as caught:
        await shop.leg(hopper.token)
    expect_refused(caught.value, shop, caplog, "malformed")


async def test_every_http_rejection_is_byte_identical() -> None:
    """Shows S4."""
    shop = Shop()
    async with served(shop.server, stateless_http=True) as url, wire(url) as post:
        token = (await post.result("order", ARGUMENTS))["requestState"]
        answers = {"confirm": accept(ok=True)}
        spoilt: list[Any] = [spoil(token) for spoil, _ in SPOILED.values()]
        errors = [
            await post.error("order", ARGUMENTS, requestState=state, inputResponses=answers)
            for state in [*spoilt, 7, ["r3s"], {"state": token}]
            if state is not None
        ]
        errors.append(await post.error("buy", ARGUMENTS, requestState=token, inputResponses=answers))
        errors.append(await post.error("order", {"title": "Emma"}, requestState=token, inputResponses=answers))
    assert [json.dumps(error) for error in errors] == [json.dumps(FROZEN.model_dump(mode="json"))] * len(errors)
    assert shop.ran == ["confirm"]


async def test_the_log_does_not_repeat_what_the_client_sent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="roundtrip")
    shop = Shop()
    with pytest.raises(MCPError):
        await shop.leg("let-me-in-please")
    assert not any("let-me-in" in record.getMessage() for record in caplog.records if record.name == "roundtrip")
    assert time.time() > 0
