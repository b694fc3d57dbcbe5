"""Local site: question pages on a loopback port, for the browser of this machine's user.

Other users of the machine can reach the port, and can see the address on the browser's command line. On Linux, the
server finds out which user owns a connection, and rejects other users. A second protection works on every system, and
also against other programs of the same user: the address works only once. That address sets a cookie and redirects to
the page, whose own address never appears on a command line. The page opens only for a browser with this cookie.
Browsers send a cookie to every port on a host, so the cookie is limited to the page's path.
"""

import asyncio
import hmac
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from roundtrip.channels.local.loopback_peers import is_of_another_user
from roundtrip.limited_logs import LOG
from roundtrip.pages.calls import ClosedPage, PageCalls, PageState, WorkingPage
from roundtrip.pages.handler import QuestionPages
from roundtrip.pages.settings import PageLook

logger = logging.getLogger("roundtrip")

HOST: Final = "127.0.0.1"
_OPENING_PATH: Final = "/open"
_COOKIE: Final = "roundtrip_page"
_ONCE_SECONDS: Final = 300.0
"""How many seconds a one-use address stays valid."""
_AGAIN_SECONDS: Final = 30.0
"""How many seconds must pass before a repeated call opens its page again. The user may have closed the page."""
_PATIENCE_SECONDS: Final = 1.0
"""How many seconds a page waits for the next questions before it shows that the call is still running."""
_CLOSING_SECONDS: Final = 1.0
_USED: Final = (
    "This address works only once",
    "To open the page again, repeat your request in the application that you came from.",
)


class LocalPageCalls(PageCalls, Protocol):
    """Calls that local pages show."""

    def changes(self, ticket: str) -> AbstractContextManager[Callable[[], Awaitable[None]]]:
        """Listen for changes to a ticket's call. The returned function waits for the next change."""
        ...


async def _cookie_of(request: Request) -> str:
    """Return the page's reader, who is identified by a cookie. A browser without the cookie gets a closed page instead
    of a login.
    """
    return request.cookies.get(_COOKIE, "")


@dataclass(slots=True, eq=False)
class _PagePermission:
    """Permission for one browser to open one call's page."""

    cookie: str
    expires: float
    once: str = ""
    """The secret in the address that works once."""
    opened: float = 0.0
    """The time at which the browser received the address."""
    is_used: bool = False
    was_used: bool = False
    """True once a browser has used an address for this page."""


class LocalSite:
    """Question pages on a local port, on one event loop.

    Args:
        calls: The calls that the pages show.
        clock: Returns the time.
        new_secret: Returns a text that cannot be guessed.
        keys: Secrets that sign forms.
        look: Name, logo and color.
        templates: A folder with templates that replace the package templates.

    Raises:
        OSError: No port can be used.
    """

    def __init__(
        self,
        calls: LocalPageCalls,
        *,
        clock: Callable[[], float],
        new_secret: Callable[[], str],
        keys: Sequence[bytes],
        look: PageLook,
        templates: Path | None = None,
    ) -> None:
        self._calls = calls
        self._clock = clock
        self._new_secret = new_secret
        self._visits: dict[str, _PagePermission] = {}
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        # On Windows, another program could otherwise take over the port.
        if (exclusive := getattr(socket, "SO_EXCLUSIVEADDRUSE", None)) is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, exclusive, 1)
        self._socket.bind((HOST, 0))
        # Listen now, so that a browser that connects before `start` waits instead of failing.
        self._socket.listen()
        self._port = int(self._socket.getsockname()[1])
        self._base = f"http://{HOST}:{self._port}"
        self._pages = QuestionPages(
            self, authenticate=_cookie_of, base_url=self._base, keys=keys, look=look, templates=templates
        )
        self._state = ServerState()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Accept connections."""
        routes = [*self._pages.routes, Route(f"{_OPENING_PATH}/{{once}}", self._enter, methods=["GET"])]
        app = _Guarded(Starlette(routes=routes), self._port)
        # Pass no log settings, because uvicorn would use them to change the process's loggers.
        config = uvicorn.Config(
            app, log_config=None, ws="none", lifespan="off", proxy_headers=False, server_header=False
        )
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(app, config, self._state), sock=self._socket)

    async def close(self) -> None:
        """Finish the responses, and close all connections."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=_CLOSING_SECONDS)
        for connection in list(self._state.connections):
            connection.transport.abort()
        for task in list(self._state.tasks):
            task.cancel()

    def address_for(self, ticket: str, expires: float, *, is_repeated: bool = False) -> str | None:
        """Return an address that opens the call's page once; None if a browser should already show the page.

        Args:
            ticket: The page's ticket.
            expires: The time at which the call ends.
            is_repeated: True if the client repeated the call. The user may have closed the page in the meantime.
        """
        now = self._clock()
        for known, visit in list(self._visits.items()):
            if visit.expires <= now:
                del self._visits[known]
        visit = self._visits.get(ticket)
        if visit is None:
            visit = self._visits[ticket] = _PagePermission(self._new_secret(), expires)
        elif not is_repeated or now - visit.opened < _AGAIN_SECONDS:
            return None
        visit.once, visit.opened, visit.is_used = self._new_secret(), now, False
        return f"{self._base}{_OPENING_PATH}/{visit.once}"

    def was_opened(self, ticket: str) -> bool:
        """Return True if a browser has opened the call's page."""
        visit = self._visits.get(ticket)
        return visit is not None and visit.was_used

    async def _enter(self, request: Request) -> Response:
        """Redirect the first visitor of a one-use address to the page. If there is a second visitor, close the page for
        both.
        """
        once = str(request.path_params["once"])
        ticket = next((ticket for ticket, visit in self._visits.items() if _is_same(visit.once, once)), None)
        visit = self._visits[ticket] if ticket is not None and request.method == "GET" else None
        is_late = visit is not None and self._clock() - visit.opened > _ONCE_SECONDS
        if ticket is None or visit is None or (is_late and not visit.is_used):
            return self._pages.error(404, *_USED)
        if visit.is_used:
            # One of the two visitors is not the user's browser.
            del self._visits[ticket]
            logger.warning("two programs opened the page of the same call, so the page was closed; call the tool again")
            return self._pages.error(404, *_USED)
        visit.is_used = visit.was_used = True
        url = self._pages.url(ticket)
        response = self._pages.redirect(url)
        response.set_cookie(_COOKIE, visit.cookie, path=urlsplit(url).path, httponly=True, samesite="strict")
        return response

    # Calls that the pages show; see `PageCalls`. `subject` is the browser's cookie.

    async def open(self, ticket: str, subject: str | None) -> PageState:
        """Return a call's state for a browser, after a short wait for the next questions."""
        if not self._admits(ticket, subject):
            return ClosedPage()
        with self._calls.changes(ticket) as next_change:
            # The first read must have no time limit, because only the store knows whether an answer has arrived.
            state = await self._calls.open(ticket, None)
            with anyio.move_on_after(_PATIENCE_SECONDS):
                while isinstance(state, WorkingPage):
                    await next_change()
                    state = await self._calls.open(ticket, None)
        return state

    async def answer(
        self, ticket: str, subject: str | None, round_id: str, answers: Mapping[str, Mapping[str, Any]]
    ) -> bool:
        """Answer a round, at most once. Return False if the round is no longer open."""
        return self._admits(ticket, subject) and await self._calls.answer(ticket, None, round_id, answers)

    def _admits(self, ticket: str, subject: str | None) -> bool:
        visit = self._visits.get(ticket)
        return visit is not None and visit.was_used and _is_same(visit.cookie, subject or "")


class _Guarded:
    """ASGI middleware that admits one user and one host name. Another site could make its own host name point here."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._name = f"{HOST}:{port}"
        self._side = HOST, port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        app, client = self._app, scope["client"]
        if Headers(scope=scope).getlist("host") != [self._name]:
            app = PlainTextResponse("This server does not serve this host name\n", HTTPStatus.MISDIRECTED_REQUEST)
        elif client is not None and is_of_another_user((client[0], client[1]), self._side):
            LOG.warning("a program of another user on this machine requested a call page, and was rejected")
            app = PlainTextResponse("This server belongs to another user\n", HTTPStatus.FORBIDDEN)
        await app(scope, receive, send)


class _Connection(H11Protocol):
    """uvicorn connection without an access log, because the addresses are secrets."""

    def __init__(self, app: ASGIApp, config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(config, state, {})
        self.access_log = False
        # This replaces the configured application, which logs every message at level TRACE.
        self.app = app


def _is_same(one: str, other: str) -> bool:
    return bool(one) and hmac.compare_digest(one.encode(), other.encode("utf-8", "replace"))
