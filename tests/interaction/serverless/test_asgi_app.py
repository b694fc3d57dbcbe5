"""An application without a lifespan: under Mangum, in a plain server, and with many event loops."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

import anyio
import anyio.lowlevel
import pytest
from mangum import Mangum
from mcp.server import MCPServer
from starlette.types import ASGIApp, Message, Scope

from roundtrip import Context, Server
from roundtrip.serverless import asgi_app
from roundtrip.serverless.lambda_events import body_of
from roundtrip.testing import Era
from tests.interaction.serverless.platform import (
    BatchingTracer,
    LambdaContext,
    call_event,
    failing_once,
    json_of,
    rpc_event,
)
from tests.kit.asgi_posts import Post
from tests.kit.hosts import hosted, own_loop
from tests.kit.players import Person, connect, text_of
from tests.kit.wire import accept

Json = dict[str, Any]
KEYS: Final = ["7f" * 32]


class Shop:
    """A server that counts the times its lifespan was entered and left."""

    def __init__(self, **options: Any) -> None:
        self.entered = self.left = 0
        self.server = Server("shop", keys=KEYS, lifespan=self._lifespan, **options)
        self.server.add_tool(self.order)

    @asynccontextmanager
    async def _lifespan(self, server: MCPServer[int]) -> AsyncGenerator[int]:
        del server
        self.entered += 1
        try:
            yield self.entered
        finally:
            # Leaving may take a moment.
            await anyio.lowlevel.checkpoint()
            self.left += 1

    async def order(self, ctx: Context) -> str:
        size = await ctx.ask("size", "How much?", int)
        return f"{size} ml, lifespan {ctx.request_context.lifespan_context}"


def play(handler: Any) -> str:
    """Call the tool over two legs, each of them an event."""
    asked = json_of(handler(call_event("order"), LambdaContext()))["result"]
    answers = {key: accept(value=250) for key in asked["inputRequests"]}
    more = {"requestState": asked["requestState"], "inputResponses": answers}
    return json_of(handler(call_event("order", **more), LambdaContext()))["result"]["content"][0]["text"]


@pytest.mark.parametrize("lifespan", ["auto", "on", "off"])
def test_the_application_works_warm_under_mangum(lifespan: Literal["auto", "on", "off"]) -> None:
    shop = Shop()
    with own_loop():
        handler = Mangum(asgi_app(shop.server), lifespan=lifespan)
        said = [play(handler) for _ in range(3)]
    if lifespan == "off":
        assert said == ["250 ml, lifespan 1"] * 3
    else:
        # Mangum sends a lifespan for each event.
        assert said == [f"250 ml, lifespan {number}" for number in (2, 4, 6)]
    assert shop.entered == shop.left > 0


async def request(app: ASGIApp, event: Json | None = None) -> Json:
    """Send one request to an application, and return the response to it."""
    event = event or rpc_event("tools/list")
    post = Post(body_of(event), event["headers"], method=event["requestContext"]["http"]["method"])
    await app(post.scope, post.receive, post.send)
    return {"status": post.sent[0]["status"], **json.loads(post.answer)}


def test_each_event_loop_has_a_run_of_its_own() -> None:
    shop = Shop()
    app = asgi_app(shop.server)
    for number in (1, 2):
        assert asyncio.run(request(app))["status"] == 200
        assert (shop.entered, shop.left) == (number, number)

    # Two at the same time.
    async def beside() -> Json:
        thread: list[Json] = []
        await request(app)
        other = threading.Thread(target=lambda: thread.append(asyncio.run(request(app))))
        other.start()
        await asyncio.to_thread(other.join)
        return (await request(app)) | {"beside": thread[0]["status"]}

    assert asyncio.run(beside())["beside"] == 200
    assert (shop.entered, shop.left) == (4, 4)

    # Several first requests at once.
    async def at_once() -> list[Json]:
        return await asyncio.gather(*(request(app) for _ in range(5)))

    assert [one["status"] for one in asyncio.run(at_once())] == [200] * 5
    assert (shop.entered, shop.left) == (5, 5)


@pytest.mark.anyio
async def test_start_that_fails_is_tried_again_at_the_next_request() -> None:
    app = asgi_app(Server("shop", keys=KEYS, lifespan=failing_once()))
    with pytest.raises(ConnectionError, match="no database yet"):
        await request(app)
    assert (await request(app))["status"] == 200
    await app.stop()


@pytest.mark.anyio
@pytest.mark.parametrize("lifespan", ["on", "off"])
async def test_real_clients_call_over_uvicorn(era: Era, lifespan: Literal["on", "off"]) -> None:
    shop = Shop()
    app = asgi_app(shop.server, streams=True, stateless_http=False, json_response=False)
    async with hosted(app, lifespan=lifespan) as url, connect(f"{url}/mcp", era, Person({"value": 250})) as client:
        assert text_of(await client.call_tool("order")) == "250 ml, lifespan 1"
    # Without a lifespan, the server ends with its event loop.
    assert shop.left == (1 if lifespan == "on" else 0)
    await app.stop()
    assert (shop.entered, shop.left) == (1, 1)


@pytest.mark.anyio
async def test_the_trace_is_saved_before_the_end_of_the_response() -> None:
    order: list[str] = []
    shop = Shop(trace=BatchingTracer(order))
    app = asgi_app(shop.server)

    async def noting(scope: Scope, receive: Any, send: Any) -> None:
        async def note(message: Message) -> None:
            if message["type"] == "http.response.body":
                order.append("sent")
            await send(message)

        await app(scope, receive, note)

    await request(noting, call_event("order"))
    assert order == ["order", "sent"]
    await app.stop()
