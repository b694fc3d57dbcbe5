"""FastMCP and SDK servers, adapted for `roundtrip serve`."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from roundtrip.adapters.finding import AnyServer, is_fastmcp, low_level
from roundtrip.adapters.installation import installation_in
from roundtrip.http.connections import AroundPosts, BoundedJson, Responses, read_body, replaying, watch_app
from roundtrip.ledger.contract import Ledger, Reach
from roundtrip.server.probe import Identity
from roundtrip.server.server import Server
from roundtrip.serving.host_checks import HostChecks
from roundtrip.serving.responses import chosen_responses, declares_too_much, http_options
from roundtrip.serving.settings import ServeSettings


def adapt_server(server: AnyServer) -> Server[Any] | ForeignServer:
    """Wrap a server in the interface that `roundtrip serve` needs; return a `roundtrip.Server` unchanged."""
    return server if isinstance(server, Server) else ForeignServer(server)


class ForeignServer:
    """FastMCP or SDK server, with or without roundtrip installed.

    Args:
        server: The server.
    """

    def __init__(self, server: AnyServer) -> None:
        self._server = server
        self._installation = installation_in(low_level(server))

    @property
    def ledger(self) -> Ledger | None:
        """Return the ledger of the roundtrip installation on this server, or None."""
        return self._installation.ledger if self._installation is not None else None

    def identity(self) -> Identity:
        """Return the facts that must be equal on all instances."""
        if self._installation is not None:
            return self._installation.identity()._replace(takes_probe=False)
        name = str(self._server.name)
        return Identity(name, (), name, "", "", Reach.FLEET, exactly_once=False, own_key=False, takes_probe=False)

    def is_one_of(self, workers: int, *, group: str) -> None:
        """Check that this number of workers can serve together.

        Raises:
            ValueError: There are several workers, but roundtrip is not installed, so they cannot continue each other's
                calls.
        """
        if workers > 1 and self._installation is None:
            raise ValueError(
                "workers must continue each other's calls, but roundtrip is not installed on this server; call "
                "install() from roundtrip.fastmcp or roundtrip.install on the server, or serve with --workers 1"
            )

    def app(self, settings: ServeSettings, around: Callable[[ASGIApp], ASGIApp] | None = None) -> ASGIApp:
        """Return the server's ASGI application. `around` wraps the part that keeps sessions."""
        if is_fastmcp(self._server):
            app = self._server.http_app(
                path=settings.path,
                stateless_http=not settings.keeps_sessions,
                json_response=settings.json_response == "always",
                host_origin_protection=False,
            )
            # FastMCP creates its session manager only when the application starts, so wrap the route's endpoint. Every
            # spelling of the path leads to this endpoint, but the author's own pages have other endpoints.
            route = next(each for each in app.routes if isinstance(each, Route) and each.path == settings.path)
            checked = HostChecks(
                route.app, settings.allowed_hosts, settings.allowed_origins, loopback=settings.is_loopback
            )
            endpoint = _OnePieceBody(BoundedJson(checked), settings.max_body)
            route.app = around(endpoint) if around is not None else endpoint
            return Responses(app)
        server: Any = self._server
        options = http_options(settings)
        app = watch_app(server, server.streamable_http_app(**options), options)
        return chosen_responses(app, server.session_manager, settings, around)


class _OnePieceBody(AroundPosts):
    """Middleware that rejects large requests, and passes each accepted body on in one piece."""

    def __init__(self, app: ASGIApp, max_body: int) -> None:
        super().__init__(app)
        self._max_body = max_body

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = None
        if not declares_too_much(scope, self._max_body):
            kept, body = await read_body(receive, self._max_body)
            if kept[-1]["type"] == "http.disconnect":
                return
        if body is None:
            # Keep the connection open. Closing a connection with unread data would reset it, and the client might not
            # read this response.
            await PlainTextResponse("Request body too large", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)(scope, receive, send)
            return
        whole = {"type": "http.request", "body": body, "more_body": False}
        await self._app(scope, replaying([whole], receive), send)
