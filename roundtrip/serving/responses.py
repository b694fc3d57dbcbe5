"""Whether a request is answered with one JSON body or as a stream, chosen for each.

A stream costs a request half as much again, and is what progress and log messages need. On 2026-07-28 a client says in
its request whether it wants any, so most can have the body. The SDK watches for clients that leave, which cancels what
they have asked for, only while it streams; `OneByOne` watches in its place. Older clients are sent log messages without
having asked, so theirs are always streams.
"""

import asyncio
import json
import logging
import math
from collections import deque
from contextvars import ContextVar
from typing import Any, Final, Literal, cast

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import LOG_LEVEL_META_KEY
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from roundtrip.revisions import is_live_era
from roundtrip.server.limited_logs import LimitedLog

__all__ = ["JsonResponse", "OneByOne", "choose_per_request"]

JsonResponse = Literal["auto", "always", "never"]

_log = LimitedLog(logging.getLogger("roundtrip"))

_VERSION: Final = MCP_PROTOCOL_VERSION_HEADER.lower().encode()
_UNWATCHED: Final = 0.05
"""Seconds after which it pays to notice that a client has left."""
_WANTS: Final = (b"progressToken", LOG_LEVEL_META_KEY.rpartition("/")[2].encode())
"""What a request names that wants progress or log messages; JSON may spell a slash with a backslash before it."""
_PARSED_BYTES: Final = 64 * 1024
"""Bytes of a request up to which it is parsed here; a longer one that seems to want either gets a stream."""
_CHOICE: ContextVar[bool] = ContextVar("roundtrip_json_response", default=False)


class _Choosing(StreamableHTTPSessionManager):
    """The SDK's manager, which reads once for each request whether to answer with JSON.

    Where as many sessions are open as may be, a new one takes the place of the one that was idle longest: anybody can
    open sessions, and half an hour would pass before those end that nobody uses. A client whose session has ended opens
    another, as the protocol has it.
    """

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        if self.max_sessions is not None and len(self._server_instances) >= self.max_sessions:
            self._end_idle_session()
        return super()._admit_session(requestor)

    def _end_idle_session(self) -> None:
        idle = [
            (transport.idle_scope.deadline, session, transport.idle_scope)
            for session, transport in self._server_instances.items()
            # While a request is served, or a stream is open, the clock stands still.
            if transport.idle_scope is not None and transport.idle_scope.deadline < math.inf
        ]
        if not idle:
            return
        _, session, scope = min(idle, key=lambda one: one[0])
        # Forgotten at once, for there to be room; the rest of its end is its task's.
        del self._server_instances[session]
        self._session_owners.pop(session, None)
        scope.cancel()
        _log.warning("%d sessions are open, which is the limit; ended the one that was idle longest", self.max_sessions)

    @property
    def json_response(self) -> bool:
        return _CHOICE.get()

    @json_response.setter
    def json_response(self, value: bool) -> None:
        del value


def choose_per_request(manager: StreamableHTTPSessionManager) -> None:
    """Have a manager answer each request as `OneByOne` has chosen."""
    # The SDK's application makes the manager itself, and has no place to choose in; two managers would run the
    # server's lifespan twice.
    manager.__class__ = _Choosing


class OneByOne:
    """Chooses, for each request that arrives at an application."""

    def __init__(self, app: ASGIApp, json_response: JsonResponse, *, max_body: int) -> None:
        self._app = app
        self._max_body = max_body
        self._json_response = json_response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with the choice made."""
        if scope["type"] != "http" or scope["method"] != "POST" or self._json_response != "auto":
            _CHOICE.set(self._json_response == "always")
            await self._app(scope, receive, send)
            return
        version = next((value.decode("latin-1") for name, value in scope["headers"] if name == _VERSION), None)
        if version is None or is_live_era(version):
            await self._app(scope, receive, send)
            return
        kept, body = await _read(receive, self._max_body)
        if kept[-1]["type"] == "http.disconnect":
            return
        if body is None or not _wants_one_body(body):
            await self._app(scope, _Replayed(kept, receive), send)
            return
        _CHOICE.set(True)
        await self._watched(scope, kept, receive, send)

    async def _watched(self, scope: Scope, kept: deque[Message], receive: Receive, send: Send) -> None:
        with anyio.CancelScope() as request:
            watch = _DisconnectWatch(receive, request)
            try:
                await self._app(scope, _Replayed(kept, None), send)
            finally:
                watch.stop()


class _DisconnectWatch:
    """Cancels a request whose client leaves. Most are answered before it begins, so it begins with a timer."""

    __slots__ = ("_receive", "_request", "_task", "_timer")

    def __init__(self, receive: Receive, request: anyio.CancelScope) -> None:
        self._receive = receive
        self._request = request
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(_UNWATCHED, self._begin)

    def stop(self) -> None:
        """Watch no more."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._request.cancel()


class _Replayed:
    """What has been read of a request, and then the rest."""

    def __init__(self, kept: deque[Message], rest: Receive | None) -> None:
        self._kept = kept
        self._rest = rest

    async def __call__(self) -> Message:
        if self._kept:
            return self._kept.popleft()
        if self._rest is not None:
            return await self._rest()
        while True:  # somebody else watches
            await anyio.sleep_forever()


async def _read(receive: Receive, max_body: int) -> tuple[deque[Message], bytes | None]:
    """The messages of a request's body, and the body, unless it ends early or is larger than it may be."""
    kept: deque[Message] = deque()
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        kept.append(message)
        if message["type"] != "http.request":
            return kept, None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > max_body:
            return kept, None
        if not message.get("more_body", False):
            return kept, b"".join(parts)


def _wants_one_body(body: bytes) -> bool:
    # To parse it is what the SDK will do. Most requests name neither.
    if not any(name in body for name in _WANTS):
        return True
    if len(body) > _PARSED_BYTES:
        return False
    try:
        request: object = json.loads(body)
    except (ValueError, RecursionError):
        return True
    params = _member(request, "params")
    meta = _member(params, "_meta")
    return _member(meta, "progressToken") is None and _member(meta, LOG_LEVEL_META_KEY) is None


def _member(value: object, name: str) -> object:
    return cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
