"""ASGI application that starts its server at the first request, for hosts that send no lifespan.

Such hosts often buffer a whole response, and freeze the process after sending it. So the application answers requests
for endless streams with an error, and flushes unsaved data before a response ends.
"""

import asyncio
import contextvars
import json
import logging
from contextlib import suppress
from http import HTTPStatus
from importlib import import_module
from typing import Any, Final, NamedTuple, Unpack, cast

import anyio
import anyio.to_thread
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import METHOD_NOT_FOUND
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from roundtrip.http.connections import HttpOptions, read_body
from roundtrip.ledger.contract import Reach
from roundtrip.sdk import RestartingManager
from roundtrip.server.key_files import KEYS_VARIABLE
from roundtrip.server.server import Server
from roundtrip.threads.loops import finish_late_writes
from roundtrip.tracing import FlushedTracer
from roundtrip.untrusted import mapping_of

logger = logging.getLogger("roundtrip")

FLUSH_SECONDS: Final = 2.0
"""Maximum seconds for flushing remote tracers and retrying ledger writes."""
_IMPORTED_BY_LEGS: Final = (
    "anyio._backends._asyncio",
    "roundtrip.engine.leg_run",
    "roundtrip.once.exactly_once",
    "roundtrip.threads.workers",
    "roundtrip.tokens.signing",
)
"""Modules that this module imports while the process starts. Other servers import these modules at their first leg.

Serverless hosts start processes often, and give a process more CPU while it starts than while it serves a request.
"""
_PARSED_BYTES: Final = 64 * 1024
"""Maximum size of a listen request that is parsed to find its ID. The error for a larger request has no ID."""
_LISTENS: Final = (b"mcp-method", b"subscriptions/listen")
_NO_STREAMS: Final = "this server's platform cannot keep responses open, so the server sends no notifications"

# The platform routes by host name, so requests for other hosts never arrive.
_NAMES_ARE_CHECKED: Final = TransportSecuritySettings(enable_dns_rebinding_protection=False)


def asgi_app(server: Server[Any], *, streams: bool = False, **options: Unpack[HttpOptions]) -> "ServerlessApp":
    """Return an ASGI application that needs no lifespan: its server starts at the first request.

    If the host sends lifespans, the server starts and stops with each of them. Otherwise, the server stops with its
    event loop.

    Args:
        server: The server, with all its tools.
        streams: True if the host can keep a response open. Otherwise, listen requests get an error, and the server's
            records are saved before each response ends.
        **options: Options for `streamable_http_app`. By default, `stateless_http` and `json_response` are on, and any
            `Host` is accepted.

    Example:
        ```python
        app = asgi_app(server)
        ```
    """
    return ServerlessApp(server, streams=streams, options=options)


class ServerlessApp:
    """ASGI application whose server starts at the first request on each event loop."""

    def __init__(self, server: Server[Any], *, streams: bool, options: HttpOptions) -> None:
        if not isinstance(server, Server):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"server must be a roundtrip.Server, got {type(server).__name__}; pass the server itself")
        self._server = server
        self._streams = streams
        self._options: HttpOptions = {
            "stateless_http": True,
            "json_response": True,
            "transport_security": _NAMES_ARE_CHECKED,
            **options,
        }
        if not streams:
            _warn_of_other_instances(server)
            for module in _IMPORTED_BY_LEGS:
                with suppress(ImportError):
                    import_module(module)
        self._latest = self._build_app()
        self._apps: dict[asyncio.AbstractEventLoop, _AppRun | _BuiltApp] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or a lifespan."""
        if scope["type"] != "http" or self._streams:
            await self.serve(scope, receive, send)
            return
        flushed = False

        async def send_flushed(message: Message) -> None:
            nonlocal flushed
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                # The host may freeze the process as soon as it has the whole response.
                flushed = True
                await self.flush()
            await send(message)

        try:
            await self.serve(scope, receive, send_flushed)
        finally:
            if not flushed:
                await self.flush()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or a lifespan, without flushing."""
        if scope["type"] == "lifespan":
            loop = asyncio.get_running_loop()
            app = self._apps[loop] = self._unstarted_app()
            try:
                await app.asgi(scope, receive, send)
            finally:
                self._apps.pop(loop, None)
        else:
            await (await self._started()).asgi(scope, receive, send)

    async def flush(self, seconds: float = FLUSH_SECONDS) -> None:
        """Flush tracers and late ledger writes, within a time limit."""
        with anyio.move_on_after(seconds):
            for tracer in self._server.internals.parts.effects.tracers.tracers:
                if isinstance(tracer, FlushedTracer):
                    try:
                        # Flush in a thread, because the flush may wait for another machine.
                        await anyio.to_thread.run_sync(tracer.flush, abandon_on_cancel=True)
                    except Exception:
                        logger.exception("a tracer could not be flushed")
            await finish_late_writes()

    async def stop(self) -> None:
        """Stop the server if a request on this event loop started it."""
        run = self._apps.pop(asyncio.get_running_loop(), None)
        if isinstance(run, _AppRun):
            await run.stop()

    async def _started(self) -> "_BuiltApp":
        """Return this event loop's application. If the host has not started the server, start it."""
        loop = asyncio.get_running_loop()
        run = self._apps.get(loop)
        if run is None:
            # Some hosts create an event loop for each request, so forget the applications of closed loops.
            self._apps = {other_loop: app for other_loop, app in self._apps.items() if not other_loop.is_closed()}
            run = self._apps[loop] = _AppRun(self._unstarted_app())
        if isinstance(run, _AppRun) and (failure := await run.started()) is not None:
            if self._apps.get(loop) is run:
                del self._apps[loop]
            raise failure
        return run.app if isinstance(run, _AppRun) else run

    def _unstarted_app(self) -> "_BuiltApp":
        """Return a new application that is not running yet. Each event loop needs its own application, because a
        session manager serves only one event loop.
        """
        if cast("RestartingManager", self._latest.manager).is_running:
            self._latest = self._build_app()
        return self._latest

    def _build_app(self) -> "_BuiltApp":
        asgi = self._server.streamable_http_app(**self._options)
        manager = self._server.session_manager
        if not self._streams:
            # The manager's application runs inside the routes and authentication.
            cast("Any", manager).asgi_app = _NoStreams(manager.asgi_app)
        return _BuiltApp(asgi, manager)


def _warn_of_other_instances(server: Server[Any]) -> None:
    """Warn about settings that prevent other instances from serving a call's next leg, because the host may start any
    number of instances.
    """
    identity = server.identity()
    if identity.own_key:
        logger.warning(
            "server %r made its own key, so only this instance can resume its calls; give all instances the same key "
            "in the environment variable %s (roundtrip keys new --print)",
            server.name,
            KEYS_VARIABLE,
        )
    if identity.exactly_once and identity.reach < Reach.FLEET:
        logger.warning(
            "server %r has exactly_once tools, but its %s is not shared by all instances, so a call can run again on "
            "another instance; use Server(ledger=RedisLedger(URL)) or PostgresLedger(DSN)",
            server.name,
            identity.ledger,
        )


class _BuiltApp(NamedTuple):
    """The SDK's application and its session manager."""

    asgi: ASGIApp
    manager: StreamableHTTPSessionManager


class _AppRun:
    """Application that runs in its own asyncio task, which outlives the request that started it."""

    def __init__(self, app: _BuiltApp) -> None:
        self.app = app
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._failure: Exception | None = None
        # The lifespan must not see the context variables of the request that started it.
        self._task = asyncio.get_running_loop().create_task(self._run_manager(), context=contextvars.Context())

    async def started(self) -> Exception | None:
        """Wait until the server has started. Return the error if the server failed to start."""
        await self._ready.wait()
        return self._failure

    async def stop(self) -> None:
        self._stopping.set()
        await self._task

    async def _run_manager(self) -> None:
        try:
            async with self.app.manager.run():
                self._ready.set()
                await self._stopping.wait()
        except Exception as error:
            if self._ready.is_set():
                raise
            self._failure = error
        finally:
            self._ready.set()


class _NoStreams:
    """Middleware that rejects requests for endless streams, because the host would wait for the stream's end."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for a stream with an error, and pass on other requests."""
        if scope["method"] == "GET":
            answer = _error(HTTPStatus.METHOD_NOT_ALLOWED, None, allow="POST")
            await answer(scope, receive, send)
        # Some hosts pass headers as lists.
        elif any(tuple(header) == _LISTENS for header in scope["headers"]):
            _, body = await read_body(receive, _PARSED_BYTES)
            answer = _error(HTTPStatus.NOT_FOUND, request_id_in(body or b""))
            await answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)


def _error(status: HTTPStatus, request_id: int | str | None, **headers: str) -> Response:
    body = json_body(request_id, METHOD_NOT_FOUND, _NO_STREAMS)
    return Response(body, status, headers, media_type="application/json")


def request_id_in(body: bytes) -> int | str | None:
    """Return a JSON-RPC request's ID, or None if it cannot be read."""
    try:
        request: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    request_id = mapping_of(request).get("id")
    return request_id if isinstance(request_id, int | str) and not isinstance(request_id, bool) else None


def json_body(request_id: int | str | None, code: int, message: str, **data: object) -> bytes:
    """Encode a JSON-RPC error."""
    error: dict[str, object] = {"code": code, "message": message}
    if data:
        error["data"] = data
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}).encode()
