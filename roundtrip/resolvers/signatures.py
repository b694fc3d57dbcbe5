"""Reading functions: their parameters, annotations, names and identities, whatever kind of callable they are."""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Hashable
from typing import Annotated, Any, get_args, get_origin

from mcp_types import InputRequiredResult

from roundtrip.errors import InvalidSignature
from roundtrip.questions.outcomes import AcceptedElicitation, CancelledElicitation, DeclinedElicitation
from roundtrip.resolvers.markers import Dependency, Marker, SdkResolve

__all__ = [
    "arms_of",
    "buried_marker",
    "display_name",
    "enters",
    "given_by_partials",
    "hints_of",
    "identity",
    "is_async",
    "makes_manager",
    "marker_of",
    "require_annotated",
    "require_top_level",
    "returns_input_required",
    "wants_outcome",
]

_MANAGERS = (("__aenter__", "__aexit__"), ("__enter__", "__exit__"))
_FOREIGN_MODULES = ("docket", "uncalled_for")
_INSTEAD_OF_FOREIGN = {
    "Timeout": "there are no background tasks yet: leave it out and write @server.tool(timeout=seconds)",
    "Depends": "import Depends from roundtrip",
    "CurrentContext": "annotate the parameter with roundtrip's Context",
}
_NO_TASKS = "there are no background tasks yet: leave it out"
_OUTCOMES = (AcceptedElicitation, DeclinedElicitation, CancelledElicitation)


def hints_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a callable, evaluated where they can be.

    One that cannot be evaluated (a name imported for type checking only) is left out; whoever needs it says so.
    """
    target = _annotated_part(fn)
    try:
        return typing.get_type_hints(target, include_extras=True)
    except Exception:  # noqa: BLE001 - annotations are arbitrary expressions, and any of them may fail
        return _hints_one_by_one(target)


def _annotated_part(fn: Callable[..., Any]) -> Any:
    while isinstance(fn, functools.partial):
        fn = fn.func
    if inspect.isclass(fn):
        return fn.__init__
    if inspect.isroutine(fn):
        return inspect.unwrap(fn)
    return type(fn).__call__


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
    """The parameters that partials have filled by name: they are the author's, and nothing else fills them."""
    given: set[str] = set()
    while isinstance(fn, functools.partial):
        given.update(fn.keywords)
        fn = fn.func
    return frozenset(given)


def display_name(fn: Callable[..., Any]) -> str:
    """The name a person knows the callable by: of the wrapped function for a partial, of the type for an object."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return getattr(fn, "__name__", None) or type(fn).__name__


def identity(fn: Callable[..., Any]) -> Hashable:
    """What makes two mentions of a callable the same node.

    A bound method is a new object at each access, so it is known by its function and its instance.
    """
    instance = getattr(fn, "__self__", None)
    if instance is None or inspect.ismodule(instance):
        return id(fn)
    function = getattr(fn, "__func__", None)
    return (id(function) if function is not None else getattr(fn, "__name__", id(fn)), id(instance))


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or (
        not inspect.isclass(fn) and not inspect.isroutine(fn) and inspect.iscoroutinefunction(type(fn).__call__)
    )


def enters(fn: Callable[..., Any]) -> bool:
    """Whether what it makes is entered and left: it is a generator function, or makes a context manager of one."""
    target = _annotated_part(fn)
    return inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target)


def makes_manager(fn: Callable[..., Any]) -> bool:
    """Whether it is a class of context managers."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if not inspect.isclass(fn):
        return False
    return any(hasattr(fn, enter) and hasattr(fn, leave) for enter, leave in _MANAGERS)


def marker_of(annotation: Any, default: Any = None) -> tuple[Marker | None, Any]:
    """What a parameter says that fills it, by its annotation's top level or as its default, and the type it takes."""
    marker = default if isinstance(default, Dependency) else None
    if get_origin(annotation) is not Annotated:
        return marker, annotation
    filled, *extras = get_args(annotation)
    return next((extra for extra in extras if isinstance(extra, SdkResolve | Dependency)), marker), filled


def buried_marker(annotation: Any) -> Marker | None:
    """The marker that hides inside an annotation, where it would be ignored (`Annotated[T, Resolve(f)] | None`)."""
    if get_origin(annotation) is Annotated:
        inner, *extras = get_args(annotation)
        found = next((extra for extra in extras if isinstance(extra, SdkResolve | Dependency)), None)
        return found or buried_marker(inner)
    return next((found for part in get_args(annotation) if (found := buried_marker(part)) is not None), None)


def wants_outcome(filled: Any) -> bool:
    """Whether a consumer's type is `ElicitationResult[T]`, one of its members, or a union of members."""
    # The alias keeps its union on `__value__`, of itself when bare and of its origin when subscripted.
    alias = getattr(filled, "__value__", None) or getattr(get_origin(filled), "__value__", None)
    members = arms_of(alias if alias is not None else filled)
    return any(isinstance(member, type) and issubclass(member, _OUTCOMES) for member in members)


def arms_of(annotation: Any) -> tuple[Any, ...]:
    """The members of a union, through `Annotated` and type aliases; of anything else, itself."""
    if get_origin(annotation) is Annotated:
        return arms_of(get_args(annotation)[0])
    try:
        alias = getattr(annotation, "__value__", None)
    except NameError:  # a PEP 695 alias of names that exist for type checkers only
        return (annotation,)
    if alias is not None:
        return arms_of(alias)
    if get_origin(annotation) in (typing.Union, types.UnionType):
        arms = (arms_of(arm) for arm in get_args(annotation))
        return tuple(arm for group in arms for arm in group)
    return (annotation,)


def returns_input_required(fn: Callable[..., Any]) -> bool:
    """Whether a function's return annotation says it asks by hand, with an `InputRequiredResult`."""
    arms = arms_of(hints_of(fn).get("return"))
    return any(isinstance(arm, type) and issubclass(arm, InputRequiredResult) for arm in arms)


def require_top_level(annotation: Any, *, parameter: str, function: str, owner: str | None) -> None:
    """Refuse a marker that would silently be ignored."""
    marker = buried_marker(annotation)
    if marker is not None:
        name = "Depends" if isinstance(marker, Dependency) else "Resolve"
        where = f"{owner}: " if owner is not None else ""
        raise InvalidSignature(
            f"{where}parameter {parameter!r} of {function!r} has its {name}(...) inside a union or another type; "
            f"put it at the top: Annotated[T | None, {name}(fn)], not Annotated[T, {name}(fn)] | None"
        )


def _refuse_foreign(annotation: Any, default: Any, *, parameter: str, function: str, owner: str | None) -> None:
    """Refuse a dependency of Docket's or FastMCP's, which nothing fills here."""
    extras = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    for given in (default, *extras):
        # Known by where its classes come from: Docket need not be installed, and is not imported.
        if not any(kind.__module__.partition(".")[0] in _FOREIGN_MODULES for kind in type(given).__mro__):
            continue
        name = type(given).__name__.lstrip("_")
        library = "FastMCP" if type(given).__module__.startswith("fastmcp.") else "Docket"
        where = f"{owner}: " if owner is not None else ""
        raise InvalidSignature(
            f"{where}parameter {parameter!r} of {function!r} must not have a dependency of {library}'s, got "
            f"{name}(...), which roundtrip does not fill; {_INSTEAD_OF_FOREIGN.get(name, _NO_TASKS)}"
        )


def require_annotated(annotation: Any, default: Any, *, parameter: str, function: str, owner: str | None) -> None:
    """Refuse a marker that is written where nothing reads it: a client could then fill the parameter."""
    _refuse_foreign(annotation, default, parameter=parameter, function=function, owner=owner)
    extras = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    if isinstance(default, SdkResolve):
        written = f"{parameter} = Resolve(...)"
    elif isinstance(annotation, SdkResolve | Dependency):
        written = f"{parameter}: {'Depends' if isinstance(annotation, Dependency) else 'Resolve'}(...)"
    elif any(isinstance(extra, type) and issubclass(extra, SdkResolve) for extra in extras):
        written = "Annotated[T, Resolve], without a function"
    else:
        return
    where = f"{owner}: " if owner is not None else ""
    name = "Depends" if isinstance(annotation, Dependency) else "Resolve"
    raise InvalidSignature(
        f"{where}parameter {parameter!r} of {function!r} is written {written}, which fills nothing; "
        f"write {parameter}: Annotated[T, {name}(fn)]"
    )
