"""The application of a process: one JSON body or a stream for each request, and a limited number of sessions."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest
from mcp.server import _streamable_http_modern as modern

from roundtrip import Server
from roundtrip.serving.application import ProcessState, application_of
from roundtrip.serving.settings import JsonResponse, ServeSettings
from tests.kit.asgi_posts import call_post
from tests.kit.live_wire import HEADERS
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio
MODERN = "2026-07-28"


class Shop:
    """Server whose only tool works until the test ends it, and notes a cancellation."""

    def __init__(self, *, fast_lane: bool | None = None) -> None:
        self.server = Server("shop", keys=["7f" * 32], fast_lane=fast_lane)
        self.begun = anyio.Event()
        self.finish = anyio.Event()
        self.cancelled = anyio.Event()

        @self.server.tool
        async def work() -> str:
            self.begun.set()
            try:
                await self.finish.wait()
            except anyio.get_cancelled_exc_class():
                self.cancelled.set()
                raise
            return "done"

    @asynccontextmanager
    async def serving(self, **settings: Any) -> AsyncGenerator[Any]:
        app = application_of(self.server, ServeSettings(**settings), ProcessState())
        self.server.session_manager.max_sessions = 2
        async with self.server.session_manager.run():
            yield app

    @asynccontextmanager
    async def keeping_sessions(self) -> AsyncGenerator["Sessions"]:
        async with (
            self.serving() as app,
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client,
        ):
            yield Sessions(client)


@pytest.mark.parametrize(
    ("json_response", "version", "meta", "fast_lane", "streamed"),
    [
        # The lane's response becomes a stream with the first sign of life.
        ("auto", MODERN, {}, True, True),
        ("auto", MODERN, {}, False, False),
        ("auto", MODERN, {"progressToken": 1}, False, True),
        ("auto", MODERN, {"progressToken": 0}, False, True),
        ("auto", MODERN, {"io.modelcontextprotocol/logLevel": "info"}, False, True),
        ("auto", "2025-11-25", {}, True, True),
        ("never", MODERN, {}, True, True),
        ("always", MODERN, {"progressToken": 1}, True, False),
        ("always", "2025-11-25", {}, True, False),
    ],
)
async def test_plain_answer_is_sent_as_one_body(
    json_response: JsonResponse,
    version: str,
    meta: dict[str, Any],
    fast_lane: bool,
    streamed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The SDK's stream begins with its first sign of life, and is one body if the answer comes before.
    monkeypatch.setattr("roundtrip.http.fast_lane._PING_SECONDS", 0.02)
    monkeypatch.setattr(modern, "_SSE_PING_INTERVAL", 0.02)
    shop, request = Shop(fast_lane=fast_lane), call_post("work", revision=version, meta=meta)
    with anyio.fail_after(WAIT):
        async with shop.serving(json_response=json_response, sessions=False) as app, anyio.create_task_group() as tasks:
            tasks.start_soon(app, request.scope, request.receive, request.send)
            await shop.begun.wait()
            if streamed:
                await request.answering.wait()
            else:
                assert not request.sent
            shop.finish.set()
    assert request.content_type.startswith("text/event-stream" if streamed else "application/json")
    assert b"done" in request.answer


@pytest.mark.parametrize("fast_lane", [True, False])
@pytest.mark.parametrize("json_response", ["auto", "never"])
async def test_the_call_of_a_client_that_leaves_is_cancelled(json_response: JsonResponse, fast_lane: bool) -> None:
    shop, request = Shop(fast_lane=fast_lane), call_post("work")
    with anyio.fail_after(WAIT):
        async with shop.serving(json_response=json_response, sessions=False) as app, anyio.create_task_group() as tasks:
            tasks.start_soon(app, request.scope, request.receive, request.send)
            await shop.begun.wait()
            request.leave.set()
            await shop.cancelled.wait()
    assert not request.sent


# Sessions of older clients, whose number a process limits.


class Sessions:
    """Client that opens and uses sessions."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def open(self) -> str:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        answer = await self._post("initialize", params, {})
        assert answer.status_code == 200, answer.text
        return answer.headers["mcp-session-id"]

    async def use(self, session: str) -> int:
        return (await self._post("ping", {}, {"mcp-session-id": session})).status_code

    async def call(self, session: str) -> str:
        return (await self._post("tools/call", {"name": "work"}, {"mcp-session-id": session})).text

    async def _post(self, method: str, params: object, headers: dict[str, str]) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await self._client.post("/mcp", json=body, headers={**HEADERS, **headers})


async def test_a_new_session_takes_the_place_of_the_most_idle(caplog: pytest.LogCaptureFixture) -> None:
    async with Shop().keeping_sessions() as sessions:
        first, second = await sessions.open(), await sessions.open()
        assert await sessions.use(first) == 200
        third = await sessions.open()
        assert [await sessions.use(one) for one in (first, second, third)] == [200, 404, 200]
    assert caplog.record_tuples[-1] == (
        "roundtrip",
        logging.WARNING,
        "reached the limit of 2 sessions; ended the session that was idle longest",
    )


async def test_a_session_that_is_being_served_keeps_its_place() -> None:
    shop = Shop()
    told: list[str] = []
    async with shop.keeping_sessions() as sessions:
        busy = await sessions.open()

        async def work() -> None:
            told.append(await sessions.call(busy))

        with anyio.fail_after(WAIT):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(work)
                await shop.begun.wait()
                idle = await sessions.open()
                await sessions.open()
                assert await sessions.use(idle) == 404
                shop.finish.set()
    assert "done" in told[0]
