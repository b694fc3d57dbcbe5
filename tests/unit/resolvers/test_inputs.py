"""Sources of the parameters of resolvers, for each kind of callable."""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

import pytest

from roundtrip import AcceptedElicitation, DeclinedElicitation, Depends, ElicitationResult, ElicitUrl, Resolve
from roundtrip.questions.outcomes import CancelledElicitation
from roundtrip.resolvers.markers import Dependency
from roundtrip.resolvers.plan import EMPTY
from roundtrip.resolvers.signatures import wants_outcome
from tests.unit.resolvers.walking import Request, plan_of, walk

pytestmark = pytest.mark.anyio

T = TypeVar("T")


class Typed(Request, Generic[T]):
    """A context with a parameter, as the SDK's has."""


async def value_of(
    resolver: Callable[..., Any] | Dependency, arguments: dict[str, Any] | None = None, **extra: Any
) -> Any:
    """Return the value that a tool's only filled parameter receives."""

    marker = resolver if isinstance(resolver, Dependency) else Resolve(resolver)

    def tool(value: Annotated[Any, marker]) -> None: ...

    return (await walk(plan_of(tool, *(arguments or {})), arguments=arguments, **extra))["value"]


def test_a_tool_without_markers_has_the_empty_plan() -> None:
    def tool(title: str) -> None: ...

    assert plan_of(tool, "title") is EMPTY


async def test_argument_is_found_by_name_or_alias() -> None:
    def by_name(title: str) -> str:
        return title

    def by_alias(bookTitle: str) -> str:
        return bookTitle

    def tool(a: Annotated[str, Resolve(by_name)], b: Annotated[str, Resolve(by_alias)]) -> None: ...

    plan = plan_of(tool, aliases={"title": "bookTitle", "bookTitle": "bookTitle"})
    assert await walk(plan, arguments={"bookTitle": "Dune"}) == {"a": "Dune", "b": "Dune"}


async def test_context_is_filled_by_any_form_of_its_annotation() -> None:
    here = Request()

    def plain(request: Request) -> object:
        return request

    def optional(request: Request | None = None) -> object:
        return request

    def quoted(request: "Request | None") -> object:
        return request

    def generic(request: Typed[int]) -> object:
        return request

    def annotated(request: Annotated[Request, "said"]) -> object:
        return request

    for resolver in (plain, optional, quoted, generic, annotated):
        assert await value_of(resolver, context=here) is here


async def test_a_context_goes_before_an_argument_of_that_name() -> None:
    here = Request()

    def plain(request: Request) -> object:
        return request

    assert await value_of(plain, {"request": "from the client"}, context=here) is here


async def test_default_fills_only_where_nothing_else_does() -> None:
    def greet(name: str = "you", *rest: str, loud: bool = False, **options: str) -> str:
        return f"{name}{rest}{loud}{options}"

    assert await value_of(greet) == "you()False{}"
    assert await value_of(greet, {"name": "Ada", "loud": True, "rest": 1, "options": 2}) == "Ada()True{}"


async def test_marker_precedes_defaults_and_arguments() -> None:
    def number() -> int:
        return 7

    def add(count: Annotated[int, Resolve(number)] = 1) -> int:
        return count

    assert await value_of(add, {"count": 100}) == 7


async def test_positional_only_parameters_are_filled_in_their_order() -> None:
    def number() -> int:
        return 7

    def spell(a: str, b: Annotated[int, Resolve(number)], c: Request, /, d: str) -> str:
        return f"{a}{b}{type(c).__name__}{d}"

    assert await value_of(spell, {"a": "A", "d": "D"}, context=Request()) == "A7RequestD"


class Shop:
    def __init__(self, title: str = "none") -> None:
        self.title = title

    def method(self, title: str) -> str:
        return f"method {title}"

    async def async_method(self, title: str) -> str:
        return f"async method {title}"

    @classmethod
    def class_method(cls, title: str) -> str:
        return f"{cls.__name__} {title}"

    @staticmethod
    def static_method(title: str) -> str:
        return f"static {title}"

    def __call__(self, title: str) -> str:
        return f"called {title}"


class AsyncShop:
    async def __call__(self, title: str) -> str:
        return f"awaited {title}"


@dataclass
class Book:
    title: str
    copies: int = 1


def plain(title: str) -> str:
    return f"plain {title}"


async def coroutine(title: str) -> str:
    return f"coroutine {title}"


def tagged(tag: str, title: str) -> str:
    return f"{tag} {title}"


def seven() -> int:
    return 7


def beside_the_unknown(title: object, count: int) -> object:
    return (title, count)


beside_the_unknown.__annotations__ |= {
    "title": "OnlyForTypeCheckers",
    "count": "Annotated[int, Resolve(seven)]",
    "return": "AlsoForThem",
}


@functools.wraps(coroutine)
async def wrapped(*args: Any, **kwargs: Any) -> str:
    return f"wrapped {await coroutine(*args, **kwargs)}"


KINDS: list[tuple[Callable[..., Any], Any]] = [
    (plain, "plain Dune"),
    (coroutine, "coroutine Dune"),
    (Shop().method, "method Dune"),
    (Shop().async_method, "async method Dune"),
    (Shop.class_method, "Shop Dune"),
    (Shop.static_method, "static Dune"),
    (Shop(), "called Dune"),
    (AsyncShop(), "awaited Dune"),
    (Book, Book("Dune")),
    (functools.partial(tagged, "first"), "first Dune"),
    (functools.partial(tagged, tag="named"), "named Dune"),
    (functools.partial(coroutine), "coroutine Dune"),
    (functools.partial(AsyncShop()), "awaited Dune"),
    (functools.partial(Shop().async_method, "bound"), "async method bound"),
    (lambda title: f"lambda {title}", "lambda Dune"),  # type: ignore[misc] # pyright: ignore
    (lambda title: coroutine(title), "coroutine Dune"),  # type: ignore[misc] # pyright: ignore
    (wrapped, "wrapped coroutine Dune"),
    (os.getcwd, os.getcwd()),
]


async def test_every_kind_of_callable_serves() -> None:
    got = [(resolver, await value_of(resolver, {"title": "Dune"})) for resolver, _ in KINDS]
    assert got == KINDS
    assert type(await value_of(object)) is object


async def test_bound_partial_argument_is_not_overridden() -> None:
    bound = functools.partial(tagged, tag="the author's")
    assert await value_of(bound, {"tag": "the client's", "title": "Dune"}) == "the author's Dune"


async def test_valid_annotations_are_read_beside_a_broken_one() -> None:
    assert await value_of(beside_the_unknown, {"title": "Dune"}) == ("Dune", 7)


async def test_positional_values_come_first_and_the_rest_by_name() -> None:
    def first(count: int, /, title: str) -> str:
        return f"{title}{count}"

    def every(*counts: int) -> tuple[int, ...]:
        return counts

    assert await value_of(Dependency(first, seven), {"title": "Dune", "count": 1}) == "Dune7"
    assert await value_of(Dependency(every, seven, Dependency(seven, use_cache=False), seven)) == (7, 7, 7)


async def test_positional_value_arrives_as_an_outcome_where_annotated() -> None:
    def look(seen: ElicitationResult[Any]) -> object:
        return type(seen).__mro__[1] if isinstance(seen, AcceptedElicitation) else seen

    assert await value_of(Dependency(look, seven)) is AcceptedElicitation


def test_default_marker_is_read_beside_an_annotation_s_extras() -> None:
    def tool(a: Annotated[int, "said"] = Depends(seven), b: Annotated[int, Resolve(seven)] = 3) -> None: ...

    assert [entry.node for entry in plan_of(tool).roots] == [0, 0]


def test_markers_show_the_function_they_run() -> None:
    unnamed = functools.partial(seven)
    assert (repr(Resolve(seven)), repr(Depends(seven))) == ("Resolve('seven')", "Depends('seven')")
    assert (repr(Resolve(unnamed)), repr(Depends(unnamed))) == (f"Resolve({unnamed!r})", f"Depends({unnamed!r})")


def test_a_page_may_yield_what_no_form_can_show() -> None:
    @dataclass
    class Receipt:
        books: list[Book]

    def pay() -> ElicitUrl[Receipt]: ...

    pay.__annotations__["return"] = ElicitUrl[Receipt]

    def tool(paid: Annotated[Any, Resolve(pay)]) -> None: ...

    assert plan_of(tool).nodes[0].asked is Receipt


def test_fixed_object_of_a_class_returns_as_that_class() -> None:
    def tool(book: Annotated[Any, Resolve(Book, remember=True)]) -> None: ...

    adapter = plan_of(tool, "title").nodes[0].computed
    assert adapter is not None
    assert adapter.validate_python({"title": "Dune"}) == Book("Dune")


def test_a_consumer_wants_the_outcome_if_its_type_says_so() -> None:
    wanting: list[Any] = [
        ElicitationResult,
        ElicitationResult[Any],
        AcceptedElicitation[Any],
        AcceptedElicitation[Any] | DeclinedElicitation,
        DeclinedElicitation | CancelledElicitation | None,
        Annotated[ElicitationResult[Any], "said"],
    ]
    assert [annotation for annotation in wanting if not wants_outcome(annotation)] == []
    assert [annotation for annotation in (int, Book | None, Any) if wants_outcome(annotation)] == []
