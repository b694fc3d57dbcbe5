"""Provide the part of `Server` for tools: register them, list them, and serve their calls."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from mcp.server.lowlevel.server import LifespanResultT
from mcp.server.mcpserver import Context as SdkContext
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp_types import CallToolResult, Icon, InputRequiredResult, ToolAnnotations
from mcp_types import Tool as WireTool
from typing_extensions import Unpack

from roundtrip.legs.boundary import Request
from roundtrip.legs.parts import Parts
from roundtrip.legs.requests import Incoming, take_client_lookup
from roundtrip.legs.runner import result_of
from roundtrip.on_demand import load_on_use
from roundtrip.resolvers.plan import Plan
from roundtrip.server.prompts_and_resources import PromptsAndResources
from roundtrip.server.tool_calls import ToolCalls
from roundtrip.stored.desk import CallDesk
from roundtrip.switches import PROBE_VARIABLE, is_on
from roundtrip.tools.options import ToolDetails, ToolOptions, ToolSpec, spec_from
from roundtrip.tools.registered import ToolDefaults, register
from roundtrip.tools.registry import OnDuplicate, ToolRegistry, UnknownTool
from roundtrip.tools.replies import text_result
from roundtrip.visibility.rules import Visibility

if TYPE_CHECKING:
    from roundtrip.server import probe
    from roundtrip.tasks import extension
    from roundtrip.tools import failures
else:
    load_on_use(globals(), "roundtrip.tools.failures", "roundtrip.server.probe", "roundtrip.tasks.extension")

logger = logging.getLogger("roundtrip")

_CallableT = TypeVar("_CallableT", bound=Callable[..., Any])


class ToolServer(PromptsAndResources[LifespanResultT]):
    """The part of `Server` for tools; `mask_errors` and `probe` are None if the author has not decided."""

    def __init__(
        self,
        parts: Parts,
        defaults: ToolDefaults,
        *,
        on_duplicate: OnDuplicate,
        mask_errors: bool | None,
        probe: bool | None,
        sdk: Mapping[str, Any],
    ) -> None:
        visibility = Visibility()
        self._early: list[Callable[[], None]] = []
        """Register the tools of the constructor and of extensions."""
        self._tools = ToolRegistry(on_duplicate, visibility)
        self._mask_errors = mask_errors
        super().__init__(parts, defaults, visibility, sdk=sdk)
        self._announcer.private["tools/list"] = lambda: self._tools.seen.has_gates
        self._probe = self._probe_if_wanted(probe)
        self._calls = ToolCalls(
            self,
            self._lowlevel_server,
            self._legs,
            CallDesk(),
            self._tools,
            gates=lambda: self._gates,
            probe=self._probe.tool if self._probe is not None else None,
            masks_errors=lambda: not self.shows_error_details,
        )
        # A subclass that overrides `call_tool` gets every call.
        if type(self).call_tool is ToolServer.call_tool:
            self.middleware.append(self._calls)

    @property
    def shows_error_details(self) -> bool:
        """Return True if clients may read the texts of exceptions that tools did not catch."""
        return not self._mask_errors

    def mask_error_details_by_default(self) -> None:
        """Mask the texts of exceptions, unless `mask_error_details=` was given."""
        if self._mask_errors is None:
            self._mask_errors = True

    def add_tool(
        self,
        fn: Callable[..., Any] | SdkTool,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | dict[str, Any] | None = None,
        icons: list[Icon] | None = None,
        meta: dict[str, Any] | None = None,
        structured_output: bool | None = None,
        **options: Unpack[ToolOptions],
    ) -> None:
        """Register a function, a bound method or the SDK's own tool object as a tool; see `tool`.

        Options given here win over those of the standalone `@tool`.

        Raises:
            InvalidSignature: A parameter or a resolver of it can never be filled, or no schema can describe it.
            ValueError: An option has no usable value, or there is such a tool already and that is an error here.
        """
        spec = spec_from(
            {
                "name": name,
                "title": title,
                "description": description,
                "annotations": annotations,
                "icons": icons,
                "meta": meta,
                "structured_output": structured_output,
                **options,
            }
        )
        if "_legs" not in vars(self):
            # From inside the SDK's constructor, before there is anything that a tool may need.
            self._early.append(partial(self._register, fn, spec))
        else:
            self._register(fn, spec)

    def _register(self, fn: Callable[..., Any] | SdkTool, spec: ToolSpec) -> None:
        tool = register(fn, spec, defaults=self._defaults, since=self._visibility.stamp())
        self._adopt(tool.function)
        if tool.visibility_gate is not None:
            self._track(tool.visibility_gate.planned)
        if tool.function.hands_over:
            extension.serve_extension(self._calls, self.storage.require(self._calls))
        if self._tools.add(tool):
            self._announcer.note("tools")

    @overload
    def tool(self, target: _CallableT, /, *, name: str | None = None, **details: Unpack[ToolDetails]) -> _CallableT: ...
    @overload
    def tool(
        self,
        target: str | None = None,
        /,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | dict[str, Any] | None = None,
        icons: list[Icon] | None = None,
        meta: dict[str, Any] | None = None,
        structured_output: bool | None = None,
        *,
        name: str | None = None,
        **options: Unpack[ToolOptions],
    ) -> Callable[[_CallableT], _CallableT]: ...
    def tool(  # type: ignore[override]
        self,
        target: Any = None,
        /,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | dict[str, Any] | None = None,
        icons: list[Icon] | None = None,
        meta: dict[str, Any] | None = None,
        structured_output: bool | None = None,
        *,
        name: str | None = None,
        **options: Unpack[ToolOptions],
    ) -> Any:
        """Register a function as a tool: `@server.tool`, `@server.tool(...)` or `server.tool(fn, ...)`.

        Everything the SDK's decorator takes, and:

        Args:
            target: The function, or the tool's name.
            title: A name for people.
            description: Its purpose; by default the text of the docstring.
            annotations: Hints about its behavior.
            icons: Icons for people.
            meta: Metadata passed on to the client.
            structured_output: True if results carry structured content; by default as the return annotation allows.
            name: The tool's name; by default the function's.
            **options: Those of roundtrip:
                tags (labels to enable and disable by),
                enabled (False hides it at first; a function or `Depends` decides for each request if it exists, and
                takes no arguments of the tool),
                version (of several of one name, the highest is listed and called),
                timeout (seconds that the work of one leg may take),
                input_schema (the JSON schema of its arguments, in place of the one that the parameters give),
                output_schema (the JSON schema of its result, an object),
                confirm (a question that must be accepted before anything runs, with the tool's arguments in braces:
                `"Delete {path}?"`; the call ends if the user declines or the client cannot be asked),
                ttl (seconds a client may take over one leg's questions),
                max_age (seconds after which a call of it cannot be resumed),
                exactly_once (run its body once for a call, even if its last leg arrives several times, and keep the
                result in the server's ledger),
                on_unknown (`"rerun"` runs it again if its process died while it ran; by default that is an error), and
                inline (run a plain function on the event loop, and not in a worker thread).
        """
        if isinstance(target, str):
            name, target = name if name is not None else target, None

        def decorate(fn: _CallableT) -> _CallableT:
            self.add_tool(fn, name, title, description, annotations, icons, meta, structured_output, **options)
            return fn

        return decorate if target is None else decorate(target)

    async def signal(self, call_id: str, name: str, payload: Any = None) -> bool:
        """Send a signal to the task of a call, for which its body waits with `ctx.wait_for`.

        Any instance that has the task's ledger may send it, before or while the body waits. The first signal of a name
        counts, and repeating it changes nothing. Check a request from outside before: see `verify_ticket`.

        Args:
            call_id: The call: `ctx.call.id`, or the one of a ticket.
            name: The signal's name.
            payload: A JSON value.

        Returns:
            False if the call has no task, or its task has been forgotten.

        Raises:
            LedgerDown: The store of tasks cannot be used.
            ValueError: The payload is not JSON.
            RuntimeError: The server has no tool that runs as a task.
        """
        tasks = self.storage.tasks
        if tasks is None:
            raise RuntimeError("server.signal(...) needs a tool that runs as a task: @server.tool(task=True)")
        return await tasks.signal(call_id, name, payload)

    def remove_tool(self, name: str, version: str | None = None) -> None:
        """Remove a tool, in one version or in all.

        Raises:
            ToolError: No tool has that name.
        """
        if self._tools.remove(name, version):
            self._announcer.note("tools")

    @property
    def local_provider(self) -> Self:
        """Return the server: FastMCP keeps the tools of a server in a provider of this name."""
        return self

    async def list_tools(self) -> list[WireTool]:
        """Return the tools as the client of the request sees them."""
        seen = self._tools.seen
        if seen.gates:
            return self._tools.listing_for((await self._gates.open_all(seen.gates)).gates)
        self._tools.check_allowed()
        return list(seen.listing)

    def tool_schema(self, name: str) -> dict[str, Any] | None:
        """Return the input schema for the SDK's check of headers, of a tool that all clients see; else None.

        The SDK checks before there is a request to evaluate visibility gates for; see `ToolCalls`.
        """
        match self._tools.seen.versions.get(name):
            # Without a schema the SDK does not search it for headers that are not there.
            case (tool,) if tool.names_headers and tool.visibility_gate is None:
                return tool.listing.input_schema
            case _:
                return None

    @property
    def plans(self) -> Mapping[str, Plan]:
        """Return the plans that fill the parameters of tools, by name; without resolvers a plan is empty."""
        return {name: highest.function.planned.plan for name, (highest, *_) in self._tools.seen.versions.items()}

    def plan_of(self, name: str, version: str | None = None) -> Plan | None:
        """Return the plan that fills the parameters of a tool in a version, by default its highest, even if hidden."""
        try:
            return self._tools.registered_as(name, version).function.planned.plan
        except ToolError:
            return None

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any],
        context: SdkContext[LifespanResultT, Any] | None = None,
        *,
        version: str | None = None,
    ) -> CallToolResult | InputRequiredResult:
        """Serve one leg of a call of a tool.

        Args:
            name: The tool's name.
            arguments: Its arguments, as a client sends them.
            context: The context of the request.
            version: The version to call; by default the one that the request names, else the highest.

        Raises:
            ToolError: The tool is unknown, its arguments do not fit, or it failed on purpose.
            UnexpectedToolError: It crashed with the exception in `__cause__`.
            MCPError: The tool raised a protocol error, or its client cannot be asked.
        """
        for_client = take_client_lookup()
        try:
            incoming = Incoming.by(context)
            if for_client:
                return await self._calls.serve_in_handler(name, arguments, incoming, version)
            return result_of(await self._calls.serve(name, arguments, incoming, version))
        except UnknownTool as error:
            if not for_client:
                raise
            failures.log_unknown("Tool")
            return text_result(str(error), is_error=True)

    def _subject_of(self, ctx: Request) -> tuple[str | None, bool]:
        """Return the registered name that a request calls (of a resource, its template), and True if it is traced."""
        if ctx.method != "tools/call":
            return super()._subject_of(ctx)
        named = (ctx.params or {}).get("name")
        if not isinstance(named, str):
            return None, True
        if named in self._tools:
            return named, True
        is_probe = self._probe is not None and named == self._probe.tool.name
        return (named if is_probe else None), not is_probe

    def _probe_if_wanted(self, wanted: bool | None) -> probe.Probe | None:
        if not is_on(wanted, PROBE_VARIABLE, environment=os.environ, default=False):
            return None
        return probe.Probe(
            self._tools, parts=self._parts, storage=self.storage, identity=self.identity, defaults=self._defaults
        )

    def tell_transport(self, transport: str) -> None:
        """Tell the log and the probe which way requests over HTTP on 2026-07-28 take, and why."""
        logger.info("server %r serves requests of 2026-07-28 over HTTP by %s", self.name, transport)
        if self._probe is not None:
            self._probe.transport = transport

    def is_one_of(self, workers: int, *, group: str) -> None:
        """Tell the probe the number of workers that serve together.

        Args:
            workers: Their number, this process included.
            group: A name that all of them have, and no others.
        """
        if self._probe is not None:
            self._probe.fellows = (group, workers)

    def identity(self) -> probe.Identity:
        """Return the facts that all instances of the service must have in common, now that tools are registered."""
        return probe.identity_of_tools(
            self.name,
            parts=self._parts,
            tools=self._tools.registered,
            stores_calls=self.storage.tasks is not None,
            channels=self._channel_names,
        )
