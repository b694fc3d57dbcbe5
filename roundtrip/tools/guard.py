"""Guard that stops servers without roundtrip from running functions whose options only roundtrip enforces.

The standalone `@tool` only attaches options. A server without roundtrip would run the function without its
confirmation, and would run it again for each repeated call. Direct calls from the author's code are not affected.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from roundtrip.errors import InvalidSignature
from roundtrip.resolvers.signatures import display_name, is_async

if TYPE_CHECKING:
    from types import FrameType

_ROUNDTRIP_PREFIX: Final = "roundtrip."
_SERVER_PREFIXES: Final = ("mcp.server.", "fastmcp.")
_THREAD_MODULES: Final = ("anyio._backends.", "trio._core._thread_cache")
"""Modules that start a server's worker threads. In roundtrip's own threads, `_is_run_by_foreign_server` finds a
roundtrip module before these.
"""


def guarded(fn: Any) -> Any:
    """Wrap `fn` so that it raises if a server without roundtrip runs it.

    The wrapper keeps the signature, annotations and attributes of `fn`. An object with `__call__` becomes a function; a
    class is returned unchanged.
    """
    if isinstance(fn, staticmethod | classmethod):
        wrapper: Any = cast("Any", fn)
        return type(wrapper)(guarded(wrapper.__func__))
    if inspect.isclass(fn):
        return fn
    if isinstance(fn, functools.partial):
        bound: functools.partial[Any] = cast("functools.partial[Any]", fn)
        return _named_as(fn, functools.partial(guarded(bound.func), *bound.args, **bound.keywords))
    if not hasattr(fn, "__name__"):
        return _named_as(fn, guarded(fn.__call__))
    if is_async(fn):

        @functools.wraps(fn)
        async def run_async(*given: Any, **named: Any) -> Any:
            _reject_foreign_server(fn)
            return await fn(*given, **named)

        return run_async

    @functools.wraps(fn)
    def run_plain(*given: Any, **named: Any) -> Any:
        _reject_foreign_server(fn)
        return fn(*given, **named)

    # Keep the methods of a function that `functools.lru_cache` wraps.
    for method in ("cache_info", "cache_clear", "cache_parameters"):
        if hasattr(fn, method):
            setattr(run_plain, method, getattr(fn, method))
    return run_plain


def _named_as(fn: Any, run: Any) -> Any:
    run.__dict__.update(getattr(fn, "__dict__", {}))
    run.__name__ = display_name(fn)
    return run


def _reject_foreign_server(fn: Callable[..., Any]) -> None:
    """Raise if a server without roundtrip runs a function.

    Raises:
        InvalidSignature: The server that runs the function does not use roundtrip.
    """
    here = inspect.currentframe()
    if here is not None and _is_run_by_foreign_server(here.f_back and here.f_back.f_back):
        raise InvalidSignature(
            f"{fn.__qualname__!r} was not run: it has roundtrip options, and its server does not use roundtrip; call "
            "install(server) from roundtrip.install or roundtrip.fastmcp before tools are registered. If your own code "
            "runs the function in a worker thread, use asyncio.to_thread"
        )


def _is_run_by_foreign_server(frame: FrameType | None) -> bool:
    """Return True if the nearest server in the call stack is not roundtrip."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module.startswith(_ROUNDTRIP_PREFIX):
            return False
        if module.startswith(_SERVER_PREFIXES):
            return True
        if module.startswith(_THREAD_MODULES) and frame.f_code.co_name in ("run", "_work"):
            return True
        frame = frame.f_back
    return False
