"""Raw client of the Tasks extension over HTTP, as any client could be written."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import anyio
import httpx

from roundtrip import Server
from tests.hosts import hosted

EXTENSION: Final = "io.modelcontextprotocol/tasks"
ENDED: Final = frozenset(("completed", "failed", "cancelled"))
WAIT_SECONDS: Final = 20.0


class Peer:
    """Client of one address."""

    def __init__(self, http: httpx.AsyncClient, url: str, *, declares: bool = True) -> None:
        self._http = http
        self.url = url
        self.declares = declares
        self._ids = 0

    async def send(self, method: str, *, header: str | None = None, **params: Any) -> dict[str, Any]:
        """Send a request, and return the whole JSON-RPC response."""
        self._ids += 1
        capabilities: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}}
        if self.declares:
            capabilities["extensions"] = {EXTENSION: {}}
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": capabilities,
            "io.modelcontextprotocol/clientInfo": {"name": "peer", "version": "1"},
        }
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": method,
        }
        named = header or params.get("name") or params.get("taskId")
        if named is not None:
            headers["mcp-name"] = named
        body = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": {**params, "_meta": meta}}
        response = await self._http.post(self.url, json=body, headers=headers)
        return response.json()

    async def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request, and return its result."""
        response = await self.send(method, **params)
        assert "result" in response, response
        return response["result"]

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return await self.ask("tools/call", name=tool, arguments=arguments)

    async def get(self, task_id: str) -> dict[str, Any]:
        return await self.ask("tasks/get", taskId=task_id)

    async def answer(self, task_id: str, **contents: Any) -> None:
        responses = {key: {"action": "accept", "content": {"value": value}} for key, value in contents.items()}
        await self.ask("tasks/update", taskId=task_id, inputResponses=responses)

    async def until(self, task_id: str, *statuses: str) -> dict[str, Any]:
        """Return the task when it has one of these statuses, or has ended."""
        with anyio.fail_after(WAIT_SECONDS):
            while True:
                task = await self.get(task_id)
                if task["status"] in statuses or (not statuses and task["status"] in ENDED):
                    return task
                assert task["status"] not in ENDED, task
                await anyio.sleep(0.01)

    async def asked(self, task_id: str, *keys: str) -> dict[str, Any]:
        """Return the open questions when they have exactly these keys."""
        with anyio.fail_after(WAIT_SECONDS):
            while True:
                task = await self.get(task_id)
                questions = task.get("inputRequests", {})
                if set(questions) == set(keys):
                    return questions
                assert task["status"] not in ENDED, task
                await anyio.sleep(0.01)


@asynccontextmanager
async def peers(*servers: Server[Any], declares: bool = True) -> AsyncGenerator[list[Peer]]:
    """Serve servers over HTTP, each at its own address, and yield a client of each."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=WAIT_SECONDS))
        found: list[Peer] = []
        for server in servers:
            address = await stack.enter_async_context(hosted(server.streamable_http_app(), lifespan="on"))
            found.append(Peer(http, f"{address}/mcp", declares=declares))
        yield found


def text_of(task: dict[str, Any]) -> str:
    return task["result"]["content"][0]["text"]
