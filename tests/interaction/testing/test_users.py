"""Scripted users in front of real servers, on both eras."""

import re
from typing import Annotated, Any

import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver import Elicit as SdkElicit
from mcp.server.mcpserver import Resolve as SdkResolve
from mcp.shared.exceptions import MCPError
from mcp_types import Root
from pydantic import BaseModel, FileUrl

from roundtrip import Context, Elicit, ElicitationResult, ElicitUrl, ListRoots, Resolve, Sample, Server, State
from roundtrip.testing import (
    ACCEPT,
    CANCEL,
    DECLINE,
    Era,
    Question,
    Unanswered,
    Unused,
    User,
    assert_same_on_both_eras,
)
from tests.hosts import http, stdio

pytestmark = [pytest.mark.anyio, pytest.mark.roundtrip(eras="both")]


class Seat(BaseModel):
    row: str


class Snack(BaseModel):
    name: str


async def seat(film: str) -> Elicit[Seat]:
    return Elicit(f"Which row for {film}?", Seat)


async def snack(seat: Annotated[Seat, Resolve(seat)]) -> Elicit[Snack]:
    return Elicit(f"Something to eat in the {seat.row} row?", Snack)


def cinema() -> Server[Any]:
    server = Server[Any]("cinema", keys=[b"k" * 32])

    @server.tool()
    async def book(
        film: str, seat: Annotated[Seat, Resolve(seat)], snack: Annotated[ElicitationResult[Snack], Resolve(snack)]
    ) -> str:
        return f"{film}, {seat.row}, {snack.data.name if snack.action == 'accept' else snack.action}"

    @server.tool()
    async def survey(ctx: Context) -> dict[str, Any]:
        stars = await ctx.ask("stars", Elicit("How many stars?", int), unwrap=True)
        page = await ctx.ask("page", ElicitUrl("Rate us", "https://rate.example/1"))
        return {"stars": stars, "page": page.action}

    @server.tool()
    async def praise(
        model: Annotated[Any, Resolve(lambda: Sample("Praise it", max_tokens=9))],
        roots: Annotated[Any, Resolve(lambda: ListRoots())],
    ) -> str:
        return f"{model.content.text} {[str(root.uri) for root in roots.roots]}"

    @server.tool()
    async def plain(film: str) -> str:
        return film

    @server.tool()
    async def outer() -> str:
        await server.call_tool("plain", {"film": "inner"})
        return "outer"

    return server


def about_food(question: Question) -> bool:
    return "eat" in question.message


ANSWERS: dict[Any, Any] = {"seat": {"row": "back"}, "snack": Snack(name="nuts")}


async def test_a_user_answers_by_name_and_tells_what_came_of_the_call(roundtrip_era: Era) -> None:
    call = await User(cinema(), ANSWERS).call("book", film="Solaris")
    assert call.value == call.text == "Solaris, back, nuts"
    assert [[question.key for question in round_] for round_ in call.rounds] == [["seat"], ["snack"]]
    assert call.questions[0].message == "Which row for Solaris?"
    assert call.states is not None
    assert (call.states[0], call.states[-1], call.states.count(State.AWAITING_INPUT)) == (
        State.RECEIVED,
        State.COMPLETED,
        2,
    )
    assert call.legs == {Era.RETRY: 3, Era.LIVE: 1}[roundtrip_era]


@pytest.mark.parametrize(
    "answers",
    [
        {re.compile("row for"): {"row": "back"}, re.compile("eat"): DECLINE},
        {"seat": {"row": "back"}, about_food: DECLINE},
    ],
    ids=["patterns", "a function"],
)
async def test_a_user_answers_by_pattern_and_by_function(answers: dict[Any, Any]) -> None:
    call = await User(cinema(), answers).call("book", film="Solaris")
    assert call.value == "Solaris, back, decline"


async def test_a_list_is_used_up_in_order(roundtrip_era: Era) -> None:
    call = await User(cinema(), {"stars": ["many", 5], "page": ACCEPT}).call("survey")
    assert call.value == {"stars": 5, "page": "accept"}
    assert call.keys == ["stars", "stars", "page"]


async def test_declining_what_the_tool_needs_fails_it() -> None:
    call = await User(cinema(), {"seat": CANCEL}).call("book", film="Solaris")
    assert call.is_error
    assert "elicitation was cancel" in call.text
    assert call.states is not None
    assert call.states[-1] is State.REFUSED


async def test_a_model_and_roots_answer_too() -> None:
    user = User(cinema(), {re.compile("Praise"): "lovely"}, roots=[Root(uri=FileUrl("file:///films"))])
    assert (await user.call("praise")).value == "lovely ['file:///films']"


async def test_an_unanswered_question_fails_with_what_was_asked() -> None:
    with pytest.raises(Unanswered, match=r"fits the question 'snack': 'Something to eat in the back row\?'") as raised:
        await User(cinema(), {"seat": {"row": "back"}}).call("book", film="Solaris")
    assert [question.key for question in raised.value.asked] == ["seat", "snack"]


async def test_answers_that_nobody_asked_for_fail_unless_they_may_be_left() -> None:
    answers: dict[Any, Any] = {**ANSWERS, "drink": 1, re.compile("never"): [2, 3]}
    with pytest.raises(Unused, match=r"nobody asked for 'drink', /never/ \(2 left\)"):
        await User(cinema(), answers).call("book", film="Solaris")
    assert (await User(cinema(), answers, allow_unused=True).call("book", film="Solaris")).value


async def test_what_a_tool_calls_is_not_the_call() -> None:
    call = await User(cinema()).call("outer")
    assert call.states == [State.RECEIVED, State.RESOLVING, State.EXECUTING, State.COMPLETED]


async def test_a_protocol_error_is_raised_as_it_came() -> None:
    server = cinema()

    @server.tool()
    async def broken() -> str:
        raise MCPError(code=-32050, message="out of film")

    with pytest.raises(MCPError, match="out of film"):
        await User(server).call("broken")


@pytest.mark.parametrize("place", ["http", "stdio"])
async def test_a_server_elsewhere_is_asked_by_pattern(place: str, roundtrip_era: Era) -> None:
    answers: dict[Any, Any] = {re.compile("row for"): {"row": "back"}, re.compile("eat"): DECLINE}
    if place == "stdio":
        call = await User(stdio(cinema), answers).call("book", film="Solaris")
    else:
        async with http(cinema()) as url:
            call = await User(url, answers).call("book", film="Solaris")
    assert call.value == "Solaris, back, decline"
    assert call.states is None
    assert call.questions[0].message == "Which row for Solaris?"
    assert call.keys == {Era.RETRY: ["seat", "snack"], Era.LIVE: [None, None]}[roundtrip_era]


async def test_the_sdk_s_own_server_is_talked_to_as_well() -> None:
    server = MCPServer[Any]("sdk")

    async def sure() -> SdkElicit[Seat]:
        return SdkElicit("Which row?", Seat)

    @server.tool()
    async def book(seat: Annotated[Seat, SdkResolve(sure)]) -> str:
        return seat.row

    call = await User(server, {re.compile("row"): {"row": "front"}}).call("book")
    assert (call.value, call.states) == ("front", None)


async def test_a_user_may_be_told_another_era_than_the_test_s() -> None:
    assert (await User(cinema(), ANSWERS, era=Era.RETRY).call("book", film="x")).legs == 3


@pytest.mark.roundtrip(eras="retry")
async def test_the_same_call_on_both_eras_is_compared() -> None:
    call = await assert_same_on_both_eras(cinema, "book", {"film": "Solaris"}, answers=ANSWERS)
    assert call.value == "Solaris, back, nuts"


@pytest.mark.roundtrip(eras="retry")
@pytest.mark.parametrize("what", ["results", "questions"])
async def test_a_difference_between_the_eras_is_told(what: str) -> None:
    servers: list[Server[Any]] = []

    def make() -> Server[Any]:
        server = Server[Any]("odd")
        number = len(servers)
        servers.append(server)

        async def ask() -> Elicit[Seat]:
            return Elicit(f"Row {number if what == 'questions' else ''}?", Seat)

        @server.tool()
        async def book(seat: Annotated[Seat, Resolve(ask)]) -> str:
            return f"{number}" if what == "results" else "same"

        return server

    with pytest.raises(AssertionError, match=f"the {what} differ"):
        await assert_same_on_both_eras(make, "book", answers={"ask": {"row": "x"}})


def test_a_question_shows_what_it_is() -> None:
    assert str(Question("seat", None)) == "'seat': 'roots'"
