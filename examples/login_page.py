"""Ask for a PIN on this server's own page, because a PIN must never be in a form.

Run it with `python examples/login_page.py --port 8000`. MCP is at `http://127.0.0.1:8000/mcp`, and the page at
`http://127.0.0.1:8000/card`.

The link to the page carries a ticket, which is bound to the user who was asked. The page opens only in a browser where
that user is logged in. So a user who mails the link to another person learns nothing from them.
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

# These replace your authorization server, your browser login, and your database.
ACCESS_TOKENS = {"token-of-ada": "ada", "token-of-eve": "eve"}
PASSWORDS = {"ada": "lovelace", "eve": "moneypenny"}
LOANS = {"1815": ["Emma"], "1972": ["Dune"]}
cards: dict[str, str] = {}
"""PINs by user."""


class Tokens:
    """Access-token verifier."""

    async def verify_token(self, token: str) -> AccessToken | None:
        user = ACCESS_TOKENS.get(token)
        return None if user is None else AccessToken(token=token, client_id="any", scopes=[], subject=user)


def user_of(request: ServerRequestContext[Any, Any]) -> str | None:
    """Return the user, whom the page below also knows. The default would include the client."""
    token = get_access_token()
    return None if token is None else token.subject


server = Server(
    "library",
    auth=AuthSettings(issuer_url=AnyHttpUrl("https://login.example"), resource_server_url=None),
    token_verifier=Tokens(),
    principal=user_of,
)


def me() -> str:
    """Return the authenticated user."""
    token = get_access_token()
    return (token.subject if token is not None else None) or "anonymous"


def find_card(user: Annotated[str, Resolve(me)]) -> str | None:
    """Return the user's PIN, or None until the user has visited the page."""
    return cards.get(user)


def card(ctx: Context, known: Annotated[str | None, Resolve(find_card)]) -> str | ElicitUrl[str]:
    """Return the known PIN, or a question that leads to the page."""
    if known is not None:
        return known
    url = f"{PAGE}?ticket={ctx.call.ticket('card')}"
    return ElicitUrl("Please give your library card's PIN on our page.", url, done=find_card)


@server.tool()
def loans(pin: Annotated[str, Resolve(card)]) -> str:
    """List the books that the user has borrowed."""
    return ", ".join(LOANS.get(pin, [])) or "Nothing is borrowed."


# The page --------------------------------------------------------------------------------------------------

FORM = """<!doctype html><title>Library card</title>
<p>Hello {user}. Enter your PIN, and go back to your chat.
<form method=post><input name=pin type=password autofocus> <button>Send</button></form>"""


def logged_in(request: Request) -> str | None:
    """Return the user who is logged in to the browser. This login is as simple as possible."""
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
