"""Keep FastMCP from running a function that asks by itself, whatever the way by which it has come to a server.

A mounted server without `install`, a provider, a transform, a middleware or a proxy can hold a component that was made
of the author's function. FastMCP would let its clients fill what roundtrip fills, and run it without its confirmation.
So it is decided where FastMCP runs a function and where it lists one, for all servers of the process. There, too, a
plain function that asks with FastMCP's own context gets an error that says which one to take.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

from mcp.server.mcpserver.resolve import Resolve as SdkResolve

from roundtrip.adapters.fastmcp_functions import ERRORS, function_of_plain
from roundtrip.adapters.fastmcp_names import (
    FUNCTION_COMPONENTS,
    LISTS,
    Context,
    FastMCP,
    TransformedTool,
    kind_and_name_of,
)
from roundtrip.adapters.marked import misused_context, uses_roundtrip
from roundtrip.resolvers.markers import Dependency

logger = logging.getLogger(__name__)

MARKERS: Final = (SdkResolve, Dependency)
"""The classes of markers that FastMCP does not know."""

_GUARDED: Final = "__roundtrip_guarded__"

_ASKS: Final[WeakKeyDictionary[Callable[..., Any], bool]] = WeakKeyDictionary()
_TOLD: Final[WeakSet[Callable[..., Any]]] = WeakSet()


def asks(target: object) -> bool:
    """Return True for a function that asks, and that roundtrip has not made plain."""
    return callable(target) and function_of_plain(target) is None and uses_roundtrip(target, kinds=MARKERS)


def is_unsafe(component: object) -> bool:
    """Return True if FastMCP would run a function that asks for a component, behind any number of transforms."""
    part: Any = component
    while part is not None:
        if _asks_cached(getattr(part, "fn", None)):
            return True
        part = part.parent_tool if isinstance(part, TransformedTool) else None
    return False


def guard_functions() -> None:
    """Let FastMCP's classes reject functions that ask, and leave them out of lists."""
    for kind in FUNCTION_COMPONENTS:
        _replace(*kind, _rejecting)
    for name in LISTS:
        _replace(FastMCP, name, _leaving_out)


def _replace(owner: type[Any], name: str, make: Callable[[Any], Any]) -> None:
    method = vars(owner)[name]
    if not hasattr(method, _GUARDED):
        made = functools.wraps(method)(make(method))
        setattr(made, _GUARDED, True)
        setattr(owner, name, made)


def _rejecting(run: Callable[..., Any]) -> Callable[..., Any]:
    async def run_plain(component: Any, *given: Any, **named: Any) -> Any:
        if _asks_cached(component.fn):
            kind, name = kind_and_name_of(component)
            raise ERRORS[kind](_told(kind, name))
        try:
            return await run(component, *given, **named)
        except Exception as error:
            if (mistake := misused_context(error, Context)) is None:
                raise
            raise ERRORS[kind_and_name_of(component)[0]](str(mistake)) from error

    return run_plain


def _leaving_out(list_all: Callable[..., Any]) -> Callable[..., Any]:
    async def list_safe(server: FastMCP[Any], **named: Any) -> Sequence[Any]:
        safe: list[Any] = []
        for each in await list_all(server, **named):
            if not is_unsafe(each):
                safe.append(each)
            elif _is_new(each.fn):
                logger.error("server %r leaves out of its lists: %s", server.name, _told(*kind_and_name_of(each)))
        return safe

    return list_safe


def _told(kind: str, name: str) -> str:
    return (
        f"{kind} {name!r} asks by roundtrip, and has come to its server in a way that roundtrip does not fill, so it "
        "does not run; call install() of roundtrip.fastmcp on the server that it is made on, and then register its "
        "function (@mcp.tool, mcp.add_tool(fn)), not an object made of it"
    )


def _is_new(fn: Any) -> bool:
    """Return True if nothing was logged about a function yet."""
    function = getattr(fn, "__func__", fn)
    is_new = function not in _TOLD
    _TOLD.add(function)
    return is_new


def _asks_cached(fn: Any) -> bool:
    try:
        known = _ASKS.get(fn)
        if known is None:
            known = _ASKS[fn] = asks(fn)
    except TypeError:  # a callable that cannot be remembered
        return asks(fn)
    return known
