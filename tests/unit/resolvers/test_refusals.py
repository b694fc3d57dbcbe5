"""Graphs that can never work: registration rejects each, and the error names the place."""

import inspect
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any, Union, cast

import docket
import pytest
from fastmcp.dependencies import CurrentContext
from fastmcp.dependencies import Depends as FastMcpDepends
from fastmcp.dependencies import Progress as FastMcpProgress
from mcp.server.mcpserver import Resolve as SdkResolve
from mcp.server.mcpserver.exceptions import InvalidSignature as SdkInvalidSignature
from pydantic import BaseModel

from roundtrip import Depends, Elicit, InvalidSignature, ListRoots, Resolve, Sample
from roundtrip.resolvers.annotations import find_resolved
from tests.unit.resolvers.walking import Request, plan_of


class Choice(BaseModel):
    ok: bool


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
        "tool 'order': parameter 'isbn' of resolver 'lookup' cannot be filled: "
        "it is not a Context, has no Resolve(...), Depends(...) or default, and no argument has that name"
    )


def test_deeply_unfilled_parameter_is_rejected() -> None:
    def deepest(missing: int) -> int:
        return missing

    def middle(value: Annotated[int, Resolve(deepest)]) -> int:
        return value

    def order(value: Annotated[int, Resolve(middle)]) -> None: ...

    message = refusal(order)
    assert all(name in message for name in ("'order'", "'deepest'", "'missing'"))


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


@pytest.mark.parametrize("length", [1, 2, 3, 2000])
def test_a_cycle_is_rejected_and_drawn_however_long_it_is(length: int) -> None:
    message = refusal(cyclic(length))
    assert "'order'" in message
    drawn = " -> ".join([*(f"step{place}" for place in range(length)), "step0"])
    assert f"cycle of resolvers, {drawn};" in message


BURIED: Any = Annotated[int, Resolve(number)]


@pytest.mark.parametrize(
    "annotation",
    [
        BURIED | None,
        Union[None, BURIED],  # noqa: UP007
        list[BURIED],
        dict[str, BURIED | None],
        Annotated[BURIED | None, "outer"],
        Annotated[list[BURIED], Resolve(number)],
    ],
    ids=["or none", "none or", "list", "dict", "below another", "below a marker"],
)
def test_marker_inside_another_type_is_rejected(annotation: Any) -> None:
    def order(count: int) -> None: ...
    def lookup(count: int) -> int:
        return count

    def outer(value: Annotated[int, Resolve(lookup)]) -> None: ...

    order.__annotations__["count"] = lookup.__annotations__["count"] = annotation
    message = refusal(order)
    assert all(name in message for name in ("'order'", "'count'"))
    message = refusal(outer)
    assert all(name in message for name in ("'order'", "'lookup'", "'count'"))


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


@pytest.mark.parametrize(
    ("annotation", "default", "written", "cure"),
    [
        (int, Resolve(number), "count = Resolve(...)", "Annotated[T, Resolve(fn)]"),
        (int, SdkResolve(number), "count = Resolve(...)", "Annotated[T, Resolve(fn)]"),
        (Resolve(number), inspect.Parameter.empty, "count: Resolve(...)", "Annotated[T, Resolve(fn)]"),
        (Depends(number), inspect.Parameter.empty, "count: Depends(...)", "Annotated[T, Depends(fn)]"),
        (Annotated[int, Resolve], 3, "with Resolve, without a function", "Annotated[T, Resolve(fn)]"),
        (Annotated[int, Depends], 3, "with Depends, without a function", "Annotated[T, Depends(fn)]"),
        (int, Depends, "with Depends, without a function", "Annotated[T, Depends(fn)]"),
        (int, Resolve, "with Resolve, without a function", "Annotated[T, Resolve(fn)]"),
    ],
)
def test_unread_marker_is_rejected_as_clients_could_fill_it(
    annotation: Any, default: Any, written: str, cure: str
) -> None:
    def order(count: Any) -> None: ...
    def lookup(count: Any) -> int:
        return count

    def outer(value: Annotated[int, Resolve(lookup)]) -> None: ...

    for fn in (order, lookup):
        fn.__annotations__["count"] = annotation
        if default is not inspect.Parameter.empty:
            fn.__defaults__ = (default,)
    for message in (refusal(order), refusal(outer, "count")):
        assert f"is written {written}, which fills nothing" in message
        assert message.endswith(f"write count: {cure}")


@pytest.mark.parametrize(
    "returns",
    [Elicit[Choice] | Elicit[Nested], Elicit[Choice] | Sample, int | ListRoots | Sample, Sample | ListRoots],
    ids=repr,
)
def test_two_asking_arms_in_one_return_annotation_are_rejected(returns: Any) -> None:
    def confirm() -> Any: ...
    def order(choice: Annotated[Any, Resolve(confirm)]) -> None: ...

    confirm.__annotations__["return"] = returns
    message = refusal(order)
    assert all(name in message for name in ("'order'", "'confirm'", "2 asking arms"))


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

    def twice(a: Annotated[int, Resolve(first)], b: Annotated[int, Resolve(number, key="<lambda>@a")]) -> None: ...
    def thrice(
        a: Annotated[int, Resolve(first)],
        b: Annotated[int, Resolve(number, key="<lambda>@a")],
        c: Annotated[int, Resolve(second)],
    ) -> None: ...

    assert plan_of(twice)
    message = refusal(thrice)
    assert all(part in message for part in ("'order'", "'<lambda>'", "'number'", "'<lambda>@a'", "key="))


def test_two_functions_of_one_key_are_rejected_by_their_names() -> None:
    def other() -> int:
        return 2

    def order(a: Annotated[int, Resolve(number, key="n")], b: Annotated[int, Resolve(other, key="n")]) -> None: ...

    message = refusal(order)
    assert all(name in message for name in ("'order'", "'number'", "'other'", "'n'"))


def test_function_with_two_keys_is_rejected() -> None:
    def order(a: Annotated[int, Resolve(number, key="m")], b: Annotated[int, Resolve(number, key="n")]) -> None: ...

    message = refusal(order)
    assert all(name in message for name in ("'order'", "'number'", "'m'", "'n'"))


@pytest.mark.parametrize(
    ("first", "second"),
    [({"was": ("other",)}, {}), ({"was": ("old",)}, {"was": ("old",)}), ({"key": "n", "was": ("m",)}, {"key": "m"})],
    ids=["the name of another", "one former name for two", "the key of another"],
)
def test_shared_former_name_is_rejected(first: dict[str, Any], second: dict[str, Any]) -> None:
    def other() -> int:
        return 2

    def order(a: Annotated[int, Resolve(number, **first)], b: Annotated[int, Resolve(other, **second)]) -> None: ...

    message = refusal(order)
    assert all(name in message for name in ("'order'", "'number'", "'other'"))


def test_former_names_are_a_sequence_and_keys_not_empty() -> None:
    with pytest.raises(TypeError, match=r"was=\('old',\)"):
        Resolve(number, was="old")
    with pytest.raises(ValueError, match="key=''"):
        Resolve(number, key="")
    said = "^'~old' cannot name a question; give it a name that does not begin with '~'$"
    with pytest.raises(ValueError, match=said):
        Resolve(number, key="~old")
    with pytest.raises(ValueError, match=said):
        Resolve(number, was=["new", "~old"])


# Values that are kept.


@pytest.mark.parametrize("kept", [threading.Lock, Request, Callable[[], int], int | Request, list[Request]], ids=repr)
def test_fixed_value_without_json_form_is_rejected_where_annotated(kept: Any) -> None:
    def quote() -> Any: ...
    def order(price: Annotated[Any, Resolve(quote, once=True)]) -> None: ...

    quote.__annotations__["return"] = kept
    message = refusal(order)
    assert all(name in message for name in ("'order'", "quote", "once=True"))


def test_consumer_type_checks_an_unannotated_resolver() -> None:
    def quote() -> int:
        return 1

    del quote.__annotations__["return"]

    def order(price: Annotated[Request, Resolve(quote, once=True)]) -> None: ...

    assert "quote" in refusal(order)


def test_values_with_json_form_may_be_fixed() -> None:
    for kept in (int, str | None, list[Choice], dict[str, float], Choice | Elicit[Choice], Any):

        def quote() -> Any: ...
        def order(price: Annotated[Any, Resolve(cast("Any", quote), once=True)]) -> None: ...

        quote.__annotations__["return"] = kept
        assert plan_of(order).may_carry_secrets


class OwnTimeout(docket.Timeout):
    """Subclass of an author's own."""


MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(
    ("default", "named", "cure"),
    [
        (docket.Timeout(MINUTE), "Docket's, got Timeout(...)", "own parameter: timeout: Timeout = Timeout(...)"),
        (docket.Timeout, "Docket's, got Timeout(...)", "own parameter: timeout: Timeout = Timeout(...)"),
        (docket.TaskKey(), "Docket's, got TaskKey(...)", "own parameter: taskkey: TaskKey = TaskKey(...)"),
        (OwnTimeout(MINUTE), "Docket's, got OwnTimeout(...)", "leave it out"),
        (docket.CurrentExecution(), "Docket's, got CurrentExecution(...)", "use ctx.call and ctx.task of a Context"),
        (docket.ConcurrencyLimit("isbn", 1), "Docket's, got ConcurrencyLimit(...)", "with its --concurrency"),
        (docket.Perpetual(), "Docket's, got Perpetual(...)", "call the tool from a scheduler instead"),
        (docket.TaskArgument("isbn"), "Docket's, got TaskArgument(...)", "as the argument of the tool"),
        (docket.Logged(), "Docket's, got Logged(...)", "logs no arguments; leave it out"),
        (docket.Logged, "Docket's, got Logged(...)", "logs no arguments; leave it out"),
        (docket.Depends(number), "Docket's, got Depends(...)", "import Depends from roundtrip"),
        (FastMcpDepends(number), "Docket's, got Depends(...)", "import Depends from roundtrip"),
        (CurrentContext(), "FastMCP's, got CurrentContext(...)", "annotate the parameter with roundtrip's Context"),
        (FastMcpProgress(), "FastMCP's, got Progress(...)", "import Progress from docket"),
    ],
)
def test_a_dependency_of_another_library_is_rejected_with_its_cure(default: Any, named: str, cure: str) -> None:
    def order(wait: Any = default) -> None: ...
    def annotated(wait: Annotated[Any, default]) -> None: ...
    def outer(value: Annotated[None, Resolve(order)]) -> None: ...

    for message in (refusal(order), refusal(annotated), refusal(outer)):
        assert f"parameter 'wait' of '{'annotated' if 'annotated' in message else 'order'}'" in message
        assert named in message
        assert message.endswith(cure)
