"""What a client gets whose request still runs when its process stops."""

import json

import anyio
import pytest
from starlette.types import Message

from roundtrip.serving.application import Exchange, ProcessState
from tests.kit.asgi_posts import Post
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio

CALL = b'{"jsonrpc":"2.0","id":7,"method":"tools/call"}'


async def read(body: bytes, *, is_mcp: bool = True) -> tuple[Exchange, Post]:
    """Return the exchange of a request that has arrived."""
    post = Post(body, {})
    exchange = Exchange(post.scope, post.receive, post.send, ProcessState(), is_mcp=is_mcp)
    while post.unread:
        await exchange.receive()
    return exchange, post


async def test_request_without_a_response_gets_an_error() -> None:
    exchange, line = await read(CALL)
    assert await exchange.stop()
    error = json.loads(line.answer)
    assert (error["id"], error["error"]["data"]) == (7, {"reason": "server_stopped"})
    # What the leg still sends goes nowhere.
    sent = len(line.sent)
    await exchange.send({"type": "http.response.start", "status": 200, "headers": []})
    assert not await exchange.stop()
    assert len(line.sent) == sent


async def test_stream_ends_with_an_event() -> None:
    exchange, line = await read(CALL)
    headers = [(b"content-type", b"text/event-stream")]
    await exchange.send({"type": "http.response.start", "status": 200, "headers": headers})
    await exchange.send({"type": "http.response.body", "body": b": ping\r\n\r\n", "more_body": True})
    assert await exchange.stop()
    assert line.answer.startswith(b": ping\r\n\r\nevent: message\r\ndata: {")
    assert not line.sent[-1].get("more_body", False)


WITHOUT_ID = [
    b"",
    b"[",
    b"[" * 100_000,
    b'[{"jsonrpc":"2.0","id":7,"method":"ping"}]',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
    b'{"id":NaN}',
    b'{"id":null}',
    b'{"id":[1]}',
    CALL[:-1] + b',"more":"' + b"x" * 70_000 + b'"}',
]


async def test_what_has_no_id_gets_no_error() -> None:
    answered: list[bytes] = []
    for body in WITHOUT_ID:
        exchange, line = await read(body)
        if await exchange.stop() or line.sent:
            answered.append(body[:50])
    assert answered == []


async def test_id_of_any_text_is_answered() -> None:
    exchange, line = await read(b'{"id":"\\ud800\\u00e9"}')
    assert await exchange.stop()
    assert json.loads(line.answer)["id"] == "\ud800é"


async def test_other_routes_and_responses_that_are_no_stream_are_left_alone() -> None:
    exchange, line = await read(CALL, is_mcp=False)
    assert not await exchange.stop()
    assert line.sent == []
    exchange, line = await read(CALL)
    headers = [(b"content-type", b"application/json")]
    await exchange.send({"type": "http.response.start", "status": 200, "headers": headers})
    assert not await exchange.stop()
    assert len(line.sent) == 1


async def test_client_that_does_not_read_holds_up_no_other(caplog: pytest.LogCaptureFixture) -> None:
    state = ProcessState()
    stuck, line = await read(CALL)

    async def never(message: Message) -> None:
        await anyio.sleep_forever()

    post = Post(CALL, {})
    state.requests[1] = Exchange(post.scope, post.receive, never, state, is_mcp=True)
    while post.unread:
        await state.requests[1].receive()
    state.requests[2] = stuck
    with anyio.fail_after(WAIT):
        await state.answer_all(0.05)
    assert json.loads(line.answer)["id"] == 7
    assert state.broken_off
    assert "2 requests were still running, and 1 of them got an error" in caplog.text
