"""Make functions that ask plain to FastMCP, which then registers and runs them as any others.

FastMCP keeps its schemas, dependencies, middleware and results. It sees a function with the client's parameters and its
own, which serves one leg of the call each time FastMCP runs it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, cast

from mcp.server.mcpserver import Audio as SdkAudio
from mcp.server.mcpserver import Image as SdkImage
from mcp.server.mcpserver.exceptions import ResourceError as SdkResourceError
from mcp.server.mcpserver.exceptions import ToolError as SdkToolError
from mcp.server.mcpserver.exceptions import UnexpectedToolError
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult

from roundtrip.adapters.fastmcp_names import (
    Context,
    FastMCPError,
    PromptError,
    ResourceError,
    Tool,
    ToolError,
    injected_parameters,
    is_client_tool_call,
    low_level_of,
    passes_calls_on,
    serving_server,
    session_now,
    wire_result,
)
from roundtrip.adapters.installation import Installation, InstalledServing, installation_in, serving_now
from roundtrip.adapters.marked import misused_context
from roundtrip.docket import foreign
from roundtrip.engine.leg import Authored, Finished, HandedOver, PlainBody, Suspended
from roundtrip.errors import InvalidSignature, RoundtripError
from roundtrip.legs.functions import AskingFunction, Kind, read_signature
from roundtrip.legs.requests import Incoming, asking_request, holding
from roundtrip.legs.runner import ServedEnd, result_of
from roundtrip.resolvers.signatures import hints_of, is_async, is_generator_function
from roundtrip.resolvers.threads import Threads
from roundtrip.server.attach import wrap
from roundtrip.stored.desk import ClientCall
from roundtrip.tools.content import Embeddable, ToolResult, as_block
from roundtrip.tools.failures import told_by, tool_failure
from roundtrip.tools.options import ToolSpec
from roundtrip.tools.promises import OncePolicy
from roundtrip.tools.registered import ToolDefaults, asking_function, dependencies_of
from roundtrip.tools.replies import result_of_reply, text_result

ERRORS: Final = {"tool": ToolError, "prompt": PromptError, "resource": ResourceError, "template": ResourceError}
"""The errors of FastMCP that clients may read, by kind of component."""

_MEDIA: Final = (SdkAudio, SdkImage, Embeddable)

_OURS: Final = "__roundtrip__"
"""Attribute of a function that FastMCP runs, for the function that asks."""

_INJECTED: Final[ContextVar[Mapping[str, Any] | None]] = ContextVar("roundtrip_injected", default=None)
"""The values by which FastMCP fills parameters of the function being served. They are no arguments of the client."""


@dataclass(slots=True, eq=False)
class HostedLeg:
    """A leg of a stored call, which runs through FastMCP without a client's call of the tool."""

    installation: Installation[Any]
    """The installation on the server that stores the call."""
    incoming: Incoming
    is_taken: bool = False
    """True once its function has begun. Functions that it calls have calls of their own."""
    end: Finished | Suspended | Authored | HandedOver | None = None
    """The end of the leg, for which FastMCP may have no result."""
    failure: MCPError | None = None
    """The protocol error of the function."""


STORED_LEG: Final[ContextVar[HostedLeg | None]] = ContextVar("roundtrip_stored_leg", default=None)
"""The leg of a stored call that the next function which FastMCP runs serves."""


class FastMcpFunction(AskingFunction):
    """Function that asks, and some of whose parameters FastMCP fills."""

    tool: Tool | None = None
    """Its tool, once it is registered."""
    is_filled_by_host: bool = False
    """True if FastMCP fills parameters of it."""

    @property
    def needs_request(self) -> bool:
        """Return True if FastMCP may need the client's request to run it: to authorize it, or to fill parameters."""
        return self.is_filled_by_host or (self.tool is not None and self.tool.auth is not None)

    def is_called(self, method: str, name: str) -> bool:
        """Return True if the request is for this function. A mounted, renamed or transformed tool has another name."""
        if method != "tools/call" or is_client_tool_call() or STORED_LEG.get() is not None:
            return True
        serving, server = serving_now(), serving_server()
        if serving is None or server is None:
            return False
        # The outer server has dispatched the client's call to a mounted one, or a search to the tool that it found.
        return serving.installation.host is not server or passes_calls_on(server, name)

    async def run(
        self,
        arguments: Mapping[str, Any],
        filled: Mapping[str, Any],
        context: Any,
        threads: Threads,
    ) -> Any:
        """Run the function with FastMCP's values too."""
        try:
            return await super().run(arguments, {**filled, **(_INJECTED.get() or {})}, context, threads)
        except FastMCPError as error:
            if self.policy(OncePolicy) is None:
                raise
            # A ledger keeps failures as those of roundtrip's own servers.
            raise SdkToolError(str(error)) from error

    def raise_mistake(self, error: AttributeError) -> None:
        """Raise the error for an author's mistake, such as to ask with FastMCP's own context."""
        super().raise_mistake(error)
        if (mistake := misused_context(error, Context)) is not None:
            raise mistake from error

    def plain_body(self, arguments: Mapping[str, Any]) -> PlainBody | None:
        """Return the body of a call, if it may run in one go with plain resolvers."""
        return super().plain_body(arguments) if not _INJECTED.get() and self.policy(OncePolicy) is None else None

    def for_ledger(self, value: Any) -> CallToolResult:
        """Convert its value to the result that a ledger keeps."""
        if self.tool is None:
            raise RuntimeError(f"{self.owner} is not registered")
        return wire_result(self.tool, value)

    def as_sent(self, value: Any) -> Any:
        """Return its value as clients receive it, for tracers. FastMCP converts it only later, and may fail."""
        if self.tool is None or isinstance(value, CallToolResult):
            return value
        try:
            return wire_result(self.tool, value)
        except Exception:  # noqa: BLE001 - the author's serializer, whose failure FastMCP reports
            return value

    async def serve(self, arguments: dict[str, Any], injected: Mapping[str, Any]) -> Any:
        """Serve one leg.

        Raises:
            FastMCPError: The call failed in a way that its client may read.
            Exception: An error of the author's code, which FastMCP may mask.
        """
        leg = STORED_LEG.get()
        if leg is not None and not leg.is_taken:
            return await self._serve_stored(leg, arguments, injected)
        serving = _serving(self)
        if isinstance(serving, Installation):
            with self._in_host(injected, lambda failure: None):
                return result_of(await serving.legs.run(self, arguments, Incoming.by(None)))
        incoming = Incoming.of(serving.request)
        record = incoming.record
        was_claimed = record is None or record.is_taken
        # Middleware may try again, and then the last attempt counts.
        serving.failure = None

        def tell(failure: MCPError) -> None:
            if record is not None and record.is_taken and not was_claimed:
                # FastMCP would make a result of it.
                serving.failure = failure

        with self._in_host(injected, tell):
            return await self._serve_at_desk(serving, arguments, incoming)

    async def _serve_at_desk(self, serving: InstalledServing, arguments: dict[str, Any], incoming: Incoming) -> Any:
        """Serve one leg of a client's request, around which features of the server serve the call."""
        desk, legs, record = serving.installation.desk, serving.installation.legs, incoming.record
        # Another function's call of this tool, or a prompt's, is no call of the client's.
        is_for_tool = record is not None and record.context.method == "tools/call" and self.kind == "tool"
        if record is None or not desk.features or not is_for_tool or not self.is_asked_for(incoming):
            return result_of(await legs.run(self, arguments, incoming))
        raised: list[MCPError] = []

        async def run() -> ServedEnd:
            try:
                return await legs.run(self, arguments, incoming, is_traced=self not in desk.untraced)
            except MCPError as error:
                raised.append(error)
                raise

        name = str((record.context.params or {}).get("name", self.name))
        try:
            end = await desk.serve(ClientCall(name, record, lambda: self), run)
        except MCPError as error:
            if error in raised:
                raise
            # An error of a feature, of which FastMCP would make a result.
            serving.failure = error
            return text_result(error.error.message, is_error=True)
        return result_of_reply(end) if isinstance(end, dict) else result_of(end)

    async def _serve_stored(self, leg: HostedLeg, arguments: dict[str, Any], injected: Mapping[str, Any]) -> Any:
        """Serve a leg of a stored call."""
        leg.is_taken = True

        def tell(failure: MCPError) -> None:
            leg.failure = failure

        with self._in_host(injected, tell):
            try:
                leg.end = await leg.installation.legs.run(self, arguments, leg.incoming)
                return result_of(leg.end)
            except MCPError as error:
                leg.failure = error
                raise

    @contextmanager
    def _in_host(self, injected: Mapping[str, Any], tell: Callable[[MCPError], None]) -> Generator[None]:
        """Surround a leg with FastMCP's values, and make an error of FastMCP's of a failure that clients may read.

        Args:
            injected: The values.
            tell: Receives the failure, if it is a protocol error.
        """
        try:
            with holding(_INJECTED, injected):
                yield
        except (FastMCPError, UnexpectedToolError):
            raise
        except (RoundtripError, SdkToolError, SdkResourceError) as error:
            failure = tool_failure(self.name, error, mask=False)
            if isinstance(failure, UnexpectedToolError):
                # An error of the author's code, masked or not as the server says.
                raise
            if isinstance(failure, MCPError):
                tell(failure)
            told = told_by(failure, error) or str(failure)
            raise ERRORS[self.kind](told.removeprefix(f"Error executing tool {self.name}: ")) from error


def function_for_fastmcp(
    fn: Callable[..., Any],
    *,
    kind: Kind,
    name: str,
    spec: ToolSpec,
    defaults: ToolDefaults,
    version: str | None = None,
    inline: bool = False,
) -> tuple[FastMcpFunction, Callable[..., Any]]:
    """Make a function that may ask, and the function that FastMCP registers in its place.

    Args:
        fn: The author's function.
        kind: The kind of item that it is registered as.
        name: The name that it is registered under; of a resource, its URI or template.
        spec: The options of the standalone `@tool`.
        defaults: The options of the server.
        version: The version that it is registered as.
        inline: True to run a plain function on the event loop.

    Raises:
        InvalidSignature: A parameter or a resolver of it can never be filled.
    """
    if is_generator_function(fn):
        raise InvalidSignature(
            f"{kind} {name!r} is a generator, and cannot ask; collect what it yields, and return a list"
        )
    hints = hints_of(fn)
    injected = injected_parameters(fn, hints)
    dependencies = dependencies_of(spec.get("dependencies"), tool=name)
    signature = read_signature(
        fn, kind=kind, name=name, dependencies=dependencies, injected=injected, reject=foreign.reject
    )
    not_clients = {*signature.hidden, *injected}
    clients = {each: each for each in inspect.signature(fn).parameters if each not in not_clients}

    def for_ledger(value: Any) -> CallToolResult:
        return function.for_ledger(_in_blocks(value))

    function = asking_function(
        signature,
        {**spec, "inline": True} if inline and not is_async(fn) else spec,
        clients,
        defaults=defaults,
        version=version,
        convert=for_ledger if spec.get("exactly_once") else _in_blocks if kind == "tool" else None,
        kind=FastMcpFunction,
    )

    function.is_filled_by_host = bool(injected)

    async def serve(arguments: dict[str, Any], _: None) -> Any:
        own = {each: arguments.pop(each) for each in injected if each in arguments}
        return await function.serve(arguments, own)

    wrapper = wrap(signature, serve, context_type=None)
    returns = hints.get("return", inspect.Signature.empty)
    shown: Any = wrapper
    setattr(shown, _OURS, function)
    if returns is not inspect.Signature.empty:
        # FastMCP derives the output schema from it.
        wrapper.__annotations__["return"] = returns
        shown.__signature__ = inspect.signature(wrapper).replace(return_annotation=returns)
    return function, wrapper


def _in_blocks(value: Any) -> Any:
    """Return a tool's value with roundtrip's media and results as those of the protocol, which FastMCP knows."""
    if isinstance(value, ToolResult):
        return value.to_call_tool_result()
    if isinstance(value, _MEDIA):
        return as_block(value)
    if isinstance(value, list | tuple):
        parts = cast("list[Any]", value)
        if any(isinstance(part, _MEDIA) for part in parts):
            return [as_block(part) if isinstance(part, _MEDIA) else part for part in parts]
    return cast("Any", value)


def function_of_plain(plain: object) -> FastMcpFunction | None:
    """Return the function that asks, of one that FastMCP runs; None for a function without roundtrip."""
    found: object = getattr(plain, _OURS, None)
    return found if isinstance(found, FastMcpFunction) else None


def _serving(function: FastMcpFunction) -> InstalledServing | Installation[Any]:
    """Return the request being served; without one, the installation of the server that runs the function.

    Raises:
        ToolError: The server that has the client's request has no roundtrip.
    """
    serving, session = serving_now(), session_now()
    if session is None:
        # Called by the author, as `await mcp.call_tool(...)` in a test.
        server = serving_server()
        found = installation_in(low_level_of(server)) if server is not None else None
        if found is not None:
            return found
    elif serving is not None and serving.request.session is session and asking_request() is not None:
        return serving
    raise ERRORS[function.kind](
        f"{function.owner} asks, and the server that serves it has no roundtrip; call install() of roundtrip.fastmcp "
        "on the server that clients connect to, too"
    )
