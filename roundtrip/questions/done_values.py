"""Write and read the values that `done=` of a page returns, by its annotation."""

import functools
import inspect
import types
import typing
from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter

__all__ = ["values_of"]


def values_of(done: Callable[..., Any] | None) -> TypeAdapter[Any]:
    """Return the adapter for the values of a function; without one, the value is consent."""
    return _adapter(bool if done is None else _returned_by(done))


@functools.lru_cache(maxsize=256)
def _adapter(returns: Any) -> TypeAdapter[Any]:
    return TypeAdapter(returns)


def _returned_by(done: Callable[..., Any]) -> Any:
    """Return the annotation of what a callable returns; `Any` for none, or one that cannot be evaluated."""
    while isinstance(done, functools.partial):
        done = done.func
    function = inspect.unwrap(done) if inspect.isroutine(done) else type(done).__call__
    written = getattr(function, "__annotations__", {})
    if "return" not in written:
        return Any
    # Alone: other parameters may have annotations for type checkers only.
    lone = types.SimpleNamespace(__annotations__={"return": written["return"]})
    try:
        hints = typing.get_type_hints(lone, globalns=getattr(function, "__globals__", {}), include_extras=True)
    except Exception:  # noqa: BLE001 - an annotation may be any expression
        return Any
    return hints["return"]
