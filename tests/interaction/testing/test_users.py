"""Scripted users in front of real servers, on both eras."""

import re
import signal
from collections.abc import Callable
from typing import Annotated, Any, cast

import anyio
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import Root
from pydantic import FileUrl

from roundtrip import Context, Elicit, ElicitationResult, ElicitUrl, ListRoots, Resolve, Sample, Server, State
from roundtrip.testing import (
    ACCEPT,
    CANCEL,
    DECLINE,
    IGNORE,
    LEAVE,
    AskedQuestion,
    Era,
    Unanswered,
    Unused,
    User,
    assert_same_on_both_eras,
    served,
)
from tests.interaction.testing.seats import Seat, Snack, seat, snack
from tests.kit.shops import server_with
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio
both_eras = pytest.mark.roundtrip(eras="both")


def model() -> Sample:
    return Sample("Praise it", max_tokens=9)


def roots() -> ListRoots:
    return ListRoots()


async def book(
    film: str, seat: Annotated[Seat, Resolve(seat)], snack: Annotated[ElicitationResult[Snack], Resolve(snack)]
) -> str:
    return f"{film}, {seat.row}, {snack.data.name if snack.action == 'accept' else snack.action}"


async def survey(ctx: Context) -> dict[str, Any]:
    stars = await ctx.ask("stars", "How many stars?", int)
    page = await ctx.ask_outcome("page", ElicitUrl("Rate us", "https://rate.example/1"))
    return {"stars": stars, "page": page.action}


async def praise(model: Annotated[Any, Resolve(model)], roots: Annotated[Any, Resolve(roots)]) -> str:
    return f"{model.content.text} {[str(root.uri) for root in roots.roots]}"


def cinema(*more: Callable[..., Any]) -> Server[Any]:
    return server_with(book, survey, praise, *more)


def about_food(question: AskedQuestion) -> bool:
    return "eat" in question.message


ANSWERS: dict[Any, Any] = {"seat": {"row": "back"}, "snack": Snack(name="nuts")}


@both_eras
async def test_user_answers_by_name_and_reports_the_result(roundtrip_era: Era) -> None:
    call = await User(cinema(), ANSWERS).call("book", film="Solaris")
    assert call.value == call.text == "Solaris, back, nuts"
    assert call.failure == ""
    assert call.states is not None
    assert (call.states[0], call.states[-1], call.states.count(State.AWAITING_INPUT)) == (
        State.RECEIVED,
        State.COMPLETED,
        2,
    )
    assert call.legs == {Era.RETRY: 3, Era.LIVE: 1}[roundtrip_era]
    row = {"row": {"type": "string", "title": "Row"}}
    name = {"name": {"type": "string", "title": "Name"}}
    assert call.shown == [
        {"seat": {"message": "Which row for Solaris?", "fields": row, "required": ["row"]}},
        {"snack": {"message": "Something to eat in the back row?", "fields": name, "required": ["name"]}},
    ]
    assert call.returned == {
        "content": [{"type": "text", "text": "Solaris, back, nuts"}],
        "structuredContent": {"result": "Solaris, back, nuts"},
        "isError": False,
    }


@both_eras
async def test_ticket_of_a_page_is_not_shown() -> None:
    async def pay(ctx: Context) -> str:
        page = f"https://pay.example/?ticket={ctx.call.ticket('pay', unbound=True)}&lang=en"
        await ctx.ask("pay", ElicitUrl("Pay here", page))
        return "paid"

    server = cinema(pay)
    paid = await User(server, {"pay": ACCEPT}).call("pay")
    assert paid.shown == [{"pay": {"message": "Pay here", "url": "https://pay.example/?ticket=<ticket>&lang=en"}}]


@both_eras
async def test_an_unanswered_question_fails_with_what_was_asked() -> None:
    with pytest.raises(Unanswered, match=r"the question 'snack': 'Something to eat in the back row\?'") as raised:
        await User(cinema(), {"seat": {"row": "back"}}).call("book", film="Solaris")
    assert [question.name for question in raised.value.asked] == ["seat", "snack"]


async def test_unasked_answers_fail_unless_allowed() -> None:
    answers: dict[Any, Any] = {**ANSWERS, "drink": 1, re.compile("never"): [2, 3]}
    with pytest.raises(Unused, match=r"no question used 'drink', /never/ \(2 left\)"):
        await User(cinema(), answers).call("book", film="Solaris")
    assert (await User(cinema(), answers, allow_unused=True).call("book", film="Solaris")).value
    # An error does not hide that answers are left over.
    with pytest.raises(Unused, match="'seat'") as raised:
        await User(cinema(), {"seat": 1}, client="no-elicitation", allow_error=True).call("book", film="Solaris")
    assert isinstance(raised.value.__cause__, MCPError)


async def test_answers_given_round_by_round_count_for_their_round() -> None:
    call = await User(cinema(), [{"stars": "many"}, {re.compile("stars"): 5}, {"page": CANCEL}]).call("survey")
    assert call.value == {"stars": 5, "page": "cancel"}
    assert [question.round for question in call.questions] == [1, 2, 3]
    for answers in ([{}, *[ANSWERS] * 2], [ANSWERS]):
        with pytest.raises(Unanswered):
            await User(cinema(), answers).call("book", film="Solaris")


async def test_an_ignored_question_is_asked_again_or_is_an_error() -> None:
    answers: dict[Any, Any] = {"seat": [IGNORE, {"row": "back"}], "snack": DECLINE}
    call = await User(cinema(), answers).call("book", film="Solaris")
    assert call.value == "Solaris, back, decline"
    assert call.names == ["seat", "seat", "snack"]
    assert call.questions[0].answer is None
    with pytest.raises(MCPError, match="the client has no answer"):
        await User(cinema(), {"seat": IGNORE}, era=Era.LIVE).call("book", film="Solaris")


@both_eras
async def test_a_call_may_be_left_waiting() -> None:
    call = await User(cinema(), {"seat": {"row": "back"}, "snack": LEAVE}).call("book", film="Solaris")
    assert call.left
    assert call.names == ["seat", "snack"]
    assert call.states is not None
    assert call.states[-1] is State.AWAITING_INPUT


async def test_roots_and_samples_may_be_answered_in_json_form_only() -> None:
    said = {"role": "assistant", "content": {"type": "text", "text": "lovely"}, "model": "m"}
    answers = {"model": said, "roots": {"roots": [{"uri": "file:///one"}]}}
    user = User(cinema(), answers, roots=[Root(uri=FileUrl("file:///other"))])
    assert (await user.call("praise")).value == "lovely ['file:///one']"
    with pytest.raises(TypeError, match=r"roots must be JSON data, got 'lovely'; pass User\(roots="):
        await User(cinema(), {re.compile(""): "lovely"}, roots=[]).call("praise")


async def test_unaskable_client_gets_the_substitute_for_its_answer() -> None:
    async def rate(ctx: Context) -> int:
        return await ctx.ask("stars", "How many stars?", int, fallback=3)

    server = cinema(rate)
    assert (await User(server, {"stars": 5}).call("rate")).value == 5
    assert (await User(server, missing_capabilities={"elicitation"}).call("rate")).value == 3
    with pytest.raises(MCPError, match="sampling"):
        await User(server, missing_capabilities={"sampling"}, roots=[]).call("praise")


@both_eras
async def test_a_protocol_error_is_raised_as_it_came() -> None:
    async def broken() -> str:
        raise MCPError(code=-32050, message="out of film")

    server = cinema(broken)
    with pytest.raises(MCPError, match="out of film"):
        await User(server).call("broken")
    call = await User(server, allow_error=True).call("broken")
    assert call.error is not None
    assert (call.error.error.code, call.failure, call.is_error) == (-32050, "out of film", True)


@both_eras
async def test_a_server_elsewhere_is_asked_by_pattern_and_function(roundtrip_era: Era) -> None:
    answers: dict[Any, Any] = {re.compile("row for"): {"row": "back"}, about_food: DECLINE}
    async with served(cinema()) as url:
        call = await User(url, answers).call("book", film="Solaris")
    assert call.value == "Solaris, back, decline"
    assert call.states is None
    assert call.questions[0].message == "Which row for Solaris?"
    assert call.names == {Era.RETRY: ["seat", "snack"], Era.LIVE: [None, None]}[roundtrip_era]


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]


async def test_failure_beside_a_served_server_reaches_its_author_and_spoils_nothing() -> None:
    before = handlers()

    async def rate_while_serving(error: Exception | None = None) -> None:
        async with served(cinema()) as url:
            assert handlers() == before
            with anyio.fail_after(WAIT):
                call = await User(url, {re.compile("stars"): 5, re.compile("Rate"): ACCEPT}).call("survey")
            assert call.value == {"stars": 5, "page": "accept"}
            if error is not None:
                raise error

    for _ in range(3):
        with pytest.raises(RuntimeError, match="as it was raised"):
            await rate_while_serving(RuntimeError("as it was raised"))
    await rate_while_serving()
    assert handlers() == before


@pytest.mark.parametrize("what", ["results", "questions"])
async def test_difference_between_the_eras_is_reported(what: str) -> None:
    servers: list[Server[Any]] = []

    def make() -> Server[Any]:
        number = len(servers)

        async def ask() -> Elicit[Seat]:
            return Elicit(f"Row {number if what == 'questions' else ''}?", Seat)

        async def book(seat: Annotated[Seat, Resolve(ask)]) -> str:
            return f"{number}" if what == "results" else "same"

        servers.append(server_with(book))
        return servers[-1]

    with pytest.raises(AssertionError, match=f"the {what} differ"):
        await assert_same_on_both_eras(make, "book", answers={"ask": {"row": "x"}})


async def test_guessed_words_are_answered_with_the_right_ones() -> None:
    with pytest.raises(AssertionError, match=r"has 'rwo', but the form has only 'row'"):
        await User(cinema(), {"seat": {"rwo": "back"}}).call("book", film="Solaris")
    user: Any = User(cinema(), {"seat": {"row": "back"}, "snack": None}, allow_error=True)
    with pytest.raises(TypeError, match=r"write call\('book', argument='Solaris'\), with the argument's name"):
        await user.call("book", "Solaris")
    with pytest.raises(TypeError, match="answers= must be a mapping, or a list with one mapping per round"):
        await User(cinema(), cast("Any", str)).call("book", film="Solaris")
    with pytest.raises(AttributeError, match=r"no attribute 'failed'; it has .*, is_error, .*, value"):
        _ = (await user.call("book", film="Solaris")).failed


async def test_false_is_no_answer_to_a_confirmation() -> None:
    server = Server("files", keys=["7f" * 32])

    @server.tool(confirm="Delete {path}?")
    async def delete(path: str) -> str:
        """Delete a file."""
        return f"{path} is deleted"

    with pytest.raises(AssertionError, match="must be ACCEPT or DECLINE, because its form has no fields, got False"):
        await User(server, {"confirm:delete": False}).call("delete", path="a.txt")
    assert (await User(server, {"confirm:delete": True}).call("delete", path="a.txt")).text == "a.txt is deleted"
    del delete


async def test_invalid_server_object_is_rejected() -> None:
    targets: tuple[Any, ...] = (None, "server.py", ["python", "server.py"])
    for target in targets:
        with pytest.raises(TypeError, match="the server must be a server object, a function that makes a server,"):
            await User(target).call("book", film="Solaris")


def test_options_that_say_nothing_are_rejected() -> None:
    with pytest.raises(ValueError, match="'memory' or 'http'"):
        User(cinema(), over="https")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"allows 'elicitation' and 'sampling', got 'elicitation'"):
        User(cinema(), missing_capabilities="elicitation")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="must be one of 'no-elicitation', 'links', 'apps', 'app-forms', got 'none'"):
        User(cinema(), client="none")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="there is no network 'hopp'"):
        User(cinema(), network="hopp")
