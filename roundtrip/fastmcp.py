"""Let the tools of a FastMCP server ask: `install(mcp, keys=…)`, once, before its tools are registered.

FastMCP keeps its own registration, schemas, middleware, dependencies and results. A tool that asks becomes a function
with its client's parameters alone, which serves one leg of the call each time FastMCP runs it.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from mcp.shared.exceptions import MCPError

from fastmcp.exceptions import FastMCPError, ToolError
from fastmcp.server.dependencies import find_kwarg_by_type, get_dependency_parameters
from fastmcp.tools.function_tool import FunctionTool
from roundtrip.engine.leg import Limits
from roundtrip.errors import InvalidSignature
from roundtrip.resolvers.annotations import find_resolved
from roundtrip.resolvers.signatures import display_name, hints_of
from roundtrip.server.functions import AskingFunction, FunctionSignature
from roundtrip.server.install import install as install_low_level
from roundtrip.server.install import wrap
from roundtrip.server.keys import Keys, Principal, limits_of, protect
from roundtrip.server.leg_runner import LegRunner, result_of
from roundtrip.server.parts import Effects, Parts
from roundtrip.server.requests import Incoming, asking_request
from roundtrip.server.tools.options import OncePolicy, ToolSpec, spec_of
from roundtrip.system import SYSTEM
from roundtrip.trace.writing.tracers import tracers_of

if TYPE_CHECKING:
    from fastmcp import FastMCP
    from fastmcp.tools.base import Tool
    from roundtrip.ledger.contract import Ledger

__all__ = ["install"]


def install(
    mcp: FastMCP[Any],
    *,
    keys: Keys | None = None,
    ttl: float | None = None,
    max_age: float | None = None,
    encrypt: bool = False,
    principal: Principal | Literal[False] | None = None,
    audience: str | None = None,
    build: str | None = None,
    trace: Any = None,
    ledger: Ledger | None = None,
) -> None:
    system = SYSTEM
    given = mcp._request_state_security
    limits = limits_of(given, ttl=ttl, max_age=max_age)
    protection = protect(
        mcp.name, given=given, keys=keys, ttl=limits.ttl, encrypt=encrypt, principal=principal, audience=audience,
        environment=os.environ, system=system,
    )
    from mcp.server.subscriptions import InMemorySubscriptionBus

    effects = Effects(
        ledger, tracers_of(trace, environment=os.environ, key=protection.trace_key), InMemorySubscriptionBus(),
        system=system,
    )
    legs = install_low_level(mcp._mcp_server, Parts(protection, effects, limits, system))
    adapter = _Adapter(mcp, legs, limits, build)
    provider = mcp.local_provider
    provider.add_tool = adapter.adding(provider.add_tool)


class _Adapter:
    def __init__(self, mcp, legs: LegRunner, limits: Limits, build: str | None) -> None:
        self._mcp = mcp
        self._legs = legs
        self._limits = limits
        self._build = build

    def adding(self, add: Callable[[Any], Tool]) -> Callable[[Any], Tool]:
        def add_tool(tool: Any) -> Tool:
            return add(tool if isinstance(tool, FunctionTool) or not callable(tool) else self._asking(tool))

        return add_tool

    def _asking(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        meta = getattr(fn, "__fastmcp__", None)
        name = (meta.name if meta is not None else None) or display_name(fn)
        spec = spec_of(fn)
        injected = self._injected(fn)
        resolved = find_resolved(fn, owner=f"tool {name!r}", besides=injected)
        contexts = _contexts(fn, (*resolved, *injected))
        if not resolved and not contexts and spec == ToolSpec():
            return fn
        signature = FunctionSignature(fn, "tool", name, resolved, contexts)
        visible = [p for p in inspect.signature(fn).parameters if p not in signature.hidden and p not in injected]
        from roundtrip.server.tools.confirmation import ToolConfirmation

        names = {each: each for each in visible}
        function = AskingFunction(
            signature, names, limits=self._limits, build=self._build,
            confirmation=ToolConfirmation.of(spec.confirm, tool=name, arguments=names) if spec.confirm else None,
            once=OncePolicy(spec.on_unknown or "fail", spec.exactly_once == "when_possible") if spec.exactly_once else None,
            timeout=spec.timeout,
        )

        async def serve(arguments: dict[str, Any], _: Any) -> Any:
            record = asking_request()
            if record is None:
                raise ToolError("not served by an installed server")
            # FastMCP may show the tool under another name, as of a mounted server.
            end = await self._legs.run(function, arguments, Incoming.of(record.context))
            return result_of(end)

        asking = wrap(signature, serve, context_type=None)
        returns = hints_of(fn).get("return", inspect.Signature.empty)
        if returns is not inspect.Signature.empty:
            asking.__annotations__["return"] = returns
            asking.__signature__ = asking.__signature__.replace(return_annotation=returns)
        if meta is not None:
            asking.__fastmcp__ = meta
        return asking

    def _injected(self, fn) -> tuple[str, ...]:
        from fastmcp.server.context import Context

        context = find_kwarg_by_type(fn, Context)
        return (*((context,) if context else ()), *get_dependency_parameters(fn))


def _contexts(fn, besides) -> tuple[str, ...]:
    from roundtrip.server.functions import _is_context

    return tuple(name for name, hint in hints_of(fn).items() if name not in ("return", *besides) and _is_context(hint))
