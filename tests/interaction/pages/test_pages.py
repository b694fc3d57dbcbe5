"""A page for the user: they agree to visit it, and `done` returns the result."""

import threading
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any

import pytest
from mcp_types import ElicitResult
from pydantic import BaseModel

from roundtrip import (
    AcceptedElicitation,
    CancelledElicitation,
    Context,
    DeclinedElicitation,
    Elicit,
    ElicitationResult,
    ElicitUrl,
    Resolve,
    Server,
)
from roundtrip.testing import Era, LegByLeg
from tests.interaction.pages.ways import BOOK, URL, places, ways
from tests.interaction.resolvers.test_once import readings
from tests.kit.players import text_of
from tests.kit.secrets import NEW
from tests.kit.visitors import Visitor, add_export, visiting

pytestmark = pytest.mark.anyio


@ways
async def test_agreement_is_the_answer_for_a_page_without_done(place: str, era: Era) -> None:
    server = add_export(Server("shop"), place, lambda ctx: ElicitUrl("Please read the terms.", URL))
    visitor = Visitor()
    async with visiting(server, era, visitor) as client:
        assert text_of(await client.call_tool("export", BOOK)) == "Dune for True"
    assert [(page.message, page.url) for page in visitor.pages] == [("Please read the terms.", URL)]


@pytest.mark.parametrize(
    ("place", "era", "unfinished"), [("resolver", Era.LIVE, None), ("body", Era.LIVE, False), ("body", Era.RETRY, None)]
)
async def test_unfinished_page_is_asked_for_again(place: str, era: Era, unfinished: Any) -> None:
    visits: list[str] = []

    async def done() -> Any:
        return f"ada after {len(visits)}" if len(visits) == 3 else unfinished

    server = add_export(Server("shop"), place, lambda ctx: ElicitUrl("Log in.", URL, done=done, wait=0))
    visitor = Visitor(visit=lambda page: visits.append(page.url))
    async with visiting(server, era, visitor) as client:
        assert text_of(await client.call_tool("export", BOOK)) == "Dune for ada after 3"
    assert visitor.urls == [URL] * 3
    # It is one question all along: a client that shows it can tell.
    assert len({page.elicitation_id for page in visitor.pages}) == 1


class Shop(BaseModel):
    name: str


async def shop() -> Shop:
    return Shop(name="north")


async def done_async(title: str, ctx: Context, shop: Annotated[Shop, Resolve(shop)]) -> str:
    return f"{title} {shop.name} {ctx.call.id == ''}"


def done_sync(title: str, ctx: Context, shop: Annotated[Shop, Resolve(shop)]) -> str:
    return f"{title} {shop.name} {ctx.call.id == ''}"


class DoneObject:
    async def __call__(self, title: str, ctx: Context, shop: Annotated[Shop, Resolve(shop)]) -> str:
        return done_sync(title, ctx, shop)


@pytest.mark.parametrize(
    ("place", "era", "done"),
    [("resolver", Era.LIVE, done_async), ("body", Era.RETRY, done_sync), ("resolver", Era.RETRY, DoneObject())],
)
async def test_done_may_take_what_a_resolver_may_take(place: str, era: Era, done: Callable[..., Any]) -> None:
    server = add_export(Server("shop"), place, lambda ctx: ElicitUrl("Log in.", URL, done=done))
    async with visiting(server, era, Visitor()) as client:
        assert text_of(await client.call_tool("export", BOOK)) == "Dune for Dune north False"


async def test_plain_body_and_done_run_in_worker_threads(era: Era) -> None:
    threads: list[int] = []
    server = Server[Any]("shop")

    def done() -> bool:
        threads.append(threading.get_ident())
        return True

    @server.tool()
    def export(ctx: Context) -> str:
        read = ctx.blocking.elicit_url("Read the terms.", URL)
        outcome = ctx.blocking.elicit_url("Log in.", URL, key="login", done=done)
        return f"{read.action} {outcome.data if isinstance(outcome, AcceptedElicitation) else outcome.action}"

    async with visiting(server, era, Visitor()) as client:
        assert text_of(await client.call_tool("export")) == "accept True"
    assert threads
    assert threading.get_ident() not in threads


async def failure_of(done: Callable[..., Any], place: str, era: Era, **options: Any) -> str:
    """Return the error of a call whose `done` fails."""
    server = add_export(Server("shop", **options), place, lambda ctx: ElicitUrl("Log in.", URL, done=done))
    async with visiting(server, era, Visitor()) as client:
        result = await client.call_tool("export", BOOK)
    assert result.is_error
    return text_of(result)


@ways
async def test_a_done_that_cannot_be_filled_fails_the_call(place: str, era: Era) -> None:
    def done(nobody_knows: int) -> bool:
        return True

    failure = await failure_of(done, place, era, mask_error_details=True)
    assert "nobody_knows" not in failure, "the author's mistake is as much a detail as a crash"


@ways
async def test_question_inside_done_is_rejected(place: str, era: Era) -> None:
    async def done() -> Any:
        return Elicit("Really done?", Shop)

    assert "and must not ask a question" in await failure_of(done, place, era)


# What done said is final.


class Account(BaseModel):
    name: str
    since: date


class Choice(BaseModel):
    ok: bool


def shop_with_login(
    place: str, said: list[Account], got: list[Account], done: Callable[[], Account | None]
) -> Server[Any]:
    server = Server[Any]("shop", keys=[NEW])

    async def login() -> ElicitUrl[Account]:
        return ElicitUrl("Log in.", URL, done=done, wait=0)

    async def sure(account: Annotated[Account, Resolve(login)]) -> Elicit[Choice]:
        got.append(account)
        return Elicit(f"Go on as {account.name}?", Choice)

    async def by_resolver(account: Annotated[Account, Resolve(login)], sure: Annotated[Choice, Resolve(sure)]) -> str:
        got.append(account)
        return f"{account.name} {sure.ok}"

    async def by_body(ctx: Context) -> str:
        account = await ctx.ask("login", ElicitUrl("Log in.", URL, done=done, wait=0))
        got.append(account)
        sure = await ctx.ask("sure", f"Go on as {account.name}?", Choice)
        return f"{account.name} {sure.ok}"

    server.add_tool(by_resolver if place == "resolver" else by_body, name="export")
    return server


@places
async def test_first_done_value_is_final_typed_and_sealed_everywhere(place: str) -> None:
    said: list[Account] = []
    got: list[Account] = []

    def done() -> Account | None:
        said.append(Account(name=f"guest-number-{len(said)}", since=date(2026, 7, 28)))
        return said[-1]

    hopper = LegByLeg(lambda: shop_with_login(place, said, got, done))
    await hopper.leg("export")
    assert hopper.questions["login"].url == URL
    agreed = ElicitResult(action="accept")
    await hopper.leg("export", answers={"login": agreed}, state=hopper.token)
    assert list(hopper.questions) == ["sure"]
    # Nothing that anybody without the key can read of the token tells the value.
    assert not any(b"guest-number" in reading for reading in readings(hopper.token))
    result = await hopper.leg("export", answers={"sure": {"ok": True}}, state=hopper.token)
    assert text_of(result) == "guest-number-0 True"
    assert len(said) == 1
    assert set(map(type, got)) == {Account}
    assert {account.since for account in got} == {date(2026, 7, 28)}


@ways
async def test_done_value_without_json_form_fails_naming_the_question(place: str, era: Era) -> None:
    def done() -> Any:
        return object()

    failure = await failure_of(done, place, era)
    assert "'login'" in failure
    assert "done=" in failure


# The user does not go there.


@pytest.mark.parametrize(("place", "era", "action"), [("resolver", Era.LIVE, "decline"), ("body", Era.RETRY, "cancel")])
async def test_a_user_who_will_not_go_there_ends_the_call(place: str, era: Era, action: str) -> None:
    asked: list[str] = []

    def done() -> bool:
        asked.append("done?")
        return True

    server = add_export(Server("shop"), place, lambda ctx: ElicitUrl("Log in.", URL, done=done))
    visitor = Visitor(action)
    async with visiting(server, era, visitor) as client:
        result = await client.call_tool("export", BOOK)
    assert result.is_error
    assert text_of(result).startswith("Error executing tool export: ")
    assert text_of(result).endswith(f"elicitation was {action}")
    assert (len(visitor.pages), asked) == (1, [])


@pytest.mark.parametrize(("place", "era", "action"), [("resolver", Era.LIVE, "decline"), ("body", Era.RETRY, "cancel")])
async def test_user_abandoning_an_agreed_page_ends_the_call(place: str, era: Era, action: str) -> None:
    server = add_export(Server("shop"), place, lambda ctx: ElicitUrl("Log in.", URL, done=lambda: None, wait=0))
    visitor = Visitor("accept", action)
    async with visiting(server, era, visitor) as client:
        result = await client.call_tool("export", BOOK)
    assert result.is_error
    assert text_of(result).endswith(f"elicitation was {action}")
    assert len(visitor.pages) == 2


@pytest.mark.parametrize(
    ("place", "era", "action", "outcome"),
    [
        ("resolver", Era.LIVE, "accept", AcceptedElicitation),
        ("body", Era.RETRY, "accept", AcceptedElicitation),
        ("body", Era.LIVE, "decline", DeclinedElicitation),
        ("resolver", Era.RETRY, "cancel", CancelledElicitation),
    ],
)
async def test_outcome_consumer_sees_the_end(place: str, era: Era, action: str, outcome: Any) -> None:
    server = Server[Any]("shop")
    got: list[Any] = []

    async def login() -> ElicitUrl[str]:
        return ElicitUrl("Log in.", URL, done=lambda: "ada")

    async def by_resolver(account: Annotated[ElicitationResult[Any], Resolve(login)]) -> str:
        got.append(account)
        return "done"

    async def by_body(ctx: Context) -> str:
        got.append(await ctx.ask_outcome("login", ElicitUrl("Log in.", URL, done=lambda: "ada")))
        return "done"

    server.add_tool(by_resolver if place == "resolver" else by_body, name="export")
    async with visiting(server, era, Visitor(action)) as client:
        assert text_of(await client.call_tool("export")) == "done"
    assert isinstance(got[-1], outcome)
    if action == "accept":
        assert got[-1].data == "ada"


async def test_elicit_url_asks_the_same_question_as_elicit_url_marker(era: Era) -> None:
    server = Server[Any]("shop")
    got: list[str] = []

    @server.tool()
    async def export(ctx: Context) -> str:
        got.append((await ctx.elicit_url("Read the terms.", URL)).action)
        outcome = await ctx.elicit_url("Log in.", URL, key="login", done=lambda: "ada")
        return outcome.data if isinstance(outcome, AcceptedElicitation) else outcome.action

    visitor = Visitor()
    async with visiting(server, era, visitor) as client:
        assert text_of(await client.call_tool("export")) == "ada"
    assert [page.message for page in visitor.pages] == ["Read the terms.", "Log in."]
    assert set(got) == {"accept"}


async def test_elicit_url_in_a_resolver_waits_for_the_page() -> None:
    server = Server[Any]("shop")

    async def login(ctx: Context) -> str:
        outcome = await ctx.elicit_url("Log in.", URL, "login-1", done=lambda: "ada")
        return outcome.action

    @server.tool()
    async def export(account: Annotated[str, Resolve(login)]) -> str:
        return account

    async with visiting(server, Era.LIVE, Visitor()) as client:
        assert "return ElicitUrl(message, url, done=...)" in text_of(await client.call_tool("export"))
