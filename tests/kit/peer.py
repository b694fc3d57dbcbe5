"""Raw HTTP client for the Tasks extension."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import anyio
import httpx

from roundtrip.adapters.finding import is_fastmcp
from tests.kit.hosts import WAIT, hosted
from tests.kit.wire import headers_of, meta_of

EXTENSION: Final = "io.modelcontextprotocol/tasks"
ENDED: Final = frozenset(("completed", "failed", "cancelled"))
WAIT_SECONDS: Final = WAIT


class Peer:
    """Client for one address."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        url: str,
        *,
        declares: bool = True,
        headers: dict[str, str] | None = None,
        elicitation: dict[str, Any] | None = None,
    ) -> None:
        self.http = http
        self._headers = headers or {}
        forms: dict[str, Any] = {"form": {}, "url": {}} if elicitation is None else elicitation
        self._elicitation = {"elicitation": forms} if forms else {}
        self.url = url
        self.declares = declares
        self._ids = 0

    def _request(self, method: str, header: str | None, params: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments for a POST."""
        self._ids += 1
        capabilities: dict[str, Any] = {"sampling": {}, **self._elicitation}
        if self.declares:
            capabilities["extensions"] = {EXTENSION: {}}
        body = {
            "jsonrpc": "2.0",
            "id": self._ids,
            "method": method,
            "params": {**params, "_meta": meta_of("peer of tasks", capabilities)},
        }
        headers = {**self._headers, **headers_of(method, params)}
        named = header or params.get("taskId")
        if named is not None:
            headers["mcp-name"] = named
        return {"json": body, "headers": headers}

    async def send(self, method: str, *, header: str | None = None, **params: Any) -> dict[str, Any]:
        """Send a request, and return the whole JSON-RPC response."""
        response = await self.http.post(self.url, **self._request(method, header, params))
        return response.json()

    @asynccontextmanager
    async def listen(self, *task_ids: str, **kinds: Any) -> AsyncGenerator["Stream"]:
        """Listen for tasks, and yield the stream after its acknowledgment."""
        wanted = self._request("subscriptions/listen", None, {"notifications": {"taskIds": list(task_ids), **kinds}})
        async with self.http.stream("POST", self.url, **wanted) as response:
            stream = Stream(response.aiter_lines(), self._ids)
            stream.acknowledged = await stream.next("notifications/subscriptions/acknowledged")
            yield stream

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
        """Wait until the task has one of these statuses or has ended, and return it."""
        with anyio.fail_after(WAIT_SECONDS):
            while True:
                task = await self.get(task_id)
                if task["status"] in statuses or (not statuses and task["status"] in ENDED):
                    return task
                assert task["status"] not in ENDED, task
                await anyio.sleep(0.01)

    async def asked(self, task_id: str, *keys: str) -> dict[str, Any]:
        """Wait until the open questions have exactly these keys, and return them."""
        with anyio.fail_after(WAIT_SECONDS):
            while True:
                task = await self.get(task_id)
                questions = task.get("inputRequests", {})
                if set(questions) == set(keys):
                    return questions
                assert task["status"] not in ENDED, task
                await anyio.sleep(0.01)


class Stream:
    """Notifications for one listening request."""

    def __init__(self, lines: AsyncIterator[str], request_id: int) -> None:
        self._lines = lines
        self._request_id = request_id
        self.acknowledged: dict[str, Any] = {}

    async def next(self, method: str = "notifications/tasks") -> dict[str, Any]:
        """Return the parameters of the next notification, which must have this method."""
        with anyio.fail_after(WAIT_SECONDS):
            async for line in self._lines:
                if line.startswith("data:") and (data := line.removeprefix("data:").strip()):
                    message = json.loads(data)
                    assert message.get("method") == method, message
                    meta = message["params"].pop("_meta")
                    assert meta["io.modelcontextprotocol/subscriptionId"] == self._request_id
                    return message["params"]
        raise AssertionError("the stream has ended")

    async def until(self, status: str) -> dict[str, Any]:
        """Return the next task with a status."""
        while (task := await self.next())["status"] != status:
            pass
        return task


def app_of(server: Any) -> Any:
    """Return the ASGI application of a server of any class."""
    return server.http_app() if is_fastmcp(server) else server.streamable_http_app()


@asynccontextmanager
async def peers(*servers: Any, declares: bool = True) -> AsyncGenerator[list[Peer]]:
    """Serve each server over HTTP at its own address, and yield a client for each."""
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=WAIT_SECONDS))
        found: list[Peer] = []
        for server in servers:
            address = await stack.enter_async_context(hosted(app_of(server), lifespan="on"))
            found.append(Peer(http, f"{address}/mcp", declares=declares))
        yield found


def text_of(task: dict[str, Any]) -> str:
    assert "result" in task, task
    return task["result"]["content"][0]["text"]
