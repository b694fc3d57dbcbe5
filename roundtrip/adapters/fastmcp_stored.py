"""Stored calls of FastMCP servers: the tools that continue them, and the later legs.

The first leg of a stored call is the client's request. A later leg starts when a user answers on a page, or when a
group decides. That leg runs through FastMCP's `call_tool`, so transforms, mounts and dependencies work as in the first
leg. FastMCP's middleware does not see a later leg, because no client has sent a request for it. If a tool has `auth=`,
or has parameters that FastMCP fills, it may need a client's request. Its later legs then wait for such a request. A
task's legs never wait: FastMCP authorizes the requests that begin the task, and fills parameters without a request.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from mcp.server.context import ServerRequestContext
from mcp_types import CallToolResult
from pydantic_core import to_jsonable_python
from typing_extensions import override

from roundtrip.adapters import fastmcp_names as names
from roundtrip.adapters.fastmcp_functions import STORED_LEG, FastMcpFunction, HostedLeg
from roundtrip.adapters.installation import Installation, InstallOptions, serving_now
from roundtrip.engine.leg import Finished
from roundtrip.legs.functions import AskingFunction
from roundtrip.legs.requests import Incoming, holding
from roundtrip.legs.runner import ServedEnd
from roundtrip.server.features import install_stored_calls
from roundtrip.stored.desk import ToolHost
from roundtrip.tools.replies import text_result

if TYPE_CHECKING:
    from roundtrip.channels.stored_calls import StoredCalls

FunctionOfTool = Callable[[names.Tool, names.Tool | None], FastMcpFunction | None]
"""Given a tool, and the tool behind its transforms and mounts, returns the function that asks; None if none asks."""


def install_stored_fastmcp_calls(
    installation: Installation[names.FastMCP[Any]], options: InstallOptions, function_of: FunctionOfTool
) -> None:
    """Add the pages, the tool that continues calls, and the inbox that a FastMCP server's options require.

    Args:
        installation: The installation on the server.
        options: The server's options.
        function_of: Returns the function with which a tool asks.

    Raises:
        TypeError: The channels are not a list of names.
        ValueError: The options contradict each other, or the server does not authenticate its callers.
        InvalidSignature: The ledger cannot store calls.
    """
    mcp = installation.host

    def add_tool(fn: Any, *, structured_output: bool, **details: Any) -> None:
        del structured_output  # FastMCP uses `output_schema` instead
        mcp.tool(fn, output_schema=None, **details)

    installation.custom_route, installation.add_tool = mcp.custom_route, add_tool
    stored = installation.stored_calls = install_stored_calls(
        installation.tool_host, installation.storage, options, has_auth=mcp.auth is not None
    )
    if stored is not None:
        mcp.add_transform(_ClientListing(installation, stored, function_of))


class _ClientListing(names.Transform):
    """Transform that lists tools in a form that clients can use.

    It removes the output schema from tools that may ask questions. Clients validate results against that schema, and a
    message that the call is waiting would not match it. The results themselves stay unchanged. A mounted server hides
    its own `continue_call`, because clients connect to the outer server, which stores the calls.
    """

    def __init__(
        self, installation: Installation[names.FastMCP[Any]], stored: StoredCalls, function_of: FunctionOfTool
    ) -> None:
        self._installation = installation
        self._stored = stored
        self._function_of = function_of

    async def list_tools(self, tools: Sequence[names.Tool]) -> Sequence[names.Tool]:
        """Return the tools to list."""
        serving = serving_now()
        is_mounted = serving is not None and serving.installation is not self._installation
        listed: list[names.Tool] = []
        for tool in tools:
            function = self._function_of(tool, await names.tool_below(tool))
            if function is not None and is_mounted and function is self._stored.continuing:
                continue
            if function is not None and tool.output_schema is not None and self._stored.may_replace_result(function):
                tool = tool.model_copy(update={"output_schema": None})
            listed.append(tool)
        return listed


class FastMcpTools(ToolHost):
    """One FastMCP server's tools, for stored calls.

    `is_gated` is always False, because mounts and searches rename tools. The stored call itself knows if it needs a
    request.

    Args:
        installation: The installation on the server that clients connect to.
    """

    def __init__(self, installation: Installation[names.FastMCP[Any]]) -> None:
        super().__init__(installation, installation.low_level, installation.legs, installation.desk)
        self._installation = installation

    @override
    def find(self, name: str, version: str | None) -> AskingFunction:
        functions = self._installation.functions
        found = functions.get(("tool", name, version)) or functions.get(("tool", name, None))
        if found is None:
            raise names.NotFoundError(f"Unknown tool: {name!r}")
        return found

    @override
    def has_tool(self, name: str, version: str | None) -> bool:
        # Any tool may ask for consent. Mounts and transforms may provide tools under any name.
        mcp = self._installation.host
        if self._installation.consent is not None:
            return True
        own = [each for each in mcp.transforms if not isinstance(each, _ClientListing)]
        if own or any(not isinstance(each, names.LocalProvider) or each.transforms for each in mcp.providers):
            return True
        local = (each for provider in names.providers_of(mcp) for each in names.components_of(provider))
        return any(
            isinstance(each, names.Tool) and each.name == name and version in (None, each.version) for each in local
        )

    @override
    async def is_visible(self, name: str, version: str | None, request: ServerRequestContext[Any, Any]) -> bool:
        return await self._installation.host.get_tool(name, _version_spec(version)) is not None

    @override
    def begin_storing(self) -> None:
        """Note the name and the arguments with which FastMCP's middleware passes a client's call on."""
        mcp, installation = self._installation.host, self._installation
        call = mcp.call_tool

        @functools.wraps(call)
        async def call_tool(name: str, arguments: dict[str, Any] | None = None, **options: Any) -> Any:
            serving = serving_now() if options.get("run_middleware") is False else None
            if serving is not None and serving.installation is installation and serving.called is None:
                serving.called = name, to_jsonable_python(arguments or {})
            return await call(name, arguments, **options)

        setattr(mcp, "call_tool", call_tool)  # noqa: B010 - type checkers reject assigning a method

    @override
    async def serve_stored(
        self, name: str, arguments: dict[str, Any], incoming: Incoming, version: str | None
    ) -> ServedEnd:
        leg, mcp = HostedLeg(self._installation, incoming), self._installation.host
        task = incoming.record.stored if incoming.record is not None else None
        has_client = task is not None and task.request is not None
        bound = (
            names.bind_request_context(incoming.request)
            if has_client and incoming.request is not None
            else nullcontext()
        )
        failed: CallToolResult | None = None
        with holding(STORED_LEG, leg), bound:
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
