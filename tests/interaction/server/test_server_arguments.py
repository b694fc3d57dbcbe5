"""`Server` rejects keys, policies and clocks that can never work, before a client connects."""

import re
from typing import Annotated, Any

import pytest
from mcp.server.request_state import RequestStateSecurity

from roundtrip import Resolve, Server
from roundtrip.testing import Restart, User
from tests.kit.raised import raised
from tests.kit.shops import KEY, Choice, sure

REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a short key": ({"keys": [b"k" * 31]}, ValueError, "31 bytes"),
    "a short older key": ({"keys": [KEY, b"short"]}, ValueError, r"keys\[1\]"),
    "no key in the list": ({"keys": []}, ValueError, "at least one key"),
    "one key twice": ({"keys": [KEY, KEY]}, ValueError, "repeats"),
    "a key that is no list": ({"keys": KEY}, TypeError, "list of keys"),
    "a number for a key": ({"keys": [32]}, TypeError, "bytes or str"),
    "a leg longer than its call": ({"ttl": 100, "max_age": 50}, ValueError, "ttl no more than max_age"),
    "no time at all": ({"ttl": 0}, ValueError, "ttl"),
    "seal_keys without a policy": ({"seal_keys": [KEY]}, ValueError, "request_state_security="),
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
    policy = RequestStateSecurity(keys=[KEY])
    others: list[dict[str, Any]] = [{"keys": [KEY]}, {"encrypt": True}, {"principal": False}, {"audience": "shop"}]
    told = [str(raised(Server, "shop", request_state_security=policy, **options)) for options in others]
    assert [text for text in told if "request_state_security=" not in text] == []


async def secret() -> int:
    return 42


async def keeps_a_secret(
    number: Annotated[int, Resolve(secret, once=True)], choice: Annotated[Choice, Resolve(sure)]
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
