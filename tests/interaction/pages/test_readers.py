"""A question page opens for the user of its call, who has logged in by another OAuth client than the call's."""

import logging
from typing import Any

import pytest
from mcp.server.auth.provider import AccessToken
from starlette.requests import Request

from roundtrip import Context, Pages, Server
from roundtrip.testing import User

pytestmark = pytest.mark.anyio


def token(client: str, subject: str | None, issuer: str | None = None) -> AccessToken:
    claims = {"iss": issuer} if issuer is not None else None
    return AccessToken(token="t", client_id=client, scopes=[], subject=subject, claims=claims)


def cinema(reader: AccessToken | str) -> Server[Any]:
    async def authenticate(request: Request) -> AccessToken | str:
        return reader

    pages = Pages(base_url="https://cinema.example", authenticate=authenticate, wait=0.05)
    server = Server[Any]("cinema", keys=["7f" * 32], pages=pages)

    @server.tool()
    async def book(ctx: Context) -> str:
        return f"{await ctx.ask('seats', 'How many?', int)} seats"

    return server


async def booked_by(caller: AccessToken, reader: AccessToken | str) -> str:
    user = User(cinema(reader), {"seats": 2}, principal=caller, client="no-elicitation")
    return (await user.call("book")).text


async def test_page_opens_for_its_user_logged_in_by_another_client() -> None:
    assert await booked_by(token("cli", "ann"), token("web", "ann")) == "2 seats"
    one, other = token("cli", "ann", "https://login.example"), token("web", "ann", "https://login.example")
    assert await booked_by(one, other) == "2 seats"


@pytest.mark.parametrize(
    "reader",
    [
        token("cli", "bob"),
        token("cli", "Ann"),
        token("cli", "ann", "https://other.example"),
        token("cli", None),
        token("ann", None),
    ],
)
async def test_page_opens_for_nobody_else(reader: AccessToken, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(AssertionError, match="404"):
        await booked_by(token("cli", "ann"), reader)
    assert "two forms" not in caplog.text or reader.subject is None


async def test_reader_of_another_form_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "roundtrip"), pytest.raises(AssertionError, match="404"):
        await booked_by(token("cli", "ann"), "ann")
    assert "a page was not shown: its reader and its caller have principals of two forms" in caplog.text
    assert "ann" not in caplog.text
