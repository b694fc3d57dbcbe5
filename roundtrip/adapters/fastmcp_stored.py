"""Store calls of FastMCP's tools: the first leg is the client's request, and the others run through FastMCP, too.

A leg that an answer on a page or a decision has started runs by FastMCP's `call_tool`, so that transforms, mounts and
dependencies work as in the first. No client has sent it, so FastMCP's middleware does not see it. A tool with `auth=`,
or with parameters that FastMCP fills, may need the client's request: its legs wait for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from roundtrip.adapters.fastmcp_functions import (
    STORED_LEG,
    FastMcpFunction,
    HostedLeg,
    StoringCalls,
    function_of_plain,
)
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
from roundtrip.adapters.storing import install_stored_calls
from roundtrip.channels.stored_replies import result_from
from roundtrip.engine.leg import Authored, Finished, HandedOver, Suspended
from roundtrip.legs.requests import holding, named_version
from roundtrip.legs.runner import result_of
from roundtrip.revisions import is_retry_era
from roundtrip.tools.replies import result_of_reply

if TYPE_CHECKING:
    from roundtrip.adapters.installation import Installation, InstallOptions
    from roundtrip.channels.stored_calls import StoredCalls
    from roundtrip.legs.functions import AskingFunction
    from roundtrip.legs.requests import Incoming, RequestRecord


def install_stored_fastmcp_calls(installation: Installation[FastMCP[Any]], options: InstallOptions) -> None:
    """Give a FastMCP server what its options need: pages, a tool that continues calls, and an inbox.

    Raises:
        TypeError: The ladder is not a list of names.
        ValueError: The options contradict each other, or the server does not know its callers.
        InvalidSignature: The ledger cannot store calls.
    """
    mcp = installation.host

    def add_tool(fn: Any, *, structured_output: bool, **details: Any) -> None:
        del structured_output  # FastMCP's word for it is the schema
        mcp.tool(fn, output_schema=None, **details)

    installation.custom_route, installation.add_tool = mcp.custom_route, add_tool
    calls = installation.calls = FastMcpCalls(installation)
    has_auth = mcp.auth is not None
    install_stored_calls(installation, options, calls=calls, tools=calls, has_auth=has_auth)
    if installation.stored_calls is not None:
        mcp.add_transform(_ListedForClients(installation, installation.stored_calls))


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


class FastMcpCalls(StoringCalls):
    """Calls of the tools of one FastMCP server, for stored calls.

    Args:
        installation: The installation on the server that clients connect to.
    """

    def __init__(self, installation: Installation[FastMCP[Any]]) -> None:
        self._installation = installation
        self.relist: Any = None
        """Not used: FastMCP keeps the schema of a result with the tool."""

    def function_named(self, name: str) -> AskingFunction:
        """Return the function of a tool of this server."""
        return self._installation.functions["tool", name, None]

    def function_of(self, name: str, record: RequestRecord) -> AskingFunction:
        """Return the function of the tool that a request has called."""
        found = self._function(name, named_version(record.context.params))
        if found is None:
            raise NotFoundError(f"Unknown tool: {name!r}")
        return found

    def _function(self, name: str, version: str | None) -> AskingFunction | None:
        functions = self._installation.functions
        return functions.get(("tool", name, version)) or functions.get(("tool", name, None))

    def has_task(self, name: str, version: str | None) -> bool:
        """Return True if a stored call of this tool can go on here: only of tools without mounts this is known."""
        mcp = self._installation.host
        renames = any(not isinstance(each, LocalProvider) or each.transforms for each in mcp.providers)
        own = [each for each in mcp.transforms if not isinstance(each, _ListedForClients)]
        return self._function(name, version) is not None or renames or bool(own)

    def is_gated(self, name: str, version: str | None) -> bool:
        """Return False: a stored call knows if it needs a request, and mounts and searches give tools other names."""
        return False

    async def is_visible(self, name: str, version: str | None, request: ServerRequestContext[Any, Any]) -> bool:
        """Return True if the request that FastMCP serves may see a tool."""
        return await self._installation.host.get_tool(name, _version_spec(version)) is not None

    def stamp(self) -> dict[str, Any]:
        """Return the metadata that results have."""
        return dict(self._installation.server_info_stamp)

    async def serve_caught(
        self, name: str, arguments: dict[str, Any], incoming: Incoming, version: str | None = None
    ) -> Finished | Suspended | Authored | HandedOver:
        """Serve one leg of a stored call. An error of the tool is a result, as with FastMCP's handler.

        Raises:
            MCPError: The tool raised a protocol error.
        """
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
                failed = result_from(f"Unknown tool: {name!r}", is_error=True)
            except FastMCPError as error:
                failed = result_from(str(error), is_error=True)
        if leg.failure is not None:
            raise leg.failure
        # FastMCP has no result for a leg that waits.
        return Finished(failed) if leg.end is None or isinstance(leg.end, Finished) else leg.end

    serve = serve_caught

    async def serve_for_client(
        self, function: FastMcpFunction, stored: StoredCalls, arguments: dict[str, Any], incoming: Incoming
    ) -> tuple[Any, MCPError | None]:
        """Serve one leg for its client, as FastMCP expects the result.

        Raises:
            Exception: The function failed.
        """
        record = incoming.record
        if record is None:
            raise RuntimeError("a leg for a client must have a request")
        name = str((record.context.params or {}).get("name", function.name))
        legs = _ClientLegs(function, self._installation, is_traced=function is not stored.continuing)
        try:
            if not is_retry_era(record.context.protocol_version):
                return await stored.serve_old_client(legs, name, arguments, incoming), None
            end = await stored.serve(legs, name, arguments, record, incoming)
        except MCPError as error:
            if error is legs.raised:
                raise
            return result_from(error.error.message, is_error=True), error
        return (result_of_reply(end) if isinstance(end, dict) else result_of(end)), None


class _ClientLegs:
    """Serves the leg of one request, whose function FastMCP runs at the moment."""

    def __init__(self, function: FastMcpFunction, installation: Installation[Any], *, is_traced: bool) -> None:
        self._function = function
        self._installation = installation
        self._is_traced = is_traced
        self.raised: Exception | None = None
        """The exception of the function."""

    def function_of(self, name: str, record: RequestRecord) -> AskingFunction:
        """Return the function."""
        return self._function

    async def serve(
        self, name: str, arguments: dict[str, Any], incoming: Incoming, version: str | None = None
    ) -> Finished | Suspended | Authored | HandedOver:
        """Serve the leg, with the exceptions of the function."""
        try:
            legs = self._installation.legs
            return await legs.run(self._function, arguments, incoming, is_traced=self._is_traced)
        except Exception as error:
            self.raised = error
            raise

    serve_caught = serve
    """Serves the leg; FastMCP makes results of exceptions."""


def _version_spec(version: str | None) -> VersionSpec | None:
    return None if version is None else VersionSpec(eq=version)
