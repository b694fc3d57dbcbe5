"""Keep a function with promises from running in a server that does not keep them.

The standalone `@tool` only notes its options. A server without roundtrip would run the function as any other: without
its confirmation, and as often as a client repeats its call. Code that calls the function directly runs it as it is
written.
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

_OURS: Final = "roundtrip."
_SERVERS: Final = ("mcp.server.", "fastmcp.")
_THREADS: Final = ("anyio._backends.", "trio._core._thread_cache")
"""Where a function begins that a server runs in a worker thread. roundtrip's own begin in its modules."""


def guarded(fn: Any) -> Any:
    """Return a callable that runs as `fn` does, and raises if a server without roundtrip runs it.

    It has the signature, the annotations and the attributes of `fn`. An object with `__call__` becomes a function;
    a class is returned as it is.
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
            _refuse_foreign_server(fn)
            return await fn(*given, **named)

        return run_async

    @functools.wraps(fn)
    def run_plain(*given: Any, **named: Any) -> Any:
        _refuse_foreign_server(fn)
        return fn(*given, **named)

    # What `functools.lru_cache` gives its functions.
    for method in ("cache_info", "cache_clear", "cache_parameters"):
        if hasattr(fn, method):
            setattr(run_plain, method, getattr(fn, method))
    return run_plain


def _named_as(fn: Any, run: Any) -> Any:
    run.__dict__.update(getattr(fn, "__dict__", {}))
    run.__name__ = display_name(fn)
    return run


def _refuse_foreign_server(fn: Callable[..., Any]) -> None:
    """Raise if a server without roundtrip runs a function.

    Raises:
        InvalidSignature: It does.
    """
    here = inspect.currentframe()
    if here is not None and _is_run_by_foreign_server(here.f_back and here.f_back.f_back):
        raise InvalidSignature(
            f"{fn.__qualname__!r} has options of roundtrip, and its server has no roundtrip to keep them, so it was "
            "not run; call install(server) of roundtrip.install, or of roundtrip.fastmcp, before tools are registered "
            "(or asyncio.to_thread, if your own code runs it in a worker thread)"
        )


def _is_run_by_foreign_server(frame: FrameType | None) -> bool:
    """Return True if the nearest server among the callers is not roundtrip."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__"))
        if module.startswith(_OURS):
            return False
        if module.startswith(_SERVERS):
            return True
        if module.startswith(_THREADS) and frame.f_code.co_name in ("run", "_work"):
            return True
        frame = frame.f_back
    return False
