"""Mistakes of authors: rejected at registration if possible, else reported with the fix."""

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from enum import StrEnum
from typing import Annotated, Any, Generic, NewType, Protocol, TypeVar

import pytest
from mcp.server import MCPServer
from mcp.server.elicitation import AcceptedElicitation as SdkAccepted
from mcp_types import CreateMessageResult, ListRootsResult
from pydantic import BaseModel
from typing_extensions import TypedDict

from roundtrip import (
    AcceptedElicitation,
    Context,
    DeclinedElicitation,
    Depends,
    Elicit,
    ElicitationResult,
    ElicitUrl,
    InvalidSignature,
    ListRoots,
    Resolve,
    Sample,
    Server,
    tool,
)
from roundtrip.testing import Era, User
from tests.kit.players import connect
from tests.kit.shops import Seat

pytestmark = pytest.mark.anyio
T = TypeVar("T")
FREE: Any = TypeVar("FREE")


class FrontSeat(Seat):
    pass


class Chair(BaseModel):
    row: str


class HasRow(Protocol):
    row: str


class Page(BaseModel, Generic[T]):
    item: T


class Fields(TypedDict):
    row: str


class Color(StrEnum):
    RED = "red"


Number = NewType("Number", int)


async def choose() -> Elicit[Seat]:
    return Elicit("Which seat?", Seat)


def choose_or_guess(film: str) -> Seat | Elicit[Seat]:
    return Elicit("Which seat?", Seat) if film else Seat(row="a")


async def look_up() -> Seat:
    return Seat(row="a")


# Registration.


def test_resolver_without_resolve_is_rejected() -> None:
    async def book(film: str, seat: Any) -> str:
        return film

    for bare in (choose, choose_or_guess, look_up):
        book.__annotations__["seat"] = Annotated[Seat, bare]
        name = bare.__name__
        with pytest.raises(InvalidSignature) as refused:
            Server("cinema").add_tool(book)
        assert str(refused.value) == (
            f"tool 'book': parameter 'seat' of 'book' is declared Annotated[T, {name}], which does not fill it; "
            f"write seat: Annotated[T, Resolve({name})]"
        )


def test_plain_function_in_an_annotation_is_left_alone() -> None:
    def documented(seat: Seat) -> Seat:
        return seat

    class Lookup:
        async def __call__(self) -> Elicit[Seat]:
            raise NotImplementedError

    async def book(seat: Annotated[Seat, documented, Lookup(), "a seat"]) -> str:
        return seat.row

    for server in (Server("cinema"), MCPServer("cinema")):
        server.add_tool(book)


def asking(returns: Any) -> Callable[..., Any]:
    async def ask() -> Any:
        raise NotImplementedError

    ask.__annotations__["return"] = returns
    return ask


def refusal_of(returns: Any, takes: Any, mark: Callable[..., Any] = Resolve) -> str:
    """Return why a tool is rejected whose question returns one type and whose parameter takes another."""

    async def book(seat: Any) -> str:
        return "booked"

    book.__annotations__["seat"] = Annotated[takes, mark(asking(returns))]
    try:
        Server("cinema").add_tool(book)
    except InvalidSignature as error:
        return str(error)
    return ""


MISFITS: list[tuple[Any, Any, str]] = [
    (Elicit[Seat], int, "takes int; annotate the parameter with Seat, or ask for int"),
    (Seat | Elicit[Seat], Chair, "asks for Seat, but parameter 'seat' takes Chair"),
    (Elicit[Seat], int | None, "asks for Seat, but parameter 'seat' takes int | None"),
    (Elicit[Seat], ElicitationResult[Chair], "asks for Seat, but parameter 'seat' takes Chair"),
    (Elicit[Seat], AcceptedElicitation[Chair] | DeclinedElicitation, "asks for Seat, but parameter 'seat' takes C"),
    (Elicit[int], str, "asks for int, but parameter 'seat' takes str"),
    (Elicit[str], int, "asks for str, but parameter 'seat' takes int"),
    (ElicitUrl[str], int, "asks for str, but parameter 'seat' takes int"),
    (Sample, str, "asks for CreateMessageResult, but parameter 'seat' takes str"),
    (ListRoots, list, "asks for ListRootsResult, but parameter 'seat' takes list"),
]


@pytest.mark.parametrize("mark", [Resolve, Depends])
def test_question_that_cannot_fit_its_parameter_is_rejected(mark: Callable[..., Any]) -> None:
    begins = "tool 'book': resolver 'ask' asks for "
    refusals = {(returns, takes): refusal_of(returns, takes, mark) for returns, takes, _ in MISFITS}
    assert [misfit for misfit, refusal in refusals.items() if not refusal.startswith(begins)] == []
    assert [said for returns, takes, said in MISFITS if said not in refusals[returns, takes]] == []


def test_misfit_between_resolvers_is_rejected() -> None:
    async def price(seat: Annotated[int, Resolve(choose)]) -> int:
        return seat

    async def book(price: Annotated[int, Resolve(price)]) -> str:
        return str(price)

    with pytest.raises(InvalidSignature, match="tool 'book': 'price': resolver 'choose' asks for Seat"):
        Server("cinema").add_tool(book)


FITS: list[tuple[Any, Any]] = [
    (Elicit[Seat], Seat),
    (Elicit[FrontSeat], Seat),
    (Elicit[Seat], FrontSeat),
    (Elicit[Seat], BaseModel),
    (Elicit[Seat], Any),
    (Elicit[Seat], object),
    (Elicit[Seat], FREE),
    (Elicit[Seat], HasRow),
    (Elicit[Seat], Chair | Seat | None),
    (Elicit[Seat], ElicitationResult[Seat]),
    (Elicit[Seat], ElicitationResult[Any]),
    (Elicit[Seat], DeclinedElicitation),
    (Elicit[Seat], SdkAccepted[Seat] | DeclinedElicitation),
    (Elicit, int),
    (Elicit[FREE], int),
    (Any, int),
    (Elicit[Page[int]], Page[Any]),
    (Elicit[Fields], dict),
    (Elicit[Fields], Mapping[str, str]),
    (Elicit[Fields], Chair),
    (Elicit[Color], str),
    (Elicit[int], float),
    (Elicit[bool], int),
    (Elicit[int], Number),
    (Elicit[date], datetime),
    (Elicit[list[Color]], list[Color]),
    (Elicit[list[Color]], list),
    (Elicit[int | str], str),
    (ElicitUrl, str),
    (Sample, CreateMessageResult),
    (ListRoots, ListRootsResult),
    (look_up, int),
]


def test_question_that_may_fit_its_parameter_is_accepted() -> None:
    assert [(returns, takes) for returns, takes in FITS if refusal_of(returns, takes)] == []


def test_misspelled_option_of_a_tool_is_suggested() -> None:
    server = Server[Any]("cinema")

    async def book() -> str:
        return "booked"

    options: dict[str, Any] = {}
    ways: list[Callable[[], object]] = [
        lambda: server.tool(**options)(book),
        lambda: server.add_tool(book, **options),
        lambda: tool(**options)(book),
    ]
    for option, said in {
        "exactlyonce": "tool() got an unexpected keyword argument 'exactlyonce'; did you mean exactly_once=?",
        "exactly-once": "did you mean exactly_once=?",
        "time_out": "did you mean timeout=?",
        "zzz": "tool() got an unexpected keyword argument 'zzz'; there are annotations, confirm,",
    }.items():
        options.clear()
        options[option] = True
        for register_it in ways:
            with pytest.raises(TypeError, match=re.escape(said)):
                register_it()


async def seat_of(film: str) -> Elicit[Seat]:
    return Elicit(f"Which seat for {film}?", Seat)


@pytest.mark.parametrize(
    ("filled_by", "said"),
    [
        (
            lambda: seat_of("Dune"),
            "parameter 'seat' must be filled by a function, got the result of calling 'seat_of'; leave out its "
            "parentheses: Resolve(seat_of)",
        ),
        (
            lambda: Elicit("Which seat?", Seat),
            "parameter 'seat' must be filled by a function, got the question Elicit(...); write a function that "
            "returns it, and Resolve(that_function)",
        ),
    ],
    ids=["called", "question"],
)
def test_resolve_of_something_else_than_a_function_is_rejected(filled_by: Callable[[], Any], said: str) -> None:
    marker: Any = Resolve(filled_by())

    async def book(seat: Annotated[Seat, marker]) -> str:
        return seat.row

    with pytest.raises(InvalidSignature) as refused:
        Server[Any]("cinema").add_tool(book)
    assert said in str(refused.value)


def test_confirmation_that_is_no_text_is_rejected() -> None:
    async def delete(path: str) -> str:
        return path

    not_text: Any = True
    with pytest.raises(InvalidSignature, match="tool 'delete': confirm must be the text of a question, got True"):
        Server[Any]("cinema").add_tool(delete, confirm=not_text)


def test_number_that_counts_nothing_is_rejected() -> None:
    for option in ("attempts", "guesses"):
        for value in (0, True, "5", 1.5):
            options: dict[str, Any] = {option: value}
            said = rf"{option}=\.\.\.\) must be a whole number of at least 1, got {value!r}"
            with pytest.raises(ValueError, match=said):
                Elicit("Code?", str, **options)


# Calls.


async def forgets_return() -> Elicit[Seat]:  # type: ignore[return]
    Elicit("Which seat?", Seat)


async def test_resolver_that_forgets_to_return_says_so() -> None:
    async def book(seat: Annotated[Seat, Resolve(forgets_return)]) -> str:
        return seat.row

    server = Server[Any]("cinema")
    server.add_tool(book)
    call = await User(server, era=Era.RETRY).call("book")
    assert call.is_error
    assert "resolver 'forgets_return' must return the question that its annotation names, got None" in call.text


async def test_resolver_may_return_none_where_accepted() -> None:
    async def book(seat: Annotated[Seat | None, Resolve(forgets_return)]) -> str:
        return str(seat)

    server = Server[Any]("cinema")
    server.add_tool(book)
    assert (await User(server, era=Era.RETRY).call("book")).value == "None"


async def forgets_await(ctx: Context) -> str:
    return ctx.ask("seat", "Seat?", Seat).row  # type: ignore[attr-defined]


async def indexes_too_early(ctx: Context) -> str:
    return str(ctx.ask_all({"seat": Elicit("Seat?", Seat)})["seat"])  # type: ignore[index]


async def branches_too_early(ctx: Context) -> str:
    return "yes" if ctx.ask("seat", "Seat?", Seat) else "no"


def asks_in_a_plain_function(ctx: Context) -> str:
    return ctx.ask("seat", "Seat?", Seat).row  # type: ignore[attr-defined]


async def elicits_without_await(ctx: Context) -> str:
    return ctx.elicit("Seat?", Seat).data.row  # type: ignore[attr-defined]


def elicits_in_a_plain_function(ctx: Context) -> str:
    return ctx.elicit("Seat?", Seat).data.row  # type: ignore[attr-defined]


async def test_question_stored_in_a_variable_can_still_be_awaited() -> None:
    async def book(ctx: Context) -> str:
        asked = ctx.ask("seat", "Seat?", Seat)
        assert not hasattr(asked, "row")
        return (await asked).row

    server = Server[Any]("cinema")
    server.add_tool(book)
    assert (await User(server, {"seat": {"row": "a"}}, era=Era.RETRY).call("book")).value == "a"
    async with connect(server, Era.RETRY) as client:
        assert [one.name for one in (await client.list_tools()).tools] == ["book"]


async def blocks(ctx: Context) -> str:
    return ctx.blocking.ask("seat", "Seat?", Seat).row


async def returns_its_question() -> Any:
    return Elicit("Seat?", Seat)


async def takes_the_outcome(ctx: Context) -> str:
    return (await ctx.ask_outcome("seat", "Seat?", Seat)).row  # type: ignore[union-attr]


async def crashes(ctx: Context) -> str:
    return ctx.call.nothing  # type: ignore[attr-defined]


UNAWAITED = (
    "'seat' must be awaited before its result is used; write `await`, and in a plain `def` function use ctx.blocking, "
    "which waits for it"
)
BODIES: list[tuple[Callable[..., Any], str]] = [
    (forgets_await, UNAWAITED),
    (indexes_too_early, UNAWAITED),
    (branches_too_early, UNAWAITED),
    (asks_in_a_plain_function, UNAWAITED),
    (elicits_without_await, "ctx.elicit() must be awaited before its result is used"),
    (elicits_in_a_plain_function, "ctx.elicit() must be awaited before its result is used"),
    (
        blocks,
        "ctx.blocking must be used in a plain `def` function, got an `async def` function; write `await ctx.ask(...)` "
        "there, without blocking",
    ),
    (
        returns_its_question,
        "a result has no JSON form: Elicit is a question, and returning a question does not ask it; write `await "
        "ctx.ask(name, question)`, or return it from a resolver",
    ),
    (
        takes_the_outcome,
        "the outcome of a question has no 'row', got AcceptedElicitation; use ctx.ask, which returns the answer "
        "itself, or read .action and, if it is accepted, .data",
    ),
    (crashes, "'CallInfo' object has no attribute 'nothing'"),
]


async def test_body_that_misuses_its_context_says_so() -> None:
    server = Server[Any]("cinema")
    for body, _ in BODIES:
        server.add_tool(body)
    user = User(server, {"seat": {"row": "a"}}, era=Era.RETRY, allow_unused=True, allow_error=True)
    texts = {body.__name__: (await user.call(body.__name__)).text for body, _ in BODIES}
    said = {body.__name__: f"Error executing tool {body.__name__}: {text}" for body, text in BODIES}
    assert {name: text for name, text in texts.items() if not text.startswith(said[name])} == {}
