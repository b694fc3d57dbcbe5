"""A bookshop behind a login, and the page of the login, which checks the browser's user."""

import re
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import httpx
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp_types import ElicitRequestURLParams
from pydantic import AnyHttpUrl
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from roundtrip import Context, ElicitUrl, Server
from roundtrip.errors import TicketRejected
from tests.kit.hosts import WAIT
from tests.kit.visitors import add_export

KEY: Final = b"a key that both of the servers know"
_TICKET: Final = re.compile(r"t=([^&]+)")


class Badges:
    """Verifier that trusts a bearer token `client/subject`."""

    async def verify_token(self, token: str) -> AccessToken | None:
        client, slash, subject = token.partition("/")
        return AccessToken(token=token, client_id=client, scopes=[], subject=subject) if slash else None


class Web:
    """Shared data of page and tool: the logged-in calls, with their users."""

    def __init__(self) -> None:
        self.base = "https://bookshop.example"
        self.logged_in: dict[str, str] = {}

    def server(self, place: str) -> Server[Any]:
        """Make an instance of the shop; its page admits the owner of the ticket."""
        auth = AuthSettings(issuer_url=AnyHttpUrl("https://login.example"), resource_server_url=None)
        server = Server[Any]("shop", keys=[KEY], auth=auth, token_verifier=Badges())

        def done(ctx: Context) -> str | None:
            return self.logged_in.get(ctx.call.id)

        def ask(ctx: Context) -> ElicitUrl[Any]:
            url = f"{self.base}/login?t={ctx.call.ticket('login')}"
            return ElicitUrl("Log in.", url, done=done, wait=0)

        @server.custom_route("/login", methods=["GET"])
        async def login(request: Request) -> Response:
            """Serve the page; a cookie of the shop names the browser's user."""
            person = await Badges().verify_token(request.cookies.get("badge", "nobody"))
            try:
                if person is None:
                    raise PermissionError("log in first")
                ticket = server.verify_ticket(request.query_params["t"], principal=person, purpose="login")
            except (TicketRejected, PermissionError):
                return PlainTextResponse("This page is not for you.", status_code=403)
            self.logged_in[ticket.call_id] = str(person.subject)
            return PlainTextResponse("Thank you. You may close this window.")

        return add_export(server, place, ask)

    async def browse(self, page: ElicitRequestURLParams, badge: str | None) -> int:
        """Open a page in a user's browser."""
        cookies = {"cookie": f"badge={badge}"} if badge is not None else {}
        async with httpx.AsyncClient(timeout=WAIT, headers=cookies) as browser:
            return (await browser.get(page.url)).status_code


def ticket_in(page: ElicitRequestURLParams) -> str:
    """Return the ticket in a page's URL."""
    found = _TICKET.search(page.url)
    if found is None:
        raise AssertionError(f"no ticket in {page.url}")
    return found[1]


@asynccontextmanager
async def as_user(url: str, badge: str) -> AsyncGenerator[AbstractAsyncContextManager[Any]]:
    """Return a connection with a bearer token."""
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {badge}"}, timeout=WAIT) as client:
        yield streamable_http_client(url, http_client=client)
