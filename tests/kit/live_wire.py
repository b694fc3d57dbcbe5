"""Speak the live era by hand over HTTP, with a client that can leave a request and keep its session."""

import itertools
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import httpx

from tests.kit.hosts import WAIT
from tests.kit.wire import ACCEPT

__all__ = ["HEADERS", "Session", "session"]

_LIVE: Final = "2025-11-25"
HEADERS: Final = {**ACCEPT, "mcp-protocol-version": _LIVE}


class Session:
    """Client session in the live era."""

    def __init__(self, http: httpx.AsyncClient, url: str) -> None:
        self.http = http
        self.url = url
        self._ids = itertools.count(2)

    async def open(self) -> None:
        hello: dict[str, Any] = {
            "protocolVersion": _LIVE,
            "capabilities": {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}},
            "clientInfo": {"name": "by hand", "version": "1"},
        }
        answer = await self.http.post(
            self.url, json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}, headers=HEADERS
        )
        self.http.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await self.http.post(self.url, json=ready, headers=HEADERS)).status_code == 202

    async def _messages(self, params: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """Call a tool, and yield each message in the response."""
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": "tools/call", "params": params}
        async with self.http.stream("POST", self.url, json=body, headers=HEADERS) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: {"):
                    yield json.loads(line.removeprefix("data:"))

    @asynccontextmanager
    async def calling(self, tool: str, arguments: dict[str, Any] | None = None) -> AsyncGenerator[dict[str, Any]]:
        """Call a tool, and yield its first message. Leave the request at the end of the `with` block."""
        params = {"name": tool, "arguments": arguments or {}, "_meta": {"progressToken": 1}}
        async with aclosing(self._messages(params)) as messages:
            yield await anext(messages)

    async def call(self, tool: str, *answers: dict[str, Any]) -> dict[str, Any]:
        """Call a tool, answer each question with the next result, and return the tool's result."""
        left = list(answers)
        async with aclosing(self._messages({"name": tool, "arguments": {}})) as messages:
            async for message in messages:
                if "method" not in message:
                    return message["result"]
                if "id" in message:
                    await self.reply(message, left.pop(0))
        raise AssertionError("the stream ended without a result")

    async def answer(self, question: dict[str, Any], **content: Any) -> int:
        return await self.reply(question, {"action": "accept", "content": content})

    async def reply(self, question: dict[str, Any], result: dict[str, Any]) -> int:
        said = {"jsonrpc": "2.0", "id": question["id"], "result": result}
        return (await self.http.post(self.url, json=said, headers=HEADERS)).status_code


@asynccontextmanager
async def session(url: str) -> AsyncGenerator[Session]:
    async with httpx.AsyncClient(timeout=WAIT) as http:
        by_hand = Session(http, url)
        await by_hand.open()
        yield by_hand
