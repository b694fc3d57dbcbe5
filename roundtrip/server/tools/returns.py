"""Read a tool's return annotation for the schema of its results."""

import collections.abc
import inspect
import types
from typing import Annotated, Any, Union, get_args, get_origin

from mcp_types import CallToolResult, InputRequiredResult
from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter

from roundtrip.resolvers.signatures import arms_of
from roundtrip.server.content import CONTENT_TYPES

__all__ = ["NOTHING", "is_any_list", "is_any_object", "returned_type", "unannotated"]

NOTHING = inspect.Signature.empty
"""Marker of an annotation that gives no output schema."""

_SAYS_NOTHING = (NOTHING, None, types.NoneType, Any, object)
_OBJECTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_LISTS = (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.MutableSequence)
_ITERATIONS = (collections.abc.Iterator, collections.abc.Iterable, collections.abc.Generator)
_AWAITED = (collections.abc.Awaitable, collections.abc.Coroutine)


def returned_type(annotation: Any) -> Any:
    """Return a return annotation as the SDK's `func_metadata` should read it; `NOTHING` for no schema.

    `Any`, `object`, `None` and content give no schema. A bare `dict`, `list`, `tuple` or `set` may hold anything.
    An iterator becomes a list, as in the result.
    """
    if isinstance(annotation, str) or any(annotation is empty for empty in _SAYS_NOTHING):
        return NOTHING
    if get_origin(annotation) is Annotated:
        return _read_annotated(annotation)
    alias = _aliased(annotation)
    if alias is not None:
        return returned_type(alias)
    if _mentions_content(annotation):
        return NOTHING
    origin = get_origin(annotation) or annotation
    arguments = get_args(annotation)
    if origin in _AWAITED:
        return returned_type(arguments[-1]) if arguments else NOTHING
    if origin in _OBJECTS:
        return types.GenericAlias(dict, arguments) if arguments else dict[str, Any]
    if origin in _ITERATIONS:
        return list[arguments[0]] if arguments else list[Any]
    if origin in _LISTS and not arguments:
        return list[Any]
    read = _read_union(annotation) if origin in (Union, types.UnionType) else annotation
    return read if isinstance(read, type) or _is_known(read) else NOTHING


def _read_annotated(annotation: Any) -> Any:
    inner, *extras = get_args(annotation)
    if isinstance(inner, type) and issubclass(inner, CallToolResult):
        # The SDK reads the second part as the type of the structured content.
        return annotation
    read = returned_type(inner)
    return NOTHING if read is NOTHING else Annotated[(read, *extras)]


def _read_union(annotation: Any) -> Any:
    arms = [arm for arm in get_args(annotation) if not _is(arm, InputRequiredResult)]
    if any(arm is Any or arm is object for arm in arms):
        return NOTHING
    if len(arms) == 1:
        return returned_type(arms[0])
    return annotation


def _aliased(annotation: Any) -> Any:
    """Return the type behind an alias; None for other types, and for aliases of names missing at runtime."""
    try:
        return getattr(annotation, "__value__", None) if get_origin(annotation) is None else None
    except NameError:
        return None


def _is_known(read: Any) -> bool:
    """Return True if pydantic has a schema for it, without which the SDK fails on a list of it."""
    try:
        TypeAdapter[Any](read)
    except PydanticSchemaGenerationError:
        return False
    except (PydanticUserError, NameError):
        # A mistake in a known type, which the SDK reports.
        return True
    return True


def _mentions_content(annotation: Any) -> bool:
    """Return True for content, and for a list, tuple or union that contains some."""
    for arm in arms_of(annotation):
        origin = get_origin(arm)
        if origin in _LISTS or origin in _ITERATIONS or origin in _AWAITED:
            if any(_mentions_content(argument) for argument in get_args(arm)):
                return True
        elif any(_is(arm, kind) for kind in CONTENT_TYPES):
            return True
    return False


def _is(annotation: Any, kind: type) -> bool:
    return isinstance(annotation, type) and get_origin(annotation) is None and issubclass(annotation, kind)


def unannotated(read: Any) -> Any:
    """Return a type without its `Annotated` extras."""
    return get_args(read)[0] if get_origin(read) is Annotated else read


def is_any_object(read: Any) -> bool:
    """Return True for a dict of anything."""
    return unannotated(read) == dict[str, Any]


def is_any_list(read: Any) -> bool:
    """Return True for a list of anything."""
    return unannotated(read) in (list[Any], tuple[Any, ...])
