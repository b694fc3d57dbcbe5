"""HTTP middlewares that end live calls with their response, and limit the JSON values in a request.

JSON parsing blocks the event loop, and its time grows with the number of values. Parsing 4 MB of text takes 10 ms, but
4 MB of empty lists take a second. So only the number of values in a request is limited, not the length of its texts.
"""

import logging
from abc import ABC, abstractmethod
from http import HTTPStatus
from typing import Any, Final, TypedDict

from mcp.server import MCPServer
from mcp.server.streamable_http import EventStore
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from roundtrip.legs.responses import RESPONSE, HttpResponse
from roundtrip.limited_logs import LimitedLog
from roundtrip.sdk import RestartingManager

logger = logging.getLogger("roundtrip")

_STREAM_LOG: Final = logging.getLogger("sse_starlette.sse")
_limited_log = LimitedLog(logger)

MAX_JSON_VALUES: Final = 50_000
_HARMLESS_BYTES: Final = 2 * MAX_JSON_VALUES


class AroundPosts(ABC):
    """ASGI middleware for POST requests, which carry the clients' messages."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] == "http" and scope["method"] == "POST":
            await self._serve(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    @abstractmethod
    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class Responses(AroundPosts):
    """ASGI middleware that ends a request's open questions when its response ends."""

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = scope[RESPONSE] = HttpResponse()
        try:
            await self._app(scope, receive, send)
        finally:
            response.end()


class _TransportOptions(TypedDict, total=False):
    """The SDK's options for both HTTP transports."""

    max_request_body_size: int
    transport_security: TransportSecuritySettings | None
    host: str


class HttpOptions(_TransportOptions, total=False):
    """The SDK's options for streamable HTTP."""

    streamable_http_path: str
    json_response: bool
    stateless_http: bool
    event_store: EventStore | None
    retry_interval: int | None
    session_idle_timeout: float | None
    max_sessions: int | None


class SseOptions(_TransportOptions, total=False):
    """The SDK's options for the old HTTP+SSE transport."""

    sse_path: str
    message_path: str


def watch_app(server: MCPServer[Any], app: Starlette, options: HttpOptions) -> Starlette:
    """Adapt the SDK application: end live calls on disconnect, limit a request's JSON values, and allow restarts."""
    # The SDK creates its streams itself, so only a log filter can drop their records. Adding the filter twice has no
    # effect.
    _STREAM_LOG.addFilter(_is_not_chunk)
    # The SDK's application creates the manager and has no hook to replace it. A second manager would run the lifespan
    # twice.
    server.session_manager.__class__ = RestartingManager
    limited = server.session_manager.asgi_app
    limited.app = BoundedJson(limited.app)
    # With an event store, a client that has disconnected may reconnect.
    if not options.get("stateless_http") and not options.get("json_response") and options.get("event_store") is None:
        app.add_middleware(Responses)
    return app


def warn_of_readable_errors(name: str) -> None:
    """Warn that everyone who can reach the server can read the texts of exceptions."""
    logger.warning(
        "server %r has no authentication, so everyone who can reach it can read the texts of uncaught exceptions; "
        "pass Server(mask_error_details=True) to keep the texts in the log",
        name,
    )


def warn_of_unchecked_names(security: TransportSecuritySettings | None) -> None:
    """Warn if allowed hosts or origins are listed but not checked by the SDK."""
    # The SDK has one switch for both lists.
    if security is None or security.enable_dns_rebinding_protection:
        return
    for name, given in (("allowed_hosts", security.allowed_hosts), ("allowed_origins", security.allowed_origins)):
        if given:
            logger.warning(
                "transport_security: %s is not checked, because enable_dns_rebinding_protection is False; set it to "
                "True and give both lists, or check the header in a middleware",
                name,
            )


def _is_not_chunk(record: logging.LogRecord) -> bool:
    """Drop the SDK's DEBUG records of streamed chunks, which contain tokens and results."""
    return not (isinstance(record.msg, str) and record.msg.startswith("chunk:"))


def has_too_many_values(body: bytes) -> bool:
    """Return True if a JSON text has too many values. The values are counted without parsing the text."""
    # Each value takes at least two bytes: one for itself and one for a separator.
    if len(body) <= _HARMLESS_BYTES or _count_values(body) <= MAX_JSON_VALUES:
        return False
    # The count may include separators inside strings, so count again without the strings.
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")
    if plain.count(b'"') > 2 * MAX_JSON_VALUES:
        return True
    return _count_values(b"".join(plain.split(b'"')[::2])) > MAX_JSON_VALUES


def _count_values(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


class BoundedJson(AroundPosts):
    """ASGI middleware that rejects requests with too many JSON values. It expects the body in one message."""

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        whole = await receive()
        if has_too_many_values(whole.get("body", b"")):
            _limited_log.warning("rejected a request with more than %d JSON values", MAX_JSON_VALUES)
            response = PlainTextResponse("Request body has too many JSON values", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            await response(scope, receive, send)
            return
        await self._app(scope, replaying([whole], receive), send)


async def read_body(receive: Receive, max_body: int) -> tuple[list[Message], bytes | None]:
    """Read a request's body. The body is None if the client disconnects early or if it exceeds `max_body`.

    The returned messages can be replayed. They contain the body in one piece, even if the client sent one byte per
    message.
    """
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return [{"type": "http.request", "body": bytes(body), "more_body": True}, message], None
        chunk, has_more = message.get("body", b""), message.get("more_body", False)
        if not body and not has_more and len(chunk) <= max_body:
            return [message], chunk
        body += chunk
        if not has_more or len(body) > max_body:
            whole = bytes(body)
            received: Message = {"type": "http.request", "body": whole, "more_body": has_more}
            return [received], None if has_more or len(whole) > max_body else whole


async def wait_for_disconnect(receive: Receive) -> None:
    """Receive and drop messages until the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass


def replaying(received: list[Message], receive: Receive) -> Receive:
    """Return a function that replays the received messages, and then receives new ones."""
    pending = received[::-1]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay
