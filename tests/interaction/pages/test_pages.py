"""A page for the user: they agree to visit it, and `done` returns the result."""

import threading
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any

import anyio
import pytest
from mcp_types import ElicitResult
from pydantic import BaseModel, Field, SecretStr
from typing_extensions import TypedDict

from roundtrip import AcceptedElicitation, Context, Elicit, ElicitUrl, InvalidSignature, Resolve, Server
from roundtrip.engine import rounds
from roundtrip.testing import Era, LegByLeg, Steps
from tests.interaction.pages.ways import BOOK, URL, places, ways
from tests.kit.hosts import WAIT
from tests.kit.players import Person, connect, text_of
from tests.kit.secrets import NEW
from tests.kit.shops import Choice
from tests.kit.token_readings import readings
from tests.kit.visitors import Visitor, add_export, connect_user

pytestmark = pytest.mark.anyio


@ways
async def test_agreement_is_the_answer_for_a_page_without_done(place: str, era: Era) -> None:
    server = add_export(Server("shop"), place, lambda ctx: ElicitUrl("Please read the terms.", URL))
    visitor = Visitor()
    async with connect_user(server, era, visitor) as client:
        assert text_of(await client.call_tool("export", BOOK)) == "Dune for True"
    assert [(page.message, page.url) for page in visitor.pages] == [("Please read the terms.", URL)]


class Shop(BaseModel):
    name: str


async def shop() -> Shop:
    return Shop(name="north")


def done_sync(title: str, ctx: Context, shop: Annotated[Shop, Resolve(shop)]) -> str:
    return f"{title} {shop.name} {ctx.call.id == ''}"


class DoneObject:
    async def __call__(self, title: str, ctx: Context, shop: Annotated[Shop, Resolve(shop)]) -> str:
        return done_sync(title, ctx, shop)


@pytest.mark.parametrize(
    ("place", "era", "done"), [("resolver", Era.LIVE, DoneObject()), ("body", Era.RETRY, done_sync)]
)
async def test_done_may_take_what_a_resolver_may_take(place: str, era: Era, done: Callable[..., Any]) -> None:
    server = add_export(Server("shop"), place, lambda ctx: ElicitUrl("Log in.", URL, done=done))
    async with connect_user(server, era, Visitor()) as client:
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
        outcome = ctx.blocking.elicit_url("Log in.", URL, name="login", done=done)
        return f"{read.action} {outcome.data if isinstance(outcome, AcceptedElicitation) else outcome.action}"

    async with connect_user(server, era, Visitor()) as client:
        assert text_of(await client.call_tool("export")) == "accept True"
    assert threads
    assert threading.get_ident() not in threads


async def failure_of(done: Callable[..., Any], place: str, era: Era, **options: Any) -> str:
    """Return the error of a call whose `done` fails."""
    server = add_export(Server("shop", **options), place, lambda ctx: ElicitUrl("Log in.", URL, done=done))
    async with connect_user(server, era, Visitor()) as client:
        result = await client.call_tool("export", BOOK)
    assert result.is_error
    return text_of(result)


def unfillable(nobody_knows: int) -> bool:
    return True


async def asking() -> Any:
    return Elicit("Really done?", Shop)


@ways
async def test_done_that_cannot_answer_fails_the_call(place: str, era: Era) -> None:
    masked = await failure_of(unfillable, place, era, mask_error_details=True)
    assert "nobody_knows" not in masked, "the author's mistake is as much a detail as a crash"
    assert "so it must not ask" in await failure_of(asking, place, era)
    unwritten = await failure_of(lambda: object(), place, era)
    assert [part for part in ("'login'", "done=") if part not in unwritten] == []


# What done said is final.


class Account(BaseModel):
    name: str
    since: date


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


# The user does not go there.


@pytest.mark.parametrize(("place", "era", "action"), [("resolver", Era.LIVE, "decline"), ("body", Era.RETRY, "cancel")])
async def test_a_user_who_will_not_go_there_ends_the_call(place: str, era: Era, action: str) -> None:
    asked: list[str] = []

    def done() -> bool:
        asked.append("done?")
        return True

    server = add_export(Server("shop"), place, lambda ctx: ElicitUrl("Log in.", URL, done=done))
    visitor = Visitor(action)
    async with connect_user(server, era, visitor) as client:
        result = await client.call_tool("export", BOOK)
    assert result.is_error
    assert text_of(result).startswith("Error executing tool export: ")
    assert (f"The user {action}" if place == "body" else f"elicitation was {action}") in text_of(result)
    assert (len(visitor.pages), asked) == (1, [])


async def test_elicit_url_in_a_resolver_waits_for_the_page() -> None:
    server = Server[Any]("shop")

    async def login(ctx: Context) -> str:
        outcome = await ctx.elicit_url("Log in.", URL, "login-1", done=lambda: "ada")
        return outcome.action

    @server.tool()
    async def export(account: Annotated[str, Resolve(login)]) -> str:
        return account

    async with connect_user(server, Era.LIVE, Visitor()) as client:
        assert "return ElicitUrl(message, url, done=...)" in text_of(await client.call_tool("export"))


# Legs that wait for a page: each waits for the declared time, and then asks again.


AGREED = ElicitResult(action="accept")


def exporting(place: str, done: Callable[..., Any], *, wait: float, trace: Steps | None = None) -> Server[Any]:
    server = Server[Any]("shop", keys=[NEW], trace=trace)
    return add_export(server, place, lambda ctx: ElicitUrl("Log in.", URL, done=done, wait=wait))


@ways
async def test_waiting_leg_asks_once_and_notices_the_finished_page(place: str, era: Era) -> None:
    looked, finished = anyio.Event(), anyio.Event()

    async def done() -> str | None:
        looked.set()
        return "ada" if finished.is_set() else None

    async def page() -> None:
        # The user takes longer than the leg's first look.
        await looked.wait()
        finished.set()

    visitor = Visitor()
    with anyio.fail_after(WAIT):
        async with (
            connect_user(exporting(place, done, wait=WAIT), era, visitor) as client,
            anyio.create_task_group() as web,
        ):
            web.start_soon(page)
            assert text_of(await client.call_tool("export", BOOK)) == "Dune for ada"
    assert visitor.urls == [URL]


@pytest.mark.parametrize(
    ("place", "era", "wait", "unfinished"),
    [("resolver", Era.LIVE, 0, None), ("body", Era.RETRY, 0, False), ("body", Era.LIVE, 0.05, None)],
)
async def test_leg_waits_only_its_configured_time_before_asking_again(
    place: str, era: Era, wait: float, unfinished: Any
) -> None:
    visits: list[str] = []

    async def done() -> Any:
        return "ada" if len(visits) == 2 else unfinished

    trace = Steps()
    visitor = Visitor(visit=lambda page: visits.append(page.url))
    with anyio.fail_after(WAIT):
        async with connect_user(exporting(place, done, wait=wait, trace=trace), era, visitor) as client:
            assert text_of(await client.call_tool("export", BOOK)) == "Dune for ada"
    assert visitor.urls == [URL, URL]
    assert trace.asked == [{"login": "new"}, {"login": "unfinished"}]


async def test_look_that_hangs_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "_DONE_SECONDS", 0.05)
    hopper = LegByLeg(lambda: exporting("body", anyio.sleep_forever, wait=0))
    await hopper.leg("export", BOOK)
    with anyio.fail_after(WAIT):
        await hopper.leg("export", BOOK, answers={"login": AGREED}, state=hopper.token)
    assert list(hopper.questions) == ["login"]


@places
async def test_unanswered_page_is_shown_again_without_waiting(place: str) -> None:
    """Shows S7."""
    looked: list[str] = []

    async def done() -> str | None:
        looked.append("looked")
        return None

    trace = Steps()
    hopper = LegByLeg([exporting(place, done, wait=WAIT, trace=trace)])
    await hopper.leg("export", BOOK)
    await hopper.leg("export", BOOK, answers={}, state=hopper.token)
    assert list(hopper.questions) == ["login"]
    assert looked == []
    assert trace.asked == [{"login": "new"}, {"login": "missing"}]


def test_a_negative_wait_is_rejected_where_it_is_written() -> None:
    for wait in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="wait="):
            ElicitUrl("Log in.", URL, wait=wait)


# Secrets: no form asks for one; users may type them on a page.


class Login(BaseModel):
    user: str
    password: SecretStr


class Pin(TypedDict):
    pin: Annotated[str, Field(json_schema_extra={"writeOnly": True})]


SECRETS: list[tuple[Any, str]] = [(Login, "password"), (Pin, "pin"), (SecretStr, "value")]


@pytest.mark.parametrize(
    ("schema", "field", "era"),
    [(schema, field, [Era.RETRY, Era.LIVE][place % 2]) for place, (schema, field) in enumerate(SECRETS)],
    ids=["model", "typed dict", "value"],
)
async def test_secret_form_of_a_body_is_rejected_before_it_shows(
    schema: Any, field: str, era: Era, caplog: pytest.LogCaptureFixture
) -> None:
    """Shows S11."""
    server = Server[Any]("shop")

    @server.tool()
    async def export(ctx: Context) -> str:
        await ctx.ask("login", "Log in.", schema)
        return "done"

    person = Person()
    async with connect(server, era, person) as client:
        result = await client.call_tool("export")
    assert result.is_error
    assert person.asked == []
    assert f"field '{field}' is a secret" in caplog.text


def test_secret_form_of_a_resolver_is_rejected_at_registration() -> None:
    """Shows S11."""

    def login() -> Elicit[Login]:
        return Elicit("Log in.", Login)

    async def export(account: Annotated[Any, Resolve(login)]) -> str:
        return "done"

    with pytest.raises(InvalidSignature, match="field 'password' is a secret"):
        Server("shop").add_tool(export)
