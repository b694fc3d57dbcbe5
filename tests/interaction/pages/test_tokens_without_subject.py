"""Access tokens that name a client and no user, as most verifiers of the SDK's examples make them."""

import logging
from typing import Any

import pytest
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from pydantic import AnyHttpUrl

from roundtrip import ElicitUrl, Server
from roundtrip.testing import Era, LegByLeg, served
from tests.interaction.pages.ways import ways
from tests.interaction.pages.web import as_user
from tests.kit.players import text_of
from tests.kit.visitors import Visitor, add_export, page_of, visiting

pytestmark = pytest.mark.anyio

BOOK = {"title": "Dune"}
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
