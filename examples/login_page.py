"""A tool that needs a PIN it must never see in a form: it sends its user to a page of this server, and waits for them.

Start it with `python examples/login_page.py --port 8000`; MCP is at `http://127.0.0.1:8000/mcp`, and the page beside it
at `http://127.0.0.1:8000/card`.

The link carries a ticket. It is bound to the user who was asked, so the page opens only for a browser in which that
very user has logged in: whoever mails their own link to somebody else gets nothing of theirs.
"""

import argparse
import base64
import binascii
import hmac
import html
from typing import Annotated, Any

import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.context import ServerRequestContext
from pydantic import AnyHttpUrl
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from roundtrip import Context, ElicitUrl, Resolve, Server
from roundtrip.errors import TicketRejected

PAGE = "http://127.0.0.1:8000/card"

# Stand-ins for what you have already: an authorization server, a login for browsers, and a database.
ACCESS_TOKENS = {"token-of-ada": "ada", "token-of-eve": "eve"}
PASSWORDS = {"ada": "lovelace", "eve": "moneypenny"}
LOANS = {"1815": ["Emma"], "1972": ["Dune"]}
cards: dict[str, str] = {}
"""The PIN of each user who has given it."""


class Tokens:
    """Tells whose access token a request shows."""

    async def verify_token(self, token: str) -> AccessToken | None:
        user = ACCESS_TOKENS.get(token)
        return None if user is None else AccessToken(token=token, client_id="any", scopes=[], subject=user)


def user_of(request: ServerRequestContext[Any, Any]) -> str | None:
    """The user alone, as the page below knows them too. By default the client would be part of it."""
    token = get_access_token()
    return None if token is None else token.subject


server = Server(
    "library",
    auth=AuthSettings(issuer_url=AnyHttpUrl("https://login.example"), resource_server_url=None),
    token_verifier=Tokens(),
    principal=user_of,
)


def me() -> str:
    """Who is calling, as far as this server's authorization knows."""
    token = get_access_token()
    return (token.subject if token is not None else None) or "nobody"


def find_card(user: Annotated[str, Resolve(me)]) -> str | None:
    """The user's PIN; None until they have been to the page."""
    return cards.get(user)


def card(ctx: Context, known: Annotated[str | None, Resolve(find_card)]) -> str | ElicitUrl[str]:
    """A PIN that is known already, or a way to give it."""
    if known is not None:
        return known
    url = f"{PAGE}?ticket={ctx.call.ticket('card')}"
    return ElicitUrl("Please give your library card's PIN on our page.", url, done=find_card)


@server.tool()
def loans(pin: Annotated[str, Resolve(card)]) -> str:
    """Tell which books the user has borrowed."""
    return ", ".join(LOANS.get(pin, [])) or "Nothing is borrowed."


# The page --------------------------------------------------------------------------------------------------

FORM = """<!doctype html><title>Library card</title>
<p>Hello {user}. Give your PIN, and go back to where you came from.
<form method=post><input name=pin type=password autofocus> <button>Give</button></form>"""


def logged_in(request: Request) -> str | None:
    """The user in front of the browser, by its own login; here the simplest that there is."""
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, _, password = base64.b64decode(credentials).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return user if hmac.compare_digest(PASSWORDS.get(user, "").encode(), password.encode()) and password else None


@server.custom_route("/card", methods=["GET", "POST"])
async def card_page(request: Request) -> Response:
    user = logged_in(request)
    if user is None:
        return PlainTextResponse("Who are you?", 401, {"WWW-Authenticate": 'Basic realm="library"'})
    try:
        ticket = server.verify_ticket(request.query_params.get("ticket", ""), principal=user)
    except TicketRejected:
        return PlainTextResponse("This link is not yours, or no longer valid.", 403)
    if ticket.purpose != "card":
        return PlainTextResponse("This link is for another page.", 403)
    if request.method == "GET":
        return HTMLResponse(FORM.format(user=html.escape(user)))
    form = await request.form()
    cards[user] = str(form.get("pin", ""))
    return HTMLResponse("<!doctype html><title>Library card</title><p>Thank you. You can close this page.")


def main() -> None:
    """Serve on 127.0.0.1 until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--port", type=int, default=8000)
    uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=parser.parse_args().port, log_level="warning")


if __name__ == "__main__":
    main()
