"""The boundary under policies of all kinds: it rejects all that the SDK's own boundary rejects, with any codec."""

import logging
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from mcp.client import Client
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.request_state import InvalidRequestState, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types import ErrorData, InputRequiredResult

from roundtrip import Resolve, Server
from roundtrip.testing import Clock, Era, LegByLeg
from tests.interaction.protocol.by_hand import by_hand
from tests.interaction.protocol.frozen import FROZEN
from tests.interaction.testing.seats import Snack, snack
from tests.kit.players import text_of
from tests.kit.shops import KEY, Choice, server_with, sure

pytestmark = pytest.mark.anyio

SEAL_KEY = b"s" * 32
INTERNAL = ErrorData(code=-32603, message="Internal error")
ANSWER = {"sure": {"ok": True}}


class PlainCodec:
    """Foreign codec, which protects nothing, so that tests can write any payload."""

    def seal(self, payload: bytes) -> str:
        return f"plain.{payload.hex()}"

    def unseal(self, token: str) -> bytes:
        if not token.startswith("plain."):
            raise InvalidRequestState("malformed")
        return bytes.fromhex(token.removeprefix("plain."))


class Caller:
    """Caller of the requests; changed between legs."""

    def __init__(self, name: Any = None) -> None:
        self.name = name

    def __call__(self, ctx: ServerRequestContext[Any, Any]) -> Any:
        if isinstance(self.name, Exception):
            raise self.name
        return self.name


async def order(choice: Annotated[Choice, Resolve(sure)], gift: str = "") -> str:
    return f"{choice.ok}"


def shop(security: RequestStateSecurity | None = None, **options: Any) -> Server[Any]:
    given = {"request_state_security": security, "seal_keys": [SEAL_KEY]} if security is not None else {"keys": [KEY]}
    server = Server[Any]("shop", **given, **options)

    server.add_tool(order)
    server.add_tool(order, name="buy")
    return server


async def refused(server: Server[Any], token: str, **changed: Any) -> ErrorData:
    with pytest.raises(MCPError) as caught:
        await LegByLeg([server]).leg(changed.pop("tool", "order"), changed, answers=ANSWER, state=token)
    return caught.value.error


async def token_of(server: Server[Any]) -> str:
    hopper = LegByLeg([server])
    await hopper.leg("order", {})
    return hopper.token


POLICIES: dict[str, Callable[[Caller | None, float], Server[Any]]] = {
    "our keys": lambda caller, ttl: shop(principal=caller or False, ttl=ttl),
    "our keys, encrypting": lambda caller, ttl: shop(principal=caller or False, ttl=ttl, encrypt=True),
    "the SDK's codec": lambda caller, ttl: shop(
        RequestStateSecurity(keys=[KEY], bind_principal=caller, ttl=ttl), ttl=ttl
    ),
    "a foreign codec": lambda caller, ttl: shop(
        RequestStateSecurity(codec=PlainCodec(), bind_principal=caller, ttl=ttl), ttl=ttl
    ),
}
every_policy = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
Policy = Callable[[Caller | None, float], Server[Any]]


@every_policy
async def test_token_works_only_for_its_request(policy: Policy, caplog: pytest.LogCaptureFixture) -> None:
    """Shows S5."""
    server = policy(None, 600.0)
    token = await token_of(server)
    assert await refused(server, token, tool="buy") == FROZEN
    others = [{"gift": "yes"}, {"unknown": 1}]
    assert [await refused(server, token, **other) for other in others] == [FROZEN] * 2
    logged = [record.getMessage().rpartition(": ")[2] for record in caplog.records if record.name == "roundtrip"]
    assert logged == ["another tool", "other arguments", "other arguments"]
    assert text_of(await LegByLeg([server]).leg("order", {}, answers=ANSWER, state=token)) == "True"


@every_policy
async def test_a_token_outlives_neither_its_time_nor_its_clock(
    policy: Policy, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Shows S5."""
    server = policy(None, 60.0)
    token = await token_of(server)
    clock.advance(60)
    assert await refused(server, token) == FROZEN
    clock.advance(-60 - 61)
    assert await refused(server, token) == FROZEN
    logged = [record.getMessage().rpartition(": ")[2] for record in caplog.records if record.name == "roundtrip"]
    assert logged == ["expired", "minted in the future"]
    clock.advance(2)
    assert text_of(await LegByLeg([server]).leg("order", {}, answers=ANSWER, state=token)) == "True"


CALLERS: list[tuple[Any, Any]] = [
    ("ann", "bob"),
    ("ann", None),
    (None, "ann"),
    ("", None),
    (None, ""),
    ("ann", 7),
    ("ann", ValueError("secret")),
]


@every_policy
async def test_token_works_only_for_its_caller(policy: Policy, caplog: pytest.LogCaptureFixture) -> None:
    """Shows S5."""
    caller = Caller()
    server = policy(caller, 600.0)
    ends: list[tuple[Any, str, str]] = []
    for before, after in CALLERS:
        caller.name = before
        token = await token_of(server)
        caller.name = after
        error = await refused(server, token)
        caller.name = before
        end = text_of(await LegByLeg([server]).leg("order", {}, answers=ANSWER, state=token))
        ends.append((error, caplog.records[-1].getMessage().rpartition(": ")[2], end))
    assert ends == [(FROZEN, "another principal", "True")] * len(CALLERS)


@every_policy
async def test_unidentified_caller_gets_no_token(policy: Policy, caplog: pytest.LogCaptureFixture) -> None:
    """Shows S5."""
    names: list[Any] = [7, b"ann", ValueError("secret")]
    for name in names:
        with pytest.raises(MCPError) as caught:
            await LegByLeg([policy(Caller(name), 600.0)]).leg("order", {})
        assert caught.value.error == INTERNAL, name
    logged = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert sum("principal=" in message for message in logged) == len(names)


@pytest.mark.parametrize("name", POLICIES)
async def test_services_that_share_keys_do_not_share_tokens(name: str) -> None:
    """Shows S5."""
    theirs = Server("library", keys=[KEY]) if name.startswith("our") else None
    if theirs is None:
        codec: Any = {"keys": [KEY]} if "SDK" in name else {"codec": PlainCodec()}
        theirs = Server("shop", request_state_security=RequestStateSecurity(**codec, audience="library"))

    theirs.add_tool(order)
    assert await refused(POLICIES[name](None, 600.0), await token_of(theirs)) == FROZEN


class Broken(PlainCodec):
    """Codec that fails in one of its two duties."""

    def __init__(self, duty: str, what: Any) -> None:
        self._duty, self._what = duty, what

    def seal(self, payload: bytes) -> Any:
        return self._do() if self._duty == "seal" else super().seal(payload)

    def unseal(self, token: str) -> Any:
        return self._do() if self._duty == "unseal" else super().unseal(token)

    def _do(self) -> Any:
        if isinstance(self._what, Exception):
            raise self._what
        return self._what


FAILURES = [ValueError("secret"), MCPError(code=1, message="secret"), RuntimeError("secret")]


async def test_codec_that_cannot_seal_gives_a_bare_internal_error(caplog: pytest.LogCaptureFixture) -> None:
    failures: list[Any] = [*FAILURES, None, 7]
    for failure in failures:
        server = shop(RequestStateSecurity(codec=Broken("seal", failure), bind_principal=None))
        with pytest.raises(MCPError) as caught:
            await LegByLeg([server]).leg("order", {})
        assert caught.value.error == INTERNAL, failure
    logged = [record.getMessage() for record in caplog.records]
    assert sum("failed to make a token" in message for message in logged) == len(failures)


async def test_codec_failing_to_unseal_rejects_the_token() -> None:
    """Shows S4."""
    failures: list[Any] = [*FAILURES, None, 7, "text", b"", b"{}", bytes(200), bytearray(b"x")]
    told = [
        await refused(shop(RequestStateSecurity(codec=Broken("unseal", failure), bind_principal=None)), "plain.00")
        for failure in failures
    ]
    assert told == [FROZEN] * len(failures)


async def test_every_byte_of_an_unsigned_payload_is_checked() -> None:
    """Shows S4. With a codec that verifies nothing, a changed byte may be another call, but never a crash."""
    server = shop(RequestStateSecurity(codec=PlainCodec(), bind_principal=None))
    payload = bytes.fromhex((await token_of(server)).removeprefix("plain."))
    spoilt = [payload[:place] + bytes([byte ^ 0x81]) + payload[place + 1 :] for place, byte in enumerate(payload)]
    spoilt += [payload[:length] for length in range(0, len(payload), 3)]
    spoilt += [payload + extra for extra in (b"\0", b" ", b"]", payload)]
    async with Client(server, mode=Era.RETRY.value, elicitation_callback=never) as client:
        for place, changed in enumerate(spoilt):
            end: Any = None
            try:
                end = await client.session.call_tool(
                    "order", {}, request_state=f"plain.{changed.hex()}", allow_input_required=True
                )
            except MCPError as error:
                end = error.error
            assert end == FROZEN or isinstance(end, InputRequiredResult), place


async def never(context: Any, params: Any) -> Any:
    raise NotImplementedError


@pytest.mark.parametrize("as_model", [False, True], ids=["mapping", "model"])
async def test_middleware_result_in_place_of_a_tool_is_sealed(as_model: bool) -> None:
    seen: list[Any] = []

    async def short(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        if ctx.method != "tools/call":
            return await call_next(ctx)
        seen.append((ctx.params or {}).get("requestState"))
        if seen[-1] is not None:
            return await call_next(ctx)
        result = by_hand("by hand")
        return result if as_model else result.model_dump(mode="json", by_alias=True, exclude_none=True)

    server = shop(middleware=[short])
    hopper = LegByLeg([server])
    await hopper.leg("order", {})
    assert hopper.token.startswith("r3s")
    assert "by hand" not in hopper.token
    await hopper.leg("order", {}, state=hopper.token)
    assert seen == [None, "by hand"]


async def test_length_of_an_encrypted_token_hides_its_answers() -> None:
    """Shows S4."""

    async def book(film: str, snack: Annotated[Snack, Resolve(snack)]) -> str:
        return film

    async def length(text: str, *, encrypt: bool) -> int:
        hopper = LegByLeg([server_with(book, encrypt=encrypt)])
        await hopper.leg("book", {"film": "Solaris"})
        await hopper.leg("book", {"film": "Solaris"}, answers={"seat": {"row": text}}, state=hopper.token)
        return len(hopper.token)

    varied = "".join(chr(97 + number * 7 % 26) + chr(65 + number * 11 % 26) for number in range(500))
    assert await length("a" * 1000, encrypt=True) == await length(varied, encrypt=True)
    assert await length("a" * 1000, encrypt=False) < 400
