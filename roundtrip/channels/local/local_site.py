"""Serve question pages to the browser of the user at this machine, on a port of the loopback interface.

Other users of the machine can reach the port, and can see the address on the command line of the browser. Linux tells
whose a connection is, and theirs are turned away. Elsewhere, and for programs of the same user, the address works once:
it sets a cookie and leads to the page, whose own address was on no command line. A page opens only with both. A cookie
is sent to every port of a host, and so its path is the page's.
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
"""Time in which the browser must open its one-use address."""
_AGAIN_SECONDS: Final = 30.0
"""Time after which a repeated call opens its page again: the user may have closed it."""
_PATIENCE_SECONDS: Final = 1.0
"""Time for which a page waits for the next questions, before it says that the call goes on."""
_CLOSING_SECONDS: Final = 1.0
_USED: Final = (
    "This address works only once",
    "Repeat your request in the application that you came from. It opens the page again.",
)


class LocalPageCalls(PageCalls, Protocol):
    """The calls behind the pages of this machine."""

    def changes(self, ticket: str) -> AbstractContextManager[Callable[[], Awaitable[None]]]:
        """Listen for changes of the call of a ticket; the function inside waits for the next one."""
        ...


async def _cookie_of(request: Request) -> str:
    """Return the reader of a page: their cookie. Without one, a page is closed, and asks for no login."""
    return request.cookies.get(_COOKIE, "")


@dataclass(slots=True, eq=False)
class _PagePermission:
    """Permission of one browser to open the page of one call."""

    cookie: str
    expires: float
    once: str = ""
    """The secret of the one-use address."""
    opened: float = 0.0
    """The time at which the address was given to the browser."""
    is_used: bool = False
    was_used: bool = False
    """True once a browser has used an address of this page."""


class LocalSite:
    """Question pages at a port of this machine, on one event loop.

    Args:
        calls: The calls behind the pages.
        clock: Returns the time.
        new_secret: Returns a text that cannot be guessed.
        keys: Secrets that sign forms.
        look: Name, logo and color.
        templates: A folder with templates that replace those of the package.

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
        # On Windows, another program could take the port over.
        if (exclusive := getattr(socket, "SO_EXCLUSIVEADDRUSE", None)) is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, exclusive, 1)
        self._socket.bind((HOST, 0))
        # A browser that is quicker than `start` has to wait.
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
        # Without settings for logs, as they would change the loggers of the process.
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
        """Return an address that opens the page of a call once; None if a browser should have the page open.

        Args:
            ticket: The ticket of the page.
            expires: The time at which the call ends.
            is_repeated: True if the client made the same call again. The user may have closed the page then.
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
        """Return True if a browser has opened the page of a call."""
        visit = self._visits.get(ticket)
        return visit is not None and visit.was_used

    async def _enter(self, request: Request) -> Response:
        """Lead the first reader of a one-use address to its page. If there is a second one, close the page for both."""
        once = str(request.path_params["once"])
        ticket = next((ticket for ticket, visit in self._visits.items() if _is_same(visit.once, once)), None)
        visit = self._visits[ticket] if ticket is not None and request.method == "GET" else None
        is_late = visit is not None and self._clock() - visit.opened > _ONCE_SECONDS
        if ticket is None or visit is None or (is_late and not visit.is_used):
            return self._pages.error(404, *_USED)
        if visit.is_used:
            # One of the two is not the browser of the user.
            del self._visits[ticket]
            logger.warning("two programs opened the page of one call, so it was closed; call its tool again")
            return self._pages.error(404, *_USED)
        visit.is_used = visit.was_used = True
        url = self._pages.url(ticket)
        response = self._pages.redirect(url)
        response.set_cookie(_COOKIE, visit.cookie, path=urlsplit(url).path, httponly=True, samesite="strict")
        return response

    # The calls behind the pages; see `PageCalls`. The subject is the cookie.

    async def open(self, ticket: str, subject: str | None) -> PageState:
        """Return the state of a call for a browser; wait a moment for the next questions."""
        if not self._admits(ticket, subject):
            return ClosedPage()
        with self._calls.changes(ticket) as next_change:
            # A store that is slow is waited for: what it says decides if an answer has arrived.
            state = await self._calls.open(ticket, None)
            with anyio.move_on_after(_PATIENCE_SECONDS):
                while isinstance(state, WorkingPage):
                    await next_change()
                    state = await self._calls.open(ticket, None)
        return state

    async def answer(
        self, ticket: str, subject: str | None, round_id: str, answers: Mapping[str, Mapping[str, Any]]
    ) -> bool:
        """Give a round its answers, at most once."""
        return self._admits(ticket, subject) and await self._calls.answer(ticket, None, round_id, answers)

    def _admits(self, ticket: str, subject: str | None) -> bool:
        visit = self._visits.get(ticket)
        return visit is not None and visit.was_used and _is_same(visit.cookie, subject or "")


class _Guarded:
    """ASGI middleware for one user and one host: another site may point its own name to this machine."""

    def __init__(self, app: ASGIApp, port: int) -> None:
        self._app = app
        self._name = f"{HOST}:{port}"
        self._side = HOST, port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        app, client = self._app, scope["client"]
        if Headers(scope=scope).getlist("host") != [self._name]:
            app = PlainTextResponse("This server does not have this name\n", HTTPStatus.MISDIRECTED_REQUEST)
        elif client is not None and is_of_another_user((client[0], client[1]), self._side):
            LOG.warning("a program of another user of this machine asked for a page of a call, and was turned away")
            app = PlainTextResponse("This server is another user's\n", HTTPStatus.FORBIDDEN)
        await app(scope, receive, send)


class _Connection(H11Protocol):
    """uvicorn's connection, without its logs of requests: their addresses are secrets."""

    def __init__(self, app: ASGIApp, config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(config, state, {})
        self.access_log = False
        # In place of the one of the configuration, which logs all messages at the level TRACE.
        self.app = app


def _is_same(one: str, other: str) -> bool:
    return bool(one) and hmac.compare_digest(one.encode(), other.encode("utf-8", "replace"))
