"""Fast lane for HTTP requests in revision 2026-07-28. It bypasses the SDK's transport, which takes longer than the rest
of a plain call.

The lane reads a request once, and serves the request if it passes every check that the SDK makes. All other requests go
unchanged to the SDK's own application: older revisions, sessions, subscriptions, notifications, and every request that
must be rejected. So every error message comes from the SDK, and a check that is too strict only makes the request
slower.

After the checks, the SDK's own runner serves the request with the server's middlewares, handlers and lifespan.
"""

import asyncio
import json
import sys
from asyncio import AbstractEventLoop, Handle, Task, TimerHandle
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self, cast

import anyio
from mcp.server.connection import Connection
from mcp.server.lowlevel import Server as LowLevelServer
from mcp.server.runner import ServerRunner, aclose_shielded, modern_error_data
from mcp.server.streamable_http import check_accept_headers
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.dispatcher import CallOptions
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    NAME_BEARING_METHODS,
    decode_header_value,
    validate_mcp_param_headers,
)
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    ClientCapabilities,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCResponse,
    RequestId,
)
from mcp_types.version import LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send
from typing_extensions import override

from roundtrip.http.connections import has_too_many_values, read_body, replaying, wait_for_disconnect
from roundtrip.sdk import RequestChannel, RestartingManager, missing_names
from roundtrip.threads.loops import is_on_asyncio

_LISTS: Final = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
_METHODS: Final = frozenset((*NAME_BEARING_METHODS, *_LISTS, "server/discover"))

_ID_TYPES: Final = (int, str)
_PARAM_PREFIX: Final = b"mcp-param-"
_ROUTING_HEADERS: Final = (b"mcp-method", b"mcp-name", b"mcp-protocol-version")
_CHECKED_HEADERS: Final = frozenset(
    (b"accept", b"content-length", b"content-type", b"host", b"origin", *_ROUTING_HEADERS)
)

_MAX_SIZE_DIGITS: Final = 18
_READER_DIGITS: Final = 4300
"""Maximum number of digits in an integer. The fast reader rejects longer integers, as the standard library does."""

_OK: Final = 200
_PING: Final = b": ping\r\n\r\n"
_PING_SECONDS = 15.0
"""Seconds after which a quiet response becomes an event stream. Pings follow at the same interval."""
_EVENT_HEADERS: Final = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]
_STATE: Final = "_lifespan_state"
"""The manager's attribute for what the server's lifespan yielded."""
IS_POSSIBLE: Final = not missing_names(
    {StreamableHTTPSessionManager: _STATE},
    without="HTTP requests of 2026-07-28 take the SDK's own transport, which is slower",
)
"""True if the installed SDK has all that the lane needs."""

# Bypass the SDK's cached property. The cached value and its runner would refer to each other, and only the garbage
# collector could free them.
_on_request: Final = ServerRunner[Any].on_request.func

# This encoder raises for NaN and infinity, which the SDK writes as null, and for values that are not JSON.
_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class _CheckedRequest(NamedTuple):
    """Request that passed all checks."""

    id: RequestId
    method: str
    params: dict[str, Any]
    envelope: dict[str, Any]
    """The request's `_meta`, which describes the client."""
    body: bytes


class FastLane:
    """ASGI application behind the SDK's routes and authentication, and in front of the SDK's own endpoint.

    Args:
        server: The low-level server.
        manager: The SDK's session manager, which runs the lifespan and has the transport's options.
        sdk: The SDK's application, for requests that the lane does not serve.
    """

    def __init__(self, server: LowLevelServer[Any], manager: StreamableHTTPSessionManager, sdk: ASGIApp) -> None:
        self._server = server
        self._manager = cast("RestartingManager", manager)
        self._sdk = sdk
        self._max_bytes = manager.max_request_body_size
        self._security = manager.security_settings

    @classmethod
    def install(cls, server: LowLevelServer[Any]) -> None:
        """Put the lane in front of the application that the SDK has just created for a server."""
        manager = server.session_manager
        # The SDK calls this attribute like any ASGI application, but annotates the attribute with one concrete class.
        cast("Any", manager).asgi_app = cls(server, manager, manager.asgi_app)

    def before(self, wrap: Callable[[ASGIApp], ASGIApp]) -> Self:
        """Insert a middleware between the lane and the SDK's application."""
        self._sdk = wrap(self._sdk)
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        headers = self._headers_of(scope)
        # The lane needs asyncio, but the SDK's transport does not.
        if headers is None or not is_on_asyncio():
            await self._sdk(scope, receive, send)
            return
        received, body = await read_body(receive, self._max_bytes)
        checked = self._check_body(body, headers, scope)
        if checked is None:
            await self._sdk(scope, replaying(received, receive), send)
            return
        request = _ReadRequest(scope, receive, checked.body)
        # HTTP/1.0 clients cannot read a stream of unknown length.
        if self._manager.json_response or scope.get("http_version") == "1.0":
            status, body = await self._reply(checked, request, None)
            await _send(send, status, body)
        else:
            stream = _Stream(receive, send)
            try:
                with stream.scope:
                    status, body = await self._reply(checked, request, stream)
                    await stream.finish(status, body)
            finally:
                stream.end()
            if stream.failure is not None:
                raise stream.failure

    def _headers_of(self, scope: Scope) -> dict[bytes, bytes] | None:
        """Return the headers to check, or None if the headers show that the lane cannot serve the request."""
        if scope["type"] != "http" or scope["method"] != "POST" or not self._manager.is_running:
            return None
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in _CHECKED_HEADERS or name.startswith(_PARAM_PREFIX):
                if name in headers:
                    return None
                # httptools keeps the white space after a value.
                headers[name] = value.rstrip(b" \t")
                if value and not headers[name]:
                    return None
            elif not name.islower():
                # The SDK ignores the case of names. It could treat this header as a duplicate of one that the lane has
                # read.
                return None
        if (
            headers.get(b"mcp-protocol-version", b"").decode("latin-1") not in MODERN_PROTOCOL_VERSIONS
            or not headers.get(b"content-type", b"").lower().startswith(b"application/json")
            or not _accepts(headers.get(b"accept", b""), events=not self._manager.json_response)
            or not _is_allowed(self._security, headers)
        ):
            return None
        size = headers.get(b"content-length", b"0")
        if not size.isdigit() or len(size) > _MAX_SIZE_DIGITS or int(size) > self._max_bytes:
            return None
        return headers

    def _check_body(self, body: bytes | None, headers: Mapping[bytes, bytes], scope: Scope) -> _CheckedRequest | None:
        """Return the parsed request, or None if its body fails a check."""
        if body is None or has_too_many_values(body):
            return None
        message = _as_object(_parse_json(body))
        params = _as_object(message.get("params"))
        envelope = _as_object(params.get("_meta"))
        request_id, method = message.get("id"), message.get("method")
        if (
            message.get("jsonrpc") != "2.0"
            or type(request_id) not in _ID_TYPES
            or type(method) is not str
            or method not in _METHODS
            or CLIENT_CAPABILITIES_META_KEY not in envelope
            or envelope.get(PROTOCOL_VERSION_META_KEY) != _header_text(headers, b"mcp-protocol-version")
            or _header_text(headers, b"mcp-method") != method
        ):
            return None
        checked = _CheckedRequest(cast("RequestId", request_id), method, params, envelope, body)
        named = NAME_BEARING_METHODS.get(method)
        if named is not None and checked.params.get(named) is not None:
            if decode_header_value(_header_text(headers, b"mcp-name")) != checked.params[named]:
                return None
            if method == "tools/call" and not self._arguments_match(checked, scope):
                return None
        return checked

    def _arguments_match(self, checked: _CheckedRequest, scope: Scope) -> bool:
        """Return True if the headers that repeat a tool's arguments agree with these arguments."""
        find, name = self._server.get_tool_input_schema, checked.params["name"]
        if find is None or not isinstance(name, str):
            return False
        try:
            schema = find(name)
        except Exception:  # noqa: BLE001 - the SDK calls it again, and logs the error
            return False
        if schema is None:
            return True
        arguments: Any = checked.params.get("arguments")
        if arguments is None:
            arguments = {}
        headers = Request(scope).headers
        return isinstance(arguments, dict) and (
            validate_mcp_param_headers(schema, cast("dict[str, Any]", arguments), headers) is None
        )

    async def _reply(self, checked: _CheckedRequest, request: Request, stream: "_Stream | None") -> tuple[int, bytes]:
        """Serve a request, and return the response's status and body."""
        connection = _Envelope(checked.envelope)
        runner = ServerRunner(self._server, connection, getattr(self._manager, _STATE))
        try:
            serve = _on_request(runner)
            result = await serve(_LazyChannel(checked, request, stream), checked.method, checked.params)
        except Exception as error:  # noqa: BLE001 - like the SDK, whose function decides what clients learn
            details = modern_error_data(error)
            reply = JSONRPCError(jsonrpc="2.0", id=checked.id, error=details)
            return ERROR_CODE_HTTP_STATUS.get(details.code, _OK), _encode_message(reply)
        finally:
            if connection.has_cleanups:
                await aclose_shielded(connection)
        try:
            return _OK, _encode_reply({"jsonrpc": "2.0", "id": checked.id, "result": result})
        except (TypeError, ValueError, RecursionError):
            return _OK, _encode_message(JSONRPCResponse(jsonrpc="2.0", id=checked.id, result=result))


def _header_text(headers: Mapping[bytes, bytes], name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")


@lru_cache(maxsize=64)
def _accepts(accept: bytes, *, events: bool) -> bool:
    has_json, has_events = check_accept_headers(Request({"type": "http", "headers": [(b"accept", accept)]}))
    return has_json and (has_events or not events)


def _is_allowed(security: TransportSecuritySettings | None, headers: Mapping[bytes, bytes]) -> bool:
    """Return True if the request's host and origin are allowed on this server."""
    if security is None or not security.enable_dns_rebinding_protection:
        return True
    host, origin = _header_text(headers, b"host"), _header_text(headers, b"origin")
    return bool(host and _is_one_of(host, tuple(security.allowed_hosts))) and (
        not origin or _is_one_of(origin, tuple(security.allowed_origins))
    )


@lru_cache(maxsize=64)
def _is_one_of(name: str, allowed: tuple[str, ...]) -> bool:
    return name in allowed or any(each.endswith(":*") and name.startswith(each[:-1]) for each in allowed)


def _as_object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if type(value) is dict else {}


def _parse_json(body: bytes) -> Any:
    """Return the value of a JSON text, or None if the text is not JSON. If the fast reader fails, the standard library
    decides.
    """
    if sys.get_int_max_str_digits() not in range(1, _READER_DIGITS):
        try:
            return from_json(body)
        except ValueError:
            pass
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _encode_reply(reply: dict[str, Any]) -> bytes:
    """Encode a reply as ASCII JSON, like the SDK.

    Raises:
        TypeError: The reply has a value that only pydantic can encode.
        ValueError: The reply contains NaN or infinity, or contains itself.
        RecursionError: The reply's values are nested too deeply.
    """
    try:
        # pydantic is seven times as fast as the standard library, but writes UTF-8 and not ASCII.
        body = to_json(reply, exclude_none=True, inf_nan_mode="null")
        if body.isascii():
            return body
    except ValueError:
        pass
    return _encode(reply).encode()


def _encode_message(reply: BaseModel) -> bytes:
    """Encode a message as JSON, like the SDK."""
    return json.dumps(reply.model_dump(mode="json", by_alias=True, exclude_none=True), separators=(",", ":")).encode()


async def _send(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _Envelope(Connection):
    """Connection for one request, described by the request's `_meta`. The connection creates its attributes on first
    use.
    """

    outbound = Connection.from_envelope(LATEST_MODERN_VERSION, None, None).outbound
    session_id = None

    def __init__(self, envelope: Mapping[str, Any]) -> None:
        self.protocol_version = envelope[PROTOCOL_VERSION_META_KEY]
        self._envelope = envelope

    def __getattr__(self, name: str) -> Any:
        """Create a missing attribute on first use. Most requests need only the capabilities. When another attribute
        is read, create all attributes.
        """
        if "_envelope" not in self.__dict__:  # a copy that is being made
            raise AttributeError(name)
        envelope = self._envelope
        capabilities = envelope[CLIENT_CAPABILITIES_META_KEY]
        if name == "client_capabilities":
            try:
                self.client_capabilities = ClientCapabilities.model_validate(capabilities, by_name=False)
            except ValidationError:
                self.client_capabilities = None
        else:
            info = envelope.get(CLIENT_INFO_META_KEY)
            whole = vars(Connection.from_envelope(self.protocol_version, info, capabilities))
            if name not in whole:
                raise AttributeError(name)
            self.__dict__ = whole | self.__dict__
        return self.__dict__[name]

    @property
    def initialize_accepted(self) -> bool:
        """Return True, because this revision has no handshake."""
        return True

    @property
    def has_cleanups(self) -> bool:
        """Return True if the request may have cleanups to run at its end."""
        return "exit_stack" in self.__dict__


class _LazyChannel(RequestChannel):
    """Channel from one request to its client. It creates its transport on first use."""

    def __init__(self, checked: _CheckedRequest, request: Request, stream: "_Stream | None") -> None:
        self.request_id = checked.id
        self.message_metadata = ServerMessageMetadata(request_context=request)
        self.progress_token = progress_token_from_params(checked.params)
        self._stream = stream
        self._request = request

    def __getattr__(self, name: str) -> Any:
        """Create the transport on first use."""
        if name != "transport":
            raise AttributeError(name)
        headers = self._request.headers
        self.transport = TransportContext(kind="streamable-http", can_send_request=False, headers=headers)
        return self.transport

    @override
    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        if self._stream is not None:
            body = dict(params) if params is not None else None
            event = _event(_encode_message(JSONRPCNotification(jsonrpc="2.0", method=method, params=body)))
            with suppress(anyio.ClosedResourceError):
                await self._stream.send(event)

    @override
    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        if self.progress_token is not None:
            optional = {"total": total, "message": message}
            params = {"progressToken": self.progress_token, "progress": progress}
            await self.notify(
                "notifications/progress", params | {key: value for key, value in optional.items() if value is not None}
            )


class _ReadRequest(Request):
    """Request whose body has been read. The author's code can read it again."""

    def __init__(self, scope: Scope, receive: Receive, body: bytes) -> None:
        super().__init__(scope, receive)
        self._whole_body = body

    async def stream(self) -> AsyncGenerator[bytes]:
        """Yield the body."""
        yield self._whole_body
        yield b""


@dataclass(slots=True, eq=False, repr=False)
class _Stream:
    """Response that becomes an event stream if the call sends notifications or takes a long time.

    The response starts watching for a disconnect only when the call waits for something. Most calls never wait.
    """

    _receive: Receive
    _send: Send
    scope: anyio.CancelScope = field(default_factory=lambda: _asyncio_scope_class()())
    """The scope around the call. It is cancelled when the client disconnects."""
    failure: BaseException | None = None
    """The ASGI server's error, if the server failed to receive or send."""
    _has_begun: bool = False
    _is_closed: bool = False
    _lock: anyio.Lock | None = None
    _loop: AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    _last: float = 0.0
    _begin: Handle = field(init=False)
    _timer: TimerHandle | None = None
    _disconnect_watch: Task[None] | None = None
    _pings: Task[None] | None = None

    def __post_init__(self) -> None:
        self._begin = self._loop.call_soon(self._watch)

    def _watch(self) -> None:
        self._last = self._loop.time()
        self._timer = self._loop.call_later(_PING_SECONDS, self._begin_pings)
        self._disconnect_watch = self._loop.create_task(wait_for_disconnect(self._receive))
        self._disconnect_watch.add_done_callback(self._cancel)

    def _begin_pings(self) -> None:
        self._pings = self._loop.create_task(self._ping())
        self._pings.add_done_callback(self._cancel)

    def _cancel(self, ended: Task[None]) -> None:
        if not ended.cancelled():
            self.failure = self.failure or ended.exception()
        self.scope.cancel()

    async def _ping(self) -> None:
        while not self._is_closed:
            pause = self._last + _PING_SECONDS - self._loop.time()
            if pause > 0:
                await asyncio.sleep(pause)
            else:
                with suppress(anyio.ClosedResourceError):
                    await self.send(_PING)

    async def send(self, event: bytes) -> None:
        """Send an event.

        Raises:
            anyio.ClosedResourceError: The response has ended.
        """
        if self._lock is None:
            self._lock = anyio.Lock()
        # Acquiring the lock lets other tasks run, such as the task that detects the disconnect.
        async with self._lock:
            if self._is_closed:
                raise anyio.ClosedResourceError
            self._last = self._loop.time()
            try:
                if not self._has_begun:
                    self._has_begun = True
                    await self._send({"type": "http.response.start", "status": _OK, "headers": _EVENT_HEADERS})
                await self._send({"type": "http.response.body", "body": event, "more_body": True})
            except Exception as error:  # noqa: BLE001 - it must not reach the code that sends the event
                self.failure = error
                self.scope.cancel()

    async def finish(self, status: int, body: bytes) -> None:
        """Send the reply: as the last event if the stream has begun, otherwise as a plain response."""
        self._is_closed = True
        if self._lock is not None:
            async with self._lock:  # wait for a ping that is being sent
                pass
        if self._has_begun:
            await self._send({"type": "http.response.body", "body": _event(body), "more_body": False})
        else:
            await _send(self._send, status, body)

    def end(self) -> None:
        """Stop watching for a disconnect, and stop sending pings."""
        self._is_closed = True
        self._begin.cancel()
        if self._timer is not None:
            self._timer.cancel()
        for task in (self._disconnect_watch, self._pings):
            if task is not None:
                task.remove_done_callback(self._cancel)
                # No other code awaits the task. Read its exception here, because asyncio would otherwise log it.
                task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
                task.cancel()


@lru_cache(maxsize=1)
def _asyncio_scope_class() -> type[anyio.CancelScope]:
    """Return anyio's scope class for asyncio, which anyio would otherwise look up for each scope."""
    return type(anyio.CancelScope())


def _event(message: bytes) -> bytes:
    return b"event: message\r\ndata: " + message + b"\r\n\r\n"
