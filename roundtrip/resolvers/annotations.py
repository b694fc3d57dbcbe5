"""Annotations: a parameter's marker, and the question in a resolver's return annotation.

A misplaced marker is rejected. Otherwise nothing would read the marker, and a client could fill the parameter.
"""

import inspect
from collections.abc import Callable, Collection
from typing import Annotated, Any, get_args, get_origin

from roundtrip.errors import InvalidSignature
from roundtrip.questions.markers import MARKERS
from roundtrip.resolvers.markers import Dependency, Depends, Marker, SdkResolve
from roundtrip.resolvers.signatures import (
    arms_of,
    display_name,
    given_by_partials,
    hints_of,
    is_async,
    wants_outcome,
)

Reject = Callable[[Any, str], None]
"""Rejects a value that looks like a marker but would not fill the parameter.

The value is the parameter's default, or a part of its annotation. The second argument describes the parameter.
"""


def accept(given: Any, subject: str) -> None:
    """Accept every default and annotation."""


def find_resolved(
    fn: Callable[..., Any], *, owner: str | None = None, besides: Collection[str] = (), reject: Reject = accept
) -> dict[str, tuple[Marker, bool]]:
    """Return the parameters that have a `Resolve` or a `Dependency`, except the parameters in `besides`.

    Raises:
        InvalidSignature: A marker is in a place where it would be ignored.
    """
    hints = hints_of(fn)
    given = given_by_partials(fn)
    found: dict[str, tuple[Marker, bool]] = {}
    for name, parameter in inspect.signature(fn).parameters.items():
        if name in besides:
            continue
        marker, filled = read_marker(parameter, hints.get(name), function=fn, owner=owner, reject=reject)
        if marker is not None and name not in given:
            found[name] = (marker, wants_outcome(filled))
    return found


def marker_of(annotation: Any, default: Any = None) -> tuple[Marker | None, Any]:
    """Return a parameter's marker and the type that the parameter takes.

    The marker is at the annotation's top level, or is the default.
    """
    marker = default if isinstance(default, Dependency) else None
    if get_origin(annotation) is not Annotated:
        return marker, annotation
    filled, *extras = get_args(annotation)
    return next((extra for extra in extras if isinstance(extra, SdkResolve | Dependency)), marker), filled


def read_marker(
    parameter: inspect.Parameter,
    annotation: Any,
    *,
    function: Callable[..., Any] | str,
    owner: str | None,
    reject: Reject,
) -> tuple[Marker | None, Any]:
    """Return a parameter's marker and the type that the parameter takes, after checking how the marker is written.

    Raises:
        InvalidSignature: A marker is in a place where nothing reads it, or `reject` raised the error.
    """
    name = function if isinstance(function, str) else display_name(function)
    subject = f"{f'{owner}: ' if owner is not None else ''}parameter {parameter.name!r} of {name!r}"
    extras = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    for part in (parameter.default, *extras):
        reject(part, subject)
    _check_spelling(parameter, annotation, extras, subject)
    _check_not_bare(parameter, extras, subject)
    given = [one for one in (*extras, parameter.default) if isinstance(one, SdkResolve | Dependency)]
    if len(given) > 1:
        raise InvalidSignature(f"{subject} has two markers, {given[0]!r} and {given[1]!r}; remove one")
    marker, filled = marker_of(annotation, parameter.default)
    buried = _buried_marker(filled)
    if buried is not None:
        kind = _kind_of(buried)
        raise InvalidSignature(
            f"{subject} has its {kind}(...) inside a union or another type; "
            f"put it at the top: Annotated[T | None, {kind}(fn)], not Annotated[T, {kind}(fn)] | None"
        )
    return marker, filled


def _kind_of(marker: Any) -> str:
    return "Depends" if isinstance(marker, Dependency) else "Resolve"


def _check_spelling(parameter: inspect.Parameter, annotation: Any, extras: tuple[Any, ...], subject: str) -> None:
    """Reject a `Resolve` as the default, a marker as the whole annotation, and a marker class without a function."""
    kind = _kind_of(annotation)
    if isinstance(parameter.default, SdkResolve):
        written = f"{parameter.name} = Resolve(...)"
    elif isinstance(annotation, SdkResolve | Dependency):
        written = f"{parameter.name}: {kind}(...)"
    else:
        kinds = [given for given in (parameter.default, *extras) if given is Depends or isinstance(given, type)]
        bare = [given for given in kinds if given is Depends or issubclass(given, (SdkResolve, Dependency))]
        if not bare:
            return
        kind = "Depends" if bare[0] is Depends or issubclass(bare[0], Dependency) else "Resolve"
        written = f"with {kind}, without a function"
    raise InvalidSignature(
        f"{subject} is declared {written}, which does not fill it; write {parameter.name}: Annotated[T, {kind}(fn)]"
    )


def _check_not_bare(parameter: inspect.Parameter, extras: tuple[Any, ...], subject: str) -> None:
    """Reject a resolver in `Annotated` without `Resolve` around it. Other plain functions in `Annotated` are permitted,
    because they may have any purpose.
    """
    for extra in extras:
        if isinstance(extra, SdkResolve | Dependency) or not inspect.isroutine(extra):
            continue
        if is_async(extra) or asking_arms(hints_of(extra).get("return")):
            name = display_name(extra)
            raise InvalidSignature(
                f"{subject} is declared Annotated[T, {name}], which does not fill it; "
                f"write {parameter.name}: Annotated[T, Resolve({name})]"
            )


def _buried_marker(annotation: Any) -> Marker | None:
    """Return a marker inside an annotation, as in `Annotated[T, Resolve(f)] | None`."""
    if get_origin(annotation) is Annotated:
        inner, *extras = get_args(annotation)
        found = next((extra for extra in extras if isinstance(extra, SdkResolve | Dependency)), None)
        return found or _buried_marker(inner)
    return next((found for part in get_args(annotation) if (found := _buried_marker(part)) is not None), None)


def asking_arms(returns: Any) -> list[Any]:
    """Return the members of a return annotation that name questions."""
    return [
        arm
        for arm in arms_of(returns)
        if isinstance(kind := get_origin(arm) or arm, type) and issubclass(kind, MARKERS)
    ]
