"""Scripted users answer question pages with the same script as forms."""

from collections.abc import Sequence
from typing import Any, Literal

import pytest

from roundtrip import Context, Elicit, Pages, Server
from roundtrip.ledger import MemoryLedger
from roundtrip.machine.table import State
from roundtrip.testing import CANCEL, DECLINE, LEAVE, Era, Unanswered, Unused, User
from tests.interaction.testing.paged_cinema import BASE, SCRIPT, SEAT, Seat, ann, make_cinema
from tests.kit.approving import reader
from tests.kit.shops import KEY

pytestmark = pytest.mark.anyio
ANN = {"cookie": "user=ann"}
Client = Literal["no-elicitation", "links"]
CLIENTS: list[Client] = ["no-elicitation", "links"]
ERAS = [Era.RETRY, Era.LIVE]


def on_pages(server: Any, script: Any, client: Client | None = "no-elicitation", **options: Any) -> User:
    return User(server, script, client=client, page_headers=ANN, **options)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("client", CLIENTS)
async def test_same_script_answers_forms_and_pages(client: Client, era: Era) -> None:
    by_form = await User(make_cinema(), SCRIPT, era=era).call("book", film="Solaris")
    by_page = await on_pages(make_cinema(), SCRIPT, client, era=era).call("book", film="Solaris")
    asked = [question for question in by_page.questions if question.page is not None]
    assert [one.message for one in asked] == by_form.asked
    assert [one.name for one in asked] == by_form.names
    assert [one.shown for one in asked] == [one.shown for one in by_form.questions]
    assert by_page.value == by_form.value
    assert by_page.states == by_form.states
    shown_links = [question.name for question in by_page.questions if question.page is None]
    assert shown_links == (["page"] if client == "links" and era is Era.RETRY else [])
    assert len(by_page.link_results) == (0 if shown_links else 1)


async def test_page_may_be_declined_or_left() -> None:
    declined = await on_pages(make_cinema(), {"q0": DECLINE}).call("many", number=2)
    left = await on_pages(make_cinema(), {"q0": 1, "q1": LEAVE}).call("many", number=2)
    assert [(call.is_error, call.left, (call.states or [])[-1]) for call in (declined, left)] == [
        (True, False, State.DECLINED),
        (False, True, State.AWAITING_INPUT),
    ]


FAILURES: list[tuple[dict[str, str] | None, Any, str]] = [
    (None, 1, "answered 401; the server has "),
    ({"cookie": "user=eve"}, 1, "answered 404; the page belongs to another user"),
    (ANN, "seven", "rejected the answer: Your answer: It must be a whole number"),
    (ANN, CANCEL, "must be an answer, DECLINE or LEAVE"),
]
"""The headers of a user's browser, an answer, and the words with which the test fails."""


async def test_user_who_cannot_answer_a_page_fails_with_the_reason() -> None:
    async def said(headers: dict[str, str] | None, answer: Any) -> str:
        with pytest.raises(AssertionError) as failed:
            await User(make_cinema(), {"q0": answer}, client="no-elicitation", page_headers=headers).call(
                "many", number=1
            )
        return str(failed.value)

    told = [(words, await said(headers, answer)) for headers, answer, words in FAILURES]
    assert [(words, text) for words, text in told if words not in text] == []


@pytest.mark.roundtrip(eras="both")
async def test_answer_after_a_mistake_is_the_next_one() -> None:
    call = await on_pages(make_cinema(), {"q0": ["seven", 7]}).call("many", number=1)
    assert not call.is_error
    assert call.names[-2:] == ["q0", "q0"]


async def test_script_is_checked_on_pages_too() -> None:
    with pytest.raises(Unanswered, match="'q1'"):
        await on_pages(make_cinema(), {"q0": 1}).call("many", number=2)
    with pytest.raises(Unused, match="'q7'"):
        await on_pages(make_cinema(), {"q0": 1, "q7": 1}).call("many", number=1)


@pytest.mark.parametrize("client", CLIENTS)
async def test_snapshot_shows_links_and_pages(client: Client, call_snapshot: Any) -> None:
    call = await on_pages(make_cinema(), {"name": "Ann", "sure": DECLINE}, client).call("both")
    assert call.text == "name accept, sure decline"
    assert call == call_snapshot


LEDGER = MemoryLedger()


def make_instance(keys: Sequence[bytes] = (KEY,)) -> Server[Any]:
    return make_cinema(keys=list(keys), ledger=LEDGER)


@pytest.mark.roundtrip(hostile=["hop", "rotate", "drop", "duplicate-at-once"], eras="both")
@pytest.mark.parametrize("client", CLIENTS)
async def test_pages_withstand_every_network(client: Client) -> None:
    call = await on_pages(make_instance, SCRIPT, client).call("book", film="Solaris")
    assert call.value == {"film": "Solaris", "seat": SEAT, "size": 2}


def printer(keys: Any = (KEY,), ledger: MemoryLedger = MemoryLedger()) -> Server[Any]:  # noqa: B008
    server = Server[Any](
        "printer",
        keys=keys,
        principal=ann,
        ledger=ledger,
        pages=Pages(base_url=BASE, authenticate=reader, wait=5),
        channels=["form", "model", "link"],
    )

    @server.tool()
    async def label(ctx: Context) -> str:
        color = await ctx.ask("color", "Which color?", Literal["red", "blue"], answered_by="anyone")
        seat = await ctx.ask_outcome("seat", Elicit("Seat?", Seat, answered_by="anyone"))
        copies = await ctx.ask("copies", "How many?", int)
        return f"{copies} {color} labels, {seat.action}"

    return server


@pytest.mark.parametrize("seat", [{"row": 3, "side": "left"}, DECLINE])
async def test_questions_for_anyone_are_answered_as_by_a_model(seat: Any) -> None:
    answers = {"color": "red", "seat": seat, "copies": 2}
    call = await User(printer, answers, client="no-elicitation", page_headers=ANN).call("label")
    assert call.text == f"2 red labels, {'decline' if seat is DECLINE else 'accept'}"
    assert call.names == ["color", "seat", "copies"]
    assert [question.page is not None for question in call.questions] == [False, False, True]
