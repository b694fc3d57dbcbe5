"""The choice of networks by a mark, the history of a call, and the readings of a token."""

import base64
import binascii
import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from mcp_types import CallToolResult, InputRequiredResult, TextContent

from roundtrip.client.legs import LegRequest
from roundtrip.testing import Deploy, Drop, Duplicate, Eavesdrop, Tamper
from roundtrip.testing.networks.deliveries import Breach, LegDelivery
from roundtrip.testing.networks.network import Route
from roundtrip.testing.user_defaults import NETWORKS, name_of, network_stacks

ANYBODY: Any = None
"""Fleet that receives no requests."""


def make() -> Any:
    raise NotImplementedError("networks are chosen before servers are made")


def names(which: object, **options: Any) -> list[str]:
    return [name_of(stack) for stack in network_stacks(which, **options)]


def test_true_selects_every_network_and_other_builds() -> None:
    assert names(True) == [*NETWORKS]
    assert names(True, deploy=make) == [*NETWORKS, "deploy"]
    assert names(True, deploy=make, without=["deploy", "hop"]) == [name for name in NETWORKS if name != "hop"]


def test_list_keeps_its_order_and_tuples_stack() -> None:
    chosen = ["tamper", ("hop", Duplicate(at_once=True)), Drop(leg=2), Deploy(make, rolling=True)]
    assert names(chosen) == ["tamper", "hop+duplicate-at-once", "drop-leg-2", "deploy-rolling"]
    assert names(chosen, without=["hop+duplicate-at-once", "drop-leg-2", "swap"]) == ["tamper", "deploy-rolling"]


MISTAKES: list[tuple[object, dict[str, Any], str]] = [
    (["hopp"], {}, "there is no network 'hopp'; the networks are hop, "),
    (True, {"without": ["hopp"]}, "there is no network 'hopp'; the networks are hop, "),
    (True, {"without": "hop"}, "without= must be a list of names, got 'hop'; write ['hop']"),
    (True, {"deploy": "make"}, "deploy= must be a function"),
    ("hop", {}, "hostile= must be True, or a list"),
    (1, {}, "hostile= must be True, or a list"),
    (["deploy"], {}, "the network 'deploy' needs a function"),
    ([Tamper], {}, "Tamper is a class"),
    ([("hop", None)], {}, "None is not a network"),
]


def test_a_mistake_says_what_there_is() -> None:
    def said(which: object, options: dict[str, Any]) -> str:
        with pytest.raises(ValueError) as refused:  # noqa: PT011 - its words are compared below
            network_stacks(which, **options)
        return str(refused.value)

    told = [(words, said(which, options)) for which, options, words in MISTAKES]
    assert [(words, text) for words, text in told if words not in text] == []


def asked(leg: LegRequest, token: str) -> LegDelivery:
    return LegDelivery(leg, InputRequiredResult(request_state=token))


def test_leg_history_is_its_causal_chain_only() -> None:
    first = LegRequest("book")
    opening, again = asked(first, "one"), asked(first, "another call's")
    second = LegRequest("book", answers={}, state="one")
    next_ = asked(second, "two")
    done = LegDelivery(
        LegRequest("book", answers={}, state="two"), CallToolResult(content=[TextContent(type="text", text="")])
    )
    route = Route(ANYBODY, ANYBODY, [opening, again, next_, done])
    assert route.history(first) == []
    assert route.history(second) == [opening]
    assert route.history(done.leg) == [opening, next_]
    assert route.before(done.leg) is next_
    assert route.before(LegRequest("book", answers={}, state="a token that no server made")) is None


SECRET = "voucher-4711"
LOUD = 'say "voucher" \N{SNOWMAN}'


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


PACKINGS: dict[str, Callable[[str], str]] = {
    "as it is": lambda secret: f"v1.{secret}.sig",
    "a JSON web token": lambda secret: f"{b64(b'{}')}.{b64(json.dumps({'s': secret}).encode())}.c2ln",
    "behind two letters": lambda secret: "v1" + b64(secret.encode()),
    "hexadecimal": lambda secret: binascii.hexlify(secret.encode()).decode(),
    "gzip behind a byte": lambda secret: b64(b"\x01" + gzip.compress(secret.encode())),
    "deflated in base64 in JSON, deflated, in base64": lambda secret: b64(
        zlib.compress(json.dumps({"s": b64(zlib.compress(secret.encode()))}).encode())
    ),
}


async def overheard(token: str, secret: str) -> LegDelivery:
    async def onward(leg: LegRequest) -> LegDelivery:
        return asked(leg, token)

    return await Eavesdrop([secret]).carry(LegRequest("book"), Route(ANYBODY, onward, []))


@pytest.mark.anyio
async def test_unencrypted_parts_are_read_in_any_packing() -> None:
    async def is_read(token: str, secret: str) -> bool:
        try:
            await overheard(token, secret)
        except Breach as breach:
            return "is readable without a key" in str(breach)
        return False

    secrets = [(name, secret) for name in PACKINGS for secret in (SECRET, LOUD)]
    assert [one for one in secrets if not await is_read(PACKINGS[one[0]](one[1]), one[1])] == []
    assert [name for name in PACKINGS if await is_read(PACKINGS[name]("something else"), SECRET)] == []


@pytest.mark.anyio
async def test_a_long_token_of_noise_is_read_in_bounded_time() -> None:
    noise = b64(b"".join(zlib.compress(bytes([number]) * 50_000) for number in range(64)))
    assert (await overheard(noise * 8, SECRET)).error is None
