"""Tells a live call that no answer can reach it any more, so that it ends instead of waiting for ever.

In the live era a question rides the response of the request it belongs to, and the result comes after it on the same
one. The SDK drops what is sent after a client has left: the question would wait for an answer that nobody can give.
An answer is a request of its own, so a process that accepts no more of them would wait in vain, too.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import anyio
from mcp.server import MCPServer
from mcp.server.lowlevel.server import LifespanResultT
from mcp.server.streamable_http import EventStore
from mcp.server.streamable_http_manager import (
    DEFAULT_MAX_REQUEST_BODY_SIZE,
    DEFAULT_MAX_SESSIONS,
    DEFAULT_SESSION_IDLE_TIMEOUT,
)
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from roundtrip.errors import ConnectionLost
from roundtrip.server.body_limits import BoundedJson

__all__ = ["HttpServer", "Responses", "take_no_answers", "while_answerable"]

logger = logging.getLogger("roundtrip")

T = TypeVar("T")

_STREAM_LOG: Final = logging.getLogger("sse_starlette.sse")

_RESPONSE: Final = "roundtrip.response"


class _Response:
    """The response to one request, for as long as somebody reads it."""

    __slots__ = ("ending", "over", "waiting")

    def __init__(self) -> None:
        self.over = False
        self.ending = False
        self.waiting: set[anyio.CancelScope] = set()

    def end(self, *, ending: bool = False) -> None:
        self.over = True
        self.ending = self.ending or ending
        for scope in self.waiting:
            scope.cancel()


class Responses:
    """ASGI middleware that knows when the response to a request has ended, however it did."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        response = scope[_RESPONSE] = _Response()
        try:
            await self._app(scope, receive, send)
        finally:
            response.end()


def _warn_of_unchecked_names(security: TransportSecuritySettings | None) -> None:
    # The SDK has one switch for both.
    if security is None or security.enable_dns_rebinding_protection:
        return
    for name, given in (("allowed_hosts", security.allowed_hosts), ("allowed_origins", security.allowed_origins)):
        if given:
            logger.warning(
                "transport_security: %s is not checked, as enable_dns_rebinding_protection is False; set it to True, "
                "with both lists, or check the header in a middleware",
                name,
            )


def take_no_answers(scope: Scope) -> None:
    """End the questions of a request that is being served, as its process accepts no more requests."""
    response = scope.get(_RESPONSE)
    if isinstance(response, _Response):
        response.end(ending=True)


async def while_answerable(request: Any, ask: Callable[[], Awaitable[T]]) -> T:
    """What `ask` returns, unless the response to an HTTP request ends before.

    Args:
        request: What the SDK's context holds as the request; anything that is not watched is asked without limit.
        ask: Asks the client.

    Raises:
        ConnectionLost: The client has left, or the process is about to end.
    """
    response = request.scope.get(_RESPONSE) if isinstance(request, Request) else None
    if not isinstance(response, _Response):
        return await ask()
    if not response.over:
        with anyio.CancelScope() as scope:
            response.waiting.add(scope)
            try:
                return await ask()
            finally:
                response.waiting.discard(scope)
    raise ConnectionLost(ending=response.ending)


def _holds_no_chunk(record: logging.LogRecord) -> bool:
    """Return False for the copy of a response that the SDK's event streams log at DEBUG, with tokens and results."""
    return not (isinstance(record.msg, str) and record.msg.startswith("chunk:"))


class HttpServer(MCPServer[LifespanResultT]):
    """An `MCPServer` whose live calls end when their client has left."""

    _told_of_errors = False

    @property
    def shows_error_details(self) -> bool:
        """Whether clients are told the texts of exceptions that tools did not catch."""
        return False

    def _tell_of_errors(self) -> None:
        """Tell the log, once, that everybody who reaches the server may read the texts of exceptions."""
        if self.shows_error_details and self.settings.auth is None and not self._told_of_errors:
            self._told_of_errors = True
            logger.warning(
                "server %r tells clients the texts of exceptions that its tools do not catch, and has no "
                "authentication: everybody who can reach it may read them; say Server(mask_error_details=True) to keep "
                "them in the log",
                self.name,
            )

    def streamable_http_app(
        self,
        *,
        streamable_http_path: str = "/mcp",
        json_response: bool = False,
        stateless_http: bool = False,
        event_store: EventStore | None = None,
        retry_interval: int | None = None,
        max_request_body_size: int = DEFAULT_MAX_REQUEST_BODY_SIZE,
        session_idle_timeout: float | None = DEFAULT_SESSION_IDLE_TIMEOUT,
        max_sessions: int | None = DEFAULT_MAX_SESSIONS,
        transport_security: TransportSecuritySettings | None = None,
        host: str = "127.0.0.1",
    ) -> Starlette:
        """The ASGI application that serves streamable HTTP; the arguments are the SDK's.

        Clients on 2025-11-25 and older can be asked only without `stateless_http` and `json_response`. Such a call
        ends when its client has left, unless an `event_store` lets the client come back to it.

        A request may be as large as `max_request_body_size`, but is refused if it has more than 50,000 JSON values.
        """
        self._tell_of_errors()
        _warn_of_unchecked_names(transport_security)
        # The streams are made inside the SDK and offer no other way; adding one filter twice changes nothing.
        _STREAM_LOG.addFilter(_holds_no_chunk)
        app = super().streamable_http_app(
            streamable_http_path=streamable_http_path,
            json_response=json_response,
            stateless_http=stateless_http,
            event_store=event_store,
            retry_interval=retry_interval,
            max_request_body_size=max_request_body_size,
            session_idle_timeout=session_idle_timeout,
            max_sessions=max_sessions,
            transport_security=transport_security,
            host=host,
        )
        limited = self.session_manager.asgi_app
        limited.app = BoundedJson(limited.app)
        if not stateless_http and not json_response and event_store is None:
            app.add_middleware(Responses)
        return app

    def sse_app(
        self,
        *,
        sse_path: str = "/sse",
        message_path: str = "/messages/",
        max_request_body_size: int = DEFAULT_MAX_REQUEST_BODY_SIZE,
        transport_security: TransportSecuritySettings | None = None,
        host: str = "127.0.0.1",
    ) -> Starlette:
        """The ASGI application that serves the old HTTP+SSE transport; the arguments are the SDK's."""
        self._tell_of_errors()
        _warn_of_unchecked_names(transport_security)
        return super().sse_app(  # pyright: ignore[reportDeprecated]
            sse_path=sse_path,
            message_path=message_path,
            max_request_body_size=max_request_body_size,
            transport_security=transport_security,
            host=host,
        )
