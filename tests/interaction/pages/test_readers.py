"""A question page opens for the user of its call, who has logged in by another OAuth client than the call's."""

import logging
from collections.abc import Callable
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


def cinema(reader: AccessToken | str, **options: Any) -> Server[Any]:
    async def authenticate(request: Request) -> AccessToken | str:
        return reader

    pages = Pages(base_url="https://cinema.example", authenticate=authenticate, wait=0.05)
    server = Server[Any]("cinema", keys=["7f" * 32], pages=pages, **options)

    @server.tool()
    async def book(ctx: Context) -> str:
        return f"{await ctx.ask('seats', 'How many?', int)} seats"

    return server


async def booked_by(caller: AccessToken, reader: AccessToken | str) -> str:
    user = User(cinema(reader), {"seats": 2}, principal=caller, client="no-elicitation")
    return (await user.call("book")).text


async def test_page_opens_for_its_user_logged_in_by_another_client() -> None:
    assert await booked_by(token("cli", "ann"), token("cli", "ann")) == "2 seats"
    one, other = token("cli", "ann", "https://login.example"), token("web", "ann", "https://login.example")
    assert await booked_by(one, other) == "2 seats"


OTHERS = [
    token("cli", "bob"),
    token("cli", "Ann"),
    # Without an issuer, another client may have another user of this subject.
    token("web", "ann"),
    token("cli", "ann", "https://other.example"),
    token("cli", None),
    token("ann", None),
]


async def test_page_opens_for_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    for reader in OTHERS:
        with pytest.raises(AssertionError, match="404"):
            await booked_by(token("cli", "ann"), reader)
        assert "two forms" not in caplog.text or reader.subject is None


async def test_reader_of_another_form_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "roundtrip"), pytest.raises(AssertionError, match="404"):
        await booked_by(token("cli", "ann"), "ann")
    assert "a page was not shown: its reader and its caller have principals of two forms" in caplog.text
    assert "ann" not in caplog.text


def always(text: str) -> Callable[[Any], str]:
    return lambda ctx: text


TENANT = '["one", null, "ann"]'
"""Here the first part is a tenant, and no OAuth client."""
DEEP = "[" * 200_000


@pytest.mark.parametrize(
    ("caller", "reader", "is_opened"),
    [(TENANT, TENANT, True), (TENANT, '["two", null, "ann"]', False), (DEEP, DEEP, True)],
    ids=["same", "other", "deep"],
)
async def test_principals_of_the_author_are_compared_as_they_are(caller: str, reader: str, is_opened: bool) -> None:
    user = User(cinema(reader, principal=always(caller)), {"seats": 2}, client="no-elicitation")
    if is_opened:
        assert (await user.call("book")).text == "2 seats"
    else:
        with pytest.raises(AssertionError, match="404"):
            await user.call("book")
