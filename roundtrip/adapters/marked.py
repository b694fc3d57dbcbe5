"""Detection of functions that use roundtrip. Adapters leave all other functions to the host."""

import inspect
from collections.abc import Callable
from typing import Any, get_args

from roundtrip.errors import ContextOfHost
from roundtrip.legs.asking import AskingContext
from roundtrip.resolvers.markers import Dependency, Resolve
from roundtrip.resolvers.signatures import hints_of
from roundtrip.server.context import Context
from roundtrip.tools.options import spec_of


def uses_roundtrip(fn: Callable[..., Any], *, kinds: tuple[type[Any], ...] = (Resolve, Dependency)) -> bool:
    """Return True if a function has a marker, a context or an option from roundtrip, even in a wrong place.

    Args:
        fn: The function.
        kinds: The marker classes to look for.
    """
    if spec_of(fn):
        return True
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return False
    hints = hints_of(fn)
    return any(
        isinstance(parameter.default, kinds) or _mentions(hints.get(name, parameter.annotation), kinds)
        for name, parameter in parameters.items()
    )


def misused_context(error: BaseException | None, kind: type[Any]) -> ContextOfHost | None:
    """Return the error to raise if code asked with a host's own context and so caused the given error."""
    while error is not None and not isinstance(error, AttributeError | ContextOfHost):
        error = error.__cause__
    if (
        not isinstance(error, AttributeError)
        or not isinstance(error.obj, kind)
        or not hasattr(Context, str(error.name))
    ):
        return None
    return ContextOfHost(str(error.name), kind=type(error.obj))


def _mentions(annotation: Any, kinds: tuple[type[Any], ...]) -> bool:
    if isinstance(annotation, kinds):
        return True
    if isinstance(annotation, type) and issubclass(annotation, (*kinds, AskingContext)):
        return True
    # Check the type inside an `Annotated`, its extras, and the members of a union.
    return any(_mentions(part, kinds) for part in get_args(annotation))
