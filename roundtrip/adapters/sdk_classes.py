"""Adapters for the SDK's own classes: `MCPServer`, and the low-level `Server` with `bind`."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Never, TypeVar
from weakref import WeakKeyDictionary

from mcp.server import MCPServer
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server as LowLevelServer
from mcp.server.mcpserver import Context as SdkContext
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp.server.mcpserver.tools import ToolManager
from mcp.server.mcpserver.tools.base import Tool as SdkTool
from mcp.server.mcpserver.utilities.func_metadata import func_metadata
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
)
from mcp_types import Tool as WireTool
from pydantic import PrivateAttr

from roundtrip.adapters import finding
from roundtrip.adapters.installation import (
    Installation,
    InstallOptions,
    reject_options,
    reject_second_install,
    serving_now,
)
from roundtrip.adapters.marked import misused_context, uses_roundtrip
from roundtrip.docket import foreign
from roundtrip.errors import InvalidSignature
from roundtrip.legs.functions import Kind, read_signature
from roundtrip.legs.requests import Incoming
from roundtrip.legs.runner import result_of
from roundtrip.machine.journal import Limits
from roundtrip.on_demand import load_on_use
from roundtrip.resolvers.signatures import display_name
from roundtrip.sdk import routes_of
from roundtrip.server.features import install_stored_calls
from roundtrip.server.prompts_and_resources import serve_in_legs
from roundtrip.server.settings import wants_stored_calls
from roundtrip.server.tool_calls import ToolCalls
from roundtrip.tools.failures import log_tool_failure
from roundtrip.tools.options import ToolSpec, mark_registered, spec_from, spec_of
from roundtrip.tools.registered import RegisteredTool, ToolDefaults, register
from roundtrip.tools.registry import ToolRegistry
from roundtrip.tools.replies import text_result
from roundtrip.visibility.rules import Visibility

if TYPE_CHECKING:
    from roundtrip.adapters import sdk_consent
    from roundtrip.tools import consent_rules

load_on_use(globals(), "roundtrip.adapters.sdk_consent", "roundtrip.tools.consent_rules")

logger = logging.getLogger("mcp.server.mcpserver.server")

_CallableT = TypeVar("_CallableT", bound=Callable[..., Any])
_UNBOUND_DEFAULTS: Final = ToolDefaults(Limits(ttl=600.0, max_age=3600.0), foreign=foreign)
"""Options for tools that are bound before a server exists."""

_NEEDS_SERVER: Final = "needs roundtrip.Server, because the SDK's classes {}; remove it, or use roundtrip.Server"
_UNSUPPORTED_OPTIONS: Final = (
    (("enabled",), _NEEDS_SERVER.format("list and call every tool")),
    (("version",), _NEEDS_SERVER.format("have one tool per name")),
)


class _AskingTools(ToolCalls):
    """One installation's asking tools."""

    def __init__(self, installation: Installation[Any]) -> None:
        super().__init__(
            installation,
            installation.low_level,
            installation.legs,
            installation.desk,
            ToolRegistry("replace", Visibility()),
            gates=_no_gates,
            probe=None,
            # The SDK's classes never tell clients why a tool crashed.
            masks_errors=lambda: True,
            has_own_handler=lambda: False,
        )
        self.installation = installation
        installation.tool_host = self

    def register(self, fn: Callable[..., Any], spec: ToolSpec = ToolSpec()) -> RegisteredTool:  # noqa: B008 - a value
        """Register a function as a tool.

        Raises:
            InvalidSignature: The function cannot work on an SDK server.
        """
        return self.adopt(_make_tool(fn, spec, self.installation.defaults))

    def adopt(self, tool: RegisteredTool) -> RegisteredTool:
        """Add a tool, and return it."""
        self.installation.adopt(tool.function)
        self.tools.add(tool)
        return tool

    async def call(
        self, tool: RegisteredTool, arguments: dict[str, Any], incoming: Incoming
    ) -> CallToolResult | InputRequiredResult:
        """Serve one leg of a tool call, and raise the errors that the SDK's handler expects.

        Raises:
            ToolError: The arguments are invalid, or the tool failed.
            MCPError: The tool raised a protocol error, or its client cannot be asked.
        """
        if tool.function.is_asked_for(incoming):
            return await self.serve_in_handler(tool.name, arguments, incoming)
        return result_of(await self.serve(tool.name, arguments, incoming))


def _make_tool(fn: Callable[..., Any], spec: ToolSpec, defaults: ToolDefaults) -> RegisteredTool:
    """Make a tool from a function.

    Raises:
        InvalidSignature: The function cannot work on an SDK server.
    """
    merged: ToolSpec = {**spec_of(fn), **spec}
    reject_options(merged, _UNSUPPORTED_OPTIONS, owner=f"tool {merged.get('name') or display_name(fn)!r}")
    return register(fn, spec, defaults=defaults)


def _no_gates() -> Never:
    raise RuntimeError("tools made from the SDK's own classes cannot have visibility gates")


class AskingTool(SdkTool):
    """SDK tool object whose function asks with roundtrip."""

    _tool: RegisteredTool = PrivateAttr()
    _tools: _AskingTools = PrivateAttr()
    _output_schema: dict[str, Any] | None = PrivateAttr()

    @classmethod
    def of(cls, tool: RegisteredTool, tools: _AskingTools) -> AskingTool:
        """Return the SDK's tool object for a registered tool."""

        async def stand_in() -> None: ...

        relist = tools.tools.relist
        listing = tool.listing if relist is None else relist(tool, tool.listing)
        made = cls(
            fn=stand_in,
            name=tool.name,
            title=listing.title,
            description=listing.description or "",
            parameters=listing.input_schema,
            fn_metadata=func_metadata(stand_in),
            is_async=True,
            context_kwarg=None,
            annotations=listing.annotations,
            icons=listing.icons,
            meta=listing.meta,
        )
        made._tool, made._tools, made._output_schema = tool, tools, listing.output_schema
        return made

    @cached_property
    def output_schema(self) -> dict[str, Any] | None:
        """Return the schema of the results, or None if a client may get a result of another form."""
        return self._output_schema

    async def run(self, arguments: dict[str, Any], context: Any, convert_result: bool = False) -> Any:
        """Serve one leg of a call. The result is always converted."""
        return await self._tools.call(self._tool, arguments, Incoming.by(context))


def install_in_mcpserver(server: MCPServer[Any], low_level: LowLevelServer[Any], options: InstallOptions) -> None:
    """Let an `MCPServer`'s tools, prompts and resource templates ask, if they are registered after this call.

    Raises:
        ValueError: roundtrip is already installed on this server, or the options contradict each other.
        InvalidSignature: A function with roundtrip's markers was registered before this call.
    """
    reject_second_install(low_level)
    for kind, name, fn in finding.functions_of(server):
        if uses_roundtrip(fn):
            raise InvalidSignature(
                f"{kind} {name!r} asks with roundtrip, but was registered before roundtrip could fill its parameters; "
                "call install() before registering tools"
            )
    installation = Installation(
        server,
        low_level,
        options,
        context_server=server,
        bus=finding.bus_of(server),
        routes=lambda: routes_of(server),
    )

    tools, consent = _AskingTools(installation), installation.consent
    manager = finding.manager_of(server, ToolManager)
    add_tool, remove_tool, get_tool = server.add_tool, server.remove_tool, manager.get_tool

    def add_asking_tool(fn: Callable[..., Any], *given: Any, **details: Any) -> None:
        asks = uses_roundtrip(fn)
        if not asks and consent is None:
            add_tool(fn, *given, **details)
            mark_registered(fn)
            return
        named = inspect.signature(add_tool).bind(fn, *given, **details).arguments
        spec = spec_from({name: value for name, value in named.items() if name != "fn"})
        name = spec.get("name") or spec_of(fn).get("name") or display_name(fn)
        if asks:
            if finding.takes_tool(server, name):
                finding.put_tool(server, AskingTool.of(tools.register(fn, spec), tools))
            return
        add_tool(fn, *given, **details)
        get_asking_tool(name)

    def get_asking_tool(name: str) -> SdkTool | None:
        """Return a tool, which asks if it needs consent, however it arrived.

        The SDK runs the tool that it finds here, so no other thread can replace the tool after the check.
        """
        made = get_tool(name)
        if consent is None or made is None or isinstance(made, AskingTool):
            return made
        if consent.reason(sdk_consent.listing_of(made)) is None:
            return made
        asking = AskingTool.of(tools.adopt(sdk_consent.consenting(made, installation)), tools)
        finding.put_tool(server, asking)
        return asking

    def reasons() -> Iterator[tuple[str, str | None]]:
        for made in finding.tools_of(server):
            known = tools.tools.registered_as(made.name, None) if made.name in tools.tools else None
            if known is None or consent is None:
                yield made.name, None
            elif known.function not in installation.desk.untraced:
                yield made.name, consent.reason_of(known.spec, known.listing)

    def remove_asking_tool(name: str) -> None:
        remove_tool(name)
        if name in tools.tools:
            tools.tools.remove(name)

    _replace(server, "add_tool", add_asking_tool)
    _replace(server, "remove_tool", remove_asking_tool)
    _replace(server, "call_tool", _explain_context(server.call_tool, ToolError))
    _replace(server, "get_prompt", _explain_context(server.get_prompt, ValueError))
    _replace(server, "read_resource", _explain_context(server.read_resource, ResourceError))
    _replace(server, "add_prompt", _reject_asking_objects(server.add_prompt, "prompt"))
    _replace(server, "add_resource", _reject_asking_objects(server.add_resource, "resource"))
    _replace(server, "prompt", _wrap_prompt(server.prompt, installation))
    _replace(server, "resource", _wrap_resource(server.resource, installation))
    installation.custom_route, installation.add_tool = server.custom_route, add_asking_tool
    has_auth = server.settings.auth is not None
    stored = installation.stored_calls = install_stored_calls(tools, installation.storage, options, has_auth=has_auth)
    if stored is not None:
        tools.tools.relist = stored.relist
    if consent is not None:
        _replace(manager, "get_tool", get_asking_tool)
        for made in finding.tools_of(server):
            get_asking_tool(made.name)
        installation.legs.workers.append(consent_rules.ConsentReport(installation.name, reasons))


def _reject_asking_objects(add: Callable[..., Any], kind: Kind) -> Callable[..., Any]:
    """Wrap a method that adds objects, so that it rejects objects made from a function with roundtrip's markers.

    Otherwise, clients could fill the parameters that have these markers.
    """

    def add_plain(made: Any, *given: Any, **details: Any) -> Any:
        fn = getattr(made, "fn", None)
        if callable(fn) and uses_roundtrip(fn):
            raise InvalidSignature(
                f"{kind} {made.name!r} asks with roundtrip, but was made before roundtrip could fill its parameters; "
                f"register the function with @server.{kind}(...), not an object made from it"
            )
        return add(made, *given, **details)

    return add_plain


def _explain_context(run: Callable[..., Any], kind: type[Exception]) -> Callable[..., Any]:
    """Wrap a method so that it raises an error with advice if a plain function asks with the SDK's own context."""

    @functools.wraps(run)
    async def run_plain(*given: Any, **named: Any) -> Any:
        try:
            return await run(*given, **named)
        except Exception as error:
            if (mistake := misused_context(error, SdkContext)) is None:
                raise
            raise kind(f"{error}: {mistake}") from error

    return run_plain


def _wrap_prompt(prompt: Callable[..., Any], installation: Installation[Any]) -> Callable[..., Any]:
    def asking_prompt(name: str | None = None, *given: Any, **details: Any) -> Any:
        def decorate(fn: _CallableT) -> _CallableT:
            label = name or display_name(fn)
            prompt(label, *given, **details)(_to_plain("prompt", label, fn, installation))
            return fn

        return prompt(name) if callable(name) else decorate

    return asking_prompt


def _wrap_resource(resource: Callable[..., Any], installation: Installation[Any]) -> Callable[..., Any]:
    def asking_resource(uri: str, **details: Any) -> Any:
        register = resource(uri, **details)

        def decorate(fn: _CallableT) -> _CallableT:
            if uses_roundtrip(fn) and not UriTemplate.parse(uri).variable_names:
                raise InvalidSignature(
                    f"resource {uri!r} has no URI variables, so it must not have parameters that ask questions; "
                    "compute their values inside the function, or make the resource a template"
                )
            register(_to_plain("resource", uri, fn, installation))
            return fn

        return decorate

    return asking_resource


def _to_plain(kind: Kind, name: str, fn: Callable[..., Any], installation: Installation[Any]) -> Callable[..., Any]:
    """Return the function to register with the SDK: a plain function itself, or a wrapper that serves one leg."""
    if not uses_roundtrip(fn):
        return fn
    reject_options(spec_of(fn), [([*ToolSpec.__annotations__], "is for tools; leave it out")], owner=f"{kind} {name!r}")
    signature = read_signature(fn, kind=kind, name=name, reject=installation.defaults.reject)
    function, plain = serve_in_legs(signature, installation.legs, defaults=installation.defaults)
    installation.adopt(function)
    return plain


def _replace(server: object, name: str, method: Callable[..., Any]) -> None:
    # Use `setattr`, because type checkers reject an assignment to a method.
    setattr(server, name, method)


class BoundTools:
    """Tools for a low-level server: a handler for `tools/call`, and `list_tools` for `tools/list`."""

    def __init__(self, functions: Sequence[Callable[..., Any]]) -> None:
        if not functions:
            raise TypeError("bind() must be given functions, got none")
        self._functions = functions
        self._listing: list[WireTool] = [_make_tool(fn, ToolSpec(), _UNBOUND_DEFAULTS).listing for fn in functions]
        self._tools: WeakKeyDictionary[Installation[Any], _AskingTools] = WeakKeyDictionary()

    async def list_tools(
        self, ctx: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None = None
    ) -> ListToolsResult:
        """Handle `tools/list`."""
        return ListToolsResult(tools=list(self._listing))

    async def __call__(
        self, ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """Handle `tools/call`.

        Raises:
            MCPError: The tool raised a protocol error, or its client cannot be asked.
            RuntimeError: roundtrip is not installed on the server.
        """
        serving = serving_now()
        if serving is None or serving.request.session is not ctx.session:
            raise RuntimeError(
                "tools from bind() need a server with roundtrip; call install(server) of roundtrip.install"
            )
        try:
            tools = self.attach(serving.installation)
            tool = tools.tools.find(params.name)[0]
            return await tools.call(tool, params.arguments or {}, Incoming.of(ctx))
        except MCPError:
            raise
        except Exception as error:  # noqa: BLE001 - like the SDK's handler
            log_tool_failure(params.name, error)
            return text_result(str(error), is_error=True)

    def attach(self, installation: Installation[Any]) -> _AskingTools:
        """Return the bound tools as one server's tools.

        Raises:
            InvalidSignature: The server cannot serve one of the tools.
        """
        tools = self._tools.get(installation)
        if tools is None:
            tools = self._tools[installation] = _AskingTools(installation)
            for fn in self._functions:
                tools.register(fn)
        return tools


def _find_bound_tools(handler: object) -> BoundTools | None:
    """Return the bound tools: the handler itself, or an object in its code. None if neither is a `BoundTools`."""
    if isinstance(handler, BoundTools):
        return handler
    function = getattr(handler, "__func__", handler)
    if not inspect.isfunction(function):
        return None
    try:
        used = inspect.getclosurevars(function)
    except ValueError:
        # A variable in the enclosing function has no value yet.
        return None
    named = [*used.nonlocals.values(), *used.globals.values()]
    return next((each for each in named if isinstance(each, BoundTools)), None)


def install_in_low_level(server: LowLevelServer[Any], options: InstallOptions) -> None:
    """Allow the tools that are bound to a low-level server to ask questions.

    Raises:
        ValueError: roundtrip is already installed on this server, or the options contradict each other.
        InvalidSignature: The server cannot serve a bound tool.
    """
    reject_second_install(server)
    for name in wants_stored_calls(options):
        raise TypeError(
            f"install() must be called without {name}=: the SDK's low-level Server takes no pages or tools from "
            "roundtrip; use MCPServer, FastMCP or roundtrip.Server"
        )
    if options.get("consent"):
        raise TypeError(
            "install() must be called without consent=: a low-level Server's own handler may run tools that roundtrip "
            "does not see; give confirm= or consent=True to tools in bind(), or use MCPServer, FastMCP or "
            "roundtrip.Server"
        )
    if not any(isinstance(each, RequestStateBoundary) for each in server.middleware):
        # `install` replaces this boundary.
        server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=server.name))
    entry = server.get_request_handler("tools/call")
    bound = _find_bound_tools(entry.handler) if entry is not None else None
    installation = Installation(server, server, options)
    if bound is not None:
        bound.attach(installation)
