"""Types that an editor infers of questions that a body asks."""

from enum import Enum
from typing import Annotated, Any, Literal, assert_type

from mcp.server.elicitation import UrlElicitationResult
from mcp.server.mcpserver.resolve import Elicit as SdkElicit
from mcp_types import CreateMessageResult, ListRootsResult
from pydantic import BaseModel, Field

from roundtrip import (
    AcceptedElicitation,
    Context,
    Elicit,
    ElicitationResult,
    ElicitUrl,
    ListRoots,
    Sample,
    Sampled,
    Server,
    Ticket,
)


class Seat(BaseModel):
    row: str


class Size(Enum):
    SMALL = "s"


Row = Literal["front", "back"]


async def account() -> Seat | None: ...


def account_now(ctx: Context) -> Seat | None: ...


async def paid(order: str) -> bool:
    return True


def default_seat() -> Seat:
    return Seat(row="a")


async def quote(film: str) -> float:
    return 9.5


def quote_now(film: str) -> float:
    return 9.5


async def quote_for(film: str, *, key: str) -> float:
    return 9.5


assert_type(Elicit("Which sizes?", [{1: "One", 2: "Two"}]), Elicit[list[int]])
assert_type(Elicit("Which size?", {1: "One", 2: "Two"}), Elicit[int])
assert_type(ElicitUrl("Log in.", "https://cinema.example", done=account_now), ElicitUrl[Seat])
assert_type(ElicitUrl("Pay.", "https://cinema.example", done=paid, wait=0), ElicitUrl[bool])
assert_type(ElicitUrl("Read.", "https://cinema.example"), ElicitUrl[bool])


async def forms(ctx: Context) -> None:
    outcome = await ctx.ask_outcome("seat", "Which row?", Seat)
    assert_type(outcome, ElicitationResult[Seat])
    if isinstance(outcome, AcceptedElicitation):
        assert_type(outcome.data, Seat)
    assert_type(await ctx.ask("seat", "Which row?", Seat, former_names=["row"]), Seat)
    assert_type(await ctx.ask("sure", "Sure?", bool), bool)
    assert_type(await ctx.ask("size", "Which size?", Size), Size)
    assert_type(await ctx.ask("one", "Which?", {1: "One"}), int)
    assert_type(await ctx.ask("many", "Which?", [{1: "One"}]), list[int])
    assert_type(await ctx.ask_outcome("row", "Which row?", Row), ElicitationResult[Row])
    assert_type(await ctx.ask("row", "Which row?", Row), Row)
    assert_type(await ctx.ask("ten", "How many?", Annotated[int, Field(le=10)], guesses=2), int)
    assert_type(await ctx.ask("count", "How many?", int, fallback=None), int | None)
    assert_type(await ctx.ask("seat", "Which row?", Seat, fallback=default_seat, volatile_ok=True), Seat)
    assert_type(await ctx.ask("row", Elicit("Which row?", Row)), Row)
    assert_type(await ctx.ask_outcome("one", "Which?", {1: "One"}, former_names=["two"]), ElicitationResult[int])
    assert_type(await ctx.ask_outcome("many", "Which?", [{1: "One"}]), ElicitationResult[list[int]])
    assert_type(await ctx.ask_outcome("count", "How many?", int, fallback=None), ElicitationResult[int | None])
    assert_type(await ctx.ask_outcome("row", Elicit("Which row?", Row)), ElicitationResult[Row])
    assert_type(await ctx.elicit("Which row?", Seat, answered_by="anyone"), ElicitationResult[Seat])
    assert_type(await ctx.elicit("Which row?", Row), ElicitationResult[Row])
    assert_type(await ctx.elicit("Which?", {1: "One"}), ElicitationResult[int])
    assert_type(await ctx.elicit("Which?", [{1: "One"}]), ElicitationResult[list[int]])
    assert_type(await ctx.ask_outcome("seat", SdkElicit("Which row?", Seat)), ElicitationResult[Seat])
    assert_type(await ctx.ask("seat", SdkElicit("Which row?", Seat)), Seat)
    assert_type(await ctx.review("review", "All right?", of=["seat"]), dict[str, Any])
    assert_type(await ctx.review_outcome("review", "All right?", of=["seat"]), ElicitationResult[dict[str, Any]])


async def others(ctx: Context) -> None:
    login = ElicitUrl("Log in.", "https://cinema.example", done=account)
    assert_type(await ctx.ask("login", login), Seat)
    assert_type(await ctx.ask_outcome("login", login), ElicitationResult[Seat])
    assert_type(await ctx.elicit_url("Read.", "https://cinema.example"), UrlElicitationResult)
    assert_type(await ctx.elicit_url("Log in.", "https://cinema.example", done=account), ElicitationResult[Seat])
    assert_type(await ctx.ask("blurb", Sample("Praise it.", max_tokens=9)), CreateMessageResult)
    assert_type(await ctx.ask("roots", ListRoots()), ListRootsResult)
    assert_type(await ctx.list_roots(), ListRootsResult)
    assert_type(await ctx.ask_all({"seat": Elicit("Which row?", Seat), "login": login}), dict[str, Any])
    assert_type(await ctx.ask_all_outcomes({"seat": Elicit("Which row?", Seat), "login": login}), dict[str, Any])
    assert_type(await ctx.sample("Praise it.", result_type=Seat), Sampled[Seat])
    assert_type((await ctx.sample("Praise it.")).result, str)
    assert_type((await ctx.sample("Praise it.", result_type=Row, temperature=0.5)).result, Row)
    assert_type(await ctx.step("quote", quote_now, "Solaris"), float)
    assert_type(await ctx.step("quote", quote_for, "Solaris", key="ada"), float)
    assert_type(await ctx.step("quote", lambda: quote_now("Solaris")), float)
    assert_type(ctx.call.ticket("login", unbound=True), str)


def waiting(ctx: Context) -> None:
    login = ElicitUrl("Log in.", "https://cinema.example", done=account)
    assert_type(ctx.blocking.ask_outcome("seat", "Which row?", Seat), ElicitationResult[Seat])
    assert_type(ctx.blocking.ask("seat", "Which row?", Seat, former_names=["row"], attempts=2), Seat)
    assert_type(ctx.blocking.ask("row", "Which row?", Row), Row)
    assert_type(ctx.blocking.ask("one", "Which?", {1: "One"}), int)
    assert_type(ctx.blocking.ask("many", "Which?", [{1: "One"}]), list[int])
    assert_type(ctx.blocking.ask("count", "How many?", int, fallback=None), int | None)
    assert_type(ctx.blocking.ask("seat", Elicit("Which row?", Seat)), Seat)
    assert_type(ctx.blocking.elicit_url("Read.", "https://cinema.example"), UrlElicitationResult)
    assert_type(ctx.blocking.elicit_url("Log in.", "https://c.example", done=account), ElicitationResult[Seat])
    assert_type(ctx.blocking.sample("Praise it.").result, str)
    assert_type(ctx.blocking.sample("Praise it.", result_type=Seat).result, Seat)
    assert_type(ctx.blocking.ask("login", login), Seat)
    assert_type(ctx.blocking.ask_outcome("login", login), ElicitationResult[Seat])
    assert_type(ctx.blocking.ask("blurb", Sample("Praise it.", max_tokens=9)), CreateMessageResult)
    assert_type(ctx.blocking.ask_all({"seat": Elicit("Which row?", Seat)}), dict[str, Any])
    assert_type(ctx.blocking.review("review", "All right?", of=["seat"]), dict[str, Any])
    assert_type(ctx.blocking.review_outcome("review", "All right?", ["seat"]), ElicitationResult[dict[str, Any]])
    assert_type(ctx.blocking.list_roots(), ListRootsResult)
    assert_type(ctx.blocking.ask_all_outcomes({"seat": Elicit("Which row?", Seat)}), dict[str, Any])
    assert_type(ctx.blocking.step("quote", quote_now, "Solaris"), float)


def page(server: Server, ticket: str) -> tuple[str, str]:
    verified = server.verify_ticket(ticket, principal="ada")
    assert_type(verified, Ticket)
    assert_type(verified.call_id, str)
    return verified.call_id, verified.purpose
