"""Read a tool's description, and those of its parameters, from its docstring."""

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

__all__ = ["Description", "describe"]

# Without any of these there is nothing to parse, and the parsers need not be imported.
_SECTIONED = re.compile(r"^(?::\w|[A-Z][A-Za-z ]*:[ \t]*$|-{3,}[ \t]*$)", re.MULTILINE)


class Description(NamedTuple):
    """The free text of a docstring, and its entries for parameters that the function has."""

    text: str
    parameters: Mapping[str, str]


def describe(fn: Callable[..., Any]) -> Description:
    """Read the docstring of a callable.

    Google, NumPy and Sphinx style are tried, and the style that describes most parameters wins. The text is the prose
    above the parameters, without other sections (results, errors, examples).
    """
    text = inspect.cleandoc(_docstring(fn))
    if not _SECTIONED.search(text):
        return Description(text, {})
    from roundtrip.server.tools.docstring_sections import read_sections

    return Description(*read_sections(text, _parameter_names(fn)))


def _docstring(fn: Any) -> str:
    """Return the author's docstring: of a partial's function, or of an object's `__call__` or type."""
    if inspect.isclass(fn):
        return _class_docstring(fn)
    if inspect.isroutine(fn):
        return _text(fn.__doc__)
    # Given to this one object, as functools.update_wrapper does; its class's is reached below.
    if own := _text(getattr(fn, "__dict__", {}).get("__doc__")):
        return own
    if isinstance(fn, functools.partial):
        return _docstring(cast("functools.partial[Any]", fn).func)
    kind = cast("type[Any]", type(fn))
    return _text(kind.__call__.__doc__) or _class_docstring(kind)


def _class_docstring(cls: type[Any]) -> str:
    text = _text(cls.__doc__)
    # A dataclass without a docstring gets its signature for one.
    return "" if dataclasses.is_dataclass(cls) and text.startswith(f"{cls.__name__}(") else text


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _parameter_names(fn: Callable[..., Any]) -> frozenset[str]:
    try:
        return frozenset(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        return frozenset()
