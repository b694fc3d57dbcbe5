"""Keys, policies and clocks of `Server`: those that can never work are rejected, and the SDK's work as there."""

import logging
import re
from typing import Annotated, Any

import pytest
from mcp.server.request_state import InvalidRequestState, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types import InputRequiredResult

from roundtrip import Context, Resolve, Server
from roundtrip.errors import KeysMissing
from roundtrip.testing import Clock, LegByLeg, Restart, User
from tests.interaction.protocol.by_hand import by_hand
from tests.kit.players import text_of
from tests.kit.raised import raised
from tests.kit.shops import KEY, Choice, sure

REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a short key": ({"keys": [b"k" * 31]}, ValueError, "32 random secret bytes, got 31"),
    "a short older key": ({"keys": [KEY, b"short"]}, ValueError, r"keys\[1\]"),
    "no key in the list": ({"keys": []}, ValueError, "at least one key"),
    "one key twice": ({"keys": [KEY, KEY]}, ValueError, "repeats"),
    "a key that is no list": ({"keys": KEY}, TypeError, "list of keys"),
    "a number for a key": ({"keys": [32]}, TypeError, "bytes or str"),
    "a leg longer than its call": ({"ttl": 100, "max_age": 50}, ValueError, "with 0 < ttl <= max_age"),
    "no time at all": ({"ttl": 0}, ValueError, "ttl"),
    "seal_keys without a policy": ({"seal_keys": [KEY]}, ValueError, "request_state_security="),
    "a truth for a principal": ({"principal": True}, TypeError, "principal= must be a function .*, or False, got True"),
    "an address for a ledger": (
        {"ledger": "redis://:secret@redis"},
        TypeError,
        r"ledger= must be a ledger, such as .*, got str$",
    ),
}


def test_server_fails_at_start() -> None:
    wrong: list[str] = []
    for name, (options, kind, message) in REFUSED.items():
        error = raised(Server, "shop", **options)
        if type(error) is not kind or not re.search(message, str(error)):
            wrong.append(f"{name}: {error!r}")
    assert wrong == []


def test_a_shared_key_needs_the_name_of_a_service() -> None:
    with pytest.raises(ValueError, match="audience="):
        Server(keys=[KEY])
    assert Server(keys=[KEY], audience="shop").name
    assert Server("shop", keys=[KEY]).name == "shop"
    assert Server().name


def test_two_policies_at_once_are_rejected() -> None:
    policy = RequestStateSecurity(keys=[KEY], ttl=900.0)
    others: dict[str, Any] = {"keys": [KEY], "encrypt": True, "principal": False, "audience": "shop", "ttl": 30.0}
    told = [str(raised(Server, "shop", request_state_security=policy, **{name: others[name]})) for name in others]
    assert [text for text in told if "request_state_security=" not in text] == []
    with pytest.raises(ValueError, match="max_age"):
        Server("shop", request_state_security=policy, max_age=30.0)


async def secret() -> int:
    return 42


async def keeps_a_secret(
    number: Annotated[int, Resolve(secret, remember=True)], choice: Annotated[Choice, Resolve(sure)]
) -> str:
    return f"{number} {choice.ok}"


@pytest.mark.anyio
async def test_sdk_policy_carries_the_journal_and_seal_keys_seal() -> None:
    def make() -> Server[Any]:
        policy = RequestStateSecurity(keys=[KEY])
        server = Server[Any]("shop", request_state_security=policy, seal_keys=[b"s" * 32])
        server.add_tool(keeps_a_secret)
        return server

    call = await User(make, {"sure": {"ok": True}}, network=Restart()).call("keeps_a_secret")
    assert call.text == "42 True"
    assert (call.tokens[-1] or "").startswith("v1.")


# The policies of the SDK.

STATE = "written by hand \u00fc\ud800"
ANSWER = {"sure": {"ok": True}}


class TextCodec:
    """Codec of an author that decodes its payload, as the SDK's JSON allows."""

    def __init__(self, refusal: str | None = None) -> None:
        self._refusal = refusal

    def seal(self, payload: bytes) -> str:
        return f"text:{payload.decode()}"

    def unseal(self, token: str) -> bytes:
        if self._refusal is not None or not token.startswith("text:"):
            raise InvalidRequestState(self._refusal or "malformed")
        return token.removeprefix("text:").encode()


def shop(security: RequestStateSecurity, **options: Any) -> Server[Any]:
    server = Server[Any]("shop", request_state_security=security, **options)

    @server.tool()
    async def order(choice: Annotated[Choice, Resolve(sure)]) -> str:
        return f"{choice.ok}"

    @server.tool(name="by_hand")
    async def stateful(ctx: Context[Any, Any]) -> str | InputRequiredResult:
        return by_hand(STATE) if ctx.request_state is None else f"{ctx.request_state == STATE}"

    return server


async def answered_after(server: Server[Any], clock: Clock, seconds: float, *, tool: str = "order") -> str:
    legs = LegByLeg([server])
    await legs.leg(tool)
    clock.advance(seconds)
    return text_of(await legs.leg(tool, answers=ANSWER, state=legs.token))


@pytest.mark.anyio
@pytest.mark.parametrize("tool", ["order", "by_hand"])
async def test_policy_decides_how_long_a_token_is_good(tool: str, clock: Clock) -> None:
    for ttl in (30.0, 7200.0):
        server = shop(RequestStateSecurity(keys=[KEY], ttl=ttl))
        assert await answered_after(server, clock, ttl - 1, tool=tool) == "True"
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await answered_after(server, clock, ttl + 1, tool=tool)


@pytest.mark.anyio
@pytest.mark.parametrize("policy", [{"keys": [KEY]}, {"codec": TextCodec()}], ids=["keys", "codec"])
async def test_state_by_hand_needs_no_seal_keys(policy: dict[str, Any]) -> None:
    legs = LegByLeg([shop(RequestStateSecurity(**policy))])
    await legs.leg("by_hand")
    assert text_of(await legs.leg("by_hand", answers=ANSWER, state=legs.token)) == "True"


@pytest.mark.anyio
async def test_state_sealed_with_a_missing_key_is_rejected() -> None:
    shops = [shop(RequestStateSecurity(keys=[KEY]), **options) for options in ({"seal_keys": [b"s" * 32]}, {})]
    for one, other in (shops, reversed(shops)):
        legs = LegByLeg([one])
        await legs.leg("by_hand")
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await LegByLeg([other]).leg("by_hand", answers=ANSWER, state=legs.token)


def test_computed_values_still_need_seal_keys() -> None:
    server = Server[Any]("shop", request_state_security=RequestStateSecurity(keys=[KEY]))

    async def pick(number: Annotated[int, Resolve(lambda: 42, remember=True, name="number")]) -> int:
        return number

    with pytest.raises(KeysMissing, match="seal_keys="):
        server.add_tool(pick)
    with pytest.raises(KeysMissing, match="tickets need a signing key"):
        server.verify_ticket("", principal="ann")


@pytest.mark.anyio
async def test_log_has_the_reason_of_a_codec(caplog: pytest.LogCaptureFixture) -> None:
    legs = LegByLeg([shop(RequestStateSecurity(codec=TextCodec("revoked by the key service")))])
    await legs.leg("order")
    with pytest.raises(MCPError) as caught:
        await legs.leg("order", answers=ANSWER, state=legs.token)
    assert "revoked" not in f"{caught.value.error}"
    [logged] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert logged.endswith("(revoked by the key service)")
