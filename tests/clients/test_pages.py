"""Every foreign client completes every tool, however little it can show, if the server has question pages.

`pytest tests/clients/test_pages.py --snapshot-update` writes into docs/clients.md over which channel each client was
asked; otherwise the results are compared with the page.
"""

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final, Literal

import anyio
import pytest

from roundtrip.revisions import FIRST_OF_RETRY_ERA
from roundtrip.testing import Approver, Era, served
from tests.clients import tables
from tests.clients.desktop import Desktop, Fill, desktop
from tests.clients.drivers import Driver, Outcome, Target, ToolCall, driver_of, of_clients, of_clients_by
from tests.clients.programs.python_clients import ANOTHER_PAGE
from tests.clients.shop import BASE, BOSS, USER, make_server_with_pages
from tests.clients.tables import CALLS, DONE, KINDS, MISSING, ClientTable, survey
from tests.kit.players import Person, connect, text_of

pytestmark = pytest.mark.anyio

of_newer_clients = of_clients_by(
    lambda driver: driver.revision == FIRST_OF_RETRY_ERA and "Inspector" not in driver.name and not driver.starts_slowly
)

LANGGRAPH: Final = driver_of("LangChain 1.5 with LangGraph", FIRST_OF_RETRY_ERA)
NO_ANSWER: Final = dict[str, str]()
REFUND: Final = ToolCall("refund", {"amount": 5}, [NO_ANSWER] * 20)
COLUMNS: Final = ["form", "confirmation", "page", "two questions", "review", "approval", "eleven questions"]


FILL: Final[Mapping[str, Fill]] = {
    "Which row for Solaris?": lambda form: form.choose("q0-f0", "1"),
    "Cancel 7?": lambda form: None,
    "Pay on this page": lambda form: None,
    "How many adults?": lambda form: form.fill("q0-f0", "2"),
    "And children, with 2 adults?": lambda form: form.fill("q0-f0", "1"),
    "How many cups?": lambda form: form.fill("q0-f0", "3"),
    "Is this right?": lambda form: None,
    **{f"Question {place}?": (lambda form, place=place: form.fill("q0-f0", str(place))) for place in range(1, 51)},
}


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Generator[ClientTable]:
    with tables.table(request, "pages matrix", columns=COLUMNS) as table:
        yield table


@asynccontextmanager
async def shop(*, wait: float, app: Literal[True, "always"] = True) -> AsyncGenerator[tuple[Target, Desktop]]:
    """Serve the shop, and give its user a desktop."""
    async with served(make_server_with_pages(wait, app=app)) as url:
        cookies = {"user": USER}
        boss = Approver({"desk": "approve"}, headers={"cookie": f"user={BOSS}"})
        async with (
            anyio.create_task_group() as office,
            desktop(url.removesuffix("/mcp"), BASE, FILL, cookies=cookies) as screen,
        ):
            office.start_soon(boss.watch, lambda: url)
            yield Target(url=url, desktop=screen.address), screen
            office.cancel_scope.cancel()


def cell_of(call: ToolCall, outcome: Outcome, answered: list[str]) -> str:
    """Return the channels that asked a call, in order; fail unless each question was asked once, and answered."""
    if outcome.error == ANOTHER_PAGE:
        return "no: begins again"
    if call.tool == "pay" and outcome.error is not None and (missing := MISSING.search(outcome.error)):
        return f"no: declares no {KINDS[missing[1]]}"
    assert (outcome.text, outcome.error) == (done(call), None)
    shown = [message for message in outcome.asked if BASE not in message]
    assert [heading_of(message) for message in (*shown, *answered)] == asked_by(call)
    channels = ["URL" if "https://" in message else "form" for message in outcome.asked]
    channels += ["link" if BASE in result else "handle" for result in outcome.results]
    return ", then ".join(dict.fromkeys(channels))


def done(call: ToolCall) -> str:
    if call is REFUND:
        return "5 refunded"
    if call.tool == "survey":
        number = len(call.answers)
        return f"{sum(range(number + 1))} in {number} answers"
    return DONE[call.tool][0]


def asked_by(call: ToolCall) -> list[str]:
    """Return the headings of its questions."""
    if call is REFUND:
        return []  # its user cannot answer
    if call.tool == "survey":
        return [f"Question {place}?" for place in range(1, len(call.answers) + 1)]
    return [heading_of(message) for message in DONE[call.tool][1]]


def heading_of(message: str) -> str:
    """Return the first line of a question, without the address of its page."""
    return message.partition("\n")[0].partition(" https://")[0]


async def cells_of(driver: Driver, calls: Sequence[ToolCall], *, app: Literal[True, "always"] = True) -> list[str]:
    """Make calls, and return their cells."""
    await driver.prepare()
    # A call that began again waits at its new page for a user who has answered the old one.
    async with shop(wait=1.0 if driver.begins_again else 20.0, app=app) as (target, screen):
        outcomes = await driver.run(target, calls)
    cells: list[str] = []
    for call, outcome in zip(calls, outcomes, strict=True):
        # A page that asks the same as an earlier call's is another page.
        cells.append(cell_of(call, outcome, screen.answered_for(*outcome.asked, *outcome.results)))
    return cells


@of_clients
async def test_client_completes_every_tool(driver: Driver, table: ClientTable) -> None:
    table.check(driver, *await cells_of(driver, [*CALLS[:-1], REFUND, CALLS[-1]]))


@of_clients
async def test_apps_disturb_no_client(driver: Driver, table: ClientTable) -> None:
    """Each client gets the app's tools, and the app's address at all tools, and is asked as without them."""
    book, cancel, _, _, order, _ = CALLS
    cells = await cells_of(driver, [book, cancel, order, survey(3), REFUND], app="always")
    known = dict(zip(COLUMNS, table.cells(driver), strict=True))
    columns = ("form", "confirmation", "review", "two questions", "approval")
    assert cells == [known[column] for column in columns]


@of_newer_clients
async def test_client_completes_twenty_and_fifty_questions(driver: Driver) -> None:
    # On older revisions a form of a slow client is a process of half a second.
    numbers = (20,) if driver.is_slow and driver.revision < FIRST_OF_RETRY_ERA else (20, 50)
    assert all(await cells_of(driver, [survey(number) for number in numbers]))


async def test_client_that_begins_again_is_asked_by_form_once_per_intent() -> None:
    await LANGGRAPH.prepare()
    asking = replace(survey(20), tool="survey_once")
    async with shop(wait=1.0) as (target, _):
        outcome, again = await LANGGRAPH.run(target, [asking, replace(asking, answers=[])])
    assert (outcome.text, outcome.error) == (done(survey(20)), None)
    assert list(outcome.asked) == asked_by(survey(20))
    assert (again.text, list(again.asked)) == (outcome.text, [])


async def test_client_that_begins_again_after_a_page_has_the_result_when_it_calls_again() -> None:
    await LANGGRAPH.prepare()
    refund = ToolCall("refund_order", {"order": 7}, [{"value": 5}, *[NO_ANSWER] * 20])
    async with shop(wait=1.0) as (target, _):
        first, again = await LANGGRAPH.run(target, [refund, refund])
    # Unless the approval was there in time, the client gives its first answer to a call that waits for a page.
    assert first.error is None or "needs an answer for every elicitation request" in first.error
    assert (again.text, again.error) == ("5 refunded for 7", None)
    assert [*first.asked, *again.asked].count("How much?") == 1


async def test_rounds_of_another_client_do_not_count() -> None:
    survey_of_eight = ("survey_once", {"number": 8})
    first, second = (Person(answer=lambda params: {"value": int(params.message[-2])}) for _ in range(2))
    async with shop(wait=1.0) as (target, _):
        async with connect(target.url or "", Era.RETRY, first, input_required_max_rounds=5) as client:
            with pytest.raises(Exception, match="more than 5 rounds"):
                await client.call_tool(*survey_of_eight)
        # The eighth round of the call is the third one of this client. It would be asked at a page from its seventh on.
        async with connect(target.url or "", Era.RETRY, second) as client:
            result = await client.call_tool(*survey_of_eight)
    assert text_of(result) == "36 in 8 answers"
    assert first.messages[:5] == asked_by(survey(5))
    assert second.messages[-3:] == ["Question 6?", "Question 7?", "Question 8?"]


def test_table_has_a_row_for_each_client_and_no_other(table: ClientTable) -> None:
    table.check_starts()
