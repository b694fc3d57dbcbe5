"""Clients that are sent to pages: by capability, by era, and by the abilities of the connection."""

from typing import Any

import anyio
import pytest
from mcp.client import Client
from mcp.shared.exceptions import MCPError, UrlElicitationRequiredError
from mcp_types import ElicitationCapability

from roundtrip import Context, ElicitUrl, Server
from roundtrip.testing import Era, served
from tests.interaction.pages.ways import BOOK, URL, places
from tests.kit.page_users import declare_only
from tests.kit.players import Person, connect, text_of
from tests.kit.visitors import Visitor, add_export, connect_user
from tests.kit.waiting import WAIT
from tests.kit.wire import Json, wire

pytestmark = pytest.mark.anyio
CALL: Json = {"name": "export", "arguments": BOOK}
NEEDED: Json = {"requiredCapabilities": {"elicitation": {"url": {}}}}


def exporting(place: str, **options: Any) -> Server[Any]:
    return add_export(Server("shop"), place, lambda ctx: ElicitUrl("Log in.", URL, **options))


@places
async def test_client_without_url_capability_is_never_sent_to_a_page(place: str) -> None:
    """Shows S6. A bare `elicitation` means forms only."""
    lacking: list[Json] = [{}, {"sampling": {}}, {"elicitation": {}}, {"elicitation": {"form": {}}}]
    async with served(exporting(place), json_response=True) as url, wire(url) as post:
        errors = [(await post.post("tools/call", CALL, capabilities=declared))["error"] for declared in lacking]
    assert [(error["code"], error["data"]) for error in errors] == [(-32021, NEEDED)] * len(lacking)


async def test_client_that_declared_only_pages_gets_a_page() -> None:
    """Shows S3, S6."""
    async with served(exporting("body"), json_response=True) as url, wire(url) as post:
        answer = await post.post("tools/call", CALL, capabilities={"elicitation": {"url": {}}})
    request = answer["result"]["inputRequests"]["login"]
    assert request["method"] == "elicitation/create"
    # This revision has no ids of elicitations; the question's key does for it.
    assert request["params"] == {"mode": "url", "message": "Log in.", "url": URL}


@pytest.mark.parametrize(
    ("place", "era", "fallback"),
    [("resolver", Era.LIVE, "a guest"), ("body", Era.RETRY, lambda: "a guest")],
)
async def test_author_substitute_replaces_a_page(
    place: str, era: Era, fallback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shows S6."""
    declare_only(monkeypatch, ElicitationCapability())

    def done() -> str | None:
        raise AssertionError("no user was sent there")

    async with connect(exporting(place, done=done, fallback=fallback), era, Person()) as client:
        assert text_of(await client.call_tool("export", BOOK)) == "Dune for a guest"


# The live era.


@places
async def test_live_client_gets_an_id_and_hears_of_completion(place: str) -> None:
    visits: list[str] = []

    def done() -> bool:
        return len(visits) >= 2

    visitor = Visitor(visit=lambda page: visits.append(page.url))
    async with connect_user(exporting(place, done=done, wait=0), Era.LIVE, visitor) as client:
        assert text_of(await client.call_tool("export", BOOK)) == "Dune for True"
        await client.call_tool("export", BOOK)
    first, again, other = (page.elicitation_id for page in visitor.pages[:3])
    assert first
    assert again == first
    assert other != first, "another call is another elicitation"
    assert visitor.told_done[0] == first


@pytest.mark.parametrize("tool", ["elicit_url", "question"])
async def test_id_of_the_authors_own_reaches_a_live_client(tool: str) -> None:
    server = Server[Any]("shop")

    @server.tool()
    async def elicit_url(ctx: Context) -> str:
        await ctx.elicit_url("Log in.", "https://bookshop.example/login", "login-1")
        await ctx.session.send_elicit_complete("login-1")
        return "done"

    @server.tool()
    async def question(ctx: Context) -> str:
        page = ElicitUrl("Log in.", "https://bookshop.example/login", elicitation_id="login-1", done=lambda: True)
        await ctx.ask("login", page)
        return "done"

    visitor = Visitor()
    async with connect_user(server, Era.LIVE, visitor) as client:
        assert text_of(await client.call_tool(tool)) == "done"
    assert [page.elicitation_id for page in visitor.pages] == ["login-1"]
    assert visitor.told_done == ["login-1"]


@places
async def test_unaskable_live_client_is_shown_the_page_and_calls_again(place: str) -> None:
    accounts: list[str] = []

    def done() -> str | None:
        return accounts[0] if accounts else None

    errors: list[MCPError] = []
    visitor = Visitor()
    server = exporting(place, done=done, wait=WAIT)
    async with served(server, json_response=True) as url, connect_user(url, Era.LIVE, visitor) as client:
        for _ in range(2):
            with pytest.raises(MCPError) as caught, anyio.fail_after(WAIT):
                await client.call_tool("export", BOOK)
            errors.append(caught.value)
        accounts.append("ada")
        assert text_of(await client.call_tool("export", BOOK)) == "Dune for ada"
    assert [error.code for error in errors] == [-32042, -32042]
    required = UrlElicitationRequiredError.from_error(errors[0].error)
    (page,) = required.elicitations
    assert (page.message, page.url) == ("Log in.", URL)
    assert page.elicitation_id
    assert visitor.pages == []


async def test_unaskable_live_client_without_pages_hears_of_none() -> None:
    """Shows S6."""
    async with served(exporting("resolver"), json_response=True) as url, Client(url, mode=Era.LIVE.value) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("export", BOOK)
    assert caught.value.code != -32042
    assert URL not in str(caught.value.error)


# Pages lead to web addresses.


def visited() -> Server[Any]:
    server = Server[Any]("shop")

    @server.tool()
    async def visit(ctx: Context, url: str) -> str:
        """Visit a page."""
        return (await ctx.elicit_url("Look at this.", url, "an-id")).action

    @server.tool()
    def visit_plain(ctx: Context, url: str) -> str:
        """Visit a page."""
        return ctx.blocking.elicit_url("Look at this.", url).action

    @server.tool()
    async def open_app(ctx: Context) -> str:
        """Open an app."""
        return (await ctx.elicit_url("Look at this.", "myapp://login", schemes=["myapp"])).action

    return server


@pytest.mark.parametrize(("tool", "era"), [("visit", Era.LIVE), ("visit_plain", Era.RETRY)])
async def test_script_address_is_never_sent_as_a_page(tool: str, era: Era) -> None:
    visitor = Visitor()
    async with connect_user(visited(), era, visitor) as client:
        result = await client.call_tool(tool, {"url": "javascript:alert(1)"})
    assert result.is_error
    assert "must begin with https: or http:" in text_of(result)
    assert "alert" not in text_of(result)
    assert visitor.pages == []


async def test_a_scheme_that_the_author_allows_is_sent(era: Era) -> None:
    visitor = Visitor("accept")
    async with connect_user(visited(), era, visitor) as client:
        assert text_of(await client.call_tool("open_app", {})) == "accept"
    assert [page.url for page in visitor.pages] == ["myapp://login"]
