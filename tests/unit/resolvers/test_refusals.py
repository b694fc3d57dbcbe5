"""Graphs that can never work: registration rejects each, and the error names the place."""

import inspect
import threading
from collections.abc import Callable
from typing import Annotated, Any, Union, cast

import pytest
from mcp.server.mcpserver import Resolve as SdkResolve
from mcp.server.mcpserver.exceptions import InvalidSignature as SdkInvalidSignature
from pydantic import BaseModel

from roundtrip import Depends, Elicit, InvalidSignature, ListRoots, Resolve, Sample
from roundtrip.errors import CircularDependencyError
from roundtrip.resolvers.annotations import find_resolved
from tests.kit.shops import Choice
from tests.unit.resolvers.walking import Request, plan_of


class Nested(BaseModel):
    inner: Choice


def number() -> int:
    return 1


def refusal(fn: Callable[..., Any], *arguments: str) -> str:
    with pytest.raises(InvalidSignature) as caught:
        plan_of(fn, *arguments)
    assert isinstance(caught.value, SdkInvalidSignature)
    return str(caught.value)


def test_unfilled_parameter_is_rejected_by_tool_function_and_name() -> None:
    def lookup(isbn: str) -> str:
        return isbn

    def order(title: str, book: Annotated[str, Resolve(lookup)]) -> None: ...

    assert refusal(order, "title") == (
        "tool 'order': parameter 'isbn' of resolver 'lookup' cannot be filled: it is not a Context, has no "
        "Resolve(...), Depends(...) or default, and no argument has that name; the arguments are 'title'"
    )


def test_unreadable_annotation_is_named_where_needed() -> None:
    def lookup(request: Request) -> str:
        return str(request)

    lookup.__annotations__["request"] = "OnlyForTypeCheckers"

    def order(book: Annotated[str, Resolve(lookup)]) -> None: ...

    message = refusal(order)
    assert all(name in message for name in ("'order'", "'lookup'", "'request'", "'OnlyForTypeCheckers'"))


def cyclic(length: int) -> Callable[..., Any]:
    """Make a tool over a ring of functions, each of which needs the next."""

    def make(name: str) -> Callable[..., int]:
        def step(value: int) -> int:
            return value

        step.__name__ = name
        return step

    ring = [make(f"step{place}") for place in range(length)]
    for place, step in enumerate(ring):
        step.__annotations__["value"] = Annotated[int, Resolve(ring[(place + 1) % length])]

    def order(value: Annotated[int, Resolve(ring[0])]) -> None: ...

    return order


def test_a_cycle_is_rejected_and_drawn_however_long_it_is() -> None:
    with pytest.raises(CircularDependencyError):
        plan_of(cyclic(2))
    for length in (1, 3, 2000):
        message = refusal(cyclic(length))
        assert "'order'" in message
        drawn = " -> ".join([*(f"step{place}" for place in range(length)), "step0"])
        assert f"in a cycle, got {drawn};" in message


OLD: dict[str, Any] = {"former_names": ["old"]}
BURIED: Any = Annotated[int, Resolve(number)]


BURIALS: dict[str, Any] = {
    "or none": BURIED | None,
    "none or": Union[None, BURIED],  # noqa: UP007
    "list": list[BURIED],
    "dict": dict[str, BURIED | None],
    "below another": Annotated[BURIED | None, "outer"],
    "below a marker": Annotated[list[BURIED], Resolve(number)],
}


def test_marker_inside_another_type_is_rejected() -> None:
    def order(count: int) -> None: ...
    def lookup(count: int) -> int:
        return count

    def outer(value: Annotated[int, Resolve(lookup)]) -> None: ...

    wrong: list[str] = []
    for kind, annotation in BURIALS.items():
        order.__annotations__["count"] = lookup.__annotations__["count"] = annotation
        own, below = refusal(order), refusal(outer)
        if not all(name in own for name in ("'order'", "'count'")):
            wrong.append(kind)
        if not all(name in below for name in ("'order'", "'lookup'", "'count'")):
            wrong.append(f"{kind}, in a resolver")
    assert wrong == []


def test_a_buried_marker_is_found_without_a_tools_name() -> None:
    def fill(count: Annotated[int, Resolve(number)] | None) -> None: ...

    with pytest.raises(InvalidSignature, match=r"'count' of 'fill'.*Annotated\[T \| None"):
        find_resolved(fill)


@pytest.mark.parametrize(
    ("annotation", "default"),
    [
        (Annotated[int, Depends(number), Resolve(number)], inspect.Parameter.empty),
        (Annotated[int, Resolve(number)], Depends(number)),
    ],
)
def test_two_markers_of_one_parameter_are_rejected(annotation: Any, default: Any) -> None:
    def order(count: Any) -> None: ...

    order.__annotations__["count"] = annotation
    if default is not inspect.Parameter.empty:
        order.__defaults__ = (default,)
    message = refusal(order)
    assert "parameter 'count' of 'order' has two markers" in message
    assert message.endswith("; remove one")


UNREAD: list[tuple[Any, Any, str, str]] = [
    (int, Resolve(number), "count = Resolve(...)", "Annotated[T, Resolve(fn)]"),
    (int, SdkResolve(number), "count = Resolve(...)", "Annotated[T, Resolve(fn)]"),
    (Resolve(number), inspect.Parameter.empty, "count: Resolve(...)", "Annotated[T, Resolve(fn)]"),
    (Depends(number), inspect.Parameter.empty, "count: Depends(...)", "Annotated[T, Depends(fn)]"),
    (Annotated[int, Resolve], 3, "with Resolve, without a function", "Annotated[T, Resolve(fn)]"),
    (Annotated[int, Depends], 3, "with Depends, without a function", "Annotated[T, Depends(fn)]"),
    (int, Depends, "with Depends, without a function", "Annotated[T, Depends(fn)]"),
    (int, Resolve, "with Resolve, without a function", "Annotated[T, Resolve(fn)]"),
]


def test_unread_marker_is_rejected_as_clients_could_fill_it() -> None:
    wrong: list[str] = []
    for annotation, default, written, cure in UNREAD:

        def order(count: Any) -> None: ...
        def lookup(count: Any) -> int:
            return count

        def outer(value: Annotated[int, Resolve(cast("Any", lookup))]) -> None: ...

        for fn in (order, lookup):
            fn.__annotations__["count"] = annotation
            if default is not inspect.Parameter.empty:
                fn.__defaults__ = (default,)
        said, cured = f"is declared {written}, which does not fill it", f"write count: {cure}"
        messages = (refusal(order), refusal(outer, "count"))
        wrong += [message for message in messages if said not in message or not message.endswith(cured)]
    assert wrong == []


def test_two_asking_arms_in_one_return_annotation_are_rejected() -> None:
    def confirm() -> Any: ...
    def order(choice: Annotated[Any, Resolve(confirm)]) -> None: ...

    for returns in (Elicit[Choice] | Elicit[Nested], Elicit[Choice] | Sample, int | ListRoots | Sample):
        confirm.__annotations__["return"] = returns
        message = refusal(order)
        assert all(name in message for name in ("'order'", "'confirm'", "at most one question, got 2"))


def test_unrenderable_form_is_rejected_where_annotated() -> None:
    """Shows F4."""

    def confirm() -> Elicit[Nested]:
        return Elicit("?", Nested)

    def order(choice: Annotated[Nested, Resolve(confirm)]) -> None: ...

    message = refusal(order)
    assert all(name in message for name in ("'order'", "'confirm'", "'Nested'", "'inner'"))


def test_a_callable_without_a_signature_is_rejected_with_advice() -> None:
    def order(now: Annotated[float, Resolve(max)]) -> None: ...

    message = refusal(order)
    assert all(name in message for name in ("'order'", "'max'", "'now'", "wrap it in a function"))


# Names.


def test_indistinguishable_lambdas_are_rejected_with_advice() -> None:
    first, second = (lambda: 1), (lambda: 2)

    def left(value: Annotated[int, Resolve(first)]) -> int:
        return value

    def right(value: Annotated[int, Resolve(second)]) -> int:
        return value

    def order(a: Annotated[int, Resolve(left)], b: Annotated[int, Resolve(right)]) -> None: ...

    assert plan_of(order)

    def twice(a: Annotated[int, Resolve(first)], b: Annotated[int, Resolve(number, name="<lambda>@a")]) -> None: ...
    def thrice(
        a: Annotated[int, Resolve(first)],
        b: Annotated[int, Resolve(number, name="<lambda>@a")],
        c: Annotated[int, Resolve(second)],
    ) -> None: ...

    assert plan_of(twice)
    message = refusal(thrice)
    assert all(part in message for part in ("'order'", "'<lambda>'", "'number'", "'<lambda>@a'", "name="))


def test_function_with_two_keys_is_rejected() -> None:
    def order(a: Annotated[int, Resolve(number, name="m")], b: Annotated[int, Resolve(number, name="n")]) -> None: ...

    message = refusal(order)
    assert all(name in message for name in ("'order'", "'number'", "'m'", "'n'"))


@pytest.mark.parametrize(
    ("first", "second"),
    [({"former_names": ["other"]}, {}), (OLD, OLD), ({"name": "n", "former_names": ["m"]}, {"name": "m"})],
    ids=["the name of another", "one former name for two", "the given name of another"],
)
def test_shared_former_name_is_rejected(first: dict[str, Any], second: dict[str, Any]) -> None:
    def other() -> int:
        return 2

    def order(a: Annotated[int, Resolve(number, **first)], b: Annotated[int, Resolve(other, **second)]) -> None: ...

    message = refusal(order)
    assert all(name in message for name in ("'order'", "'number'", "'other'"))


def test_former_names_are_a_sequence_and_names_not_empty() -> None:
    with pytest.raises(TypeError, match=r"former_names must be .* got 'old'; use \('old',\)"):
        Resolve(number, former_names="old")
    with pytest.raises(ValueError, match="name=''"):
        Resolve(number, name="")
    said = "^'~old' cannot name a question; use a name that does not begin with '~'$"
    with pytest.raises(ValueError, match=said):
        Resolve(number, name="~old")
    with pytest.raises(ValueError, match=said):
        Resolve(number, former_names=["new", "~old"])


# Values that are kept.


def test_fixed_value_without_json_form_is_rejected_where_annotated() -> None:
    def quote() -> Any: ...
    def order(price: Annotated[Any, Resolve(quote, remember=True)]) -> None: ...

    for kept in (threading.Lock, Request, Callable[[], int], int | Request, list[Request]):
        quote.__annotations__["return"] = kept
        message = refusal(order)
        assert all(name in message for name in ("'order'", "quote", "remember=True"))


def test_consumer_type_checks_an_unannotated_resolver() -> None:
    def quote() -> int:
        return 1

    del quote.__annotations__["return"]

    def order(price: Annotated[Request, Resolve(quote, remember=True)]) -> None: ...

    assert "quote" in refusal(order)


def test_values_with_json_form_may_be_fixed() -> None:
    for kept in (int, str | None, list[Choice], dict[str, float], Choice | Elicit[Choice], Any):

        def quote() -> Any: ...
        def order(price: Annotated[Any, Resolve(cast("Any", quote), remember=True)]) -> None: ...

        quote.__annotations__["return"] = kept
        assert plan_of(order).may_carry_secrets
