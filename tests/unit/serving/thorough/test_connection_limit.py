"""Limits for clients that connect, or send half a request: real sockets, and uvicorn in this process."""

import logging
import socket
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import Final

import anyio
import pytest
import uvicorn
from anyio.abc import SocketStream
from starlette.types import Receive, Scope, Send

from roundtrip.limited_logs import LimitedFilter
from roundtrip.serving import connection_limit
from roundtrip.serving.application import LIVE_PATH
from roundtrip.serving.connection_limit import ConnectionLimit
from roundtrip.serving.fast_connection import FastConnection
from roundtrip.serving.process import connections_for, protocol_for
from tests.kit.waiting import WAIT, until

pytestmark = pytest.mark.anyio
LIMIT: Final = 8
CALL: Final = b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"
HEALTH: Final = f"GET {LIVE_PATH} HTTP/1.1\r\nHost: x\r\n\r\n".encode()


@pytest.fixture(autouse=True, params=["h11", "httptools"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Read requests with one of the two libraries."""
    if request.param == "h11":
        # As if httptools were missing.
        monkeypatch.setitem(sys.modules, "roundtrip.serving.fast_connection", None)
    return request.param


class App:
    """Application that reads a request, and answers when the test lets it."""

    def __init__(self) -> None:
        self.begun = 0
        self.finish = anyio.Event()
        self.sent = anyio.Event()
        self.size = 2
        self.headers: list[tuple[bytes, bytes]] = []
        self.bodies: list[bytes] = []
        self.listens = False
        self.left = anyio.Event()
        self.pause: anyio.Event | None = None
        """Event for which the body of a response waits behind its head."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != LIVE_PATH:
            body = b""
            while (message := await receive()).get("more_body", False):
                body += message["body"]
            if message["type"] == "http.disconnect":
                return
            self.bodies.append(body + message["body"])
            self.begun += 1
            if self.listens and (await receive())["type"] == "http.disconnect":
                self.left.set()
                return
            self.headers = [*scope["headers"]]
            await self.finish.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % self.size)]})
        if self.pause is not None:
            await self.pause.wait()
        await send({"type": "http.response.body", "body": b"o" * self.size})
        self.sent.set()


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


class Place:
    """Address of the served application."""

    def __init__(self, port: int, app: App, bounds: ConnectionLimit) -> None:
        self.port = port
        self.bounds = bounds
        self.app = app
        self._opened = AsyncExitStack()

    async def connect(self, sent: bytes = b"") -> SocketStream:
        stream = await self._opened.enter_async_context(await anyio.connect_tcp("127.0.0.1", self.port))
        if sent:
            await stream.send(sent)
        return stream

    async def status(self, sent: bytes) -> int:
        return await status(await self.connect(sent))

    async def begun(self, calls: int) -> None:
        await until(lambda: self.app.begun >= calls)

    async def close(self) -> None:
        await self._opened.aclose()


async def status(stream: SocketStream) -> int:
    with anyio.fail_after(WAIT):
        return int((await stream.receive()).split()[1])


async def closed(stream: SocketStream) -> None:
    with anyio.fail_after(WAIT):
        try:
            while True:
                await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            pass


@asynccontextmanager
async def serving(*, seconds: float = WAIT, limit: int = LIMIT) -> AsyncGenerator[Place]:
    app = App()
    bounds = ConnectionLimit(app, limit=limit, seconds=seconds)
    config = uvicorn.Config(app, http=protocol_for(bounds), log_config=None, lifespan="off", ws="none")  # type: ignore[arg-type]
    server = _Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        place = Place(listening.getsockname()[1], app, bounds)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listening])
            try:
                yield place
            finally:
                app.finish.set()
                await place.close()
                server.should_exit = True


async def test_connection_whose_request_does_not_arrive_is_closed() -> None:
    async with serving(seconds=0.2) as place:
        late = [await place.connect(sent) for sent in (b"", b"POST /mc", CALL, CALL + b"abc")]
        for stream in late:
            await closed(stream)
        assert place.app.begun == 0


@pytest.mark.parametrize(("begun", "more"), [(b"GET ", b"x"), (b"", b"\r\n")], ids=["path", "empty lines"])
async def test_bytes_that_drip_in_buy_no_time(begun: bytes, more: bytes) -> None:
    async with serving(seconds=0.3) as place:
        stream = await place.connect(begun)

        async def drip() -> None:
            while True:
                await stream.send(more)
                with anyio.move_on_after(0.02):
                    await stream.receive()

        with anyio.fail_after(WAIT), pytest.raises((anyio.BrokenResourceError, anyio.EndOfStream)):
            await drip()


async def test_connection_may_be_busy_or_idle_but_not_half_sent() -> None:
    async with serving() as place:
        idle = await place.connect(CALL + b"body")
        await place.begun(1)
        # What began to count now would end the connection before the other one.
        place.bounds.seconds = 0.05
        await closed(await place.connect(b"GET "))
        place.app.finish.set()
        assert await status(idle) == 200
        await closed(await place.connect(b"GET "))
        place.bounds.seconds = WAIT
        await idle.send(HEALTH)
        assert await status(idle) == 200
        # A request after the first is bounded as well.
        place.bounds.seconds = 0.05
        await idle.send(b"GET ")
        await closed(idle)


@pytest.mark.parametrize("sent", [b"", CALL])
async def test_half_sent_requests_make_room_for_whole_ones(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as place:
        held = [await place.connect(sent) for _ in range(10 * LIMIT)]
        assert await place.status(HEALTH) == 200
        place.app.finish.set()
        assert await place.status(CALL + b"body") == 200
        await closed(held[0])
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) <= 10


@pytest.mark.parametrize(
    ("begun", "repeated"),
    [
        (b"GET /", b"x"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nA: ", b"x"),
        (b"GET / HTTP/1.1\r\n", b"A: x\r\n"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"x"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"A: x\r\n"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: ", b"x"),
    ],
    ids=["path", "header", "headers", "extension", "trailers", "trailer"],
)
async def test_what_a_request_has_beside_its_body_is_bounded(begun: bytes, repeated: bytes) -> None:
    async with serving(seconds=10 * WAIT) as place:
        stream = await place.connect(begun)
        with anyio.fail_after(WAIT), suppress(anyio.BrokenResourceError):
            for _ in range(64):
                await stream.send(repeated * 2**14)
        await closed(stream)
        assert await place.status(HEALTH) == 200


async def test_head_and_body_are_sent_together(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[bytes] = []
    send = socket.socket.send

    def noted(to: socket.socket, data: bytes) -> int:
        sent.append(bytes(data))
        return send(to, data)

    monkeypatch.setattr(socket.socket, "send", noted)
    async with serving() as place:
        place.app.finish.set()
        assert await place.status(CALL + b"body") == 200
        assert any(data.startswith(b"HTTP/1.1 200") and data.endswith(b"oo") for data in sent)


@pytest.mark.parametrize("sent", [HEALTH, HEALTH.replace(b"GET", b"HEAD")])
async def test_client_that_ends_its_side_gets_its_response(sent: bytes) -> None:
    async with serving() as place:
        for _ in range(10):
            stream = await place.connect(sent)
            await stream.send_eof()
            assert await status(stream) == 200


async def test_head_is_sent_before_a_body_that_takes_long() -> None:
    async with serving() as place:
        place.app.pause = anyio.Event()
        stream = await place.connect(HEALTH)
        with anyio.fail_after(WAIT):
            assert (await stream.receive()).endswith(b"\r\n\r\n")
            place.app.pause.set()
            assert await stream.receive() == b"oo"


async def test_headers_are_those_before_the_body_without_white_space_around() -> None:
    async with serving() as place:
        place.app.finish.set()
        sent = b"POST /mcp HTTP/1.1\r\nHost: \t x \t\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-User: ann\r\n\r\n"
        assert await place.status(sent) == 200
        assert place.app.headers == [(b"host", b"x"), (b"transfer-encoding", b"chunked")]


AHEAD: Final = [CALL + b"body" + CALL + b"body", CALL, b"\0\0", b"GET /" + b"x" * 2**17]


@pytest.mark.parametrize("ahead", AHEAD, ids=["requests", "head", "junk", "flood"])
async def test_what_comes_behind_a_request_spoils_no_answer(ahead: bytes, parser: str) -> None:
    async with serving() as place:
        assert (getattr(protocol_for(place.bounds), "func", None) is FastConnection) == (parser == "httptools")
        streams = [await place.connect(CALL + b"body" + ahead), await place.connect(CALL + b"body")]
        await place.begun(2)
        await streams[1].send(ahead)
        # Neither is one whose request has not arrived.
        others = [await place.connect(b"GET ") for _ in range(2 * LIMIT)]
        await closed(others[0])
        place.app.finish.set()
        assert [await status(stream) for stream in streams] == [200, 200]
        assert await place.status(CALL + b"body") == 200


async def test_client_that_leaves_behind_a_request_sent_ahead_is_noticed(parser: str) -> None:
    async with serving() as place:
        place.app.listens = True
        stream = await place.connect((CALL + b"body") * 2)
        await place.begun(1)
        if parser == "h11":
            # It reads no more, and so notices it at the end.
            place.app.finish.set()
        await stream.aclose()
        with anyio.fail_after(WAIT):
            await place.app.left.wait()


UPGRADE: Final = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"


async def test_offer_of_another_protocol_changes_nothing() -> None:
    async with serving() as place:
        place.app.finish.set()
        hidden = b"\r\n" * 8 + CALL + b"body"
        sent = b"POST /mcp HTTP/1.1\r\nHost: x\r\n" + UPGRADE + b"Content-Length: %d\r\n\r\n" % len(hidden)
        for pieces in ([sent + hidden], [sent, hidden], [sent[:40], sent[40:] + hidden[:20], hidden[20:]]):
            stream = await place.connect()
            for piece in pieces:
                await stream.send(piece)
                await anyio.lowlevel.checkpoint()
            assert await status(stream) == 200
            # The body was no request.
            assert place.app.bodies.pop() == hidden
            assert not place.app.bodies
            await stream.send(CALL + b"body")
            assert await status(stream) == 200
            place.app.bodies.clear()


@pytest.mark.parametrize("hosts", [b"", b"Host: x\r\nHost: y\r\n"])
async def test_request_of_no_host_or_of_two_is_rejected(hosts: bytes) -> None:
    async with serving() as place:
        assert await place.status(b"GET /mcp HTTP/1.1\r\n" + hosts + b"\r\n") == 400


async def test_health_is_answered_while_every_connection_is_served() -> None:
    async with serving() as place:
        served = [await place.connect(CALL + b"body") for _ in range(LIMIT)]
        await place.begun(LIMIT)
        for _ in range(50):
            await place.connect(b"GET ")
        assert await place.status(HEALTH) == 200
        assert await place.status(CALL + b"body") == 503
        place.app.finish.set()
        assert [await status(stream) for stream in served] == [200] * LIMIT
        assert await place.status(CALL + b"body") == 200


async def test_response_that_is_not_read_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limit, "_UNREAD_SECONDS", 0.2)
    async with serving(limit=LIMIT) as place:
        place.app.size = 64 * 2**20
        place.app.finish.set()
        stream = await place.connect(CALL + b"body")
        await place.begun(1)
        with anyio.fail_after(WAIT):
            # The application ends, although the client read nothing.
            await place.app.sent.wait()
        await stream.aclose()


def test_fewer_files_mean_fewer_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    asked: list[tuple[int, int]] = []

    def getrlimit(number: int) -> tuple[int, int]:
        del number
        return 128, 256

    def setrlimit(number: int, limits: tuple[int, int]) -> None:
        del number
        asked.append(limits)

    monkeypatch.setattr(resource, "getrlimit", getrlimit)
    monkeypatch.setattr(resource, "setrlimit", setrlimit)
    assert connections_for(8) == 8
    assert connections_for(1000) < 256
    assert asked == [(256, 256), (256, 256)]


def test_log_lines_of_one_place_are_limited() -> None:
    now = 0.0
    limited = LimitedFilter(clock=lambda: now)

    def line(message: str, level: int = logging.ERROR) -> logging.LogRecord:
        return logging.LogRecord("asyncio", level, __file__, 1, message, (), None)

    passed = [limited.filter(line("socket.accept() out of system resource\nsocket: x")) for _ in range(2000)]
    assert sum(passed) == 5
    assert limited.filter(line("another failure"))
    assert all(limited.filter(line("told", logging.INFO)) for _ in range(50))
    now = 61.0
    record = line("socket.accept() out of system resource\nsocket: y")
    assert limited.filter(record)
    assert "1995 more" in record.getMessage()
