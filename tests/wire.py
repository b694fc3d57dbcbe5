"""The retry era by hand: JSON-RPC posted to a URL, whole answers given back."""

import itertools
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx

from roundtrip.testing import Era
from tests.hosts import WAIT

Json = dict[str, Any]

EVERYTHING: Final[Json] = {"elicitation": {"form": {}}, "sampling": {"tools": {}}, "roots": {}}
"""The capabilities of a client that can be asked anything."""

_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class Wire:
    """Posts requests and gives back whole JSON-RPC answers, errors included."""

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
        """One request and its answer."""
        declared = self._capabilities if capabilities is None else capabilities
        meta = {
            "io.modelcontextprotocol/protocolVersion": Era.RETRY.value,
            "io.modelcontextprotocol/clientInfo": {"name": "wire", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": declared,
        }
        body = {
            "jsonrpc": "2.0",
            "id": next(self._ids),
            "method": method,
            "params": {**(params or {}), "_meta": meta},
        }
        routing = {"mcp-protocol-version": Era.RETRY.value, "mcp-method": method}
        if method in _NAMED and params is not None:
            routing["mcp-name"] = str(params[_NAMED[method]])
        accept = {"accept": "application/json, text/event-stream"}
        response = await self._client.post(self._url, json=body, headers={**accept, **routing, **(headers or {})})
        answer: Json = response.json()
        if answer.get("id") != body["id"]:
            raise AssertionError(f"the answer is to another request: {answer}")
        return answer

    async def call(self, tool: str, arguments: Json | None = None, **more: Any) -> Json:
        """One leg of a tool call; `more` goes into the request's parameters as it is."""
        return await self.post("tools/call", {"name": tool, "arguments": arguments or {}, **more})

    async def result(self, tool: str, arguments: Json | None = None, **more: Any) -> Json:
        """As `call`, for a leg that must not be an error of the protocol."""
        answer = await self.call(tool, arguments, **more)
        if "error" in answer:
            raise AssertionError(answer["error"])
        return answer["result"]

    async def error(self, tool: str, arguments: Json | None = None, **more: Any) -> Json:
        """As `call`, for a leg that must be an error of the protocol."""
        answer = await self.call(tool, arguments, **more)
        if "result" in answer:
            raise AssertionError(answer["result"])
        return answer["error"]


@asynccontextmanager
async def wire(url: str, *, capabilities: Json = EVERYTHING) -> AsyncGenerator[Wire]:
    async with httpx.AsyncClient(timeout=WAIT) as client:
        yield Wire(client, url, capabilities)


def accept(**content: Any) -> Json:
    """An accepted form, as it is on the wire."""
    return {"action": "accept", "content": content}
