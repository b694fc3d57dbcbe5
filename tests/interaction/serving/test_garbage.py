"""Requests leave nothing to the garbage collector, whose passes would cost more than a leg."""

import gc
import json
from collections import Counter
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import pytest

from roundtrip import Context, Elicit, Resolve, Server
from tests.kit.asgi_posts import call_post

pytestmark = pytest.mark.anyio

CALLS = 10


async def size(party: int) -> Elicit[int]:
    return Elicit(f"A table for {party}. How many chairs?", int)


async def wine(size: Annotated[int, Resolve(size)]) -> Elicit[bool]:
    return Elicit(f"Wine for {size}?", bool)


def _restaurant() -> Server[Any]:
    keys = ["k" * 32]
    # Features take part in legs, and refer to them.
    server = Server[Any]("restaurant", keys=keys, mask_error_details=True, fast_lane=True, channels=["form", "model"])

    @server.tool
    async def plain(party: int) -> int:
        return party

    @server.tool(exactly_once=True, uncovered="run")
    async def once(party: int) -> int:
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
    more: dict[str, Any] = {}
    while True:
        post = call_post(tool, {"party": 4}, **more)
        await app(post.scope, post.receive, post.send)
        lines = post.answer.decode().splitlines()
        result = json.loads(next(line for line in lines if "jsonrpc" in line).removeprefix("data: "))["result"]
        if result["resultType"] == "complete":
            return result["content"][0]["text"]
        asks: dict[str, Any] = result.get("inputRequests") or {}
        more = {"requestState": result.get("requestState")}
        more["inputResponses"] = {
            key: {"action": "accept", "content": _answer(asked["params"]["requestedSchema"]["properties"])}
            for key, asked in asks.items()
        }


def _answer(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: 3 if field["type"] == "integer" else True for name, field in fields.items()}


@pytest.mark.parametrize("json_response", [True, False])
async def test_call_leaves_no_garbage(json_response: bool) -> None:
    server = _restaurant()
    app = server.streamable_http_app(stateless_http=True, json_response=json_response, host="0.0.0.0")
    left: Counter[str] = Counter()
    async with server.session_manager.run():
        for tool in ("plain", "once", "threaded", "chained", "asking"):
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
