"""The wizard and the login page, through real clients on both eras; the page through a real browser's requests."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp.client.session import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitRequestURLParams, ElicitResult

from examples import allow_list, login_page, wizard
from roundtrip import Server
from roundtrip.testing import Era, Restart, User, served
from tests.interaction.examples.holiday import BOOKED, HOLIDAY
from tests.interaction.pages.web import as_user
from tests.kit.players import connect, text_of

pytestmark = pytest.mark.anyio

ASKED = (
    "Where would you like to go?",
    "How many of you go to the coast?",
    "Who is traveler 1 of 2?",
    "Who is traveler 2 of 2?",
    "A cot for Grace?",
)


async def test_the_wizard_asks_each_question_once_and_keeps_its_price(era: Era) -> None:
    call = await User(wizard.server, HOLIDAY, era=era).call("book_holiday")
    booked = BOOKED.fullmatch(call.text)
    assert booked is not None
    assert call.asked == [*ASKED, f"That will be {booked[1]} euros. Book it?"]


async def test_the_wizard_goes_on_another_instance_at_each_leg() -> None:
    def instance() -> Server[Any]:
        server = Server[Any]("holidays", keys=["7f" * 32])
        server.add_tool(wizard.book_holiday)
        return server

    call = await User(instance, HOLIDAY, network=Restart()).call("book_holiday")
    assert BOOKED.fullmatch(call.text)


class Browser:
    """User who agrees to every page and calls `visit` there."""

    def __init__(self, url: str, *, user: str, pin: str) -> None:
        self._url = url
        self.auth = (user, login_page.PASSWORDS[user])
        self.pin = pin
        self.links: list[str] = []
        self.answers: list[int] = []

    async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        del context
        assert isinstance(params, ElicitRequestURLParams)
        link = params.url.replace(login_page.PAGE, self._url)
        self.links.append(link)
        self.answers += [await self.visit(link, self.auth)]
        return ElicitResult(action="accept")

    async def visit(self, link: str, auth: tuple[str, str] | None) -> int:
        async with httpx2.AsyncClient(auth=auth) as browser:
            page = await browser.get(link)
            if page.status_code == 200:
                assert "Hello" in page.text
                page = await browser.post(link, data={"pin": self.pin})
            return page.status_code


@pytest.fixture(autouse=True)
def no_cards() -> Iterator[None]:
    login_page.cards.clear()
    yield
    login_page.cards.clear()


@asynccontextmanager
async def library() -> AsyncGenerator[tuple[str, str]]:
    """Return the server's two URLs: of MCP, and of its page."""
    async with served(login_page.server) as url:
        yield url, url.removesuffix("/mcp") + "/card"


async def loans(url: str, user: str, era: Era, browser: Any) -> str:
    async with as_user(url, f"token-of-{user}") as transport, connect(transport, era, browser) as client:
        return text_of(await client.call_tool("loans", {}))


async def test_user_gives_the_pin_once_on_the_page(era: Era) -> None:
    async with library() as (url, page):
        browser = Browser(page, user="ada", pin="1815")
        assert await loans(url, "ada", era, browser) == "Emma"
        assert browser.answers == [200]
        assert await loans(url, "ada", era, browser) == "Emma"
        assert len(browser.links) == 1


async def test_page_opens_only_for_the_asked_user(era: Era) -> None:
    async with library() as (url, page):

        class Mailed(Browser):
            """Eve's client: the link goes to Ada, who is logged in; then Eve goes herself."""

            async def __call__(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
                assert isinstance(params, ElicitRequestURLParams)
                link = params.url.replace(login_page.PAGE, page)
                forged = link[:-2] + ("AA" if not link.endswith("AA") else "BB")
                self.answers += [await self.visit(link, ("ada", login_page.PASSWORDS["ada"]))]
                self.answers += [await self.visit(link, ("ada", "guess"))]
                self.answers += [await self.visit(link, None)]
                self.answers += [await self.visit(forged, self.auth)]
                assert login_page.cards == {}
                return await super().__call__(context, params)

        browser = Mailed(page, user="eve", pin="1972")
        assert await loans(url, "eve", era, browser) == "Dune"
        assert browser.answers == [403, 401, 401, 403, 200]
        assert login_page.cards == {"eve": "1972"}


# The allow list.


async def test_visible_tools_follow_the_account_plan(era: Era) -> None:
    city = {"city": "Bergen"}
    async with served(allow_list.server) as url:
        async with as_user(url, "token-of-ada") as transport, connect(transport, era) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["today", "ten_days"]
            assert text_of(await client.call_tool("ten_days", city)) == "Bergen: rain, ten times, ada"
        async with as_user(url, "token-of-bob") as transport, connect(transport, era) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["today"]
            assert text_of(await client.call_tool("ten_days", city)) == "Unknown tool: ten_days"
            assert text_of(await client.call_tool("today", city)) == "Bergen: rain"
