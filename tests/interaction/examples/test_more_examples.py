"""The wizard and the login page, through real clients on both eras; the page through a real browser's requests."""

import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from examples import allow_list, login_page, wizard
from roundtrip import Server
from roundtrip.testing import Era, Restart, User, Visit, served
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


Login = tuple[str, str]
ADA, EVE = (("ada", login_page.PASSWORDS["ada"]), ("eve", login_page.PASSWORDS["eve"]))


async def opened(link: str, login: Login | None, pin: str = "1972") -> int:
    """Go to a page, and give the PIN there if it opens; return the status."""
    async with httpx2.AsyncClient(auth=login) as browser:
        page = await browser.get(link)
        if page.status_code == 200:
            assert "Hello" in page.text
            page = await browser.post(link, data={"pin": pin})
        return page.status_code


@pytest.fixture(autouse=True)
def no_cards() -> Iterator[None]:
    login_page.cards.clear()
    yield
    login_page.cards.clear()


async def test_page_opens_only_for_the_asked_user_and_once(era: Era) -> None:
    answers: list[int] = []
    async with served(login_page.server) as url:

        async def go(visit: Visit) -> None:
            """Mail the link to Ada, who is logged in; then let Eve go herself."""
            link = visit.url.replace(login_page.PAGE, url.removesuffix("/mcp") + "/card")
            forged = link[:-2] + ("AA" if not link.endswith("AA") else "BB")
            for mailed, login in ((link, ADA), (link, ("ada", "guess")), (link, None), (forged, EVE)):
                answers.append(await opened(mailed, login))
            assert login_page.cards == {}
            answers.append(await opened(link, EVE))

        for visits in ({re.compile("library card"): go}, {}):
            async with as_user(url, "token-of-eve") as transport:
                assert (await User(transport, visits=visits, era=era).call("loans")).text == "Dune"
    assert answers == [403, 401, 401, 403, 200]
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
