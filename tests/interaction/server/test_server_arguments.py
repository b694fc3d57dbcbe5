"""`Server` rejects keys, policies, clocks and tools that can never work, before a client connects."""

import re
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from mcp.server.mcpserver.exceptions import InvalidSignature as SdkInvalidSignature
from mcp.server.request_state import RequestStateSecurity
from pydantic import BaseModel

from roundtrip import Elicit, InvalidSignature, Resolve, RoundtripError, Server
from roundtrip.testing import Restart, User
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


def rejection(make: Callable[..., object], *given: Any, **options: Any) -> Exception | None:
    """Return the error of a call, if there is one."""
    try:
        make(*given, **options)
    except Exception as error:  # noqa: BLE001 - returned
        return error
    return None


def test_server_fails_at_start() -> None:
    wrong: list[str] = []
    for name, (options, kind, message) in REFUSED.items():
        error = rejection(Server, "shop", **options)
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
    told = [str(rejection(Server, "shop", request_state_security=policy, **options)) for options in others]
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


async def lost(title: str, unknown: int) -> int:
    return unknown


async def egg(hen: Annotated[int, Resolve(lambda: 1)]) -> int:
    return hen


def cycle() -> Callable[..., Any]:
    async def first(x: Any) -> int:
        return x

    async def second(x: Annotated[int, Resolve(first)]) -> int:
        return x

    first.__annotations__["x"] = Annotated[int, Resolve(second)]

    async def tool(x: Annotated[int, Resolve(second)]) -> int:
        return x

    return tool


async def unfillable(title: str, x: Annotated[int, Resolve(lost)]) -> int:
    return x


async def buried(x: Annotated[int, Resolve(secret)] | None) -> int:
    return x or 0


async def asks_twice() -> Elicit[Choice] | Elicit[dict[str, int]]:
    return Elicit("Which?", Choice)


async def two_arms(x: Annotated[Choice, Resolve(asks_twice)]) -> int:
    return 1


async def alike(x: Annotated[int, Resolve(secret, key="a")], y: Annotated[Choice, Resolve(sure, key="a")]) -> int:
    return x


class Nested(BaseModel):
    inner: Choice


async def nests() -> Elicit[Nested]:
    return Elicit("?", Nested)


async def nested_form(x: Annotated[Nested, Resolve(nests)]) -> int:
    return 1


BROKEN: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "a cycle of resolvers": (cycle(), ["first", "second", "cycle"]),
    "a parameter that nothing fills": (unfillable, ["'unfillable'", "'unknown'", "'lost'"]),
    "a marker inside a union": (buried, ["'buried'", "'x'", "inside a union"]),
    "two questions in one annotation": (two_arms, ["'two_arms'", "'asks_twice'", "2 asking arms"]),
    "two questions of one name": (alike, ["'alike'", "key='a'"]),
    "a form within a form": (nested_form, ["'nested_form'", "'nests'", "'inner'"]),
}


@pytest.mark.anyio
async def test_a_graph_that_can_never_work_is_rejected_at_registration() -> None:
    wrong: list[str] = []
    for name, (tool, words) in BROKEN.items():
        server = Server("shop")
        error = rejection(server.tool(name=tool.__name__), tool)
        kinds = (InvalidSignature, SdkInvalidSignature, RoundtripError)
        is_named = all(word in str(error) for word in words)
        if not all(isinstance(error, kind) for kind in kinds) or not is_named or await server.list_tools():
            wrong.append(f"{name}: {error!r}")
    assert wrong == []
