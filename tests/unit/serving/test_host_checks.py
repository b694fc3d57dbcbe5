"""Hosts and origins that requests may name."""

import logging
from collections.abc import Iterable

import pytest
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import Message, Receive, Scope, Send

from roundtrip import Server
from roundtrip.serving.host_checks import HostChecks

pytestmark = pytest.mark.anyio
APP = "https://app.example.com"


async def _served(scope: Scope, receive: Receive, send: Send) -> None:
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body"})


async def _status(
    headers: dict[str, str], *, hosts: Iterable[str] = (), origins: Iterable[str] = (), loopback: bool = False
) -> int:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("headers are enough")

    scope = {"type": "http", "headers": [(name.encode(), value.encode()) for name, value in headers.items()]}
    await HostChecks(_served, hosts, origins, loopback=loopback)(scope, receive, send)
    return int(sent[0]["status"])


HOSTS: list[tuple[tuple[str, ...], bool, str, int]] = [
    ((), True, "localhost:8000", 200),
    ((), True, "LOCALHOST", 200),
    ((), True, "[0:0:0:0:0:0:0:1]:8000", 200),
    ((), True, "evil.example", 421),
    ((), True, "localhost:8000@evil.example", 421),
    ((), False, "evil.example", 200),
    (("shop.example",), True, "127.0.0.1", 200),
    (("shop.example",), False, "127.0.0.1", 421),
    (("Shop.Example:8443",), False, "shop.example:8443", 200),
    (("shop.example:8443",), False, "shop.example", 421),
    (("shop.example:443",), False, "shop.example", 200),
    (("shop.example:*",), False, "shop.example:1", 200),
    (("2001:db8::1",), False, "[2001:DB8:0::1]:80", 200),
    (("*",), True, "evil.example", 200),
]


async def test_hosts_are_held_to_those_allowed() -> None:
    found = [await _status({"host": host}, hosts=hosts, loopback=loopback) for hosts, loopback, host, _ in HOSTS]
    assert found == [status for *_, status in HOSTS]
    assert await _status({}, hosts=["shop.example"]) == 421, "without a host"


ORIGINS = [
    (APP, 200),
    ("https://APP.example.com:443", 200),
    ("https://app.example.com:8443", 403),
    ("http://app.example.com", 403),
    ("https://other.example.com", 403),
    ("https://app.example.com.evil.example", 403),
    ("https://evil.example", 403),
    ("null", 403),
    ("nonsense", 403),
    (None, 200),
]


@pytest.mark.parametrize("hosts", [(), ("*",), ("shop.example",)])
async def test_origin_is_checked_wherever_one_was_given(hosts: tuple[str, ...]) -> None:
    host, origins = {"host": "shop.example" if hosts else "localhost"}, [APP, "http://[::2]:80"]
    for loopback in (True, False):
        found = {
            origin: await _status(
                host if origin is None else host | {"origin": origin}, hosts=hosts, origins=origins, loopback=loopback
            )
            for origin, _ in ORIGINS
        }
        assert found == dict(ORIGINS)


SPELLINGS = [
    ("http://[0::2]", "http://[::2]"),
    ("https://app.example.com:*", "https://app.example.com:9"),
    ("null", "null"),
    ("*", "https://any.example"),
    ("vscode-webview://abc", "vscode-webview://abc"),
]


async def test_origins_may_be_spelled_in_several_ways() -> None:
    found = {
        given: await _status({"host": "localhost", "origin": origin}, origins=[given], loopback=True)
        for given, origin in SPELLINGS
    }
    assert found == {given: 200 for given, _ in SPELLINGS}


async def test_pages_of_the_allowed_hosts_may_call() -> None:
    for origin, status in (("http://shop.example:3000", 200), ("https://evil.example", 403)):
        assert await _status({"host": "shop.example", "origin": origin}, hosts=["shop.example"]) == status
    # Where nothing was said, they are not checked.
    assert await _status({"host": "a.example", "origin": "https://b.example"}) == 200


async def test_rejected_names_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(50):
        assert await _status({"host": "evil.example"}, loopback=True) == 421
    lines = [record.getMessage() for record in caplog.records if "--allowed-host" in record.getMessage()]
    assert len(lines) <= 5
    assert "evil" not in caplog.text


def test_lists_that_the_sdk_does_not_check_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False, allowed_origins=[APP])
    with caplog.at_level(logging.WARNING, "roundtrip"):
        Server("shop", keys=["7f" * 32]).streamable_http_app(transport_security=security)
    assert "allowed_origins is not checked" in caplog.text
