"""Stored calls of FastMCP servers: the tools that continue them, and the later legs.

The first leg of a stored call is the client's request. A later leg starts when a user answers on a page, or when a
group decides. That leg runs through FastMCP's `call_tool`, so transforms, mounts and dependencies work as in the first
leg. FastMCP's middleware does not see a later leg, because no client has sent a request for it. If a tool has `auth=`,
or has parameters that FastMCP fills, it may need a client's request. Its later legs then wait for such a request. A
task's legs never wait: FastMCP authorizes the requests that begin the task, and fills parameters without a request.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from mcp.server.context import ServerRequestContext
from mcp_types import CallToolResult
from typing_extensions import override

from roundtrip.adapters import fastmcp_names as names
from roundtrip.adapters.fastmcp_functions import (
    CALLED,
    STORED_LEG,
    CalledTool,
    FastMcpFunction,
    HostedLeg,
    own_function,
)
from roundtrip.adapters.installation import Installation, InstallOptions, installation_in, serving_now
from roundtrip.engine.leg import Finished
from roundtrip.legs.functions import AskingFunction
from roundtrip.legs.requests import Incoming, holding
from roundtrip.legs.runner import ServedEnd
from roundtrip.server.features import install_stored_calls
from roundtrip.stored.desk import ToolHost
from roundtrip.stored.legs import ToolMissing
from roundtrip.tools.replies import text_result

if TYPE_CHECKING:
    from roundtrip.channels.stored_calls import StoredCalls

FunctionOfTool = Callable[[names.Tool, names.Tool | None], FastMcpFunction | None]
"""Given a tool, and the tool behind its transforms and mounts, returns the function that asks; None if none asks."""


def install_stored_fastmcp_calls(tools: FastMcpTools, options: InstallOptions) -> None:
    """Add the pages, the tool that continues calls, and the inbox that a FastMCP server's options require.

    Raises:
        TypeError: The channels are not a list of names.
        ValueError: The options contradict each other, or the server does not authenticate its callers.
        InvalidSignature: The ledger cannot store calls.
    """
    installation = tools.installation
    mcp = installation.host

    def add_tool(fn: Any, *, structured_output: bool, **details: Any) -> None:
        del structured_output  # FastMCP uses `output_schema` instead
        mcp.tool(fn, output_schema=None, **details)

    installation.custom_route, installation.add_tool = mcp.custom_route, add_tool
    stored = installation.stored_calls = install_stored_calls(
        tools, installation.storage, options, has_auth=mcp.auth is not None
    )
    if stored is not None:
        mcp.add_transform(_ClientListing(tools, stored))


class _ClientListing(names.Transform):
    """Transform that lists tools in a form that clients can use.

    It removes the output schema from tools that may ask questions. Clients validate results against that schema, and a
    message that the call is waiting would not match it. The results themselves stay unchanged. A mounted server hides
    its own `continue_call` and its apps, because clients connect to the outer server, which stores the calls.
    """

    def __init__(self, tools: FastMcpTools, stored: StoredCalls) -> None:
        self._tools = tools
        self._stored = stored

    async def list_tools(self, tools: Sequence[names.Tool]) -> Sequence[names.Tool]:
        """Return the tools to list."""
        serving = serving_now()
        is_mounted = serving is not None and serving.installation is not self._tools.installation
        listed: list[names.Tool] = []
        for tool in tools:
            function = await self._tools.asking_function(tool)
            if function is not None and is_mounted and function in self._stored.own:
                continue
            if function is not None and self._stored.may_replace_result(function):
                meta = self._stored.meta_of(function, tool.meta)
                tool = tool.model_copy(update={"output_schema": None, "meta": meta})
            listed.append(tool)
        return listed


class FastMcpTools(ToolHost):
    """One FastMCP server's tools, for stored calls.

    `is_gated` is always False, because mounts and searches rename tools. The stored call itself knows if it needs a
    request.

    Args:
        installation: The installation on the server that clients connect to.
        function_of: Returns the function with which a tool asks on this server.
    """

    def __init__(self, installation: Installation[names.FastMCP[Any]], function_of: FunctionOfTool) -> None:
        super().__init__(installation, installation.low_level, installation.legs, installation.desk)
        self.installation = installation
        self._function_of = function_of

    async def asking_function(self, tool: names.Tool) -> FastMcpFunction | None:
        """Return the function with which a tool asks, here or on a mounted server; None if it asks nothing."""
        mounts = [mount async for mount in names.mounts_below(tool)]
        below = names.end_of(tool, mounts)
        function = self._function_of(tool, below)
        if function is not None:
            return function
        for server, inner in mounts:
            mounted = installation_in(names.low_level_of(server))
            host = mounted.tool_host if mounted is not None else None
            if inner is not None and isinstance(host, FastMcpTools):
                function = host._function_of(inner, below)
                if function is not None:
                    return function
        return None

    @override
    def find(self, name: str, version: str | None) -> AskingFunction:
        functions = self.installation.functions
        found = functions.get(("tool", name, version)) or functions.get(("tool", name, None))
        if found is None:
            raise names.NotFoundError(f"Unknown tool: {name!r}")
        return found

    @override
    def has_tool(self, name: str, version: str | None) -> bool:
        # Mounts and transforms may provide tools under any name.
        mcp = self.installation.host
        own = [each for each in mcp.transforms if not isinstance(each, _ClientListing)]
        if own or any(not isinstance(each, names.LocalProvider) or each.transforms for each in mcp.providers):
            return True
        return self._holds(name, version)

    def _holds(self, name: str, version: str | None) -> bool:
        """Return True if the tool is registered on this server itself, even if it is disabled."""
        local = (
            each for provider in names.providers_of(self.installation.host) for each in names.components_of(provider)
        )
        return any(
            isinstance(each, names.Tool) and each.name == name and version in (None, each.version) for each in local
        )

    @override
    async def listed_meta(self, name: str, function: AskingFunction) -> Mapping[str, Any]:
        tool = await self.installation.host.get_tool(name, _version_spec(function.version))
        return (tool.meta or {}) if tool is not None else {}

    @override
    async def is_visible(self, name: str, version: str | None, request: ServerRequestContext[Any, Any]) -> bool:
        return await self.installation.host.get_tool(name, _version_spec(version)) is not None

    @override
    def begin_storing(self) -> None:
        """Note the name and the arguments with which FastMCP's middleware passes a client's call on."""
        mcp, installation = self.installation.host, self.installation
        call = mcp.call_tool

        @functools.wraps(call)
        async def call_tool(name: str, arguments: dict[str, Any] | None = None, **options: Any) -> Any:
            outer = CALLED.get()
            if options.get("run_middleware") is not False or (outer is not None and outer.installation is installation):
                return await call(name, arguments, **options)
            with holding(CALLED, CalledTool(installation, name, arguments or {})):
                return await call(name, arguments, **options)

        setattr(mcp, "call_tool", call_tool)  # noqa: B010 - type checkers reject assigning a method

    @override
    async def serve_stored(
        self, name: str, arguments: dict[str, Any], incoming: Incoming, version: str | None
    ) -> ServedEnd:
        mcp = self.installation.host
        leg = HostedLeg(self.installation, incoming)
        task = incoming.record.stored if incoming.record is not None else None
        has_client = task is not None and task.request is not None
        bound = (
            names.bind_request_context(incoming.request)
            if has_client and incoming.request is not None
            else nullcontext()
        )
        failed: CallToolResult | None = None
        with holding(STORED_LEG, leg), bound:
            tool = await mcp.get_tool(name, _version_spec(version))
            if tool is None and not has_client and not self._holds(name, version):
                raise ToolMissing
            own = own_function(tool, await names.tool_below(tool)) if tool is not None else None
            leg.planned = own.planned if own is not None else None
            try:
                made = await mcp.call_tool(name, arguments, version=_version_spec(version), run_middleware=False)
                failed = names.wire_form(made)
            except (names.NotFoundError, names.DisabledError):
                failed = text_result(f"Unknown tool: {name!r}", is_error=True)
            except names.FastMCPError as error:
                failed = text_result(str(error), is_error=True)
        if leg.failure is not None:
            raise leg.failure
        # FastMCP has no result for a leg that waits.
        return Finished(failed) if leg.end is None or isinstance(leg.end, Finished) else leg.end


def _version_spec(version: str | None) -> names.VersionSpec | None:
    return None if version is None else names.VersionSpec(eq=version)
