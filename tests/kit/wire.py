"""Speak the retry era by hand: post JSON-RPC to a URL, and read whole responses."""

import itertools
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx

from roundtrip.testing import Era
from tests.kit.hosts import WAIT

Json = dict[str, Any]

EVERYTHING: Final[Json] = {"elicitation": {"form": {}}, "sampling": {"tools": {}}, "roots": {}}
"""The capabilities of a client that can answer every kind of question."""

ACCEPT: Final = {"accept": "application/json, text/event-stream"}
_NAME_PARAMS: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


def meta_of(client: str, capabilities: Json) -> Json:
    """Return the `_meta` for a retry-era request."""
    return {
        "io.modelcontextprotocol/protocolVersion": Era.RETRY.value,
        "io.modelcontextprotocol/clientInfo": {"name": client, "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    }


def headers_of(method: str, params: Mapping[str, Any] | None, revision: str = Era.RETRY.value) -> dict[str, str]:
    """Return a request's headers."""
    routing = {"mcp-protocol-version": revision, "mcp-method": method}
    if method in _NAME_PARAMS and params is not None:
        routing["mcp-name"] = str(params[_NAME_PARAMS[method]])
    return {**ACCEPT, **routing}


class Wire:
    """Client that posts requests and returns whole JSON-RPC responses, including errors."""

    def __init__(self, client: httpx.AsyncClient, url: str, capabilities: Json) -> None:
        self._client = client
        self._url = url
        self._capabilities = capabilities
        self._ids = itertools.count(1)

    async def post(
        self,
        method: str,
        params: Json | None = None,
        *,
        capabilities: Json | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Json:
        """Send a request, and return its response."""
        meta = meta_of("wire", self._capabilities if capabilities is None else capabilities)
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": {**(params or {}), "_meta": meta}}
        every = {**headers_of(method, params), **(headers or {})}
        response = await self._client.post(self._url, json=body, headers=every)
        answer: Json = response.json()
        if answer.get("id") != body["id"]:
            raise AssertionError(f"the answer is to another request: {answer}")
        return answer

    async def call(self, tool: str, arguments: Json | None = None, **more: Any) -> Json:
        """Send one leg of a tool call, with `more` as additional request parameters."""
        return await self.post("tools/call", {"name": tool, "arguments": arguments or {}, **more})

    async def result(self, tool: str, arguments: Json | None = None, **more: Any) -> Json:
        """Send a leg like `call`, and return its result. A protocol error fails the test."""
        answer = await self.call(tool, arguments, **more)
        if "error" in answer:
            raise AssertionError(answer["error"])
        return answer["result"]

    async def error(self, tool: str, arguments: Json | None = None, **more: Any) -> Json:
        """Send a leg like `call`, and return its protocol error. A result fails the test."""
        answer = await self.call(tool, arguments, **more)
        if "result" in answer:
            raise AssertionError(answer["result"])
        return answer["error"]


@asynccontextmanager
async def wire(url: str, *, capabilities: Json = EVERYTHING) -> AsyncGenerator[Wire]:
    async with httpx.AsyncClient(timeout=WAIT) as client:
        yield Wire(client, url, capabilities)


def accept(**content: Any) -> Json:
    """Return an accepted form in its wire format."""
    return {"action": "accept", "content": content}
