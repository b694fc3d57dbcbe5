"""Servers of FastMCP and of the SDK, with what `roundtrip serve` asks of a server."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from roundtrip.adapters.finding import AnyServer, is_fastmcp, low_level
from roundtrip.adapters.installation import installation_in
from roundtrip.http.connections import AroundPosts, BoundedJson, Responses, read_body, replaying, watch_app
from roundtrip.ledger.contract import Ledger, Reach
from roundtrip.server.probe import Identity
from roundtrip.server.server import Server
from roundtrip.serving.names import Names
from roundtrip.serving.responses import chosen_responses, declares_too_much, http_options
from roundtrip.serving.settings import ServeSettings

_TOO_LARGE_STATUS: Final = 413
_TOO_LARGE_TEXT: Final = "Request body too large"


def as_served(server: AnyServer) -> Server[Any] | OtherServer:
    """Return a server of any class as `roundtrip serve` serves it."""
    return server if isinstance(server, Server) else OtherServer(server)


class OtherServer:
    """Server of FastMCP or the SDK, with roundtrip installed or without.

    Args:
        server: The server.
    """

    def __init__(self, server: AnyServer) -> None:
        self._server = server
        self._installation = installation_in(low_level(server))

    @property
    def ledger(self) -> Ledger | None:
        """Return the ledger of its roundtrip; None without roundtrip."""
        return self._installation.ledger if self._installation is not None else None

    def identity(self) -> Identity:
        """Return the facts that all instances of the service must have in common."""
        if self._installation is not None:
            return self._installation.identity()._replace(takes_probe=False)
        name = str(self._server.name)
        return Identity(name, (), name, "", "", Reach.FLEET, exactly_once=False, own_key=False, takes_probe=False)

    def is_one_of(self, workers: int, *, group: str) -> None:
        """Take the number of workers that serve together.

        Raises:
            ValueError: There are several, and nothing tells whether one may continue the calls of another.
        """
        if workers > 1 and self._installation is None:
            raise ValueError(
                "several workers must be able to continue each other's calls, and this server has no roundtrip that "
                "could see to it; call install() of roundtrip.fastmcp or roundtrip.install on it, or serve with "
                "--workers 1"
            )

    def app(self, settings: ServeSettings) -> ASGIApp:
        """Return its ASGI application."""
        if is_fastmcp(self._server):
            app = self._server.http_app(
                path=settings.path,
                stateless_http=not settings.keeps_sessions,
                json_response=settings.json_response == "always",
                host_origin_protection=False,
            )
            # FastMCP makes its manager when the application starts. Wrap the endpoint of the route: every spelling of
            # the path leads to it, and pages of the author do not.
            route = next(each for each in app.routes if isinstance(each, Route) and each.path == settings.path)
            named = Names(route.app, settings.allowed_hosts, settings.allowed_origins, loopback=settings.is_loopback)
            route.app = _OnePieceBody(BoundedJson(named), settings.max_body)
            return Responses(app)
        server: Any = self._server
        options = http_options(settings)
        app = watch_app(server, server.streamable_http_app(**options), options)
        return chosen_responses(app, server.session_manager, settings)


class _OnePieceBody(AroundPosts):
    """Middleware that rejects large requests, and passes the body of others on in one piece."""

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
            # The connection stays: closed with unread data, it would be reset before the client reads this.
            await PlainTextResponse(_TOO_LARGE_TEXT, _TOO_LARGE_STATUS)(scope, receive, send)
            return
        whole = {"type": "http.request", "body": body, "more_body": False}
        await self._app(scope, replaying([whole], receive), send)
