"""Tickets on a real page, and question pages: they serve only the user who was asked, regardless of the link."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ElicitRequestURLParams, ElicitResult
from pydantic import AnyHttpUrl
from starlette.requests import Request

from roundtrip import Context, ElicitUrl, Pages, Server
from roundtrip.errors import TicketReason, TicketRejected
from roundtrip.testing import Clock, Era, LegByLeg, User, served
from tests.interaction.pages.ways import BOOK, places, ways
from tests.interaction.pages.web import Web, as_user, ticket_in
from tests.kit.players import text_of
from tests.kit.secrets import NEW, OLD
from tests.kit.visitors import Visitor, add_export, connect_user, page_of

pytestmark = pytest.mark.anyio


AGREED = {"login": ElicitResult(action="accept")}


@pytest.mark.parametrize(
    ("place", "era", "victim"),
    [("resolver", Era.LIVE, "app/bob"), ("body", Era.RETRY, "other/ada"), ("resolver", Era.RETRY, None)],
)
async def test_mailed_link_is_useless_to_another_user(place: str, era: Era, victim: str | None) -> None:
    """Shows S12."""
    web = Web()
    statuses: list[int] = []

    async def mail(page: ElicitRequestURLParams) -> None:
        # The one who was asked says they agree, and has another person follow the link.
        statuses.append(await web.browse(page, victim))

    visitor = Visitor("accept", "accept", "cancel", visit=mail)
    async with served(web.server(place)) as url, as_user(url, "app/eve") as transport:
        web.base = url.removesuffix("/mcp")
        async with connect_user(transport, era, visitor) as client:
            result = await client.call_tool("export", BOOK)
    assert result.is_error
    assert ("The user cancelled" if place == "body" else "elicitation was cancel") in text_of(result)
    assert statuses == [403, 403]
    assert web.logged_in == {}


async def test_ticket_does_not_finish_another_call(era: Era) -> None:
    """Shows S12."""
    web = Web()
    first: list[ElicitRequestURLParams] = []

    async def visit(page: ElicitRequestURLParams) -> None:
        first.append(page)
        # Whatever call asks, it is the first one's link that is followed.
        assert await web.browse(first[0], "app/ada") == 200

    async with served(web.server("body")) as url, as_user(url, "app/ada") as transport:
        web.base = url.removesuffix("/mcp")
        visitor = Visitor("accept", "accept", "accept", "cancel", visit=visit)
        async with connect_user(transport, era, visitor) as client:
            assert text_of(await client.call_tool("export", BOOK)) == "Dune for ada"
            other = await client.call_tool("export", BOOK)
    assert other.is_error
    assert len(web.logged_in) == 1
    tickets = [ticket_in(page) for page in first]
    assert tickets[1] == tickets[2] != tickets[0]


# Without a network: what the call knows.


def unbound(place: str, *, keys: list[bytes], said: list[str] | None = None) -> Server[Any]:
    def done() -> str | None:
        return said[0] if said else None

    def ask(ctx: Any) -> ElicitUrl[Any]:
        ticket = ctx.call.ticket("login", unbound=True)
        return ElicitUrl("Log in.", f"https://bookshop.example/?t={ticket}&x=1", done=done, wait=0)

    return add_export(Server[Any]("shop", keys=keys), place, ask)


@places
async def test_the_question_stays_the_same_while_keys_are_replaced(place: str) -> None:
    said: list[str] = []
    steps = [[OLD], [OLD, NEW], [NEW, OLD], [NEW]]
    hopper = LegByLeg([unbound(place, keys=keys, said=said) for keys in steps])
    await hopper.leg("export", BOOK)
    pages = [page_of(hopper.questions["login"])]
    for _ in range(2):
        await hopper.leg("export", BOOK, answers=AGREED if len(pages) == 1 else {}, state=hopper.token)
        pages.append(page_of(hopper.questions["login"]))
    first, second, third = (ticket_in(page) for page in pages)
    # Another key signs otherwise, yet the agreement given to the old spelling still counts, and both are verified.
    assert first == second != third
    verifier = unbound(place, keys=[NEW, OLD])
    assert verifier.verify_ticket(first, principal=None) == verifier.verify_ticket(third, principal=None)
    said.append("ada")
    assert text_of(await hopper.leg("export", BOOK, answers={}, state=hopper.token)) == "Dune for ada"


async def test_ticket_ends_with_its_call_despite_resumption(clock: Clock) -> None:
    server = unbound("body", keys=[NEW])
    hopper = LegByLeg([server])
    await hopper.leg("export", BOOK)
    ticket = ticket_in(page_of(hopper.questions["login"]))
    for _ in range(6):
        clock.advance(500)
        await hopper.leg("export", BOOK, answers=AGREED, state=hopper.token)
        assert ticket_in(page_of(hopper.questions["login"])) == ticket
    assert server.verify_ticket(ticket, principal=None).purpose == "login"
    clock.advance(601)
    with pytest.raises(TicketRejected) as caught:
        server.verify_ticket(ticket, principal=None)
    assert caught.value.reason is TicketReason.EXPIRED


# Access tokens that name a client and no user, as most verifiers of the SDK's examples make them.


WARNING = "the server cannot distinguish users with the same client id"


class Clients:
    """Verifier that takes a bearer token for the id of a client."""

    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id=token, scopes=[])


def ada(request: ServerRequestContext[Any, Any]) -> str:
    del request
    return "ada"


def shop(place: str = "body", *, ticket: bool = False, **options: Any) -> Server[Any]:
    auth = AuthSettings(issuer_url=AnyHttpUrl("https://login.example"), resource_server_url=None)
    server = Server[Any]("shop", keys=[b"k" * 32], auth=auth, token_verifier=Clients(), **options)

    def page(ctx: Any) -> ElicitUrl[Any]:
        bound = ctx.call.ticket("login") if ticket else "none"
        return ElicitUrl("Log in.", f"https://shop.example/?t={bound}", done=lambda: "ada", wait=0)

    return add_export(server, place, page)


@ways
async def test_ticket_for_no_single_user_is_rejected_with_advice(place: str, era: Era) -> None:
    """Shows S12."""
    unknown = add_export(
        Server("shop"), place, lambda ctx: ElicitUrl("Log in.", f"https://bookshop.example/?t={ctx.call.ticket('x')}")
    )
    visitor, told = Visitor(), list[CallToolResult]()
    async with connect_user(unknown, era, visitor) as client:
        told.append(await client.call_tool("export", BOOK))
    async with (
        served(shop(place, ticket=True)) as url,
        as_user(url, "app") as transport,
        connect_user(transport, era, visitor) as client,
    ):
        told.append(await client.call_tool("export", BOOK))
    assert [result.is_error for result in told] == [True, True]
    assert ("unbound=True" in text_of(told[0]), "no subject" in text_of(told[1])) == (True, True)
    assert visitor.pages == []


async def test_tokens_bind_to_the_client_and_log_that_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="roundtrip")
    async with served(shop()) as url:
        for _ in range(2):
            async with as_user(url, "app") as transport:
                legs = LegByLeg([transport])
                await legs.leg("export", BOOK)
            async with as_user(url, "other") as transport:
                with pytest.raises(MCPError, match="Invalid or expired requestState"):
                    await LegByLeg([transport]).leg("export", BOOK, state=legs.token)
    assert len([record for record in caplog.records if WARNING in record.getMessage()]) == 1


async def test_author_distinguishing_users_gets_tickets_and_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Shows S12."""
    caplog.set_level(logging.WARNING, logger="roundtrip")
    server = shop(ticket=True, principal=ada)
    async with served(server) as url, as_user(url, "app") as transport:
        legs = LegByLeg([transport])
        await legs.leg("export", BOOK)
    page = page_of(legs.questions["login"])
    assert server.verify_ticket(page.url.partition("t=")[2], principal="ada").purpose == "login"
    assert not [record for record in caplog.records if WARNING in record.getMessage()]


# Readers of question pages: the user of the call, who may have logged in by another OAuth client than the call's.


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
    assert "a page was not shown: the principals of its reader and its caller have different forms" in caplog.text
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
