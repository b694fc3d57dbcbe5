"""`Server`: an `MCPServer` whose tools can ask users on every protocol revision and resume on any instance."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, TypeVar, overload

from mcp.server import MCPServer
from mcp.server.auth.provider import AccessToken, OAuthAuthorizationServerProvider, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import ServerMiddleware
from mcp.server.extension import Extension
from mcp.server.lowlevel.server import LifespanResultT
from mcp.server.mcpserver import Context as SdkContext
from mcp.server.mcpserver import ResourceSecurity
from mcp.server.mcpserver.resources import Resource
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp.server.request_state import RequestStateSecurity
from mcp.server.subscriptions import SubscriptionBus
from mcp_types import CallToolResult, Icon, InputRequiredResult, ToolAnnotations
from mcp_types import Tool as WireTool
from starlette.applications import Starlette
from typing_extensions import Unpack

from roundtrip.legs.boundary import Request
from roundtrip.legs.requests import Incoming, take_client_lookup
from roundtrip.legs.runner import result_of
from roundtrip.on_demand import load_on_use
from roundtrip.sdk import routes_of
from roundtrip.server.attach import ServerInternals
from roundtrip.server.features import install_stored_calls
from roundtrip.server.prompts_and_resources import LISTINGS, PromptsAndResources
from roundtrip.server.settings import PartsOptions, StoringOptions, parts_of
from roundtrip.server.tool_calls import ToolCalls
from roundtrip.stored.desk import CallDesk
from roundtrip.switches import FAST_LANE_VARIABLE, PROBE_VARIABLE, is_on, runs_tasks
from roundtrip.tools.options import ToolDetails, ToolOptions, ToolSpec, spec_from, unknown_option
from roundtrip.tools.registered import ToolDefaults, register
from roundtrip.tools.registry import OnDuplicate, ToolRegistry, UnknownTool
from roundtrip.tools.replies import text_result
from roundtrip.visibility.rules import Visibility, VisibilityChoice

if TYPE_CHECKING:
    from mcp.server.transport_security import TransportSecuritySettings

    from roundtrip.docket import foreign
    from roundtrip.http import connections, fast_lane
    from roundtrip.ledger.contract import Ledger
    from roundtrip.server import probe
    from roundtrip.server.overrides import Overrides
    from roundtrip.stored.worker import DistributedEngine
    from roundtrip.tasks import extension
    from roundtrip.tokens.tickets import Ticket
    from roundtrip.tools import consent_rules, failures
    from roundtrip.tools.consent_rules import ConsentPolicy, ConsentRule

load_on_use(
    globals(),
    "roundtrip.docket.foreign",
    "roundtrip.http.connections",
    "roundtrip.http.fast_lane",
    "roundtrip.server.probe",
    "roundtrip.tasks.extension",
    "roundtrip.tools.consent_rules",
    "roundtrip.tools.failures",
)

logger = logging.getLogger("roundtrip")

_CallableT = TypeVar("_CallableT", bound=Callable[..., Any])


class SdkOptions(TypedDict, total=False):
    """Keyword arguments of `MCPServer` that the signature of `Server` does not list."""

    tools: list[SdkTool] | None
    resources: list[Resource] | None
    extensions: Sequence[Extension] | None
    debug: bool
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
    warn_on_duplicate_resources: bool
    warn_on_duplicate_tools: bool
    warn_on_duplicate_prompts: bool
    dependencies: list[str] | None
    auth: AuthSettings | None
    resource_security: ResourceSecurity
    request_state_security: RequestStateSecurity | None
    cache_hints: Mapping[CacheableMethod, CacheHint] | None
    subscriptions: SubscriptionBus | Literal[False] | None
    middleware: Sequence[ServerMiddleware[Any]] | None


class ServerOptions(PartsOptions, StoringOptions, SdkOptions, total=False):
    """Options that `Server` accepts through `**options`."""


def _with_signature_of(original: Callable[..., Any]) -> Callable[[_CallableT], _CallableT]:
    """Let `inspect.signature` show the SDK's parameters for a method that takes `**options`."""

    def sign(method: _CallableT) -> _CallableT:
        setattr(method, "__signature__", inspect.signature(original))  # noqa: B010 - type checkers know no such attribute
        return method

    return sign


class Server(PromptsAndResources[LifespanResultT]):
    """MCP server whose tools can ask the client questions. Any instance of the service may serve a call's next leg.

    It has the constructor, decorators and `run` of the SDK's `MCPServer`, and adds these arguments:

    Args:
        keys: Secrets of at least 32 bytes, the same on every instance. The first key signs, and all keys verify.
            Replace a key in three steps: `[old, new]`, `[new, old]`, `[new]`. The default comes from the environment:
            ROUNDTRIP_KEYS lists the keys, or ROUNDTRIP_KEY_FILE names a file from `roundtrip keys`. If neither is set,
            the server makes a random key, and only this process can resume its calls.
        ttl: Seconds that a client may take to answer one leg's questions. The default is 600, or the `ttl` in
            `request_state_security`.
        max_age: Seconds after which a call can no longer be resumed. Resuming a call does not extend this time. The
            default is 3600, or the `ttl` in `request_state_security` if that is longer.
        encrypt: Encrypt whole tokens. Values that the server computed are always encrypted.
        principal: A function that returns a token's owner. The default returns the authenticated identity; with
            `False`, tokens have no owner.
        audience: The service that accepts the tokens. The default is the server's name.
        request_state_security: The SDK's policy, which replaces `keys`. The policy's codec then carries the journal.
        seal_keys: Keys that seal values computed by the server, for use with `request_state_security`.
        build: A name for this build of the application. The default is a digest of the tools' source.
        trace: Where to record calls: a transcript's path, a `Recorder`, another tracer, a function that is called with
            each `Transition` and each `TokenRejection`, or several of those. The default is the transcript that the
            environment variable ROUNDTRIP_TRACE names, if it is set. False records nothing.
        ledger: Stores the results of tools that run once (`once_per=`, `exactly_once=True`). The default ledger is in
            this process's memory. Instances of one service share a `SqliteLedger`, a `RedisLedger` or a
            `PostgresLedger`.
        no_empty_rounds: Names of clients (`clientInfo.name`) that cannot handle a round without questions. The server
            sends them no empty rounds. If an exactly-once tool asks such a client no question, the tool runs without
            the guarantee, and the server notes this in the log and in the trace.
        probe: True to answer `roundtrip doctor` through a hidden tool. The default is the environment variable
            ROUNDTRIP_PROBE, or False if it is not set.
        run_tasks: False to leave stored tasks to other processes; "own" to run only the tasks of this process's
            clients. The default is the environment variable ROUNDTRIP_RUN_TASKS, or True if it is not set.
        task_engine: A `DocketEngine`, which delivers tasks to workers. By default each worker polls the store.
        pages: `Pages(...)`: pages on which users answer if their clients cannot show a form. Without pages, a call
            fails if it must ask such a user.
        channels: How questions can reach users. With `form`, the client shows a form. `local` is a page on the user's
            machine, and `url` is a page that the client shows. With `model`, the model that called the tool answers
            questions that have `answered_by="anyone"`. `link` puts a page's address into the result. Each question
            takes the first channel that it can use. The default is `form`, then the channels that `pages` serves.
        approvals: `Approvals(...)`: an inbox in which a group's members decide other users' calls; see `Approve`.
        fast_lane: False to serve HTTP requests in revision 2026-07-28 through the SDK's transport, which is slower but
            sends the same responses. The default is the environment variable ROUNDTRIP_FAST_LANE, or True if it is not
            set.
        max_token_bytes: The maximum token size. The server neither makes nor accepts a longer token.
        max_journal_bytes: The maximum number of bytes that a call may remember.
        consent: Which tools without `confirm=` ask their users before they run. With `"destructive"`, all tools except
            those with `readOnlyHint=True` or `destructiveHint=False`; with `"marked"`, only tools with
            `destructiveHint=True`. A function takes a tool and returns True if it asks. By default no tool asks.
        strict_input_validation: Check arguments against the tool's JSON schema without coercing them.
        mask_error_details: Tell clients that a tool crashed, but hide the error text. The text of a `ToolError` is
            always sent. By default clients get all texts, but `roundtrip serve` masks them unless `--show-errors` is
            given.
        dereference_schemas: Inline each `$ref` in listed tool schemas, because some clients do not resolve references.
        on_duplicate_tools: What to do with a second tool of the same name. By default, the second tool replaces the
            first, and the server logs a warning. With the SDK's `warn_on_duplicate_tools=False`, the server ignores the
            second tool, as the SDK does.
        system: The clocks, randomness and sleep that the server uses. By default, these are the real ones.
        **options: The remaining options above, and all other keyword arguments of `MCPServer`.

    Raises:
        ValueError: A key is too short, or the arguments contradict each other.

    Example:
        ```python
        server = Server("bookshop", keys=[os.environ["BOOKSHOP_KEY"]])
        ```
    """

    def __init__(
        self,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: list[Icon] | None = None,
        version: str = "",
        auth_server_provider: OAuthAuthorizationServerProvider[Any, Any, Any] | None = None,
        token_verifier: TokenVerifier | None = None,
        *,
        lifespan: Callable[[MCPServer[LifespanResultT]], AbstractAsyncContextManager[LifespanResultT]] | None = None,
        build: str | None = None,
        probe: bool | None = None,
        run_tasks: bool | Literal["own"] | None = None,
        task_engine: DistributedEngine | None = None,
        fast_lane: bool | None = None,
        consent: ConsentRule | Literal[False] | None = None,
        strict_input_validation: bool = False,
        mask_error_details: bool | None = None,
        dereference_schemas: bool = True,
        on_duplicate_tools: OnDuplicate | None = None,
        **options: Unpack[ServerOptions],
    ) -> None:
        for option in options.keys() - ServerOptions.__annotations__:
            known = {*inspect.signature(Server).parameters, *ServerOptions.__annotations__} - {"options"}
            raise unknown_option("Server()", option, [*known])
        sdk: dict[str, Any] = {
            name: given for name, given in options.items() if name not in StoringOptions.__annotations__
        }
        for_parts = {option: sdk.pop(option) for option in PartsOptions.__annotations__ if option in sdk}
        bus = options.get("subscriptions")
        given = options.get("request_state_security")
        parts = parts_of(name, given=given, bus=None if bus is False else bus, **for_parts)
        rule = consent_rules.ConsentPolicy.of(consent) if consent is not None else None
        self._visibility_lock = Lock()
        self._pending_registrations: list[Callable[[], None]] = []
        """Registrations to make once the server is ready. The SDK's constructor and extensions add these tools too
        early.
        """
        on_duplicate = on_duplicate_tools or ("warn" if sdk.get("warn_on_duplicate_tools", True) else "ignore")
        visibility = Visibility()
        self._tools = ToolRegistry(on_duplicate, visibility)
        internals = ServerInternals(
            parts,
            self._tools,
            catalog=lambda: self._catalog,
            resources_for=self._resources_for,
            routes=lambda: routes_of(self),
            masks_errors=mask_error_details,
        )
        super().__init__(
            internals,
            ToolDefaults(
                parts.limits,
                foreign,
                build=build,
                strict=strict_input_validation,
                inline=dereference_schemas,
                consent=rule,
            ),
            visibility,
            sdk={
                "name": name,
                "title": title,
                "description": description,
                "instructions": instructions,
                "website_url": website_url,
                "icons": icons,
                "version": version,
                "auth_server_provider": auth_server_provider,
                "token_verifier": token_verifier,
                "lifespan": lifespan,
                **sdk,
                "request_state_security": parts.protection.policy,
                "subscriptions": False if bus is False else parts.effects.bus,
            },
        )
        self._announcer.private["tools/list"] = lambda: self._tools.seen.has_gates
        internals.doctor_probe = self._probe_if_wanted(probe)
        self._calls = ToolCalls(
            self,
            internals.low_level,
            internals.legs,
            CallDesk(),
            self._tools,
            gates=lambda: self._gates,
            probe=internals.doctor_probe.tool if internals.doctor_probe is not None else None,
            masks_errors=lambda: bool(internals.masks_errors),
            has_own_handler=self._has_own_tool_handler,
        )
        # If a subclass overrides `call_tool`, its method must receive every call, so this middleware must not answer
        # calls.
        if type(self).call_tool is Server.call_tool:
            self.middleware.append(self._calls)
        internals.storage.engine = task_engine
        internals.storage.runs_tasks = runs_tasks(run_tasks, environment=os.environ)
        has_auth = self.settings.auth is not None
        internals.stored_calls = install_stored_calls(self._calls, internals.storage, options, has_auth=has_auth)
        if internals.stored_calls is not None:
            self._tools.relist = internals.stored_calls.relist
            self._tools.always_allowed = internals.stored_calls.own
        for add in self._pending_registrations:
            add()
        if rule is not None:
            internals.legs.workers.append(consent_rules.ConsentReport(internals.name, partial(self._reasons_of, rule)))
        self._has_fast_lane = is_on(fast_lane, FAST_LANE_VARIABLE, environment=os.environ, default=True)
        self._slow_reason = "fast_lane=False" if fast_lane is not None else FAST_LANE_VARIABLE

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
        """Register a function, a bound method or a tool object of the SDK as a tool; see `tool`.

        These options override the options of the standalone `@tool`.

        Raises:
            InvalidSignature: A parameter of the tool or of a resolver can never be filled, or no schema can describe
                it.
            ValueError: An option has an invalid value, or a tool with this name exists and `on_duplicate_tools` makes
                that an error.
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
        if "legs" not in vars(self.internals):
            # The SDK's constructor is still running, and registering a tool needs parts that do not exist yet.
            self._pending_registrations.append(partial(self._register, fn, spec))
        else:
            self._register(fn, spec)

    def _reasons_of(self, rule: ConsentPolicy) -> Iterator[tuple[str, str | None]]:
        """Yield the name of each of the author's tools, and its reason to ask for consent."""
        for tool in self._tools.registered:
            if tool.function not in self._calls.desk.untraced:
                yield tool.name, rule.reason_of(tool.spec, tool.listing)

    def _register(self, fn: Callable[..., Any] | SdkTool, spec: ToolSpec) -> None:
        tool = register(fn, spec, defaults=self._defaults, since=self._visibility.stamp())
        self.internals.adopt(tool.function)
        if tool.visibility_gate is not None:
            self.internals.track(tool.visibility_gate.planned)
        if tool.function.hands_over:
            extension.serve_extension(self._calls, self.internals.storage.require(self._calls))
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

        It takes all arguments of the SDK's decorator, and these options:

        Args:
            target: The function, or the tool's name.
            title: A name to show to people.
            description: The tool's purpose. The default is the docstring's text.
            annotations: Hints about the tool's behavior.
            icons: Icons to show to people.
            meta: Metadata for the client.
            structured_output: True if results carry structured content. By default the return annotation decides.
            name: The tool's name. The default is the function's name.
            **options: Options that the SDK does not have:
                tags (labels by which `enable` and `disable` can select the tool),
                enabled (False hides the tool at first; a function or `Depends` decides for each request whether the
                tool exists, and cannot use the tool's arguments),
                version (if tools share a name, clients see and call the highest version),
                timeout (seconds that the work of one leg may take),
                input_schema (the JSON schema of the arguments, which replaces the one derived from the parameters),
                output_schema (the JSON schema of the result, an object),
                confirm (a question that the user must accept before anything runs, with the tool's arguments in braces:
                `"Delete {path}?"`; the call ends if the user declines or the client cannot be asked),
                consent (True asks the user to allow the call, with all arguments shown; False does not ask, although
                the server's `consent=` would),
                ttl (seconds that a client may take to answer one leg's questions),
                max_age (seconds after which a call can no longer be resumed),
                exactly_once (run the body once per call, even if the last leg arrives several times, and keep the
                result in the server's ledger),
                once_per (run the body once for all calls with the same intent, however often a client calls: a template
                such as `"{order_id}"`, a function of the arguments, or `from_meta(key)`),
                scope (who shares an intent: `"caller"`, the default, for each caller alone, or `"service"` for all
                callers),
                uncovered (what to do with a call that nothing identifies: `"reject"` fails, `"run"` runs the body,
                which may run again, and `"round"`, for exactly_once only, first sends a round without questions),
                keep (seconds for which an intent's end is kept; one day by default),
                declined_for (seconds for which a user's decline of an intent holds; five minutes by default),
                on_failure (what an intent's later calls get after its body has failed: `"keep"`, the default, gives
                them the error, and `"rerun"` runs the body again),
                on_unknown (`"rerun"` runs the body again if the process died during the body; by default the call fails
                with an error), and
                inline (run a plain function on the event loop instead of in a worker thread).
        """
        if isinstance(target, str):
            name, target = name if name is not None else target, None

        def decorate(fn: _CallableT) -> _CallableT:
            self.add_tool(fn, name, title, description, annotations, icons, meta, structured_output, **options)
            return fn

        return decorate if target is None else decorate(target)

    async def signal(self, call_id: str, name: str, payload: Any = None) -> bool:
        """Send a signal to a call's task. The task's body waits for signals with `ctx.wait_for`.

        Any instance that shares the task's ledger may send the signal, before or while the body waits. Only the first
        signal with a given name counts; repeating it changes nothing. If an outside request triggers the signal, verify
        that request first: see `verify_ticket`.

        Args:
            call_id: The call's id, from `ctx.call.id` or a ticket.
            name: The signal's name.
            payload: A JSON value.

        Returns:
            False if the call has no task, or the store no longer has the task.

        Raises:
            LedgerDown: The task store is unavailable.
            ValueError: The payload is not JSON.
            RuntimeError: The server has no tool that runs as a task.
        """
        return await self.internals.signal(call_id, name, payload)

    def remove_tool(self, name: str, version: str | None = None) -> None:
        """Remove one version of a tool, or all versions if `version` is None.

        Raises:
            ToolError: No tool has that name.
        """
        if self._tools.remove(name, version):
            self._announcer.note("tools")

    @property
    def local_provider(self) -> Self:
        """Return the server itself, for code that expects FastMCP's tool provider under this name."""
        return self

    async def list_tools(self) -> list[WireTool]:
        """Return the tools that the requesting client may see."""
        seen = self._tools.seen
        if seen.gates:
            return self._tools.listing_for((await self._gates.open_all(seen.gates)).gates)
        self._tools.check_allowed()
        return list(seen.listing)

    def _tool_schema(self, name: str) -> dict[str, Any] | None:
        """Return a tool's input schema for the SDK's header check, or None if the tool is hidden from some clients.

        When the SDK checks headers, visibility gates cannot be evaluated yet; see `ToolCalls`.
        """
        match self._tools.seen.versions.get(name):
            # If the schema names no headers, return None so that the SDK does not search the schema for headers.
            case (tool,) if tool.names_headers and tool.visibility_gate is None:
                return tool.listing.input_schema
            case _:
                return None

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any],
        context: SdkContext[LifespanResultT, Any] | None = None,
        *,
        version: str | None = None,
    ) -> CallToolResult | InputRequiredResult:
        """Serve one leg of a tool call.

        Args:
            name: The tool's name.
            arguments: The arguments in the client's JSON form.
            context: The request's context.
            version: The version to call. The default is the version that the request names, or else the highest.

        Raises:
            ToolError: The tool is unknown, its arguments are invalid, or the tool raised this error deliberately.
            UnexpectedToolError: The tool crashed; `__cause__` is the exception.
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
        """Return the name of the tool, prompt or template that a request uses, and whether to trace the request."""
        if ctx.method != "tools/call":
            return super()._subject_of(ctx)
        named = (ctx.params or {}).get("name")
        if not isinstance(named, str):
            return None, True
        if named in self._tools:
            return named, True
        is_probe = self.internals.doctor_probe is not None and named == self.internals.doctor_probe.tool.name
        return (named if is_probe else None), not is_probe

    def _probe_if_wanted(self, wanted: bool | None) -> probe.Probe | None:
        if not is_on(wanted, PROBE_VARIABLE, environment=os.environ, default=False):
            return None
        parts, storage = self.internals.parts, self.internals.storage
        return probe.Probe(self._tools, parts=parts, storage=storage, identity=self.identity, defaults=self._defaults)

    def identity(self) -> probe.Identity:
        """Return the facts that all instances of the service must share. Register all tools first."""
        return self.internals.identity()

    @property
    def ledger(self) -> Ledger:
        """Return the ledger, which keeps the results of tools that run once."""
        return self.internals.ledger

    @property
    def overrides(self) -> Overrides:
        """Return the replaced functions with their replacements, for tests that would otherwise monkeypatch."""
        return self.internals.overrides

    def verify_ticket(self, ticket: str, *, principal: str | AccessToken | None, purpose: str | None = None) -> Ticket:
        """Verify and return the ticket with which a browser opened the page of an `ElicitUrl`.

        Args:
            ticket: The ticket in the URL (`ctx.call.ticket`).
            principal: The browser's user, from your own login: their access token, or the text that
                `Server(principal=...)` returns for them. Pass None only for a ticket without a user.
            purpose: The page's purpose. A ticket for another page is rejected.

        Raises:
            TicketRejected: The ticket is forged or expired, or belongs to another user. Do not show the page.
        """
        parts = self.internals.parts
        office, now = parts.protection.ticket_office(), parts.system.time()
        return office.verify(ticket, principal=principal, now=now, purpose=purpose)

    @_with_signature_of(MCPServer.streamable_http_app)
    def streamable_http_app(self, **options: Unpack[connections.HttpOptions]) -> Starlette:
        """Return the ASGI application for streamable HTTP. This method takes the arguments of the SDK's method.

        In revision 2025-11-25 and older ones, clients can be asked only if `stateless_http` and `json_response` are
        off. Their calls end when the client disconnects, unless an `event_store` lets the client reconnect.

        A request may be as large as `max_request_body_size`, but must not have more than 50,000 JSON values.
        """
        self._warn_of_exposure(options.get("transport_security"))
        app = connections.watch_app(self, super().streamable_http_app(**options), options)
        if self._has_fast_lane and fast_lane.IS_POSSIBLE:
            fast_lane.FastLane.install(self.internals.low_level)
            transport = "the fast lane"
        else:
            transport = f"the SDK's transport, because of {'mcp' if self._has_fast_lane else self._slow_reason}"
        logger.info("server %r serves HTTP requests of 2026-07-28 through %s", self.name, transport)
        if self.internals.doctor_probe is not None:
            self.internals.doctor_probe.transport = transport
        return app

    @_with_signature_of(MCPServer.sse_app)  # pyright: ignore[reportDeprecated]
    def sse_app(self, **options: Unpack[connections.SseOptions]) -> Starlette:
        """Return the ASGI application for the old HTTP+SSE transport. This method takes the arguments of the SDK's
        method.
        """
        self._warn_of_exposure(options.get("transport_security"))
        return super().sse_app(**options)  # pyright: ignore[reportDeprecated]

    def _warn_of_exposure(self, security: TransportSecuritySettings | None) -> None:
        internals = self.internals
        if internals.warns_of_readable_errors and not internals.masks_errors and self.settings.auth is None:
            internals.warns_of_readable_errors = False
            connections.warn_of_readable_errors(self.name)
        connections.warn_of_unchecked_names(security)

    def enable(self, **chosen: Unpack[VisibilityChoice]) -> None:
        """Show tools, prompts and resources to clients again. A later call of `enable` or `disable` overrides an
        earlier one.

        Args:
            keys: `tool:name`, `tool:name@version`, `prompt:name`, `resource:uri` or `resource:template`.
            names: Names of tools, prompts and resources.
            tags: Labels. An item with one or more of these labels matches. If several arguments are given, an item must
                match all of them.
            only: Disable everything else.

        Raises:
            ValueError: The arguments select nothing, or a key does not have one of the forms above.
        """
        with self._changing_visibility():
            self._visibility.enable(**chosen)

    def disable(self, **chosen: Unpack[VisibilityChoice]) -> None:
        """Hide tools, prompts and resources. Lists omit them, and the server answers requests for them as if they did
        not exist.

        Args:
            keys: See `enable`.
            names: See `enable`.
            tags: See `enable`.
            only: True to enable everything that does not match.

        Raises:
            ValueError: The arguments select nothing, or a key does not have one of the forms that `enable` lists.
        """
        with self._changing_visibility():
            self._visibility.disable(**chosen)

    def allow_tools(self, names: Iterable[str] | None) -> None:
        """Show clients only the named tools, even if other tools are enabled. Pass `None` to remove the restriction.

        The tools may be registered later. When a client first lists the tools, the server logs the names that match no
        tool.

        Raises:
            TypeError: `names` is a single string.
        """
        with self._changing_visibility():
            self._tools.allow(names)

    @contextmanager
    def _changing_visibility(self) -> Generator[None]:
        """Apply one visibility change at a time, and announce the lists that changed."""
        with self._visibility_lock:
            before = self._tools.seen.versions
            yield
            self._tools.refresh()
            if self._tools.seen.versions != before:
                self._announcer.note("tools")
            for kind in self._catalog.refresh():
                self._announcer.note(LISTINGS[kind])
