"""ASGI application of one process: the SDK's, with health checks, a choice of responses, and an orderly shutdown."""

import asyncio
import logging
from typing import Any, Final

import anyio
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from roundtrip.server.server import Server
from roundtrip.serving.health import LIVE_PATH, READY_PATH, Health, ProcessState
from roundtrip.serving.intake import closing
from roundtrip.serving.names import Names
from roundtrip.serving.responses import ResponseChooser, choose_per_request
from roundtrip.serving.settings import ServeSettings

__all__ = ["Orderly", "application_of"]

_CHECKED_BY_NAMES: Final = TransportSecuritySettings(enable_dns_rebinding_protection=False)
logger = logging.getLogger("roundtrip")

_LISTENS: Final = (b"mcp-method", b"subscriptions/listen")


def application_of(server: Server[Any], settings: ServeSettings, state: ProcessState) -> ASGIApp:
    """Return the ASGI application that a process serves."""
    if not settings.show_errors:
        server.mask_error_details_by_default()
    elif not server.shows_error_details:
        logger.warning("--show-errors shows nothing, as the server says mask_error_details=True")
    app = server.streamable_http_app(
        streamable_http_path=settings.path,
        stateless_http=not settings.keeps_sessions,
        max_request_body_size=settings.max_body,
        transport_security=_CHECKED_BY_NAMES,
        host=settings.host,
    )
    manager = server.session_manager
    choose_per_request(manager)
    # Wrap the manager itself: every spelling of the path leads to it.
    manager.asgi_app = Names(  # type: ignore[assignment]
        manager.asgi_app, settings.allowed_hosts, settings.allowed_origins, loopback=settings.is_loopback
    )
    return Orderly(
        ResponseChooser(app, settings.json_response, max_body=settings.max_body),
        Health(server, state),
        state,
        path=settings.path,
    )


class Orderly:
    """Middleware that answers health checks, and lets clients leave one by one when the process is stopping.

    Once the process is stopping, every response closes its connection, so that the next request of a client goes
    to another process. Streams that only listen, and live questions, end when the process does.
    """

    def __init__(self, app: ASGIApp, health: Health, state: ProcessState, *, path: str) -> None:
        self._app = app
        self._health = health
        self._state = state
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_and_close(message: Message) -> None:
            await (closing(send) if self._state.stopping else send)(message)

        try:
            if scope["path"] in (LIVE_PATH, READY_PATH):
                await self._health(scope, receive, send_and_close)
            elif scope["path"] == self._path and (scope["method"] == "GET" or _LISTENS in scope["headers"]):
                await self._serve_listener(scope, receive, send_and_close)
            else:
                self._state.requests[id(scope)] = scope
                try:
                    await self._app(scope, receive, send_and_close)
                finally:
                    del self._state.requests[id(scope)]
        except asyncio.CancelledError:
            # Only the end of the process cancels here; a leaving client does not.
            self._state.broken_off = True
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
            # Finish the stream: an aborted one looks like a failure, to the client and in the log.
            await send({"type": "http.response.body", "body": b"", "more_body": False})
