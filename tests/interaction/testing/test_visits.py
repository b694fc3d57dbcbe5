"""Scripted users who visit pages, and pages that are never finished."""

import re
from collections.abc import Sequence
from typing import Any

import anyio
import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from roundtrip import Context, ElicitUrl, Server
from roundtrip.errors import TicketRejected
from roundtrip.testing import (
    ACCEPT,
    DECLINE,
    PageUnfinished,
    Unused,
    User,
    Visit,
    served,
)
from tests.kit.waiting import WAIT

pytestmark = [pytest.mark.anyio]
KEY = "7f" * 32


class Till:
    """The shared data of all instances' pages: payments and visits."""

    def __init__(self) -> None:
        self.paid: dict[str, str] = {}
        self.visits = 0
        self.bookings: list[str] = []


def cinema(till: Till, *, keys: Sequence[Any] = (KEY,), wait: float = 200.0) -> Server[Any]:
    server = Server[Any]("cinema", keys=keys, principal=lambda request: "ada")

    def receipt(ctx: Context) -> str | None:
        return till.paid.get(ctx.call.id)

    @server.tool()
    async def buy(row: int, ctx: Context) -> str:
        page = f"https://cinema.example/pay?ticket={ctx.call.ticket('pay')}"
        number = await ctx.ask("pay", ElicitUrl("Please pay.", page, done=receipt, wait=wait))
        till.bookings.append(number)
        return f"Row {row}, receipt {number}."

    @server.tool()
    async def read(ctx: Context) -> str:
        return (await ctx.ask_outcome("terms", ElicitUrl("Read the terms.", "https://cinema.example/terms"))).action

    @server.custom_route("/pay", methods=["GET", "POST"])
    async def pay(request: Request) -> Response:
        till.visits += 1
        if request.cookies.get("session") != "ada":
            return PlainTextResponse("Log in first.", 401)
        try:
            ticket = server.verify_ticket(request.query_params.get("ticket", ""), principal="ada", purpose="pay")
        except TicketRejected:
            return PlainTextResponse("This link is not yours.", 403)
        if request.method == "POST":
            till.paid[ticket.call_id] = "R-1"
            return RedirectResponse("/thanks", 303)
        return PlainTextResponse("Pay?")

    @server.custom_route("/thanks", methods=["GET"])
    async def thanks(request: Request) -> Response:
        del request
        return PlainTextResponse("Thank you.")

    return server


@pytest.fixture
def till() -> Till:
    return Till()


async def press_pay(visit: Visit) -> None:
    async with visit.browser(cookies={"session": "ada"}) as browser:
        assert (await browser.get(visit.url)).text == "Pay?"
        assert (await browser.post(visit.url)).text == "Thank you."


async def look(visit: Visit) -> None:
    async with visit.browser(cookies={"session": "ada"}) as browser:
        await browser.get(visit.url)


@pytest.mark.roundtrip(eras="both")
@pytest.mark.parametrize("over", ["memory", "http"])
async def test_user_visits_the_page_and_the_call_goes_on(till: Till, over: Any) -> None:
    call = await User(cinema(till), visits={"pay": press_pay}, over=over).call("buy", row=3)
    assert call.value == "Row 3, receipt R-1."
    assert [question.name for question in call.questions] == ["pay"]
    assert (till.visits, till.bookings) == (2, ["R-1"])


HOSTILE = Till()


def other_build(keys: Sequence[Any] = (KEY,)) -> Server[Any]:
    return cinema(HOSTILE, keys=keys)


@pytest.mark.roundtrip(eras="both", hostile=["hop", "rotate", "delay", "drop", "strip", "deploy"], deploy=other_build)
async def test_page_is_finished_on_any_network() -> None:
    call = await User(other_build, visits={"pay": press_pay}).call("buy", row=3)
    assert call.value == "Row 3, receipt R-1."


@pytest.mark.roundtrip(eras="both")
@pytest.mark.parametrize("wait", [0.0, 200.0])
async def test_unfinished_page_fails_within_seconds(till: Till, wait: float) -> None:
    user = User(cinema(till, wait=wait), visits={"pay": look}, patience=0.5)
    with anyio.fail_after(WAIT), pytest.raises(PageUnfinished) as failed:
        await user.call("buy", row=3)
    said = str(failed.value)
    assert said.startswith(
        "the page of 'pay': 'Please pay.' (at https://cinema.example/pay?ticket=<ticket>) was visited once"
    )
    assert "that done= reads what the page writes" in said
    assert till.visits == 1


async def test_page_that_is_only_agreed_to_fails_with_the_cure(till: Till) -> None:
    with anyio.fail_after(WAIT), pytest.raises(PageUnfinished, match=r"was never visited.*visits=\{'pay': finish\}"):
        await User(cinema(till), {"pay": ACCEPT}, patience=0.2).call("buy", row=3)


async def test_unfinished_page_of_another_process_fails_within_seconds(till: Till) -> None:
    async with served(cinema(till)) as url:
        with anyio.fail_after(WAIT), pytest.raises(PageUnfinished, match="in another process"):
            await User(url, {re.compile("pay"): ACCEPT}, patience=0.2).call("buy", row=3)


@pytest.mark.roundtrip(eras="both")
async def test_page_of_another_process_is_visited_over_the_network(till: Till) -> None:
    opened: list[int] = []

    async def visit_it(visit: Visit) -> None:
        async with visit.browser(cookies={"session": "ada"}) as browser:
            # The host of the link is not this machine.
            there = httpx2.URL(url).copy_with(path="/pay", query=visit.url.partition("?")[2].encode())
            opened.append((await browser.post(there)).status_code)

    async with served(cinema(till)) as url:
        call = await User(url, visits={re.compile("pay"): visit_it}).call("buy", row=3)
    assert (call.value, opened) == ("Row 3, receipt R-1.", [200])


async def test_user_who_declines_goes_to_no_page(till: Till) -> None:
    user = User(cinema(till), {"pay": DECLINE}, visits={"pay": press_pay}, allow_unused=True)
    assert (await user.call("buy", row=3)).is_error
    assert till.visits == 0


async def test_failure_of_a_visit_is_the_failure_of_the_test(till: Till) -> None:
    async def lost(visit: Visit) -> None:
        raise LookupError("no such button")

    with pytest.raises(LookupError, match="no such button"):
        await User(cinema(till), visits={"pay": lost}).call("buy", row=3)


async def test_page_without_done_is_visited_and_unused_visit_reported(till: Till) -> None:
    seen: list[str] = []
    user = User(cinema(till), visits={"terms": lambda visit: seen.append(visit.url), "login": look})
    with pytest.raises(Unused, match="no question used the page 'login'"):
        await user.call("read")
    assert seen == ["https://cinema.example/terms"]
    user = User(cinema(till), visits={"terms": look})
    assert (await user.call("read")).value == "accept"


async def test_list_of_visits_is_for_one_time_each(till: Till) -> None:
    # The first time the user only looks; the page is asked for again, as it is not finished.
    user = User(cinema(till, wait=0), visits={"pay": [look, press_pay]})
    call = await user.call("buy", row=3)
    assert (call.value, len(call.rounds)) == ("Row 3, receipt R-1.", 2)


@pytest.mark.parametrize("answers", [{"pay": [ACCEPT, DECLINE]}, [{"pay": ACCEPT}, {"pay": DECLINE}]])
async def test_script_for_each_round_may_agree_to_an_unfinished_page(till: Till, answers: Any) -> None:
    call = await User(cinema(till), answers, patience=0.1).call("buy", row=3)
    assert call.is_error
    assert [len(round_) for round_ in call.rounds] == [1, 1]
