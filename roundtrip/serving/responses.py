"""Response selection for requests that the SDK's transport serves: one JSON body, or a stream.

A stream costs 50 % more than a JSON body, but progress and log messages need a stream. On 2026-07-28, a client requests
such messages explicitly, so most requests get a JSON body. Older clients get log messages without requesting them, so
their responses are always streams.

When a client disconnects, the SDK cancels the client's request only if the response is a stream. For a JSON body,
`ResponseChooser` cancels the request.

The fast lane does not choose in advance: its response becomes a stream when the first message is sent.

Host and origin are checked before the response is chosen.
"""

import asyncio
import json
import logging
import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Final, cast

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import LOG_LEVEL_META_KEY
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from roundtrip.http.connections import AroundPosts, HttpOptions, read_body, replaying, wait_for_disconnect
from roundtrip.http.fast_lane import FastLane
from roundtrip.limited_logs import LimitedLog
from roundtrip.revisions import is_live_era
from roundtrip.sdk import RestartingManager, missing_names
from roundtrip.serving.host_checks import HostChecks
from roundtrip.serving.settings import ServeSettings
from roundtrip.untrusted import mapping_of

_log = LimitedLog(logging.getLogger("roundtrip"))

_VERSION: Final = MCP_PROTOCOL_VERSION_HEADER.lower().encode()
_LENGTH: Final = b"content-length"
_MAX_LENGTH_DIGITS: Final = 15
_UNWATCHED_SECONDS: Final = 0.05
"""Seconds until the server begins to watch for the client's disconnection. Most requests end sooner."""
_STREAM_NAMES: Final = (b"progressToken", LOG_LEVEL_META_KEY.rpartition("/")[2].encode())
"""Names that a request contains if it asks for progress or log messages. Only the part after the last slash is
compared, because JSON may escape slashes.
"""
_PARSED_BYTES: Final = 64 * 1024
"""Size limit for parsing a request here. If a larger request contains one of the names in `_STREAM_NAMES`, its response
is a stream.
"""
_NO_SDK_CHECKS: Final = TransportSecuritySettings(enable_dns_rebinding_protection=False)
_ANSWERS_JSON: ContextVar[bool] = ContextVar("roundtrip_json_response", default=False)

# An SDK without a session limit (mcp 2.1) has nothing to override.
_HAS_LIMIT: Final = "max_sessions" in StreamableHTTPSessionManager.__init__.__code__.co_varnames
_ENDS_SESSIONS: Final = _HAS_LIMIT and not missing_names(
    {StreamableHTTPSessionManager: "_server_instances _session_owners _admit_session()"},
    without="at the session limit, new sessions are rejected, and idle sessions continue",
)


class _SessionManager(RestartingManager):
    """SDK session manager that reads `_ANSWERS_JSON` for each request, unless all responses are JSON.

    At the session limit, a new session ends the session that was idle longest. Otherwise, any client could use up the
    limit, because idle sessions end only after half an hour. Under the protocol, a client opens a new session after its
    session has ended.
    """

    always_json = False

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        if _ENDS_SESSIONS and self.max_sessions is not None and len(self._server_instances) >= self.max_sessions:
            self._end_idle_session()
        return super()._admit_session(requestor)

    def _end_idle_session(self) -> None:
        idle = [
            (transport.idle_scope.deadline, session, transport.idle_scope)
            for session, transport in self._server_instances.items()
            # The deadline is infinite while a request is served or a stream is open.
            if transport.idle_scope is not None and transport.idle_scope.deadline < math.inf
        ]
        if not idle:
            return
        _, session, scope = min(idle, key=lambda one: one[0])
        # Make room immediately; the session's asyncio task does the remaining cleanup.
        del self._server_instances[session]
        self._session_owners.pop(session, None)
        scope.cancel()
        _log.warning("reached the limit of %d sessions; ended the session that was idle longest", self.max_sessions)

    @property
    def json_response(self) -> bool:
        return self.always_json or _ANSWERS_JSON.get()

    @json_response.setter
    def json_response(self, value: bool) -> None:
        del value


class ResponseChooser(AroundPosts):
    """Middleware that chooses between JSON and a stream for each request."""

    def __init__(self, app: ASGIApp, *, max_body: int) -> None:
        super().__init__(app)
        self._max_body = max_body

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        version = next((value.decode("latin-1") for name, value in scope["headers"] if name == _VERSION), None)
        if version is None or is_live_era(version) or declares_too_much(scope, self._max_body):
            # The SDK rejects an oversized request without waiting for its body.
            await self._app(scope, receive, send)
            return
        messages, body = await read_body(receive, self._max_body)
        if messages[-1]["type"] == "http.disconnect":
            return
        if body is None or not _fits_one_body(body):
            await self._app(scope, replaying(messages, receive), send)
            return
        _ANSWERS_JSON.set(True)
        with anyio.CancelScope() as request, _watched(receive, request):
            await self._app(scope, replaying(messages, _never), send)


def http_options(settings: ServeSettings) -> HttpOptions:
    """Return the options for the SDK's HTTP application."""
    return {
        "streamable_http_path": settings.path,
        "stateless_http": not settings.keeps_sessions,
        "max_request_body_size": settings.max_body,
        "transport_security": _NO_SDK_CHECKS,
        "host": settings.host,
    }


def chosen_responses(
    app: ASGIApp,
    manager: StreamableHTTPSessionManager,
    settings: ServeSettings,
    around: Callable[[ASGIApp], ASGIApp] | None = None,
) -> ASGIApp:
    """Add host checks and response selection to an SDK application. `around` wraps the part behind the fast lane."""
    manager.__class__ = _SessionManager
    cast("_SessionManager", manager).always_json = settings.json_response == "always"
    # Wrap the endpoint itself, because every spelling of the path leads to it.
    endpoint: ASGIApp = manager.asgi_app
    choose = partial(ResponseChooser, max_body=settings.max_body) if settings.json_response == "auto" else None
    for wrap in (choose, around):
        if wrap is not None:
            endpoint = endpoint.before(wrap) if isinstance(endpoint, FastLane) else wrap(endpoint)
    manager.asgi_app = HostChecks(  # type: ignore[assignment]
        endpoint, settings.allowed_hosts, settings.allowed_origins, loopback=settings.is_loopback
    )
    return app


@contextmanager
def _watched(receive: Receive, request: anyio.CancelScope) -> Generator[None]:
    """Cancel a request when its client disconnects. The watch starts with a delay, because most requests end sooner."""

    async def watch() -> None:
        await wait_for_disconnect(receive)
        request.cancel()

    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []
    timer = loop.call_later(_UNWATCHED_SECONDS, lambda: tasks.append(loop.create_task(watch())))
    try:
        yield
    finally:
        timer.cancel()
        for task in tasks:
            task.cancel()


async def _never() -> Message:
    # `_watched` receives all further messages.
    while True:
        await anyio.sleep_forever()


def declares_too_much(scope: Scope, max_body: int) -> bool:
    """Return True if a request's `Content-Length` exceeds `max_body`."""
    size = next((value for name, value in scope["headers"] if name == _LENGTH), b"0")
    return size.isdigit() and (len(size) > _MAX_LENGTH_DIGITS or int(size) > max_body)


def _fits_one_body(body: bytes) -> bool:
    # Most requests contain none of these names, so only the SDK needs to parse their bodies.
    if not any(name in body for name in _STREAM_NAMES):
        return True
    if len(body) > _PARSED_BYTES:
        return False
    try:
        request: object = json.loads(body)
    except (ValueError, RecursionError):
        return True
    meta = mapping_of(mapping_of(mapping_of(request).get("params")).get("_meta"))
    return meta.get("progressToken") is None and meta.get(LOG_LEVEL_META_KEY) is None
