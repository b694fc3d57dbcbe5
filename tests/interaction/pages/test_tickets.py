"""Tickets on a real page: it serves only the user who was asked, regardless of the link."""

import logging
from typing import Any

import pytest
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitRequestURLParams, ElicitResult
from pydantic import AnyHttpUrl

from roundtrip import ElicitUrl, Server
from roundtrip.errors import TicketReason, TicketRejected
from roundtrip.testing import Clock, Era, LegByLeg, served
from tests.interaction.pages.ways import BOOK, places, ways
from tests.interaction.pages.web import Web, as_user, ticket_in
from tests.kit.players import text_of
from tests.kit.secrets import NEW, OLD
from tests.kit.visitors import Visitor, add_export, page_of, visiting

pytestmark = pytest.mark.anyio


AGREED = {"login": ElicitResult(action="accept")}


@ways
async def test_asked_user_logs_in_on_the_page_and_continues(place: str, era: Era) -> None:
    """Shows S12."""
    web = Web()
    statuses: list[int] = []

    async def visit(page: ElicitRequestURLParams) -> None:
        statuses.append(await web.browse(page, "app/ada"))

    visitor = Visitor(visit=visit)
    async with served(web.server(place)) as url, as_user(url, "app/ada") as transport:
        web.base = url.removesuffix("/mcp")
        async with visiting(transport, era, visitor) as client:
            assert text_of(await client.call_tool("export", BOOK)) == "Dune for ada"
    assert (statuses, web.refused) == ([200], [])


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
        async with visiting(transport, era, visitor) as client:
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
        async with visiting(transport, era, visitor) as client:
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


@ways
async def test_ticket_without_authentication_is_rejected_with_advice(place: str, era: Era) -> None:
    """Shows S12."""
    server = add_export(
        Server("shop"), place, lambda ctx: ElicitUrl("Log in.", f"https://bookshop.example/?t={ctx.call.ticket('x')}")
    )
    visitor = Visitor()
    async with visiting(server, era, visitor) as client:
        result = await client.call_tool("export", BOOK)
    assert result.is_error
    assert "unbound=True" in text_of(result)
    assert visitor.pages == []


# Access tokens that name a client and no user, as most verifiers of the SDK's examples make them.


WARNING = "the users of one client id cannot be told apart"


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
async def test_a_ticket_for_all_users_of_a_client_is_rejected(place: str, era: Era) -> None:
    """Shows S12."""
    visitor = Visitor()
    async with (
        served(shop(place, ticket=True)) as url,
        as_user(url, "app") as transport,
        visiting(transport, era, visitor) as client,
    ):
        result = await client.call_tool("export", BOOK)
    assert result.is_error
    assert "no subject" in text_of(result)
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
