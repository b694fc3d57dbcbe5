"""Store calls of FastMCP's tools: the first leg is the client's request, and the others run through FastMCP, too.

A leg that an answer on a page or a decision has started runs by FastMCP's `call_tool`, so that transforms, mounts and
dependencies work as in the first. No client has sent it, so FastMCP's middleware does not see it. A tool with `auth=`,
or with parameters that FastMCP fills, may need the client's request: its legs wait for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from mcp.server.context import ServerRequestContext
from mcp_types import CallToolResult
from typing_extensions import override

from roundtrip.adapters.fastmcp_functions import STORED_LEG, HostedLeg, function_of_plain
from roundtrip.adapters.fastmcp_names import (
    DisabledError,
    FastMCP,
    FastMCPError,
    LocalProvider,
    NotFoundError,
    Tool,
    Transform,
    VersionSpec,
    bind_request_context,
    function_below,
    wire_form,
)
from roundtrip.adapters.installation import serving_now
from roundtrip.engine.leg import Finished
from roundtrip.legs.requests import holding
from roundtrip.legs.runner import ServedEnd
from roundtrip.server.features import install_stored_calls
from roundtrip.stored.desk import ToolHost
from roundtrip.tools.replies import text_result

if TYPE_CHECKING:
    from roundtrip.adapters.installation import Installation, InstallOptions
    from roundtrip.channels.stored_calls import StoredCalls
    from roundtrip.legs.functions import AskingFunction
    from roundtrip.legs.requests import Incoming


def install_stored_fastmcp_calls(installation: Installation[FastMCP[Any]], options: InstallOptions) -> None:
    """Give a FastMCP server what its options need: pages, a tool that continues calls, and an inbox.

    Raises:
        TypeError: The channels are not a list of names.
        ValueError: The options contradict each other, or the server does not know its callers.
        InvalidSignature: The ledger cannot store calls.
    """
    mcp = installation.host

    def add_tool(fn: Any, *, structured_output: bool, **details: Any) -> None:
        del structured_output  # FastMCP's word for it is the schema
        mcp.tool(fn, output_schema=None, **details)

    installation.custom_route, installation.add_tool = mcp.custom_route, add_tool
    stored = installation.stored_calls = install_stored_calls(
        FastMcpTools(installation), installation.storage, options, has_auth=mcp.auth is not None
    )
    if stored is not None:
        mcp.add_transform(_ListedForClients(installation, stored))


class _ListedForClients(Transform):
    """Lists tools as their clients can use them.

    Tools that may ask lose the schemas of their results: clients check results against them, and word that a call waits
    does not fit one. Results stay as they are. A mounted server hides its `continue_call`: the server that clients
    connect to stores the calls.
    """

    def __init__(self, installation: Installation[FastMCP[Any]], stored: StoredCalls) -> None:
        self._installation = installation
        self._stored = stored

    async def list_tools(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        """Return the tools as they must be listed."""
        serving = serving_now()
        is_mounted = serving is not None and serving.installation is not self._installation
        listed: list[Tool] = []
        for tool in tools:
            function = function_of_plain(await function_below(tool))
            if function is not None and is_mounted and function is self._stored.continuing:
                continue
            if function is not None and tool.output_schema is not None and self._stored.may_replace_result(function):
                listed.append(tool.model_copy(update={"output_schema": None}))
            else:
                listed.append(tool)
        return listed


class FastMcpTools(ToolHost):
    """Tools of one FastMCP server, for stored calls.

    A stored call knows if it needs a request; mounts and searches give tools other names, so `is_gated` is False.

    Args:
        installation: The installation on the server that clients connect to.
    """

    def __init__(self, installation: Installation[FastMCP[Any]]) -> None:
        super().__init__(installation, installation.low_level, installation.legs, installation.desk)
        self._installation = installation

    @override
    def find(self, name: str, version: str | None) -> AskingFunction:
        functions = self._installation.functions
        found = functions.get(("tool", name, version)) or functions.get(("tool", name, None))
        if found is None:
            raise NotFoundError(f"Unknown tool: {name!r}")
        return found

    @override
    def has_tool(self, name: str, version: str | None) -> bool:
        # Mounts and transforms may have tools of any name.
        mcp = self._installation.host
        own = [each for each in mcp.transforms if not isinstance(each, _ListedForClients)]
        if own or any(not isinstance(each, LocalProvider) or each.transforms for each in mcp.providers):
            return True
        with suppress(NotFoundError):
            self.find(name, version)
            return True
        return False

    @override
    async def is_visible(self, name: str, version: str | None, request: ServerRequestContext[Any, Any]) -> bool:
        return await self._installation.host.get_tool(name, _version_spec(version)) is not None

    @override
    async def serve_stored(
        self, name: str, arguments: dict[str, Any], incoming: Incoming, version: str | None
    ) -> ServedEnd:
        leg, mcp = HostedLeg(self._installation, incoming), self._installation.host
        task = incoming.record.stored if incoming.record is not None else None
        has_client = task is not None and task.request is not None
        bound = bind_request_context(incoming.request) if has_client and incoming.request is not None else nullcontext()
        failed: CallToolResult | None = None
        with holding(STORED_LEG, leg), bound:
            try:
                made = await mcp.call_tool(name, arguments, version=_version_spec(version), run_middleware=False)
                failed = wire_form(made)
            except (NotFoundError, DisabledError):
                failed = text_result(f"Unknown tool: {name!r}", is_error=True)
            except FastMCPError as error:
                failed = text_result(str(error), is_error=True)
        if leg.failure is not None:
            raise leg.failure
        # FastMCP has no result for a leg that waits.
        return Finished(failed) if leg.end is None or isinstance(leg.end, Finished) else leg.end


def _version_spec(version: str | None) -> VersionSpec | None:
    return None if version is None else VersionSpec(eq=version)
