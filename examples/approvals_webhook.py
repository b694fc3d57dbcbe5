"""Notify a chat about waiting approvals, with a webhook.

Run it with `python examples/approvals_webhook.py https://chat.example/hook`. MCP is at `http://127.0.0.1:8000/mcp`. The
inbox is at `http://127.0.0.1:8000/approvals`, where you log in as `fay` with the password `finance`.

The chat gets the wording and a link. Opening the link decides nothing: people log in, and decide on the page.
"""

import argparse
import base64
import binascii
import hmac
import html
from collections.abc import Callable
from typing import Any

import httpx2
import uvicorn
from mcp.server.context import ServerRequestContext
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from roundtrip import Approvals, Approve, Pages, PendingApproval, Server

# These replace your login and your access tokens.
PASSWORDS = {"ada": "lovelace", "fay": "finance"}
GROUPS = {"fay": ["finance"]}


def caller(request: ServerRequestContext[Any, Any]) -> str | None:
    """Return the client's user; in production, the access token's subject."""
    return "ada"


async def person(request: Request) -> str | Response:
    """Return the person who is logged in to the browser. This login is as simple as possible."""
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    try:
        user, _, password = base64.b64decode(credentials).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        user = password = ""
    if scheme.lower() == "basic" and password and hmac.compare_digest(PASSWORDS.get(user, ""), password):
        return user
    return PlainTextResponse("Who are you?", 401, {"WWW-Authenticate": 'Basic realm="shop"'})


def webhook(address: str) -> Callable[[PendingApproval], Any]:
    """Return a function that posts to a chat. If the chat is down, the error is logged, and a reminder follows."""

    async def post(approval: PendingApproval) -> None:
        what = "still waits" if approval.is_reminder else "waits"
        # The message contains the caller's texts, which must not become markup in the chat.
        text = f"{html.escape(approval.message)}\n{approval.caller} {what} for {approval.by}: {approval.url}"
        async with httpx2.AsyncClient(timeout=10) as http:
            (await http.post(address, json={"text": text})).raise_for_status()

    return post


def shop(address: str, *, base_url: str = "http://127.0.0.1:8000", remind: float = 3600) -> Server[Any]:
    """Return a server whose refunds need approval from a group."""
    server = Server[Any](
        "shop",
        principal=caller,
        pages=Pages(base_url=base_url, authenticate=person),
        approvals=Approvals(groups=GROUPS, on_pending=webhook(address)),
    )

    @server.tool(confirm=Approve("Refund {amount} for {order}?", by="finance", remind=remind))
    async def refund(order: str, amount: int) -> str:
        """Refund an order."""
        return f"{amount} refunded for {order}"

    return server


def main() -> None:
    """Serve on 127.0.0.1 until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("webhook", help="the address of a chat's webhook")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    app = shop(given.webhook, base_url=f"http://127.0.0.1:{given.port}").streamable_http_app()
    uvicorn.run(app, host="127.0.0.1", port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
