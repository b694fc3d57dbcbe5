"""`request_state_security=` works as on the SDK: its clock, its codec, and states written by hand."""

import logging
from typing import Annotated, Any

import pytest
from mcp.server.mcpserver import Context as SdkContext
from mcp.server.request_state import InvalidRequestState, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types import GetPromptResult, InputRequiredResult

from roundtrip import Context, InvalidSignature, Resolve, Server
from roundtrip.testing import Clock, LegByLeg
from tests.interaction.protocol.by_hand import by_hand
from tests.kit.players import text_of
from tests.kit.shops import KEY, Choice, sure

pytestmark = pytest.mark.anyio

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


@pytest.mark.parametrize("tool", ["order", "by_hand"])
async def test_policy_decides_how_long_a_token_is_good(tool: str, clock: Clock) -> None:
    for ttl in (30.0, 7200.0):
        server = shop(RequestStateSecurity(keys=[KEY], ttl=ttl))
        assert await answered_after(server, clock, ttl - 1, tool=tool) == "True"
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await answered_after(server, clock, ttl + 1, tool=tool)


def test_two_clocks_at_once_are_rejected() -> None:
    with pytest.raises(ValueError, match="ttl= must be left out with request_state_security="):
        Server("shop", request_state_security=RequestStateSecurity(keys=[KEY]), ttl=30.0)
    with pytest.raises(ValueError, match="max_age"):
        Server("shop", request_state_security=RequestStateSecurity(keys=[KEY], ttl=900.0), max_age=30.0)


@pytest.mark.parametrize("policy", [{"keys": [KEY]}, {"codec": TextCodec()}], ids=["keys", "codec"])
async def test_state_by_hand_needs_no_seal_keys(policy: dict[str, Any]) -> None:
    legs = LegByLeg([shop(RequestStateSecurity(**policy))])
    await legs.leg("by_hand")
    assert text_of(await legs.leg("by_hand", answers=ANSWER, state=legs.token)) == "True"


async def test_state_sealed_with_a_missing_key_is_rejected() -> None:
    policy: dict[str, Any] = {"keys": [KEY]}
    sealing = LegByLeg([shop(RequestStateSecurity(**policy), seal_keys=[b"s" * 32])])
    await sealing.leg("by_hand")
    with pytest.raises(MCPError, match="Invalid or expired requestState"):
        await LegByLeg([shop(RequestStateSecurity(**policy))]).leg("by_hand", answers=ANSWER, state=sealing.token)
    plain = LegByLeg([shop(RequestStateSecurity(**policy))])
    await plain.leg("by_hand")
    with pytest.raises(MCPError, match="Invalid or expired requestState"):
        await LegByLeg([shop(RequestStateSecurity(**policy), seal_keys=[b"s" * 32])]).leg(
            "by_hand", answers=ANSWER, state=plain.token
        )


async def test_prompt_that_asks_by_hand_needs_no_seal_keys() -> None:
    server = Server[Any]("shop", request_state_security=RequestStateSecurity(keys=[KEY]))

    @server.prompt()
    async def letter(ctx: SdkContext[Any, Any]) -> str | InputRequiredResult:
        return by_hand(STATE) if ctx.request_state is None else "Dear"

    result = await server.get_prompt("letter")
    assert not isinstance(result, GetPromptResult)


def test_computed_values_still_need_seal_keys() -> None:
    server = Server[Any]("shop", request_state_security=RequestStateSecurity(keys=[KEY]))

    async def pick(number: Annotated[int, Resolve(lambda: 42, once=True, key="number")]) -> int:
        return number

    with pytest.raises(InvalidSignature, match="seal_keys="):
        server.add_tool(pick)


async def test_log_has_the_reason_of_a_codec(caplog: pytest.LogCaptureFixture) -> None:
    legs = LegByLeg([shop(RequestStateSecurity(codec=TextCodec("revoked by the key service")))])
    await legs.leg("order")
    with pytest.raises(MCPError) as caught:
        await legs.leg("order", answers=ANSWER, state=legs.token)
    assert "revoked" not in f"{caught.value.error}"
    [logged] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert logged.endswith("(revoked by the key service)")
