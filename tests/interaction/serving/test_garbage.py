"""Requests leave nothing to the garbage collector, whose passes would cost more than a leg."""

import gc
import json
from collections import Counter
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import pytest
from starlette.types import Message

from roundtrip import Context, Elicit, Resolve, Server
from tests.kit.wire import headers_of, meta_of

pytestmark = pytest.mark.anyio

CALLS = 10


async def size(party: int) -> Elicit[int]:
    return Elicit(f"A table for {party}. How many chairs?", int)


async def wine(size: Annotated[int, Resolve(size)]) -> Elicit[bool]:
    return Elicit(f"Wine for {size}?", bool)


def _restaurant() -> Server[Any]:
    server = Server[Any]("restaurant", keys=["k" * 32], mask_error_details=True, fast_lane=True)

    @server.tool
    async def plain(party: int) -> int:
        return party

    @server.tool
    def threaded(party: int) -> int:
        return party

    @server.tool
    async def chained(wine: Annotated[bool, Resolve(wine)], party: int) -> str:
        return f"{party}, {wine}"

    @server.tool
    async def asking(ctx: Context, party: int) -> str:
        chairs = await ctx.ask("chairs", f"Chairs for {party}?", int)
        return f"{chairs} of {await ctx.step('count', _count)}"

    return server


async def _count() -> int:
    return 12


async def _play(app: Any, tool: str) -> str:
    """Play a call to its end over plain ASGI, with an acceptable answer to each question."""
    params: dict[str, Any] = {"name": tool, "arguments": {"party": 4}}
    while True:
        meta = meta_of("tester", {"elicitation": {"form": {}}})
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**params, "_meta": meta}}
        result = json.loads(await _post(app, json.dumps(message).encode(), tool))["result"]
        if result["resultType"] == "complete":
            return result["content"][0]["text"]
        params["requestState"] = result.get("requestState")
        asks: dict[str, Any] = result.get("inputRequests") or {}
        params["inputResponses"] = {
            key: {"action": "accept", "content": _answer(asked["params"]["requestedSchema"]["properties"])}
            for key, asked in asks.items()
        }


def _answer(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: 3 if field["type"] == "integer" else True for name, field in fields.items()}


async def _post(app: Any, body: bytes, tool: str) -> bytes:
    inbox = iter([{"type": "http.request", "body": body}])
    sent: list[Message] = []

    async def receive() -> Message:
        for message in inbox:
            return message
        await anyio.sleep_forever()
        return {}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [
        (name.lower().encode(), value.encode()) for name, value in headers_of("tools/call", {"name": tool}).items()
    ]
    headers.append((b"content-type", b"application/json"))
    scope = {"type": "http", "method": "POST", "path": "/mcp", "raw_path": b"/mcp", "headers": headers}
    scope |= {"query_string": b"", "root_path": "", "http_version": "1.1", "scheme": "http", "server": ("host", 80)}
    await app(scope, receive, send)
    return b"".join(message.get("body", b"") for message in sent)


@pytest.mark.parametrize("json_response", [True, False])
async def test_call_leaves_no_garbage(json_response: bool) -> None:
    server = _restaurant()
    app = server.streamable_http_app(stateless_http=True, json_response=json_response, host="0.0.0.0")
    left: Counter[str] = Counter()
    async with server.session_manager.run():
        for tool in ("plain", "threaded", "chained", "asking"):
            await _play_often(app, tool)
            gc.collect()
            gc.disable()
            gc.set_debug(gc.DEBUG_SAVEALL)
            try:
                await _play_often(app, tool)
                await anyio.lowlevel.checkpoint()
                gc.collect()
                left.update(f"{tool}: {type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage)
            finally:
                gc.set_debug(0)
                gc.garbage.clear()
                gc.enable()

    assert {kind: count for kind, count in left.items() if count >= CALLS} == {}


async def _play_often(app: Any, tool: str) -> None:
    for _ in range(CALLS):
        await _play(app, tool)
