"""Tell functions that use roundtrip from those that are the host's alone, which no adapter changes."""

import inspect
from collections.abc import Callable
from typing import Any, get_args

from roundtrip.legs.asking import AskingContext
from roundtrip.resolvers.markers import Dependency, Resolve
from roundtrip.resolvers.signatures import hints_of
from roundtrip.tools.options import spec_of


def uses_roundtrip(fn: Callable[..., Any], *, kinds: tuple[type[Any], ...] = (Resolve, Dependency)) -> bool:
    """Return True if a function has a marker, a context or an option of roundtrip's, even in a place that is wrong.

    Args:
        fn: The function.
        kinds: The classes of markers that count.
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


def _mentions(annotation: Any, kinds: tuple[type[Any], ...]) -> bool:
    if isinstance(annotation, kinds):
        return True
    if isinstance(annotation, type) and issubclass(annotation, (*kinds, AskingContext)):
        return True
    # The type of an `Annotated`, its extras, and the members of a union.
    return any(_mentions(part, kinds) for part in get_args(annotation))
