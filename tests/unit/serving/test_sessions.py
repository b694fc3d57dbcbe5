"""Sessions of older clients, whose number a process limits."""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import httpx
import pytest

from roundtrip import Server
from roundtrip.serving.application import ProcessState, application_of
from roundtrip.serving.settings import ServeSettings
from tests.kit.live_wire import HEADERS
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio


class Shop:
    """Service that keeps two sessions, whose only tool works until the test ends it."""

    def __init__(self) -> None:
        self.begun, self.finish = anyio.Event(), anyio.Event()
        self.server = Server("shop")

        @self.server.tool
        async def work() -> str:
            self.begun.set()
            await self.finish.wait()
            return "worked"

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator["Sessions"]:
        app = application_of(self.server, ServeSettings(), ProcessState())
        self.server.session_manager.max_sessions = 2
        transport = httpx.ASGITransport(app)
        async with (
            self.server.session_manager.run(),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            yield Sessions(client)


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
    async with Shop().serving() as sessions:
        first, second = await sessions.open(), await sessions.open()
        assert await sessions.use(first) == 200
        third = await sessions.open()
        assert [await sessions.use(one) for one in (first, second, third)] == [200, 404, 200]
    assert caplog.record_tuples[-1] == (
        "roundtrip",
        logging.WARNING,
        "2 sessions are open, which is the limit; ended the one that was idle longest",
    )


async def test_a_session_that_is_being_served_keeps_its_place() -> None:
    shop = Shop()
    told: list[str] = []
    async with shop.serving() as sessions:
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
    assert "worked" in told[0]
