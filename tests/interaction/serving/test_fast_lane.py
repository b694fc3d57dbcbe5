"""The fast lane over real connections: streams, clients that leave, and the switch."""

import json
import logging
from typing import Any, Final

import anyio
import httpx
import pytest
from mcp.server import _streamable_http_modern as modern
from starlette.types import Message

from roundtrip import Context, Server
from roundtrip.sdk import connection_of
from roundtrip.testing import served
from tests.kit.asgi_posts import Post
from tests.kit.hosts import WAIT
from tests.kit.wire import headers_of, meta_of, wire

pytestmark = pytest.mark.anyio

WAYS: Final = pytest.mark.parametrize("fast_lane", [True, False], ids=["fast lane", "SDK"])


class Kitchen:
    """Server whose dishes take long, and notes of what happened in it."""

    def __init__(self, **options: Any) -> None:
        self.cooking = anyio.Event()
        self.stopped = anyio.Event()
        self.cleaned = anyio.Event()
        self.steps = 0
        self.server = Server[Any]("kitchen", keys=["k" * 32], **options)
        self.server.tool(self.stew)
        self.server.tool(self.stir)
        self.server.tool(self.wash)

    async def stew(self, seconds: float) -> str:
        """Cook, and say nothing."""
        self.cooking.set()
        try:
            await anyio.sleep(seconds)
        finally:
            self.stopped.set()
        return "stew"

    async def stir(self, ctx: Context) -> str:
        """Report progress without ever waiting for anything else."""
        self.cooking.set()
        try:
            while self.steps < 100_000:
                self.steps += 1
                await ctx.report_progress(self.steps)
        finally:
            self.stopped.set()
        return "soup"

    async def wash(self, ctx: Context) -> str:
        """Leave something to do when the request ends."""

        async def clean() -> None:
            self.cleaned.set()

        connection_of(ctx.session).exit_stack.push_async_callback(clean)
        return "washed"


def _call(tool: str, arguments: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments or {}, "_meta": {**meta_of("tester", {}), **meta}}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


def _headers(tool: str) -> dict[str, str]:
    return headers_of("tools/call", {"name": tool})


@WAYS
async def test_quiet_call_becomes_a_stream_with_pings(fast_lane: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    kitchen = Kitchen(fast_lane=fast_lane)

    async with served(kitchen.server, stateless_http=True) as url, httpx.AsyncClient(timeout=WAIT) as client:
        quick = await client.post(url, json=_call("stew", {"seconds": 0}), headers=_headers("stew"))
        # Not before: on a busy machine, a quick call may take longer than this.
        monkeypatch.setattr("roundtrip.http.fast_lane._PING_SECONDS", 0.05)
        monkeypatch.setattr(modern, "_SSE_PING_INTERVAL", 0.05)
        slow = await client.post(url, json=_call("stew", {"seconds": 0.4}), headers=_headers("stew"))

    assert quick.headers["content-type"] == "application/json"
    assert slow.headers["content-type"] == "text/event-stream"
    pings, _, event = slow.text.partition("event: message\r\n")
    assert pings.count(": ping\r\n\r\n") > 1
    assert pings.replace(": ping\r\n\r\n", "") == ""
    assert json.loads(event.removeprefix("data: "))["result"]["structuredContent"] == {"result": "stew"}


@WAYS
@pytest.mark.parametrize("dish", ["stew", "stir"])
async def test_client_that_leaves_ends_its_call(fast_lane: bool, dish: str) -> None:
    kitchen = Kitchen(fast_lane=fast_lane)
    message = _call(dish, {"seconds": 2 * WAIT} if dish == "stew" else {}, progressToken=1)

    async with served(kitchen.server, stateless_http=True) as url, httpx.AsyncClient(timeout=WAIT) as client:
        async with anyio.create_task_group() as group:

            async def eat() -> None:
                async with client.stream("POST", url, json=message, headers=_headers(dish)) as response:
                    async for _ in response.aiter_bytes():
                        pass

            group.start_soon(eat)
            with anyio.fail_after(WAIT):
                await kitchen.cooking.wait()
            group.cancel_scope.cancel()
        with anyio.fail_after(WAIT):
            await kitchen.stopped.wait()

    assert kitchen.steps < 100_000


@WAYS
async def test_cleanups_of_a_request_run_at_its_end(fast_lane: bool) -> None:
    kitchen = Kitchen(fast_lane=fast_lane)

    async with served(kitchen.server, stateless_http=True) as url, wire(url) as client:
        await client.result("wash")

    assert kitchen.cleaned.is_set()


class _Broken(Exception):
    """Failure of the server below."""


class BrokenPost(Post):
    """Request through a server below that cannot send, or cannot receive any more."""

    broken = ""

    async def receive(self) -> Message:
        if self.broken == "receive" and not self.unread:
            raise _Broken
        return await super().receive()

    async def send(self, message: Message) -> None:
        if self.broken == "send":
            raise _Broken
        await super().send(message)


@WAYS
@pytest.mark.parametrize("broken", ["send", "receive"])
async def test_call_ends_if_the_server_below_fails(fast_lane: bool, broken: str) -> None:
    kitchen = Kitchen(fast_lane=fast_lane)
    name = "stir" if broken == "send" else "stew"
    message = _call("stir", progressToken=1) if broken == "send" else _call("stew", {"seconds": 2 * WAIT})
    post = BrokenPost(json.dumps(message).encode(), _headers(name))
    post.broken = broken
    app = kitchen.server.streamable_http_app(stateless_http=True, host="0.0.0.0")

    with anyio.fail_after(WAIT), pytest.RaisesGroup(_Broken, allow_unwrapped=True, flatten_subgroups=True):
        async with kitchen.server.session_manager.run():
            await app(post.scope, post.receive, post.send)

    assert kitchen.stopped.is_set()
    assert kitchen.steps < 3


@pytest.mark.parametrize(
    ("options", "variable", "way"),
    [
        ({}, None, "the fast lane"),
        ({"fast_lane": True}, "0", "the fast lane"),
        ({"fast_lane": False}, "1", "the SDK's transport, because of fast_lane=False"),
        ({}, "off", "the SDK's transport, because of ROUNDTRIP_FAST_LANE"),
    ],
)
async def test_argument_or_variable_chooses_the_way(
    options: dict[str, Any],
    variable: str | None,
    way: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO, "roundtrip")
    if variable is None:
        monkeypatch.delenv("ROUNDTRIP_FAST_LANE", raising=False)
    else:
        monkeypatch.setenv("ROUNDTRIP_FAST_LANE", variable)
    server = Kitchen(probe=True, **options).server

    async with served(server, stateless_http=True) as url, wire(url) as client:
        facts = (await client.result("roundtrip_probe"))["structuredContent"]

    assert facts["transport"] == way
    assert f"server 'kitchen' serves HTTP requests of 2026-07-28 through {way}" in caplog.messages


def test_misspelled_switch_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for given in ("0", 1):
        with pytest.raises(TypeError, match="fast_lane= must be True or False, got "):
            Server[Any]("kitchen", fast_lane=given)  # type: ignore[arg-type]
    monkeypatch.setenv("ROUNDTRIP_FAST_LANE", "maybe")
    with pytest.raises(ValueError, match="ROUNDTRIP_FAST_LANE must be 1 or 0, got 'maybe'"):
        Server("kitchen")
