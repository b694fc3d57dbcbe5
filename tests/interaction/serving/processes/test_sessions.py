"""Clients on 2025-11-25 and several workers: each session is served by the worker that has it."""

import json
import os
import re
import signal
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
import httpx
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestFormParams

from roundtrip.testing import Era
from tests.interaction.serving.services import KEY, InterpretedService, Service
from tests.kit.live_wire import HEADERS, Session, session
from tests.kit.players import Person, connect, text_of
from tests.kit.waiting import WAIT, until, until_plain

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="workers are found in /proc"),
]

SHOPS: Final = "tests.interaction.serving.session_shops"
KINDS: Final = ("server_shop", "fastmcp_shop", "mcpserver_shop")
CLIENTS: Final = 9
CALLS: Final = 4


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Generator[Service]:
    folder = tmp_path_factory.mktemp("fleet")
    with Service(f"{SHOPS}:server_shop", "--workers", "2", folder=folder, ROUNDTRIP_KEYS=KEY) as service:
        yield service


@pytest.mark.parametrize("workers", ["2", "4"])
@pytest.mark.parametrize("kind", KINDS)
async def test_each_client_is_asked_its_own_questions(kind: str, workers: str, tmp_path: Path) -> None:
    owners: list[str] = []

    async def play(url: str, number: int) -> None:
        numbers = [100 * number + call for call in range(CALLS)]
        left = list(numbers)

        def answer(params: ElicitRequestFormParams) -> dict[str, int]:
            asked = int(re.findall(r"\d+", params.message)[0])
            left.remove(asked)
            return {"value": 2 * asked}

        async with connect(url, Era.LIVE, Person(answer=answer)) as client, anyio.create_task_group() as tasks:
            owners.append(text_of(await client.call_tool("process")))

            async def call(own: int) -> None:
                assert text_of(await client.call_tool("double", {"number": own})) == f"{own} {2 * own}"

            for own in numbers:
                tasks.start_soon(call, own)
        assert not left

    with Service(f"{SHOPS}:{kind}", "--workers", workers, folder=tmp_path, ROUNDTRIP_KEYS=KEY) as service:
        assert not any("2025-11-25" in line for line in service.log)
        with anyio.fail_after(2 * WAIT):
            async with anyio.create_task_group() as tasks:
                for number in range(CLIENTS):
                    tasks.start_soon(play, service.url, number)
        assert set(map(int, owners)) <= service.workers()
        service.signal(signal.SIGTERM)
        assert await anyio.to_thread.run_sync(service.ended) == 0
    assert not any("ERROR" in line or "Traceback" in line for line in service.log), service.log


class Door:
    """One connection, and so one worker, to which requests are sent."""

    def __init__(self, url: str) -> None:
        self._http = HTTPConnection(urlsplit(url).netloc, timeout=WAIT)

    def ask(self, method: str, message: object = None, **headers: str) -> tuple[int, bytes, dict[str, str]]:
        body = json.dumps(message) if message is not None else None
        sent = {**HEADERS, "content-type": "application/json", **headers}
        self._http.request(method, "/mcp", body, sent)
        response = self._http.getresponse()
        return response.status, response.read(), {name.lower(): value for name, value in response.getheaders()}

    def open(self) -> str:
        """Open a session, and return its id."""
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "d", "version": "1"}}
        _, _, headers = self.ask("POST", {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        return headers["mcp-session-id"]

    def close(self) -> None:
        self._http.close()


def test_unknown_sessions_have_one_answer_at_every_worker(fleet: Service) -> None:
    doors: dict[str, tuple[Door, str]] = {}
    surplus: list[Door] = []

    def find() -> bool:
        door = Door(fleet.url)
        opened = door.open()
        surplus.append(door)
        doors.setdefault(opened.partition(".")[0], (door, opened))
        return len(doors) == 2

    try:
        until_plain(find, what="both workers")
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        known = [opened for _, opened in doors.values()]
        answers: dict[str, set[tuple[int, bytes]]] = {}
        for door, _ in doors.values():
            assert [door.ask("POST", ping, **{"mcp-session-id": one})[0] for one in known] == [200, 200]
            for unknown in (known[0][:-1], known[0].partition(".")[2], f"../{known[1]}", "0" * 16 + ".0", "z" * 9000):
                answers.setdefault("POST", set()).add(door.ask("POST", ping, **{"mcp-session-id": unknown})[:2])
                answers.setdefault("GET", set()).add(
                    door.ask("GET", **{"mcp-session-id": unknown, "last-event-id": "1"})[:2]
                )
                answers.setdefault("DELETE", set()).add(door.ask("DELETE", **{"mcp-session-id": unknown})[:2])
        (one,) = answers["POST"] | answers["GET"] | answers["DELETE"]
        assert one[0] == 404
        assert json.loads(one[1])["error"]["message"] == "Session not found"
    finally:
        for door in surplus:
            door.close()


@asynccontextmanager
async def connected_elsewhere(url: str, own: str) -> AsyncGenerator[Session]:
    """Use a session over a connection to a worker that does not have the session."""
    async with AsyncExitStack() as stack:
        while True:
            http = await stack.enter_async_context(httpx.AsyncClient(timeout=WAIT))
            other = Session(http, url)
            await other.open()
            if http.headers["mcp-session-id"].partition(".")[0] != own.partition(".")[0]:
                break
        http.headers["mcp-session-id"] = own
        yield other


async def test_owner_that_is_killed_ends_its_streams(fleet: Service) -> None:
    params = {"name": "double", "arguments": {"number": 1}}
    body = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
    with anyio.fail_after(WAIT):
        async with session(fleet.url) as opened:
            own = opened.http.headers["mcp-session-id"]
            owner = int((await opened.call("process"))["content"][0]["text"])
        async with (
            connected_elsewhere(fleet.url, own) as listener,
            connected_elsewhere(fleet.url, own) as caller,
        ):
            others = fleet.workers() - {owner}
            async with (
                listener.http.stream("GET", fleet.url, headers=HEADERS) as listening,
                caller.http.stream("POST", fleet.url, json=body, headers=HEADERS) as response,
            ):
                messages = (line async for line in response.aiter_lines() if line.startswith("data: {"))
                assert "Double 1?" in await anext(messages)
                os.kill(owner, signal.SIGKILL)
                (error,) = [json.loads(line.removeprefix("data:")) async for line in messages]
                assert (error["id"], error["error"]["data"]) == (7, {"reason": "server_stopped"})
                assert not [line async for line in listening.aiter_lines() if line.startswith("data: {")]
            answer = await caller.http.post(fleet.url, json={**body, "id": 8}, headers=HEADERS)
            assert answer.status_code == 404
            assert others <= fleet.workers()
        await until(lambda: len(fleet.workers()) == 2)
        async with session(fleet.url) as again:
            result = await again.call("double", {"action": "accept", "content": {"value": 2}})
            assert result["isError"], "the number is missing"
    assert sum("ended in the middle of a response" in line for line in fleet.log) == 2
    assert not any("Traceback" in line for line in fleet.log)


async def test_retiring_worker_keeps_its_sessions_until_the_drain_ends(tmp_path: Path) -> None:
    flags = ("--workers", "2", "--drain", str(WAIT))
    with InterpretedService(f"{SHOPS}:server_shop", *flags, folder=tmp_path, ROUNDTRIP_KEYS=KEY) as service:
        person = Person(answer=lambda params: {"value": 8})
        async with connect(service.url, Era.LIVE, person) as client:
            owner = int(text_of(await client.call_tool("process")))
            os.kill(owner, signal.SIGTERM)
            for _ in range(20):
                assert text_of(await client.call_tool("double", {"number": 4})) == "4 8"
            assert int(text_of(await client.call_tool("process"))) == owner
            os.kill(owner, signal.SIGKILL)
            await until(lambda: owner not in service.workers())
            with pytest.raises(MCPError, match=r"Session (not found|terminated)"):
                await client.call_tool("double", {"number": 4})
        # An interrupt ends the drain.
        service.signal(signal.SIGINT)


async def test_connection_limit_of_the_owner_holds(tmp_path: Path) -> None:
    limit, ends = 8, Counter[int]()
    body = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "double", "arguments": {"number": 1}}}
    flags = ("--workers", "2", "--limit-connections", str(limit), "--drain", "0")
    with Service(f"{SHOPS}:server_shop", *flags, folder=tmp_path, ROUNDTRIP_KEYS=KEY) as service:
        async with session(service.url) as opened, anyio.create_task_group() as tasks:
            headers = {**HEADERS, "mcp-session-id": opened.http.headers["mcp-session-id"]}

            async def call(number: int) -> None:
                async with httpx.AsyncClient(timeout=WAIT, headers=headers) as http:
                    try:
                        async with http.stream("POST", service.url, json={**body, "id": number}) as response:
                            ends[response.status_code] += 1
                            if response.status_code == 200:
                                await anyio.sleep_forever()
                    except httpx.HTTPError:
                        # A worker closes the connection whose request is not there yet.
                        ends[0] += 1

            with anyio.fail_after(WAIT):
                for number in range(5 * limit):
                    tasks.start_soon(call, number)
                await until(lambda: ends.total() == 5 * limit)
            assert await anyio.to_thread.run_sync(service.get, "/health/live") == (200, {"status": "live"})
            tasks.cancel_scope.cancel()
    assert set(ends) <= {0, 200, 503}
    assert 0 < ends[200] <= limit


@pytest.mark.parametrize("reason", ["path", "flag"])
async def test_workers_without_sessions_say_so(reason: str, tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    flags, variables = (("--no-sessions",), {}) if reason == "flag" else ((), {"TMPDIR": str(deep)})
    told = "--no-sessions is set" if reason == "flag" else "AF_UNIX path too long. To ask them by form, set TMPDIR"
    with Service(
        f"{SHOPS}:server_shop", "--workers", "2", *flags, folder=tmp_path, ROUNDTRIP_KEYS=KEY, **variables
    ) as service:
        await anyio.to_thread.run_sync(service.heard, re.escape(told))
        async with connect(service.url, Era.LIVE, Person({"value": 8})) as client:
            assert int(text_of(await client.call_tool("process"))) in service.workers()
            with pytest.raises(MCPError, match="--no-sessions"):
                await client.call_tool("double", {"number": 4})
    assert not any(deep.iterdir())
