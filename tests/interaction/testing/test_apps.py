"""Scripted users answer in apps inside the conversation with the same script as forms."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

import pytest
from mcp.server.context import CallNext, HandlerResult
from pydantic import BaseModel, Field

from roundtrip import Context, ElicitUrl, Pages, Sample, Server
from roundtrip.adapters.finding import low_level
from roundtrip.ledger import MemoryLedger
from roundtrip.testing import ACCEPT, CANCEL, DECLINE, LEAVE, Approver, Era, User
from roundtrip.testing.hosting import served
from tests.interaction.testing.cinemas import cinema
from tests.interaction.testing.paged_cinema import BASE, SCRIPT, SEAT, ann, make_cinema
from tests.kit.approving import reader, shop
from tests.kit.shops import KEY

pytestmark = pytest.mark.anyio
AppKind = Literal["apps", "app-forms"]
KINDS: list[AppKind] = ["apps", "app-forms"]
FAY = {"authorization": "Bearer token-of-fay"}


@pytest.mark.parametrize("era", [Era.RETRY, Era.LIVE, Era.TASK])
@pytest.mark.parametrize("kind", KINDS)
async def test_same_script_answers_forms_and_apps(kind: AppKind, era: Era) -> None:
    by_form = await User(make_cinema(), SCRIPT, era=era).call("book", film="Solaris")
    in_app = await User(make_cinema(), SCRIPT, client=kind, era=era).call("book", film="Solaris")
    assert [one.in_app for one in by_form.questions] == [False] * 3
    assert [one.in_app for one in in_app.questions] == [True] * 3
    assert (in_app.asked, in_app.names) == (by_form.asked, by_form.names)
    assert [one.shown for one in in_app.questions] == [one.shown for one in by_form.questions]
    assert in_app.value == by_form.value
    assert in_app.states == by_form.states
    # The requests of the app are not counted, because those of a question page are not.
    assert len(in_app.link_results) == (1 if kind == "apps" else 0)
    assert in_app.legs == (2 if kind == "apps" else by_form.legs)


@pytest.mark.roundtrip(eras="both")
async def test_answer_after_a_mistake_in_an_app_is_the_next_one() -> None:
    call = await User(make_cinema(), {"q0": ["seven", 7], "q1": DECLINE}, client="apps").call("many", number=2)
    assert call.is_error
    assert call.names == ["q0", "q0", "q1"]


async def test_user_may_leave_an_app() -> None:
    call = await User(make_cinema(), {"q0": 1, "q1": LEAVE}, client="apps").call("many", number=2)
    assert (call.left, call.names) == (True, ["q0", "q1"])


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("seven", r"the app rejected the answer: Your answer: It must be a whole number"),
        (CANCEL, "must be an answer, DECLINE or LEAVE, because an app asks"),
    ],
)
async def test_answer_that_an_app_cannot_send_fails_with_the_reason(answer: Any, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        await User(make_cinema(), {"q0": answer}, client="apps").call("many", number=1)


LEDGER = MemoryLedger()


def make_instance(keys: Sequence[bytes] = (KEY,)) -> Server[Any]:
    return make_cinema(keys=list(keys), ledger=LEDGER)


@pytest.mark.roundtrip(hostile=True, eras="both")
@pytest.mark.parametrize("kind", KINDS)
async def test_apps_withstand_every_network(kind: AppKind) -> None:
    call = await User(make_instance, SCRIPT, client=kind).call("book", film="Solaris")
    assert call.value == {"film": "Solaris", "seat": SEAT, "size": 2}


@pytest.mark.roundtrip(eras="both")
@pytest.mark.parametrize("kind", KINDS)
async def test_approver_decides_while_an_app_waits(kind: AppKind) -> None:
    fay = Approver({"finance": ("approve", "fine")}, headers=FAY)
    user = User(shop(principal=ann), {"how_much": 3}, client=kind, approver=fay)
    call = await user.call("partly", order="Emma")
    assert call.text == "refunded 3 of Emma, as fay says"
    assert call.names == ["how_much"]
    assert [one["who"] for one in call.approvals] == ["fay"]


@pytest.mark.parametrize("kind", KINDS)
async def test_approver_decides_in_another_process_while_an_app_waits(kind: AppKind) -> None:
    fay = Approver({"finance": "approve"}, headers=FAY)
    async with served(shop(principal=ann)) as url:
        call = await User(url, client=kind, approver=fay, era=Era.RETRY).call("refund", amount=5)
    assert (call.text, call.names) == ("refunded 5", [])


async def test_missing_approval_in_an_app_fails_the_test() -> None:
    server = shop(principal=ann)
    with pytest.raises(AssertionError, match="still waits for approval 'confirm:refund' by 'finance'"):
        await User(server, client="apps", patience=0.1).call("refund", amount=5)
    async with served(server) as url:
        with pytest.raises(AssertionError, match=r"the app is still awaiting after 0\.5 s"):
            await User(url, client="apps", patience=0.1).call("refund", amount=6)


class Visit(BaseModel):
    day: datetime
    seats: int = Field(2, ge=1)
    row: Literal["front", "back"] = "front"
    extras: list[Literal["wine", "nuts"]] = ["nuts"]
    with_dog: bool
    note: str | None = None


def paged(**options: Any) -> Server[Any]:
    server = Server[Any]("paged", principal=ann, pages=Pages(base_url=BASE, authenticate=reader), **options)

    @server.tool()
    async def plan(ctx: Context) -> dict[str, Any]:
        visit = await ctx.ask("visit", "Which visit?\nAnd when?", Visit)
        size = await ctx.ask("size", "How many tickets?", int)
        sure = await ctx.ask_outcome("sure", "Sure?", bool)
        return {**visit.model_dump(mode="json"), "size": size, "sure": sure.action}

    @server.tool()
    async def pay(ctx: Context) -> str:
        await ctx.ask("paid", ElicitUrl("Pay here", "https://bank.example/pay"))
        return "paid"

    return server


@pytest.mark.parametrize("era", [Era.RETRY, Era.LIVE])
async def test_payload_is_enough_for_a_server_in_another_process(era: Era) -> None:
    """Questions have no names there, and fields are named by their labels."""
    answers = {
        re.compile("Which visit"): {"day": "2026-07-28T10:00:00Z", "extras": ["wine"], "with_dog": False},
        re.compile("tickets"): 3,
        re.compile("Sure"): DECLINE,
        re.compile("Pay"): ACCEPT,
    }
    async with served(paged()) as url:
        user = User(url, answers, client="apps", era=era, allow_unused=True)
        call, paid = await user.call("plan"), await user.call("pay")
    visit = {"day": "2026-07-28T10:00:00Z", "seats": 2, "row": "front", "extras": ["wine"], "with_dog": False}
    assert call.value == {**visit, "note": None, "size": 3, "sure": "decline"}
    assert call.names == [None] * 3
    properties = (call.questions[0].schema or {})["properties"]
    defaults = {name: field["default"] for name, field in properties.items() if "default" in field}
    assert defaults == {"seats": "2", "row": "front", "extras": ["nuts"]}
    assert [one.in_app for one in call.questions] == [True] * 3
    assert paid.text == "paid"


@pytest.mark.roundtrip(eras="both")
async def test_call_that_needs_its_client_goes_on_after_the_app() -> None:
    server = paged()

    @server.tool()
    async def praise(ctx: Context) -> str:
        title = await ctx.ask("title", "Which film?", str)
        said = await ctx.ask("praise", Sample(f"Praise {title}", max_tokens=9))
        return f"{getattr(said.content, 'text', None)} {await ctx.ask('stars', 'Stars?', int)}"

    call = await User(server, {"title": "Solaris", "praise": "Great", "stars": 5}, client="apps").call("praise")
    assert call.text == "Great 5"
    assert [one.in_app for one in call.questions] == [True, False, True]


async def test_form_without_an_app_fails_for_a_client_that_renders_forms() -> None:
    server = paged()
    assert (await User(server, {"paid": ACCEPT}, client="app-forms").call("pay")).text == "paid"
    with pytest.raises(AssertionError, match="must name an app"):
        await User(cinema(), {"seat": {"row": "back"}}, client="app-forms").call("book", film="Solaris")


@pytest.mark.parametrize(("content", "told"), [("<p>", r"got \['text/html'\]"), (None, r"got \[\]")])
async def test_document_of_a_form_must_be_an_app(content: str | None, told: str) -> None:
    async def spoil(ctx: Any, call_next: CallNext) -> HandlerResult:
        result = await call_next(ctx)
        if ctx.method == "resources/read":
            found = [{"uri": ctx.params["uri"], "mimeType": "text/html", "text": content}]
            return {"contents": found if content else [], "resultType": "complete", "ttlMs": 0, "cacheScope": "public"}
        return result

    server = make_cinema()
    low_level(server).middleware.insert(0, spoil)
    with pytest.raises(AssertionError, match=told):
        await User(server, {"q0": 1}, client="app-forms").call("many", number=1)


@pytest.mark.parametrize("kind", KINDS)
async def test_snapshot_shows_that_an_app_asked(kind: AppKind, call_snapshot: Any) -> None:
    call = await User(make_cinema(), {"name": "Ann", "sure": DECLINE}, client=kind).call("both")
    assert call.text == "name accept, sure decline"
    assert call == call_snapshot
