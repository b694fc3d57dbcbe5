"""ASGI application of one process: it adds health checks, response selection and graceful shutdown to the SDK's
application.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import anyio
from mcp_types import INTERNAL_ERROR
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from roundtrip.ledger.contract import Ledger, LedgerDown
from roundtrip.legs.responses import take_no_answers
from roundtrip.server.server import Server
from roundtrip.serving.foreign_servers import ForeignServer
from roundtrip.serving.host_checks import CrossOrigin
from roundtrip.serving.responses import chosen_responses, http_options
from roundtrip.serving.settings import LIVE_PATH, READY_PATH, ServeSettings

logger = logging.getLogger("roundtrip")

_LEDGER_TIMEOUT_SECONDS: Final = 2.0
"""Seconds after which a ledger counts as down if it does not answer."""
_REUSE_SECONDS: Final = 1.0
"""Seconds for which the result of a ledger check is reused, because any client can send many health checks."""
_PROBE: Final = "health"
_MAX_KEPT_BYTES: Final = 64 * 1024
_STOPPED_ERROR: Final = {
    "code": INTERNAL_ERROR,
    "message": "the server stopped while this call ran, so its outcome is unknown",
    "data": {"reason": "server_stopped"},
}
_LISTEN_HEADER: Final = (b"mcp-method", b"subscriptions/listen")


@dataclass(slots=True)
class ProcessState:
    """State of one serving process: changed by signal handlers, read by requests."""

    started: bool = False
    stopping: bool = False
    broken_off: bool = False
    """True if a request was still running at the end of the graceful shutdown."""
    requests: dict[int, "Exchange"] = field(default_factory=dict[int, "Exchange"])
    """The running requests, by the `id` of their scope."""
    ended: anyio.Event = field(default_factory=anyio.Event)
    """Set when listening streams and live questions must end."""

    def end(self) -> None:
        """End listening streams and live questions. Answers to live questions can no longer arrive."""
        self.ended.set()
        for exchange in self.requests.values():
            take_no_answers(exchange.scope)

    async def answer_all(self, seconds: float) -> None:
        """Answer running requests with an error before their legs are cut off."""
        running = [asyncio.ensure_future(exchange.stop()) for exchange in self.requests.values()]
        if not running:
            return
        self.broken_off = True
        done, unfinished = await asyncio.wait(running, timeout=seconds)
        for one in unfinished:
            one.cancel()
        answered = sum(one.exception() is None and one.result() for one in done)
        logger.error(
            "shutdown timed out: %d requests were still running, and %d of them got an error", len(running), answered
        )


def application_of(
    server: Server[Any] | ForeignServer,
    settings: ServeSettings,
    state: ProcessState,
    *,
    around: Callable[[ASGIApp], ASGIApp] | None = None,
) -> ASGIApp:
    """Build the ASGI application that a process serves. `around` wraps the part that keeps sessions."""
    app = _sdk_app(server, settings, around) if isinstance(server, Server) else server.app(settings, around)
    if settings.allowed_origins:
        app = CrossOrigin(app, settings.path, settings.allowed_origins)
    # If no tool needs the ledger, an unreachable ledger must not take the instance out of service.
    ledger = server.ledger if server.identity().needs_ledger else None
    return _GracefulShutdown(app, _HealthChecks(ledger, state), state, path=settings.path)


def _sdk_app(
    server: Server[Any], settings: ServeSettings, around: Callable[[ASGIApp], ASGIApp] | None = None
) -> ASGIApp:
    if not settings.show_errors:
        server.internals.masks_errors = server.internals.masks_errors is not False
    elif server.internals.masks_errors:
        logger.warning("--show-errors has no effect, because the server has mask_error_details=True")
    app = server.streamable_http_app(**http_options(settings))
    return chosen_responses(app, server.session_manager, settings, around)


class _HealthChecks:
    """ASGI application for `/health/live` and `/health/ready`."""

    def __init__(self, ledger: Ledger | None, state: ProcessState) -> None:
        self._ledger = ledger
        self._state = state
        self._lock = anyio.Lock()
        self._checked_at = -_REUSE_SECONDS
        self._is_reachable = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        status, report = await self._ready() if scope["path"] == READY_PATH else (HTTPStatus.OK, {"status": "live"})
        headers = {"cache-control": "no-store"}
        if scope["method"] not in ("GET", "HEAD"):
            status, headers["allow"] = HTTPStatus.METHOD_NOT_ALLOWED, "GET, HEAD"
        await JSONResponse(report, status, headers)(scope, receive, send)

    async def _ready(self) -> tuple[int, dict[str, str]]:
        if self._state.stopping:
            return HTTPStatus.SERVICE_UNAVAILABLE, {"status": "stopping"}
        if not self._state.started:
            return HTTPStatus.SERVICE_UNAVAILABLE, {"status": "starting"}
        if self._ledger is not None and not await self._can_reach(self._ledger):
            return HTTPStatus.SERVICE_UNAVAILABLE, {"status": "unavailable", "reason": "the ledger cannot be reached"}
        return HTTPStatus.OK, {"status": "ready"}

    async def _can_reach(self, ledger: Ledger) -> bool:
        async with self._lock:
            if anyio.current_time() - self._checked_at < _REUSE_SECONDS:
                return self._is_reachable
            reached, reason = False, f"no answer within {_LEDGER_TIMEOUT_SECONDS:g} s"
            with anyio.move_on_after(_LEDGER_TIMEOUT_SECONDS):
                try:
                    await ledger.wait(_PROBE, patience=0)
                    reached = True
                except LedgerDown as error:
                    reason = str(error)
            if not reached and self._is_reachable:
                logger.error("not ready: the ledger cannot be reached: %s", reason)
            elif reached and not self._is_reachable:
                logger.info("ready again: the ledger can be reached")
            self._checked_at, self._is_reachable = anyio.current_time(), reached
            return reached


class _GracefulShutdown:
    """Middleware for health checks and graceful shutdown.

    While the process is stopping, every response closes its connection, so the client's next request goes to another
    process. Listening streams and live questions end with the process.
    """

    def __init__(self, app: ASGIApp, health: _HealthChecks, state: ProcessState, *, path: str) -> None:
        self._app = app
        self._health = health
        self._state = state
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        path, state = scope["path"], self._state
        try:
            if path in (LIVE_PATH, READY_PATH):
                await self._health(scope, receive, closing(send, state))
            elif path == self._path and (scope["method"] == "GET" or _LISTEN_HEADER in scope["headers"]):
                await self._serve_listener(scope, receive, closing(send, state))
            else:
                exchange = Exchange(scope, receive, send, state, is_mcp=path == self._path)
                state.requests[id(scope)] = exchange
                try:
                    await self._app(scope, exchange.receive, exchange.send)
                finally:
                    del state.requests[id(scope)]
        except asyncio.CancelledError:
            # Only the shutdown cancels this code; a client's disconnect does not.
            state.broken_off = True
            raise

    async def _serve_listener(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a listening client until the process ends."""
        streaming = False

        async def send_and_note(message: Message) -> None:
            nonlocal streaming
            await send(message)
            streaming = message["type"] == "http.response.start" or message.get("more_body", False)

        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                await self._state.ended.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            await self._app(scope, receive, send_and_note)
            tasks.cancel_scope.cancel()
        if streaming:
            # Finish the stream, because an aborted stream looks like a failure to the client and in the log.
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class Exchange:
    """One request and its response. If the process stops before the response is complete, the client gets an error."""

    __slots__ = ("_body", "_ended", "_receive", "_remaining_bytes", "_send", "_start", "_state", "scope")

    def __init__(self, scope: Scope, receive: Receive, send: Send, state: ProcessState, *, is_mcp: bool) -> None:
        self.scope = scope
        self._receive = receive
        self._send = send
        self._state = state
        self._body: list[bytes] = []
        self._remaining_bytes = _MAX_KEPT_BYTES if is_mcp else 0
        """The number of body bytes that can still be kept. A request with a larger body gets no error at shutdown."""
        self._start: Message | None = None
        """The response's start message; None before it is sent."""
        self._ended = False

    async def receive(self) -> Message:
        """Receive a message, and keep its part of the request body."""
        message = await self._receive()
        if self._remaining_bytes and (body := message.get("body")):
            self._remaining_bytes = max(0, self._remaining_bytes - len(body))
            self._body.append(body)
            if not self._remaining_bytes:
                self._body.clear()
        return message

    async def send(self, message: Message) -> None:
        """Send a response message. If the response has already ended, do nothing."""
        if self._ended:
            return
        if message["type"] == "http.response.start":
            self._start = message = _closed(message) if self._state.stopping else message
        else:
            self._ended = not message.get("more_body", False)
        await self._send(message)

    async def stop(self) -> bool:
        """End the response with a protocol error; return False if that is not possible."""
        try:
            request: Any = json.loads(b"".join(self._body))
            request_id = request["id"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return False
        if self._ended or not isinstance(request_id, str | int):
            return False
        # Encode as ASCII JSON, because UTF-8 cannot encode a lone surrogate.
        text = json.dumps({"jsonrpc": "2.0", "id": request_id, "error": _STOPPED_ERROR}).encode()
        if self._start is None:
            await Response(text, media_type="application/json")(self.scope, self._receive, self.send)
        elif dict(self._start.get("headers", ())).get(b"content-type", b"").startswith(b"text/event-stream"):
            await self.send({"type": "http.response.body", "body": b"event: message\r\ndata: " + text + b"\r\n\r\n"})
        return self._ended


def closing(send: Send, state: ProcessState | None = None) -> Send:
    """Wrap `send`, so that the response closes its connection. If a state is given, the connection is closed only while
    the process is stopping.
    """

    async def send_and_close(message: Message) -> None:
        await send(_closed(message) if state is None or state.stopping else message)

    return send_and_close


def _closed(message: Message) -> Message:
    if message["type"] != "http.response.start":
        return message
    headers = [(name, value) for name, value in message.get("headers", ()) if name.lower() != b"connection"]
    return {**message, "headers": [*headers, (b"connection", b"close")]}
