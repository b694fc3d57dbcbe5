"""Consent on FastMCP servers: a client's call of a tool that may destroy asks the user first, however the tool arrives.

FastMCP finds a tool by `get_tool`, and runs it by `call_tool(..., run_middleware=False)`. Both methods are replaced on
the server. For the call that a client sent, the found tool is wrapped in a tool that asks. A tool that runs because the
author's code calls it does not ask.

FastMCP runs a tool with `task=True` in a worker, where no client can be asked. Such a tool is therefore found without
its `task=`, and runs within the request.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from mcp_types import InputRequiredResult
from pydantic import PrivateAttr
from pydantic_core import to_json
from typing_extensions import override

from roundtrip.adapters import fastmcp_names as names
from roundtrip.adapters.fastmcp_functions import (
    CONSENTING,
    FastMcpFunction,
    current_request,
    is_in_stored_leg,
    own_function,
    serving_installation,
)
from roundtrip.adapters.installation import Installation, serving_now
from roundtrip.legs.functions import read_signature
from roundtrip.legs.requests import asking_request, holding
from roundtrip.resolvers.signatures import hints_of
from roundtrip.resolvers.threads import Threads
from roundtrip.tools.confirmation import ToolConfirmation, consent_key
from roundtrip.tools.consent_rules import CONFIRMED, ConsentPolicy, ConsentReport
from roundtrip.tools.options import ToolSpec
from roundtrip.tools.registered import asking_function

_RUNS_CODE: Final = "because they run programs"
_MAX_FUNCTIONS: Final = 1000
_FASTMCP_TRANSFORMS: Final = "fastmcp.server.transforms."
"""Start of the modules with FastMCP's own tools that search tools, call tools, and read prompts and resources."""


@dataclass(slots=True, eq=False)
class _ToolRun:
    """A tool that FastMCP runs for a client's call."""

    request: object
    """The client's request, or the stored leg."""
    server: names.FastMCP[Any]
    name: str
    arguments: Any
    is_looked_up: bool = False
    passes_on: bool = False
    """True if the client's call is passed on to another tool."""
    has_consent: bool = False
    """True once the user has accepted. Then no other tool asks."""


_RUN: Final[ContextVar[_ToolRun | None]] = ContextVar("roundtrip_consent", default=None)


def _current_run() -> _ToolRun | None:
    """Return the run of the current request. A client in this process may send another request while a tool runs."""
    run = _RUN.get()
    return run if run is not None and run.request is current_request() else None


class ConsentingServer:
    """Consent on one FastMCP server.

    Args:
        installation: The installation on the server.
        consent: Decides which tools ask.
    """

    def __init__(self, installation: Installation[names.FastMCP[Any]], consent: ConsentPolicy) -> None:
        self._installation = installation
        self._mcp = installation.host
        self._consent = consent
        self._functions: dict[tuple[str, str | None], _PlainToolFunction] = {}
        self._attach()
        installation.legs.workers.append(ConsentReport(installation.name, self._reasons, others=self._count_others))

    def _attach(self) -> None:
        """Replace the server's methods that find and run tools."""
        mcp = self._mcp
        call, get, get_by_hash = mcp.call_tool, mcp.get_tool, mcp.get_tool_by_hash

        async def call_tool(name: str, *given: Any, run_middleware: bool = True, **named: Any) -> Any:
            if run_middleware or not self._is_for_client():
                return await call(name, *given, run_middleware=run_middleware, **named)
            arguments = given[0] if given else named.get("arguments")
            with holding(_RUN, _ToolRun(current_request(), mcp, name, arguments)):
                return await call(name, *given, run_middleware=False, **named)

        async def get_tool(name: str, *given: Any, **named: Any) -> names.Tool | None:
            return await self._find(name, get(name, *given, **named))

        async def get_tool_by_hash(tool_hash: str, tool_name: str, *given: Any, **named: Any) -> names.Tool | None:
            run = _current_run()
            found = get_by_hash(tool_hash, tool_name, *given, **named)
            return await self._find(run.name if run is not None else "", found)

        for method in (call_tool, get_tool, get_tool_by_hash):
            setattr(mcp, method.__name__, method)

    def _is_for_client(self) -> bool:
        """Return True if a tool that now runs on this server is the one that a client called."""
        run, session, serving = _current_run(), names.session_now(), serving_now()
        if run is not None and (run.has_consent or (run.server is self._mcp and not run.passes_on)):
            return False
        if session is None:
            return is_in_stored_leg()
        if serving is None or serving.request.session is not session:
            # roundtrip is not installed on the outer server. No user can be asked, and the call must fail.
            return True
        if serving.request.method != "tools/call":
            return False
        passed = run is not None or serving.installation.host is not self._mcp
        return passed or names.may_be_client_tool_call()

    async def _find(self, name: str, found: Awaitable[names.Tool | None]) -> names.Tool | None:
        """Return the tool that FastMCP finds, or a tool that asks before it runs.

        Args:
            name: The name by which the tool is looked up.
            found: Finds the tool. The author's code takes part, and may look up tools itself.
        """
        run = _current_run()
        if run is None or run.server is not self._mcp or run.name != name or run.is_looked_up:
            return await self._without_task(await found)
        run.is_looked_up = True
        tool = await found
        if tool is None:
            run.is_looked_up = False
            return None
        below = await names.tool_below(tool)
        called, arguments, is_search = tool, run.arguments, names.calls_mounted_tools(tool, below)
        if is_search:
            # The search calls the tool on the mounted server, where no call of this server's methods shows it.
            called, arguments = await names.called_by_search(tool, arguments)
            below = await names.tool_below(called)
        is_known = not is_search or called is not tool
        if is_known and self.reason(called, below) is None and not self._has_asked(called, below):
            run.passes_on = is_search or _passes_calls_on(below)
            return tool
        function = self.function_for(called, below)
        if is_search and isinstance(function, _PlainToolFunction):
            _run_by_search(function, tool, arguments)
        serving = serving_now()
        accepted = serving.accepted if serving is not None else set[str]()
        return _ConsentingTool.of(tool, function, run, accepted)

    def _has_asked(self, tool: names.Tool, below: names.Tool | None) -> bool:
        """Return True if an earlier leg of the client's call has asked for consent, perhaps on another build."""
        function, record = own_function(tool, below), asking_request()
        journal = record.journal if record is not None else None
        if journal is None or (function is not None and function.confirm is not None):
            return False
        return consent_key(tool.name) in {*journal.asked, *journal.entries}

    async def _without_task(self, tool: names.Tool | None) -> names.Tool | None:
        """Return a tool without FastMCP's `task=`, if it asks for consent."""
        if tool is None or not tool.task_config.supports_tasks():
            return tool
        if self.reason(tool, await names.tool_below(tool)) is None:
            return tool
        return tool.model_copy(update={"task_config": type(tool.task_config)(mode="forbidden")})

    def reason(self, tool: names.Tool, below: names.Tool | None) -> str | None:
        """Return why a tool asks for consent; None if it does not ask.

        Args:
            tool: The tool as clients see it.
            below: The tool behind its transforms and mounts.
        """
        if _passes_calls_on(below):
            return None
        function = None if names.runs_own_code(tool) else own_function(tool, below)
        if function is not None and (function.confirm is not None or function.waives_consent):
            return None
        found = self._consent.reason(tool.to_mcp_tool(), is_foreign=not isinstance(below, names.FunctionTool))
        # The rule cannot see which tools a program calls.
        return found or (_RUNS_CODE if names.runs_client_code(below) else None)

    def function_of(self, tool: names.Tool, below: names.Tool | None) -> FastMcpFunction | None:
        """Return the function with which a tool asks; None if it asks nothing."""
        if self.reason(tool, below) is not None:
            return self.function_for(tool, below)
        return own_function(tool, below)

    def function_for(self, tool: names.Tool, below: names.Tool | None) -> FastMcpFunction:
        """Return a function that asks for consent: the tool's own function if it asks other questions, or else a
        function that runs the tool.

        Raises:
            ToolError: The tool runs code around a function that asks.
        """
        own = own_function(tool, below)
        if own is not None and names.runs_own_code(tool):
            raise names.ToolError(
                f"tool {tool.name!r} must not run code of its own around {own.owner}, which asks with roundtrip: "
                "consent would come too late; exclude the tool with a consent= function, or do not transform it"
            )
        asking = copy.copy(own if own is not None else self._plain_function(tool.name, tool.version))
        is_mounted = self._installation is not serving_installation()
        server = self._mcp.name if is_mounted else None
        confirmation = ToolConfirmation.for_consent(tool.name, version=tool.version, server=server)
        asking.confirm = confirmation.with_defaults_of(tool.parameters)
        if isinstance(asking, _PlainToolFunction):
            asking.tool = asking.tool_to_run = tool
            asking.is_filled_by_host = not isinstance(below, names.FunctionTool) or bool(
                names.injected_parameters(below.fn, hints_of(below.fn))
            )
        return asking

    def _plain_function(self, name: str, version: str | None) -> _PlainToolFunction:
        """Return a tool's function, without the tool."""
        found = self._functions.get((name, version))
        if found is None:
            if len(self._functions) >= _MAX_FUNCTIONS:
                self._functions.clear()
            found = self._functions[name, version] = asking_function(
                read_signature(_run_tool, kind="tool", name=name),
                ToolSpec(),
                {},
                defaults=self._installation.defaults,
                version=version,
                kind=_PlainToolFunction,
            )
            self._installation.prepare(found)
        return found

    def _reasons(self) -> Iterator[tuple[str, str | None]]:
        """Yield the name of each of the author's known tools, and its reason to ask."""
        for tool in names.known_tools(self._mcp):
            function = own_function(tool, tool)
            if function in self._installation.desk.untraced:
                continue
            asks = function is not None and function.confirm is not None
            yield tool.name, CONFIRMED if asks else self.reason(tool, tool)

    def _count_others(self) -> int:
        return names.count_other_providers(self._installation.host)


async def _run_tool() -> None: ...


class _PlainToolFunction(FastMcpFunction):
    """Function that runs a tool, which itself uses nothing of roundtrip."""

    tool_to_run: names.Tool
    raised: Exception | None = None
    """The tool's own exception."""

    @override
    def is_called(self, method: str, name: str) -> bool:
        # FastMCP finds this function only for a client's call.
        return method == "tools/call"

    @override
    async def run(self, arguments: Mapping[str, Any], filled: Mapping[str, Any], context: Any, threads: Threads) -> Any:
        if self.begin_body is not None:
            self.begin_body()
        try:
            result = await self.tool_to_run.run(dict(arguments))
        except Exception as error:
            self.raised = error
            raise
        return result.input_required if isinstance(result, names.InputRequiredToolResult) else result

    @override
    async def serve(self, arguments: dict[str, Any], injected: Mapping[str, Any]) -> Any:
        try:
            return await super().serve(arguments, injected)
        except Exception:
            if self.raised is not None:
                # Clients must get the same error as without consent.
                raise self.raised from self.raised.__cause__
            raise

    @override
    def as_sent(self, value: Any) -> Any:
        return names.wire_form(value) if isinstance(value, names.ToolResult) else value


class _ConsentingTool(names.Tool):
    """Tool that asks for consent, and then runs the tool that FastMCP found."""

    _found: names.Tool = PrivateAttr()
    _function: FastMcpFunction = PrivateAttr()
    _run_of_client: _ToolRun = PrivateAttr()
    _accepted: set[str] = PrivateAttr()

    @classmethod
    def of(
        cls, found: names.Tool, function: FastMcpFunction, run_of_client: _ToolRun, accepted: set[str]
    ) -> _ConsentingTool:
        """Return a tool that asks with a function from `ConsentingServer.function_for`.

        Args:
            found: The tool that FastMCP found.
            function: The function that asks.
            run_of_client: The run for which FastMCP found the tool.
            accepted: The arguments that the user has accepted in this request.
        """
        tool = cls(name=found.name, version=found.version, parameters=found.parameters, output_schema=None)
        tool._found, tool._function, tool._run_of_client, tool._accepted = found, function, run_of_client, accepted
        return tool

    @override
    async def run(self, arguments: dict[str, Any]) -> names.ToolResult:
        """Serve one leg of a client's call."""
        tool = f"{id(self._run_of_client.server)} {self.name}@{self.version or ''}"
        call = f"{tool} {to_json(arguments, fallback=repr).decode()}"
        if call in self._accepted:
            # A middleware repeats the call.
            return await self._found.run(arguments)

        def begin_body() -> None:
            self._run_of_client.has_consent = True
            self._accepted.add(call)

        self._function.begin_body = begin_body
        if not isinstance(self._function, _PlainToolFunction):
            with holding(CONSENTING, self._function):
                return await self._found.run(arguments)
        value = await self._function.serve(arguments, {})
        if isinstance(value, InputRequiredResult):
            return names.InputRequiredToolResult(value)
        return value if isinstance(value, names.ToolResult) else self.convert_result(value)


def _passes_calls_on(below: names.Tool | None) -> bool:
    """Return True for FastMCP's own tools that only find or call other tools, or read prompts and resources."""
    return getattr(getattr(below, "fn", None), "__module__", "").startswith(_FASTMCP_TRANSFORMS)


def _run_by_search(function: _PlainToolFunction, search: names.Tool, arguments: Mapping[str, Any]) -> None:
    """Let a function run its tool by calling a search, but ask about the tool.

    Args:
        function: The function.
        search: The search's tool that calls tools.
        arguments: The arguments that the search passes on.
    """
    confirm: Any = function.confirm

    def ask(_sent: Mapping[str, Any]) -> Any:
        return confirm(arguments)

    function.confirm = ask
    function.tool = function.tool_to_run = search
    function.is_filled_by_host = True
