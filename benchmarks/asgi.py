"""Run an ASGI application in this process without sockets, and time only the application."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Final

from starlette.types import ASGIApp, Message, Scope

PATH: Final = "/mcp"
HOST: Final = "127.0.0.1:8000"
"""The port matters: servers that reject DNS rebinding allow `127.0.0.1:*`, which the bare address does not match."""


class LifespanFailed(RuntimeError):
    """The application refused to start."""


@dataclass(frozen=True, slots=True)
class Response:
    """One HTTP response, and the time that the application took."""

    status: int
    body: bytes
    elapsed_ns: int


class Endpoint:
    """Started application that accepts POST requests."""

    __slots__ = ("_app", "_state")

    def __init__(self, app: ASGIApp, *, state: Mapping[str, Any]) -> None:
        """Wrap `app`, whose lifespan has started and set `state`."""
        self._app = app
        self._state = state

    async def post(self, body: bytes, *, headers: Mapping[str, str]) -> Response:
        """Send one request as a server process would: whole, from a client that stays connected."""
        raw = [(b"host", HOST.encode()), (b"content-length", str(len(body)).encode())]
        raw += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": PATH,
            "raw_path": PATH.encode(),
            "root_path": "",
            "query_string": b"",
            "headers": raw,
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8000),
            "state": dict(self._state),
        }
        inbox: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        outbox: list[Message] = []

        async def receive() -> Message:
            if inbox:
                return inbox.pop()
            # A disconnect message here would cancel handlers that watch for one.
            await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def send(event: Message) -> None:
            outbox.append(event)

        start = perf_counter_ns()
        await self._app(scope, receive, send)
        elapsed = perf_counter_ns() - start
        return Response(
            status=outbox[0]["status"] if outbox else 0,
            body=b"".join(event.get("body", b"") for event in outbox[1:]),
            elapsed_ns=elapsed,
        )


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncGenerator[Endpoint]:
    """Run the lifespan of `app` around the block.

    Raises:
        LifespanFailed: The application did not start.
    """
    state: dict[str, Any] = {}
    started = asyncio.Event()
    stop = asyncio.Event()
    inbox: list[Message] = [{"type": "lifespan.startup"}]
    replies: list[str] = []

    async def receive() -> Message:
        if inbox:
            return inbox.pop()
        await stop.wait()
        return {"type": "lifespan.shutdown"}

    async def send(event: Message) -> None:
        replies.append(event["type"])
        started.set()

    async def lifespan() -> None:
        try:
            await app(scope, receive, send)
        finally:
            started.set()

    scope: Scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": state}
    # The lifespan runs in a separate task, like under a real server. That task must close its own task groups.
    # Its context variables must not reach requests to another peer.
    task = asyncio.create_task(lifespan())
    await started.wait()
    if replies != ["lifespan.startup.complete"]:
        stop.set()
        await task
        raise LifespanFailed(f"the application answered {replies} to its startup")
    try:
        yield Endpoint(app, state=state)
    finally:
        stop.set()
        await task
