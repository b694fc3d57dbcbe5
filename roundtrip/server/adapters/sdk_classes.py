"""Attach roundtrip to the SDK's own classes: to `MCPServer`, and to the low-level `Server` by `bind`."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary

from mcp.server import MCPServer
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server as LowLevelServer
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
    TextContent,
)
from mcp_types import Tool as WireTool
from pydantic import PrivateAttr

from roundtrip.engine.leg import Limits
from roundtrip.errors import InvalidSignature
from roundtrip.machine.journal import Entry, Journal
from roundtrip.resolvers.signatures import display_name
from roundtrip.server.adapters.installation import (
    Installation,
    InstallOptions,
    refuse_approval,
    refuse_options,
    refuse_second,
    serving_now,
)
from roundtrip.server.adapters.marked import uses_roundtrip
from roundtrip.server.failures import failed_tool, log_tool_failure
from roundtrip.server.functions import Kind, read_signature
from roundtrip.server.leg_runner import result_of
from roundtrip.server.prompt_legs import in_legs
from roundtrip.server.recovery import recover
from roundtrip.server.request_state import Request
from roundtrip.server.requests import Incoming
from roundtrip.server.tools.options import ToolSpec, spec_from, spec_of
from roundtrip.server.tools.registered import RegisteredTool, ToolDefaults, register
from roundtrip.server.tools.registry import ToolRegistry
from roundtrip.server.visibility import Visibility

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BoundTools", "install_in_low_level", "install_in_mcpserver"]

logger = logging.getLogger("mcp.server.mcpserver.server")

_CallableT = TypeVar("_CallableT", bound=Callable[..., Any])
_UNBOUND: Final = ToolDefaults(Limits(ttl=600.0, max_age=3600.0))
"""Options for tools that are bound before there is a server."""

_REFUSED: Final = (
    (
        ("enabled",),
        "needs roundtrip.Server, as the SDK's classes list and call every tool; leave it out, or change the class",
    ),
    (
        ("version",),
        "needs roundtrip.Server, as the SDK's classes have one tool of each name; leave it out, or change the class",
    ),
    (
        ("task", "task_ttl"),
        "needs roundtrip.Server, which serves the methods of tasks; leave it out, or change the class",
    ),
)


class _Tools:
    """The tools of one installation that ask."""

    def __init__(self, installation: Installation[Any] | None = None) -> None:
        self.installation = installation
        self.registry = ToolRegistry("replace", Visibility())

    def register(self, fn: Callable[..., Any], spec: ToolSpec = ToolSpec()) -> RegisteredTool:  # noqa: B008 - a value
        """Make a tool of a function.

        Raises:
            InvalidSignature: It cannot work on a server of the SDK's.
        """
        merged = spec.over(spec_of(fn))
        given = [each for each in ToolSpec._fields if getattr(merged, each) is not None]
        refuse_options(given, _REFUSED, owner=f"tool {merged.name or display_name(fn)!r}")
        installation = self.installation
        tool = register(fn, spec, defaults=installation.defaults if installation is not None else _UNBOUND)
        if installation is not None:
            installation.adopt(tool.function)
        else:
            refuse_approval(tool.function)
        self.registry.add(tool)
        return tool

    async def recover(self, ctx: Request, journal: Journal, now: float) -> Mapping[str, Entry] | None:
        """Return the answers of an expired call if it may be begun again."""
        if self.installation is None:
            return None
        return await recover(self.registry, self.installation.parts, ctx, journal, now)


async def _serve(
    installation: Installation[Any], tool: RegisteredTool, arguments: dict[str, Any], incoming: Incoming
) -> CallToolResult | InputRequiredResult:
    """Serve one leg of a tool, with the errors that the SDK's handler expects.

    Raises:
        ToolError: The arguments do not fit, or the tool failed.
        MCPError: The tool raised a protocol error, or its client cannot be asked.
    """
    try:
        validated = tool.arguments.validate(arguments)
        return result_of(await installation.legs.run(tool.function, validated, incoming))
    except Exception as error:  # noqa: BLE001 - raised again, as the SDK's handler expects it
        # The SDK's classes never send the text of a crash.
        return failed_tool(tool.name, error, mask=True)


class AskingTool(SdkTool):
    """Tool of the SDK whose function asks by roundtrip."""

    _tool: RegisteredTool = PrivateAttr()
    _installation: Installation[Any] = PrivateAttr()

    @classmethod
    def of(cls, tool: RegisteredTool, installation: Installation[Any]) -> AskingTool:
        """Return the SDK's object for a registered tool."""

        async def stand_in() -> None: ...

        listing = tool.listing
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
        made._tool, made._installation = tool, installation
        return made

    @cached_property
    def output_schema(self) -> dict[str, Any] | None:
        """Return the schema of its results."""
        return self._tool.listing.output_schema

    async def run(self, arguments: dict[str, Any], context: Any, convert_result: bool = False) -> Any:
        """Serve one leg of a call. The result is converted in any case."""
        return await _serve(self._installation, self._tool, arguments, Incoming.by(context))


def install_in_mcpserver(server: MCPServer[Any], low_level: LowLevelServer[Any], options: InstallOptions) -> None:
    """Let the tools, prompts and resource templates of an `MCPServer` ask that are registered from now on.

    Raises:
        ValueError: It has roundtrip already, or the options contradict each other.
        InvalidSignature: A function with roundtrip's markers was registered before.
    """
    from roundtrip.server.adapters import sdk_names

    refuse_second(low_level)
    for kind, name, fn in sdk_names.functions_of(server):
        if uses_roundtrip(fn):
            raise InvalidSignature(
                f"{kind} {name!r} asks by roundtrip, and was registered before roundtrip could fill its parameters; "
                "call install() before tools are registered"
            )
    tools = _Tools()
    installation = Installation(
        server,
        low_level,
        options,
        given=options.get("request_state_security"),
        context_server=server,
        bus=sdk_names.bus_of(server),
        recover=tools.recover,
        routes=lambda: sdk_names.routes_of(server),
    )
    tools.installation = installation
    add_tool = server.add_tool

    def add_asking_tool(fn: Callable[..., Any], *given: Any, **details: Any) -> None:
        if not uses_roundtrip(fn):
            add_tool(fn, *given, **details)
            return
        named = inspect.signature(add_tool).bind(fn, *given, **details).arguments
        spec = spec_from({name: value for name, value in named.items() if name != "fn"})
        sdk_names.put_tool(server, AskingTool.of(tools.register(fn, spec), installation))

    _replace(server, "add_tool", add_asking_tool)
    _replace(server, "prompt", _asking_prompts(server.prompt, installation))
    _replace(server, "resource", _asking_resources(server.resource, installation))


def _asking_prompts(prompt: Callable[..., Any], installation: Installation[Any]) -> Callable[..., Any]:
    def asking_prompt(name: str | None = None, *given: Any, **details: Any) -> Any:
        def decorate(fn: _CallableT) -> _CallableT:
            label = name or display_name(fn)
            prompt(label, *given, **details)(_plain("prompt", label, fn, installation))
            return fn

        return prompt(name) if callable(name) else decorate

    return asking_prompt


def _asking_resources(resource: Callable[..., Any], installation: Installation[Any]) -> Callable[..., Any]:
    def asking_resource(uri: str, **details: Any) -> Any:
        register = resource(uri, **details)

        def decorate(fn: _CallableT) -> _CallableT:
            if uses_roundtrip(fn) and not UriTemplate.parse(uri).variable_names:
                raise InvalidSignature(
                    f"resource {uri!r} has no variables, so it is read without a call that could ask; fill its "
                    "parameters inside the function, or make it a template"
                )
            register(_plain("resource", uri, fn, installation))
            return fn

        return decorate

    return asking_resource


def _plain(kind: Kind, name: str, fn: Callable[..., Any], installation: Installation[Any]) -> Callable[..., Any]:
    """Return a function for the SDK: itself, or one that serves a leg of it."""
    if not uses_roundtrip(fn):
        return fn
    spec = spec_of(fn)
    given = [each for each in ToolSpec._fields if getattr(spec, each) is not None]
    refuse_options(given, [(ToolSpec._fields, "is for tools; leave it out")], owner=f"{kind} {name!r}")
    signature = read_signature(fn, kind=kind, name=name)
    function, plain = in_legs(signature, installation.legs, defaults=installation.defaults)
    installation.adopt(function)
    return plain


def _replace(server: object, name: str, method: Callable[..., Any]) -> None:
    # To type checkers it is a method of the class.
    setattr(server, name, method)


class BoundTools:
    """Tools of functions for a low-level server: the handler of `tools/call`, and `list_tools` for `tools/list`."""

    def __init__(self, functions: Sequence[Callable[..., Any]]) -> None:
        if not functions:
            raise TypeError("bind() must be given functions, got none")
        self._functions = functions
        unbound = _Tools()
        self._listing: list[WireTool] = [unbound.register(fn).listing for fn in functions]
        self._tools: WeakKeyDictionary[Installation[Any], _Tools] = WeakKeyDictionary()

    async def list_tools(
        self, ctx: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None = None
    ) -> ListToolsResult:
        """Handle `tools/list`."""
        del ctx, params
        return ListToolsResult(tools=list(self._listing))

    async def __call__(
        self, ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        """Handle `tools/call`.

        Raises:
            MCPError: The tool raised a protocol error, or its client cannot be asked.
            RuntimeError: The server has no roundtrip.
        """
        serving = serving_now()
        if serving is None or serving.request.session is not ctx.session:
            raise RuntimeError(
                "bind() makes tools for a server with roundtrip; call install(server) of roundtrip.install"
            )
        try:
            tool = self.attach(serving.installation).registry.find(params.name)[0]
            return await _serve(serving.installation, tool, params.arguments or {}, Incoming.of(ctx))
        except MCPError:
            raise
        except Exception as error:  # noqa: BLE001 - as the SDK's handler does
            log_tool_failure(params.name, error)
            return CallToolResult(content=[TextContent(type="text", text=str(error))], is_error=True)

    def attach(self, installation: Installation[Any]) -> _Tools:
        """Return the tools of one server.

        Raises:
            InvalidSignature: The server cannot serve one.
        """
        tools = self._tools.get(installation)
        if tools is None:
            tools = self._tools[installation] = _Tools(installation)
            for fn in self._functions:
                tools.register(fn)
        return tools


def install_in_low_level(server: LowLevelServer[Any], options: InstallOptions) -> None:
    """Let the bound tools of a low-level server ask.

    Raises:
        ValueError: It has roundtrip already, or the options contradict each other.
        InvalidSignature: The server cannot serve a bound tool.
    """
    refuse_second(server)
    if not any(isinstance(each, RequestStateBoundary) for each in server.middleware):
        # `install` replaces it.
        server.middleware.append(RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=server.name))
    entry = server.get_request_handler("tools/call")
    bound = entry.handler if entry is not None else None
    found: list[_Tools] = []

    async def recover_bound(ctx: Request, journal: Journal, now: float) -> Mapping[str, Entry] | None:
        return await found[0].recover(ctx, journal, now) if found else None

    installation = Installation(
        server, server, options, given=options.get("request_state_security"), recover=recover_bound
    )
    if isinstance(bound, BoundTools):
        found.append(bound.attach(installation))
