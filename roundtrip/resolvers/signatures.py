"""Annotations, names and identities of all kinds of callables."""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Hashable
from typing import Annotated, Any, Final, get_args, get_origin

from mcp_types import InputRequiredResult

from roundtrip.questions.outcomes import AcceptedElicitation, CancelledElicitation, DeclinedElicitation

_MANAGER_METHODS: Final = (("__aenter__", "__aexit__"), ("__enter__", "__exit__"))
_OUTCOMES: Final = (AcceptedElicitation, DeclinedElicitation, CancelledElicitation)


def hints_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return a callable's evaluated annotations, without those that cannot be evaluated.

    An annotation cannot be evaluated if, for example, its name is imported only for type checking. If a caller needs
    such an annotation, the caller reports the problem.
    """
    target = _annotated_part(fn)
    try:
        return typing.get_type_hints(target, include_extras=True)
    except Exception:  # noqa: BLE001 - annotations are arbitrary expressions, and any of them may fail
        return _hints_one_by_one(target)


def _annotated_part(fn: Callable[..., Any]) -> Any:
    fn = _without_partials(fn)
    if inspect.isclass(fn):
        return fn.__init__
    return inspect.unwrap(fn) if inspect.isroutine(fn) else type(fn).__call__


def _without_partials(fn: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn


def _hints_one_by_one(target: Any) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    globalns: dict[str, Any] = getattr(target, "__globals__", {})
    for name, annotation in getattr(target, "__annotations__", {}).items():
        lone = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            hints |= typing.get_type_hints(lone, globalns=globalns, include_extras=True)
        except Exception:  # noqa: BLE001, S112 - as above: this one stays unknown
            continue
    return hints


def given_by_partials(fn: Callable[..., Any]) -> frozenset[str]:
    """Return the parameters that partials fill by name. The author chose the values, so nothing else may fill these
    parameters.
    """
    given: set[str] = set()
    while isinstance(fn, functools.partial):
        given.update(fn.keywords)
        fn = fn.func
    return frozenset(given)


def display_name(fn: Callable[..., Any]) -> str:
    """Return a callable's name for messages. A partial is named after its function, and an object after its type."""
    fn = _without_partials(fn)
    return getattr(fn, "__name__", None) or type(fn).__name__


def identity(fn: Callable[..., Any]) -> Hashable:
    """Return a key that is equal for all references to one callable.

    A bound method is a new object at each access, so the key combines the method's function and its instance.
    """
    instance = getattr(fn, "__self__", None)
    if instance is None or inspect.ismodule(instance):
        return id(fn)
    function = getattr(fn, "__func__", None)
    return (id(function) if function is not None else getattr(fn, "__name__", id(fn)), id(instance))


def is_async(fn: Callable[..., Any]) -> bool:
    """Return True if calling the function returns a coroutine."""
    fn = _without_partials(fn)
    return inspect.iscoroutinefunction(fn) or (
        not inspect.isclass(fn) and not inspect.isroutine(fn) and inspect.iscoroutinefunction(type(fn).__call__)
    )


def is_generator_function(fn: Callable[..., Any]) -> bool:
    """Return True for a sync or async generator function, even if `contextmanager` has wrapped it."""
    target = _annotated_part(fn)
    return inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target)


def is_async_generator_function(fn: Callable[..., Any]) -> bool:
    """Return True for an async generator function, even if `asynccontextmanager` has wrapped it."""
    return inspect.isasyncgenfunction(_annotated_part(fn))


def is_manager_class(fn: Callable[..., Any]) -> bool:
    """Return True if the callable is a context-manager class."""
    fn = _without_partials(fn)
    return inspect.isclass(fn) and any(hasattr(fn, enter) and hasattr(fn, leave) for enter, leave in _MANAGER_METHODS)


def makes_async_manager(fn: Callable[..., Any]) -> bool:
    """Return True if the context manager that a function returns is entered with `async with`.

    A class that supports both kinds is entered with `async with`.
    """
    fn = _without_partials(fn)
    if inspect.isclass(fn):
        return hasattr(fn, "__aenter__") and hasattr(fn, "__aexit__")
    return is_async_generator_function(fn)


def wants_outcome(filled: Any) -> bool:
    """Return True if a parameter's type is `ElicitationResult[T]`, one of its members, or a union that has such a
    member.
    """
    return any(isinstance(member, type) and issubclass(member, _OUTCOMES) for member in arms_of(filled))


def arms_of(annotation: Any) -> tuple[Any, ...]:
    """Return a union's members; for any other annotation, return only the annotation.

    `Annotated` and type aliases are replaced by the types that they contain.
    """
    if get_origin(annotation) is Annotated:
        return arms_of(get_args(annotation)[0])
    try:
        alias = getattr(annotation, "__value__", None)
    except NameError:  # a PEP 695 alias whose names exist only for type checkers
        return (annotation,)
    if alias is not None:
        return arms_of(alias)
    if get_origin(annotation) in (typing.Union, types.UnionType):
        return tuple(member for arm in get_args(annotation) for member in arms_of(arm))
    return (annotation,)


def returns_input_required(fn: Callable[..., Any]) -> bool:
    """Return True if a function's return annotation contains `InputRequiredResult`, which authors return to ask by
    hand.
    """
    arms = arms_of(hints_of(fn).get("return"))
    return any(isinstance(arm, type) and issubclass(arm, InputRequiredResult) for arm in arms)
