"""Asking functions on FastMCP servers: the plain functions that FastMCP registers for them.

FastMCP still handles schemas, dependencies, middleware and results. It registers a plain function, without the
parameters that roundtrip fills. Each run of the plain function serves one leg of the call.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, cast

from mcp.server.mcpserver import Audio as SdkAudio
from mcp.server.mcpserver import Image as SdkImage
from mcp.server.mcpserver.exceptions import ResourceError as SdkResourceError
from mcp.server.mcpserver.exceptions import ToolError as SdkToolError
from mcp.server.mcpserver.exceptions import UnexpectedToolError
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, InputResponseRequestParams
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from roundtrip.adapters import fastmcp_names
from roundtrip.adapters.installation import Installation, InstalledServing, installation_in, serving_now
from roundtrip.adapters.marked import misused_context
from roundtrip.engine.leg import PlainBody
from roundtrip.errors import CannotAsk, InvalidSignature, RoundtripError
from roundtrip.legs.boundary import Request
from roundtrip.legs.functions import AskingFunction, Kind, Planned, read_signature
from roundtrip.legs.requests import REQUEST, Incoming, asking_request, holding
from roundtrip.legs.runner import ServedEnd, result_of
from roundtrip.resolvers.signatures import hints_of, is_async, is_generator_function
from roundtrip.resolvers.threads import Threads
from roundtrip.server.attach import answers_for_author, wrap
from roundtrip.stored.desk import ClientCall
from roundtrip.tools.arguments import without_iterators
from roundtrip.tools.content import Embeddable, ToolResult, as_block
from roundtrip.tools.failures import cannot_ask, told_by, tool_failure
from roundtrip.tools.options import ToolSpec
from roundtrip.tools.promises import OncePolicy
from roundtrip.tools.registered import ToolDefaults, asking_function, dependencies_of
from roundtrip.tools.replies import result_of_reply, text_result
from roundtrip.untrusted import mapping_of

ERRORS: Final = {
    "tool": fastmcp_names.ToolError,
    "prompt": fastmcp_names.PromptError,
    "resource": fastmcp_names.ResourceError,
    "template": fastmcp_names.ResourceError,
}
"""FastMCP's errors that clients may read, by component kind."""

_MEDIA: Final = (SdkAudio, SdkImage, Embeddable)

_FUNCTION_ATTRIBUTE: Final = "__roundtrip__"
"""Attribute of a plain function that FastMCP runs; its value is the asking function."""

_INJECTED: Final[ContextVar[Mapping[str, Any] | None]] = ContextVar("roundtrip_injected", default=None)
"""Values with which FastMCP fills parameters of the current function. The client does not send these values."""


@dataclass(slots=True, eq=False)
class HostedLeg:
    """A stored call's leg that runs through FastMCP without a tool call from a client."""

    installation: Installation[Any]
    """The installation on the server that stores the call."""
    incoming: Incoming
    is_taken: bool = False
    """True once the leg's function has begun. If that function calls other functions, they start calls of their own."""
    end: ServedEnd | None = None
    """The leg's end, which FastMCP's result cannot always express."""
    failure: MCPError | None = None
    """The protocol error that the function raised."""
    planned: Planned | None = None
    """The plan of the asking function that the leg serves; None if a plain tool asks for consent."""

    def waits_for(self, function: AskingFunction) -> bool:
        """Return True until the leg's function begins, if this is the function."""
        return not self.is_taken and self.planned in (None, function.planned)

    def lacks_request(self, function: AskingFunction) -> bool:
        """Return True until the leg's function begins, if no client's request started the leg."""
        stored = self.incoming.record.stored if self.incoming.record is not None else None
        return self.waits_for(function) and stored is not None and stored.request is None


STORED_LEG: Final[ContextVar[HostedLeg | None]] = ContextVar("roundtrip_stored_leg", default=None)
"""The stored call's leg that the next function serves."""


class CalledTool(NamedTuple):
    """A tool that FastMCP runs, after its middleware."""

    installation: Installation[Any]
    name: str
    arguments: dict[str, Any]


CALLED: Final[ContextVar[CalledTool | None]] = ContextVar("roundtrip_called", default=None)
"""The tool that FastMCP runs on a server that stores calls."""

CONSENTING: Final[ContextVar[FastMcpFunction | None]] = ContextVar("roundtrip_consenting", default=None)
"""A copy of the next function, which asks for consent before anything runs."""


def current_request() -> object:
    """Return the stored leg or the client's request that the running code serves; None outside both."""
    return STORED_LEG.get() or REQUEST.get()


def serving_installation() -> Installation[Any] | None:
    """Return the installation on the server that received the client's call, or that stores it."""
    leg, serving = STORED_LEG.get(), serving_now()
    if leg is not None:
        return leg.installation
    return serving.installation if serving is not None else None


def is_in_stored_leg() -> bool:
    """Return True if a stored call's leg is running, and its function has not begun."""
    leg = STORED_LEG.get()
    return leg is not None and not leg.is_taken


class FastMcpFunction(AskingFunction):
    """Asking function on a FastMCP server, which may fill some of the function's parameters."""

    tool: fastmcp_names.Tool | None = None
    """The function's tool, once it is registered."""
    is_filled_by_host: bool = False
    """True if FastMCP fills any of the function's parameters."""
    waives_consent: bool = False
    """True if the author set `consent=False`."""
    begin_body: Callable[[], None] | None = None
    """Is called when the body begins, after the user has accepted."""

    @property
    def needs_request(self) -> bool:
        """Return True if FastMCP may need a client's request to authorize the tool or to fill its parameters."""
        return self.is_filled_by_host or (self.tool is not None and self.tool.auth is not None)

    def is_called(self, method: str, name: str) -> bool:
        """Return True if the request is for this function. If the tool is mounted, renamed or transformed, the request
        has another name.
        """
        if (
            method != "tools/call"
            or fastmcp_names.is_client_tool_call(is_named=name == self.name)
            or STORED_LEG.get() is not None
        ):
            return True
        serving, server = serving_now(), fastmcp_names.serving_server()
        if serving is None or server is None:
            return False
        # The outer server passed the client's call on to a mounted server, or a search tool passed it on to the tool
        # that it found.
        return serving.installation.host is not server or fastmcp_names.passes_calls_on(server, name)

    async def run(self, arguments: Mapping[str, Any], filled: Mapping[str, Any], context: Any, threads: Threads) -> Any:
        """Run the function with roundtrip's and FastMCP's values."""
        if self.begin_body is not None:
            self.begin_body()
        try:
            return await super().run(arguments, {**filled, **(_INJECTED.get() or {})}, context, threads)
        except fastmcp_names.FastMCPError as error:
            if self.policy(OncePolicy) is None:
                raise
            # A ledger stores failures in the form that roundtrip's own servers use.
            raise SdkToolError(str(error)) from error

    def raise_mistake(self, error: AttributeError) -> None:
        """Raise the error for an author's mistake, such as asking with FastMCP's own context."""
        super().raise_mistake(error)
        if (mistake := misused_context(error, fastmcp_names.Context)) is not None:
            raise mistake from error

    def plain_body(self, arguments: Mapping[str, Any]) -> PlainBody | None:
        """Return the call's body, or None if it cannot run in one pass with plain resolvers."""
        return super().plain_body(arguments) if not _INJECTED.get() and self.policy(OncePolicy) is None else None

    def for_ledger(self, value: Any) -> CallToolResult:
        """Convert the function's value to the result that a ledger stores."""
        if self.tool is None:
            raise RuntimeError(f"{self.owner} is not registered")
        return fastmcp_names.wire_result(self.tool, value)

    def as_sent(self, value: Any) -> Any:
        """Return the function's value as clients receive it, for tracers. FastMCP's own conversion runs later and may
        fail.
        """
        if self.tool is None or isinstance(value, CallToolResult):
            return value
        try:
            return fastmcp_names.wire_result(self.tool, value)
        except Exception:  # noqa: BLE001 - the author's serializer, whose failure FastMCP reports
            return value

    async def serve(self, arguments: dict[str, Any], injected: Mapping[str, Any]) -> Any:
        """Serve one leg.

        Raises:
            FastMCPError: The call failed, and its client may read the reason.
            Exception: The author's code raised an error, which FastMCP may mask.
        """
        leg = STORED_LEG.get()
        if leg is not None and leg.waits_for(self):
            return await self._serve_stored(leg, arguments, injected)
        serving = _find_serving(self)
        if isinstance(serving, Installation):
            with self._in_host(injected, lambda failure: None):
                return result_of(await serving.legs.run(self, arguments, Incoming.by(None)))
        incoming = Incoming.of(serving.request)
        record = incoming.record
        was_claimed = record is None or record.is_taken
        # FastMCP's middleware may retry the call, and only the last attempt counts.
        serving.failure = None

        def report(failure: MCPError) -> None:
            if record is not None and record.is_taken and not was_claimed:
                # Record the failure, because FastMCP turns a raised error into a result.
                serving.failure = failure

        with self._in_host(injected, report):
            return await self._serve_at_desk(serving, arguments, incoming)

    async def _serve_at_desk(self, serving: InstalledServing, arguments: dict[str, Any], incoming: Incoming) -> Any:
        """Serve one leg of a client's request. The server's stored-call features take part in the leg."""
        desk, legs, record = serving.installation.desk, serving.installation.legs, incoming.record
        # If a prompt or another function calls this tool, that is not the client's call.
        is_for_tool = record is not None and record.context.method == "tools/call" and self.kind == "tool"
        is_at_desk = is_for_tool and (bool(desk.features) or self.hands_over)
        if record is None or not is_at_desk or not self.is_asked_for(incoming):
            return result_of(await legs.run(self, arguments, incoming))
        raised: list[MCPError] = []

        async def run() -> ServedEnd:
            try:
                return await legs.run(self, arguments, incoming, is_traced=self not in desk.untraced)
            except CannotAsk as error:
                # The desk adds to this error why a page cannot ask either.
                raise cannot_ask(error) from error
            except MCPError as error:
                raised.append(error)
                raise

        params = record.context.params or {}
        name, called = str(params.get("name", self.name)), CALLED.get()
        if called is not None and called.installation is serving.installation:
            # Later legs have no middleware, so they need the arguments that this leg's middleware passed on.
            name, passed_on = called.name, called.arguments
            with suppress(PydanticSerializationError, ValueError):
                # A value without a JSON form cannot be stored, but a call that is not stored may have it.
                passed_on = to_jsonable_python(passed_on)
            record.context = replace(record.context, params={**params, "name": name, "arguments": passed_on})
        try:
            if self.hands_over:
                # A mounted server's tool may have been registered while the server is running.
                serving.installation.serve_tasks()
            end = await desk.serve(ClientCall(name, record, lambda: self), run)
        except MCPError as error:
            if isinstance(error.__cause__, CannotAsk):
                raise error.__cause__ from None
            if error in raised:
                raise
            # A feature raised this error. FastMCP would turn it into a result.
            serving.failure = error
            return text_result(error.error.message, is_error=True)
        if not isinstance(end, dict):
            return result_of(end)
        if end.get("resultType") == "task":
            return serving.hold_place({**end, "_meta": serving.installation.tool_host.stamp()})
        return result_of_reply(end)

    async def _serve_stored(self, leg: HostedLeg, arguments: dict[str, Any], injected: Mapping[str, Any]) -> Any:
        """Serve a stored call's leg."""
        leg.is_taken = True

        def report(failure: MCPError) -> None:
            leg.failure = failure

        with self._in_host(injected, report):
            try:
                leg.end = await leg.installation.legs.run(self, arguments, leg.incoming)
                return result_of(leg.end)
            except MCPError as error:
                leg.failure = error
                raise

    @contextmanager
    def _in_host(self, injected: Mapping[str, Any], report: Callable[[MCPError], None]) -> Generator[None]:
        """Provide FastMCP's values to a leg. If clients may read a failure, raise it as one of FastMCP's errors.

        Args:
            injected: The values that FastMCP fills in.
            report: Receives the failure, if it is a protocol error.
        """
        try:
            with holding(_INJECTED, injected):
                yield
        except (fastmcp_names.FastMCPError, UnexpectedToolError):
            raise
        except (RoundtripError, SdkToolError, SdkResourceError) as error:
            failure = tool_failure(self.name, error, mask=False)
            if isinstance(failure, UnexpectedToolError):
                # The author's code crashed. The server's options decide whether FastMCP hides the error text.
                raise
            if isinstance(failure, MCPError):
                report(failure)
            text = told_by(failure, error) or str(failure)
            raise ERRORS[self.kind](text.removeprefix(f"Error executing tool {self.name}: ")) from error


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
    """Return an asking function, and the plain function that FastMCP registers for it.

    Args:
        fn: The author's function.
        kind: The kind of component.
        name: The registered name; for a resource, its URI or template.
        spec: The options of the standalone `@tool`.
        defaults: The server's options.
        version: The registered version.
        inline: True to run a plain function on the event loop.

    Raises:
        InvalidSignature: A parameter of the function or of a resolver can never be filled.
    """
    if is_generator_function(fn):
        raise InvalidSignature(
            f"{kind} {name!r} is a generator, which cannot ask; collect the values that it yields, and return a list"
        )
    hints = hints_of(fn)
    # FastMCP would fill Docket's dependencies only in the workers of FastMCP's own tasks.
    foreign: Mapping[str, Any] = defaults.filled(fn) if kind == "tool" else {}
    injected = tuple(each for each in fastmcp_names.injected_parameters(fn, hints) if each not in foreign)
    dependencies = dependencies_of(spec.get("dependencies"), tool=name)
    signature = read_signature(
        fn,
        kind=kind,
        name=name,
        dependencies=dependencies,
        injected=(*injected, *foreign),
        foreign=foreign,
        reject=defaults.reject,
    )
    not_clients = {*signature.hidden, *injected}
    clients = {each: each for each in inspect.signature(fn).parameters if each not in not_clients}

    def for_ledger(value: Any) -> CallToolResult:
        return function.for_ledger(_to_protocol_types(value))

    runs_once = spec.get("exactly_once") or spec.get("once_per") is not None
    function = asking_function(
        signature,
        {**spec, "inline": True} if inline and not is_async(fn) else spec,
        clients,
        defaults=defaults,
        version=version,
        convert=for_ledger if runs_once else _to_protocol_types if kind == "tool" else None,
        kind=FastMcpFunction,
    )

    function.is_filled_by_host = bool(injected)
    function.waives_consent = spec.get("consent") is False

    async def serve(arguments: dict[str, Any], _: None) -> Any:
        own = {each: arguments.pop(each) for each in injected if each in arguments}
        consenting = CONSENTING.get()
        asking = consenting if consenting is not None and consenting.planned is function.planned else function
        with holding(CONSENTING, None):
            return await asking.serve(without_iterators(arguments), own)

    wrapper = wrap(signature, serve, context_type=None)
    returns = hints.get("return", inspect.Signature.empty)
    shown: Any = wrapper
    setattr(shown, _FUNCTION_ATTRIBUTE, function)
    if returns is not inspect.Signature.empty:
        # FastMCP derives the output schema from the return annotation.
        wrapper.__annotations__["return"] = returns
        shown.__signature__ = inspect.signature(wrapper).replace(return_annotation=returns)
    return function, wrapper


def checked_before_task(checks: Any, function: FastMcpFunction) -> list[Any]:
    """Return a task tool's authorization checks, in a form that does not apply to legs without a request.

    FastMCP checks the requests that begin the task. A worker's leg has no access token to check.
    """

    def checked_with_request(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(check, updated=())
        def checked(context: Any) -> Any:
            leg = STORED_LEG.get()
            return True if leg is not None and leg.lacks_request(function) else check(context)

        return checked

    return [
        checked_with_request(check) for check in cast("list[Any]", checks if isinstance(checks, list) else [checks])
    ]


def _to_protocol_types(value: Any) -> Any:
    """Convert roundtrip's media and results in a tool's value to the protocol's types, which FastMCP knows."""
    if isinstance(value, ToolResult):
        return value.to_call_tool_result()
    if isinstance(value, _MEDIA):
        return as_block(value)
    if isinstance(value, list | tuple):
        parts = cast("list[Any]", value)
        if any(isinstance(part, _MEDIA) for part in parts):
            return [as_block(part) if isinstance(part, _MEDIA) else part for part in parts]
    return cast("Any", value)


def without_own_answers(ctx: Request) -> Request:
    """Return a request without the answers to roundtrip's own questions, for code that asks by hand.

    FastMCP rejects a request with malformed answers, so such a request stays unchanged.
    """
    params = ctx.params or {}
    sent = mapping_of(params.get("inputResponses"))
    if not sent:
        return ctx
    try:
        InputResponseRequestParams.model_validate(params, by_name=False)
    except ValidationError:
        return ctx
    return replace(ctx, params={**params, "inputResponses": answers_for_author(sent)})


def own_function(tool: fastmcp_names.Tool, below: fastmcp_names.Tool | None) -> FastMcpFunction | None:
    """Return a tool's asking function, given the tool behind it; None if the tool does not use roundtrip."""
    del tool
    return function_of_plain(getattr(below, "fn", None))


def function_of_plain(plain: object) -> FastMcpFunction | None:
    """Return the asking function that a plain function wraps, or None if the function does not use roundtrip."""
    found: object = getattr(plain, _FUNCTION_ATTRIBUTE, None)
    return found if isinstance(found, FastMcpFunction) else None


def _find_serving(function: FastMcpFunction) -> InstalledServing | Installation[Any]:
    """Return the current request. Outside a request, return the installation on the server that runs the function.

    Raises:
        ToolError: roundtrip is not installed on the server that received the client's request.
    """
    serving, session = serving_now(), fastmcp_names.session_now()
    if session is None:
        # The author called the function directly, for example with `await mcp.call_tool(...)` in a test.
        server = fastmcp_names.serving_server()
        found = installation_in(fastmcp_names.low_level_of(server)) if server is not None else None
        if found is not None:
            return found
    elif serving is not None and serving.request.session is session and asking_request() is not None:
        return serving
    raise ERRORS[function.kind](
        f"{function.owner} asks, but roundtrip is not installed on the server that received the request; also call "
        "install() of roundtrip.fastmcp on the server that clients connect to"
    )
