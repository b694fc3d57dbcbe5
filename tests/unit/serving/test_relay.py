"""The session relay: two workers in one process, each with its own port and its own socket."""

import json
import os
import socket
import stat
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import anyio
import anyio.lowlevel
import httpx
import pytest
from anyio.abc import SocketStream
from mcp.server.auth.settings import AuthSettings
from pydantic import AnyHttpUrl

from roundtrip import Context, Elicit, Resolve, Server
from roundtrip.serving import relay as relaying
from roundtrip.serving.application import ProcessState, application_of
from roundtrip.serving.relay import SessionRelay, inherited_relay, session_folder
from roundtrip.serving.settings import ServeSettings
from roundtrip.testing import Era
from roundtrip.testing.hosting import serving
from tests.interaction.pages.web import Badges
from tests.kit.asgi_posts import Post
from tests.kit.hosts import listening
from tests.kit.live_wire import HEADERS, Session
from tests.kit.players import Person, connect, text_of
from tests.kit.waiting import WAIT

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="workers need Unix sockets"),
]

KEY: Final = "7f" * 32
NOT_FOUND: Final = (404, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Session not found"}}')
MAX_BODY: Final = 4096


class Shop:
    """Server of one worker."""

    def __init__(self, *, guarded: bool = False) -> None:
        auth: dict[str, Any] = {}
        if guarded:
            url = AnyHttpUrl("https://login.example")
            auth = {"auth": AuthSettings(issuer_url=url, resource_server_url=None), "token_verifier": Badges()}
        self.server = Server("shop", keys=[KEY], **auth)
        self.begun = anyio.Event()
        self.ended = anyio.Event()

        def sure() -> Elicit[bool]:
            return Elicit("Sure?", bool)

        @self.server.tool
        async def agree(sure: Annotated[bool, Resolve(sure)]) -> str:
            return f"agreed: {sure}"

        @self.server.tool
        async def address(ctx: Context) -> str:
            request = ctx.request_context.request
            if request is None:
                raise AssertionError
            scope = request.scope
            return json.dumps([scope["client"][0], scope["scheme"], scope["server"][1]])

        @self.server.tool
        async def ponder(ctx: Context) -> str:
            self.begun.set()
            try:
                return str(await ctx.ask("sure", Elicit("Sure?", bool)))
            finally:
                self.ended.set()


class Worker:
    """One worker, with a port that only this worker serves."""

    def __init__(self, folder: str, shop: Shop) -> None:
        self.shop = shop
        self.relay = SessionRelay(folder)
        self.url = ""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        state = ProcessState()
        settings = ServeSettings(workers=2, max_body=MAX_BODY)
        app = application_of(self.shop.server, settings, state, around=partial(self.relay.around, state))
        with listening() as door, self.relay.listen() as own_door:
            own_door.listen()
            self.url = f"http://127.0.0.1:{door.getsockname()[1]}/mcp"
            async with serving(app, door), serving(self.relay.entry(app), own_door, lifespan="off"):
                yield


@asynccontextmanager
async def two_workers(folder: Path, *, guarded: bool = False) -> AsyncGenerator[tuple[Worker, Worker]]:
    first, second = (Worker(str(folder), Shop(guarded=guarded)) for _ in range(2))
    async with AsyncExitStack() as stack:
        for worker in (first, second):
            await stack.enter_async_context(worker.running())
        yield first, second


@asynccontextmanager
async def opened(worker: Worker, **headers: str) -> AsyncGenerator[Session]:
    """Open a session in a worker."""
    async with httpx.AsyncClient(timeout=WAIT, headers=headers, verify=False) as http:
        session = Session(http, worker.url)
        await session.open()
        yield session


async def ask(worker: Worker, *sessions: str, method: str = "POST", **headers: str) -> tuple[int, bytes]:
    """Return the status and the body of a response."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}) if method == "POST" else None
    pairs = [*HEADERS.items(), *headers.items(), *(("mcp-session-id", session) for session in sessions)]
    if body is not None:
        pairs.append(("content-type", "application/json"))
    async with httpx.AsyncClient(timeout=WAIT, verify=False) as http:
        raw = [(name.encode(), value.encode("latin-1")) for name, value in pairs]
        response = await http.request(method, worker.url, content=body, headers=raw)
        return response.status_code, response.content


async def test_any_worker_asks_and_hears_the_clients_of_a_session(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as workers, opened(workers[0]) as session:
        assert session.http.headers["mcp-session-id"].startswith(f"{workers[0].relay.name}.")
        for caller in workers:
            for answerer in workers:
                session.url = caller.url
                async with session.http.stream("POST", caller.url, json=_call("agree"), headers=HEADERS) as response:
                    lines = (line async for line in response.aiter_lines() if line.startswith("data: {"))
                    question = json.loads((await anext(lines)).removeprefix("data:"))
                    session.url = answerer.url
                    assert await session.answer(question, value=True) == 202
                    result = json.loads((await anext(lines)).removeprefix("data:"))
                assert result["result"]["content"][0]["text"] == "agreed: True"
        gone = await session.http.delete(workers[1].url, headers=HEADERS)
        assert gone.status_code == 200
        for worker in workers:
            assert await ask(worker, session.http.headers["mcp-session-id"]) == NOT_FOUND


def _call(tool: str) -> dict[str, Any]:
    params = {"name": tool, "arguments": {}, "_meta": {"progressToken": 1}}
    return {"jsonrpc": "2.0", "id": "call", "method": "tools/call", "params": params}


HOSTILE: Final[dict[str, Callable[[str, str, str], tuple[str, ...]]]] = {
    "without its owner": lambda own, other, id: (id,),
    "of another owner": lambda own, other, id: (f"{other}.{id}",),
    "of a worker that never was": lambda own, other, id: (f"{'0' * 16}.{id}",),
    "of an owner in capitals": lambda own, other, id: (f"{own.upper()}.{id}",) if own != own.upper() else ("",),
    "with a longer owner": lambda own, other, id: (f"{own}0.{id}",),
    "unknown to its owner": lambda own, other, id: (f"{own}.{'0' * 32}",),
    "empty behind its owner": lambda own, other, id: (f"{own}.",),
    "with an owner twice": lambda own, other, id: (f"{own}.{own}.{id}",),
    "empty": lambda own, other, id: ("",),
    "a path": lambda own, other, id: (f"../../../../tmp/{own}.{id}",),
    "the path of the socket": lambda own, other, id: (f"./{own}.{id}",),
    "a dot": lambda own, other, id: (".",),
    "a URL": lambda own, other, id: ("http://127.0.0.1:1/mcp",),
    "giant": lambda own, other, id: ("a" * 30_000,),
    "giant behind its owner": lambda own, other, id: (f"{own}.{'a' * 30_000}",),
    "not ASCII": lambda own, other, id: (f"{own}.\xe4\xff",),
    "after another one": lambda own, other, id: ("unknown", f"{own}.{id}"),
    "a word for unknown ids": lambda own, other, id: ("unknown",),
}


async def test_hostile_session_ids_are_unknown_at_every_worker(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as (first, second), opened(first) as session:
        whole = session.http.headers["mcp-session-id"]
        own, _, given = whole.partition(".")
        for make in HOSTILE.values():
            ids = make(own, second.relay.name, given)
            for method in ("POST", "GET", "DELETE"):
                answers = [await ask(worker, *ids, method=method) for worker in (first, second)]
                assert answers == [NOT_FOUND] * 2, ids
        # What is no socket is no worker.
        (tmp_path / ("1" * 16)).write_text("a file")
        (tmp_path / ("2" * 16)).mkdir()
        for name in ("1" * 16, "2" * 16):
            assert await ask(second, f"{name}.{given}") == NOT_FOUND
        assert (await ask(second, whole))[0] == 200


async def test_session_of_another_user_is_unknown_at_every_worker(tmp_path: Path) -> None:
    ada, eve = {"authorization": "Bearer app/ada"}, {"authorization": "Bearer app/eve"}
    async with two_workers(tmp_path, guarded=True) as workers, opened(workers[0], **ada) as session:
        whole = session.http.headers["mcp-session-id"]
        for method in ("POST", "GET", "DELETE"):
            assert [await ask(worker, whole, method=method, **eve) for worker in workers] == [NOT_FOUND] * 2
            without = [await ask(worker, whole, method=method) for worker in workers]
            assert without[0] == without[1]
            assert without[0][0] == 401
        assert [(await ask(worker, whole, **ada))[0] for worker in workers] == [200, 200]


async def test_owner_checks_users_itself(tmp_path: Path) -> None:
    """The owner does not rely on the worker that passes a request on."""
    async with (
        two_workers(tmp_path, guarded=True) as (first, _),
        opened(first, authorization="Bearer app/a") as session,
    ):
        transport = httpx.AsyncHTTPTransport(uds=str(tmp_path / first.relay.name))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=WAIT) as http:
            facts = json.dumps({"client": ["127.0.0.1", 1], "scheme": "http", "server": ["127.0.0.1", 80]})
            headers = {**HEADERS, "roundtrip-relayed-for": facts}
            body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            headers["mcp-session-id"] = session.http.headers["mcp-session-id"]
            assert (await http.post("/mcp", json=body, headers=headers)).status_code == 401
            known = {**headers, "authorization": "Bearer app/a"}
            assert (await http.post("/mcp", json=body, headers=known)).status_code == 200
            assert (await http.post("/mcp", json=body, headers={**known, "host": "evil.example"})).status_code == 421


async def test_last_event_id_reaches_the_owner(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as workers, opened(workers[0]) as session:
        whole = session.http.headers["mcp-session-id"]
        more = {"last-event-id": "1_2"}
        direct, relayed = [await ask(worker, whole, method="GET", **more) for worker in workers]
        assert direct == relayed
        assert [await ask(worker, whole, method="PUT") for worker in workers] == [
            await ask(workers[0], whole, method="PUT")
        ] * 2
        assert await ask(workers[1], f"{'0' * 16}.1", method="GET", **more) == NOT_FOUND
    # Without an event store, the SDK sends no response at all.
    assert direct[0] == 500


async def test_client_address_survives_and_cannot_be_forged(tmp_path: Path) -> None:
    forged = json.dumps({"client": ["6.6.6.6", 6], "scheme": "https", "server": ["evil.example", 6]})
    async with two_workers(tmp_path) as workers, opened(workers[0]) as session:
        session.http.headers["roundtrip-relayed-for"] = forged
        for worker in workers:
            session.url = worker.url
            result = await session.call("address")
            port = int(worker.url.rpartition(":")[2].removesuffix("/mcp"))
            assert json.loads(result["content"][0]["text"]) == ["127.0.0.1", "http", port]


async def test_limits_of_the_owner_hold_for_relayed_requests(tmp_path: Path) -> None:
    async def body(chunks: int) -> AsyncGenerator[bytes]:
        for _ in range(chunks):
            yield b"x" * 1024

    async with two_workers(tmp_path) as workers, opened(workers[0]) as session:
        headers = {**HEADERS, "content-type": "application/json"}
        for content in (b"x" * 2 * MAX_BODY, lambda: body(8)):
            answers = [
                await session.http.post(
                    worker.url, content=content if isinstance(content, bytes) else content(), headers=headers
                )
                for worker in workers
            ]
            assert [answer.status_code for answer in answers] == [413, 413]
            assert answers[0].content == answers[1].content
        small = [await session.http.post(worker.url, content=body(1), headers=headers) for worker in workers]
        assert [answer.status_code for answer in small] == [400, 400]


async def test_client_that_leaves_is_cancelled_at_the_owner(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as (first, second), opened(first) as session:
        with anyio.fail_after(WAIT):
            async with session.http.stream("POST", second.url, json=_call("ponder"), headers=HEADERS) as response:
                assert response.status_code == 200
                await first.shop.begun.wait()
            await first.shop.ended.wait()


async def test_retry_era_requests_ignore_session_ids(tmp_path: Path) -> None:
    async with two_workers(tmp_path) as (first, second), opened(first) as session:
        headers = {"mcp-session-id": session.http.headers["mcp-session-id"]}
        async with (
            httpx.AsyncClient(headers=headers) as http,
            connect(second.url, Era.RETRY, Person({"value": True})) as client,
        ):
            assert text_of(await client.call_tool("agree", {})) == "agreed: True"
            modern = {**HEADERS, "mcp-protocol-version": Era.RETRY.value, "mcp-method": "tools/list"}
            body: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
            answer = await http.post(second.url, json=body, headers=modern)
            assert b"Session not found" not in answer.content


# Owners that fail, played by a socket.


class PlayedOwner:
    """Socket of a worker whose behavior a test decides."""

    def __init__(self, folder: Path) -> None:
        self.relay = SessionRelay(str(folder))
        self.id = f"{self.relay.name}.{'0' * 32}"

    @asynccontextmanager
    async def playing(self, play: Callable[[SocketStream], Any]) -> AsyncGenerator[None]:
        async with (
            await anyio.create_unix_listener(str(self.relay._folder / self.relay.name)) as door,  # pyright: ignore[reportPrivateUsage]
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(door.serve, play)
            yield
            tasks.cancel_scope.cancel()


CHUNKS: Final = 512
HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n3\r\n: a\r\n"


async def relayed(folder: Path, play: Callable[[PlayedOwner, SocketStream], Any]) -> tuple[int, bytes]:
    """Return what a client gets from a worker whose peer plays the owner."""
    owner = PlayedOwner(folder)
    worker = Worker(str(folder), Shop())
    async with owner.playing(partial(play, owner)), worker.running():
        with anyio.fail_after(WAIT):
            return await ask(worker, owner.id)


async def test_stream_of_an_owner_that_dies_ends_with_an_error(tmp_path: Path) -> None:
    async def die(owner: PlayedOwner, stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(HEAD)

    status, body = await relayed(tmp_path, die)
    assert status == 200
    assert body.startswith(b": aevent: message")
    error = json.loads(body.partition(b"data: ")[2])
    assert error["id"] == 1
    assert error["error"]["data"] == {"reason": "server_stopped"}


async def test_request_to_an_owner_that_dies_at_once_is_of_an_unknown_session(tmp_path: Path) -> None:
    async def die(owner: PlayedOwner, stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            os.unlink(tmp_path / owner.relay.name)

    assert await relayed(tmp_path, die) == NOT_FOUND


async def test_request_that_a_living_owner_breaks_off_may_be_repeated(tmp_path: Path) -> None:
    async def break_off(owner: PlayedOwner, stream: SocketStream) -> None:
        await stream.aclose()

    assert await relayed(tmp_path, break_off) == (503, b"Service Unavailable")


async def never(*_: Any) -> None:
    """Serve no session here, because every session of the test is another worker's."""
    raise AssertionError


def ping_of(owner: PlayedOwner, **headers: str) -> Post:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
    given = {**HEADERS, "mcp-session-id": owner.id, "content-length": str(len(body)), **headers}
    return Post(body, given)


@pytest.mark.parametrize(("header", "status"), [("x-fine", 503), ("x bad", 400)])
async def test_request_that_cannot_be_passed_on_is_answered(header: str, status: int, tmp_path: Path) -> None:
    """The owner takes no connection, and h11 does not write the second head."""
    owner = PlayedOwner(tmp_path)
    request = ping_of(owner, **{header: "1"})
    app: Any = SessionRelay(str(tmp_path)).around(ProcessState(), never)
    with owner.relay.listen() as door, ExitStack() as waiting:
        door.listen(0)
        if status == 503:
            with suppress(BlockingIOError):
                while (connected := SessionRelay(str(tmp_path)).connect(owner.relay.name)) is not None:
                    waiting.enter_context(connected)
        with anyio.fail_after(WAIT):
            await app(request.scope, request.receive, request.send)
    assert request.sent[0]["status"] == status


async def test_slow_client_slows_its_owner_down(tmp_path: Path) -> None:
    """The passing worker does not buffer what its client does not read."""
    owner, sent, taken = PlayedOwner(tmp_path), 0, 0
    begun, go_on, finished = anyio.Event(), anyio.Event(), anyio.Event()

    async def flood(owner: PlayedOwner, stream: SocketStream) -> None:
        nonlocal sent
        async with stream:
            await stream.receive()
            await stream.send(HEAD)
            for _ in range(CHUNKS):
                await stream.send(b"10000\r\n" + b"x" * 2**16 + b"\r\n")
                sent += 2**16
            await stream.send(b"0\r\n\r\n")

    async def send(message: Any) -> None:
        nonlocal taken
        taken += len(message.get("body", b"").removeprefix(b": a"))
        begun.set()
        await go_on.wait()
        if message["type"] == "http.response.body" and not message["more_body"]:
            finished.set()

    request = ping_of(owner)
    app: Any = SessionRelay(str(tmp_path)).around(ProcessState(), never)
    with anyio.fail_after(WAIT):
        async with owner.playing(partial(flood, owner)), anyio.create_task_group() as tasks:
            tasks.start_soon(app, request.scope, request.receive, send)
            await begun.wait()
            # With a buffer here, each round of the event loop would move a chunk.
            for _ in range(4 * CHUNKS):
                await anyio.lowlevel.checkpoint()
            assert sent < CHUNKS * 2**16 / 8
            go_on.set()
            await finished.wait()
    assert taken == sent == CHUNKS * 2**16


# The folder.


def test_folder_is_private_inherited_and_removed() -> None:
    environment: dict[str, str] = {}
    with session_folder(environment):
        (folder,) = environment.values()
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        relay = inherited_relay(environment)
        assert relay is not None
        assert not environment
        relay.listen().close()
        relay.close()
    assert not os.path.exists(folder)
    assert inherited_relay(environment) is None


def test_folder_that_cannot_hold_sockets_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(relaying.tempfile, "tempdir", str(deep))
    environment: dict[str, str] = {}
    with pytest.raises(OSError, match="too long"), session_folder(environment):
        pass
    assert not environment
    assert not any(deep.iterdir())
