"""Provide `Server`: an `MCPServer` whose tools may ask, on every protocol revision, and resume on any instance."""

import inspect
import logging
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, TypeVar, overload

from mcp.server import MCPServer
from mcp.server.auth.provider import (
    AccessToken,
    OAuthAuthorizationServerProvider,
    TokenVerifier,
    principal_components,
)
from mcp.server.auth.settings import AuthSettings
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import ServerMiddleware
from mcp.server.extension import Extension
from mcp.server.lowlevel.server import LifespanResultT
from mcp.server.mcpserver import Context as SdkContext
from mcp.server.mcpserver import ResourceSecurity
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resources import Resource
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp.server.request_state import RequestStateSecurity, compact_json
from mcp.server.subscriptions import InMemorySubscriptionBus, SubscriptionBus
from mcp_types import CallToolResult, Icon, InputRequiredResult, TextContent, ToolAnnotations
from mcp_types import Tool as WireTool
from starlette.applications import Starlette
from typing_extensions import Unpack

from roundtrip.errors import TicketReason, TicketRejected
from roundtrip.ledger.contract import Ledger
from roundtrip.machine.journal import Entry, Journal
from roundtrip.machine.journal_bytes import MAX_JOURNAL_BYTES
from roundtrip.resolvers.plan import Plan
from roundtrip.server.keys import Keys, Principal, TokenOptions, limits_of, protect
from roundtrip.server.leg_runner import NO_REQUEST, Incoming, result_of
from roundtrip.server.parts import Effects, Parts
from roundtrip.server.prompts_and_resources import LISTINGS, PromptsAndResources
from roundtrip.server.request_state import Request
from roundtrip.server.requests import begins_for_client
from roundtrip.server.tool_calls import FastPath, ToolCalls
from roundtrip.server.tools.options import ToolDetails, ToolOptions, spec_from
from roundtrip.server.tools.registered import RegisteredTool, ToolDefaults, register
from roundtrip.server.tools.registry import OnDuplicate, ToolRegistry, UnknownTool
from roundtrip.server.visibility import Strings, Visibility
from roundtrip.system import SYSTEM, System
from roundtrip.tokens.token import MAX_TOKEN_BYTES, JournalCodec
from roundtrip.trace.writing.tracers import Trace, tracers_of
from roundtrip.tracing import Tracer

if TYPE_CHECKING:
    from mcp.server.transport_security import TransportSecuritySettings

    from roundtrip.server.connections import HttpOptions, SseOptions
    from roundtrip.server.probe import Identity, Probe
    from roundtrip.tokens.tickets import Ticket

__all__ = ["Server"]

logger = logging.getLogger("roundtrip")

T = TypeVar("T")
_CallableT = TypeVar("_CallableT", bound=Callable[..., Any])

_PROBE_VARIABLE: Final = "ROUNDTRIP_PROBE"


class SdkOptions(TypedDict, total=False):
    """Keyword arguments that `MCPServer` has beside those in the signature of `Server`."""

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


def _with_signature_of(original: Callable[..., Any]) -> Callable[[_CallableT], _CallableT]:
    """Show the SDK's own parameters to those who inspect a method that passes them on."""

    def sign(method: _CallableT) -> _CallableT:
        setattr(method, "__signature__", inspect.signature(original))  # noqa: B010 - to type checkers it has none
        return method

    return sign


class Server(PromptsAndResources[LifespanResultT]):
    """MCP server whose tools can ask the client before they finish; any instance may serve the next leg.

    It is the SDK's `MCPServer`: the same constructor, decorators and `run`. These arguments are added.

    Args:
        keys: Secrets of at least 32 bytes, newest first, the same on every instance. The first signs, all verify,
            so a key is replaced in three steps: `[old, new]`, `[new, old]`, `[new]`. By default those of the
            environment: ROUNDTRIP_KEYS lists them, or ROUNDTRIP_KEY_FILE names a file of `roundtrip keys`. Without
            either the server makes its own key, and only this process can resume its calls.
        ttl: Seconds a client may take over one leg's questions. By default 600, or as `request_state_security` says.
        max_age: Seconds after which a call cannot be resumed, however often it was. By default 3600, or `ttl` if
            `request_state_security` has a longer one.
        encrypt: Encrypt whole tokens. Values that the server computed are never readable either way.
        principal: Returns the owner of a token. By default the authenticated identity; `False` binds tokens to no one.
        audience: The service that tokens are for. By default the server's name.
        request_state_security: The SDK's policy, instead of `keys`: its codec then carries the journal.
        seal_keys: With `request_state_security`, the keys that seal values which the server computed.
        build: A name for this build of the application. By default a digest of the tools' source.
        trace: The place to record calls: the path of a transcript, a `Recorder`, another tracer, a function that is
            called with each `Transition` and each `TokenRejection`, or several of those. By default the transcript that
            the environment variable ROUNDTRIP_TRACE names, if it is set; False for none at all.
        ledger: Keeps the results of calls of tools that run once (`exactly_once=True`): by default in the memory of
            this process. Instances of one service share a `SqliteLedger` or a `RedisLedger`.
        no_empty_rounds: Names of clients (`clientInfo.name`) that cannot take a round without questions. They are sent
            none: a tool that runs once and asks them nothing runs without that, and the log and the trace say so.
        probe: True to answer the probe of `roundtrip doctor`, a tool that no list shows. By default as the environment
            variable ROUNDTRIP_PROBE says; without it, False.
        max_token_bytes: A longer token is neither made nor accepted.
        max_journal_bytes: The most bytes that a call may remember.
        strict_input_validation: Check arguments against the tool's JSON schema as they are, and coerce nothing.
        mask_error_details: Tell clients that a tool crashed, but not the text; `ToolError` is sent in any case. By
            default clients get the text, unless `roundtrip serve` serves without `--show-errors`.
        dereference_schemas: Serve the schemas of tools without `$ref`, which some clients do not follow.
        on_duplicate_tools: The treatment of a second tool of one name. By default it replaces the first and a warning
            is logged; with the SDK's `warn_on_duplicate_tools=False` it is ignored, as by the SDK.
        system: The clocks, randomness and sleep that the server uses; by default the real ones of the process.
        **sdk: All other keyword arguments of `MCPServer`.

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
        keys: Keys | None = None,
        ttl: float | None = None,
        max_age: float | None = None,
        encrypt: bool = False,
        principal: Principal | Literal[False] | None = None,
        audience: str | None = None,
        seal_keys: Keys | None = None,
        build: str | None = None,
        trace: Trace = None,
        ledger: Ledger | None = None,
        no_empty_rounds: Iterable[str] = (),
        probe: bool | None = None,
        max_token_bytes: int = MAX_TOKEN_BYTES,
        max_journal_bytes: int = MAX_JOURNAL_BYTES,
        strict_input_validation: bool = False,
        mask_error_details: bool | None = None,
        dereference_schemas: bool = True,
        on_duplicate_tools: OnDuplicate | None = None,
        system: System = SYSTEM,
        **sdk: Unpack[SdkOptions],
    ) -> None:
        self._forgets_with_its_process = ledger is None
        if ledger is not None and not isinstance(ledger, Ledger):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"ledger= must be a ledger, such as SqliteLedger('calls.db'), got {type(ledger).__name__}")
        if isinstance(no_empty_rounds, str):
            raise TypeError(f"no_empty_rounds must be a list of names of clients, got {no_empty_rounds!r}")
        given = sdk.get("request_state_security")
        limits = limits_of(given, ttl=ttl, max_age=max_age)
        protection = protect(
            given,
            TokenOptions(
                name=name,
                keys=keys,
                ttl=limits.ttl,
                encrypt=encrypt,
                principal=principal,
                audience=audience,
                seal_keys=seal_keys,
                max_token_bytes=max_token_bytes,
                max_journal_bytes=max_journal_bytes,
            ),
            environment=os.environ,
            system=system,
        )
        bus = sdk.get("subscriptions")
        effects = Effects(
            ledger,
            tracers_of(trace, environment=os.environ, key=protection.trace_key),
            InMemorySubscriptionBus() if bus is None or bus is False else bus,
            system=system,
        )
        visibility = Visibility()
        self._mask_errors = mask_error_details
        self._has_warned_of_errors = False
        self._decision = Lock()
        self._tools = ToolRegistry(
            on_duplicate_tools or ("warn" if sdk.get("warn_on_duplicate_tools", True) else "ignore"), visibility
        )
        parts = Parts(protection, effects, limits, system)
        defaults = ToolDefaults(limits, build=build, strict=strict_input_validation, inline=dereference_schemas)
        super().__init__(
            parts,
            defaults,
            visibility,
            recover=self._recover,
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
                "request_state_security": protection.policy,
                "subscriptions": False if bus is False else effects.bus,
            },
        )
        self._legs.warns_of_guesses = ledger is None and not protection.own_key
        self._legs.no_empty_rounds |= frozenset(no_empty_rounds)
        self._probe = self._probe_if_wanted(probe)
        self._calls = ToolCalls(
            self._tools,
            effects=effects,
            legs=self._legs,
            gates=lambda: self._gates,
            probe=self._probe.tool if self._probe is not None else None,
            masks_errors=lambda: not self.shows_error_details,
        )
        # A subclass that overrides `call_tool` gets every call.
        if type(self).call_tool is Server.call_tool:
            self.middleware.append(FastPath(self, self._calls.serve))

    @property
    def shows_error_details(self) -> bool:
        """Return True if clients may read the texts of exceptions that tools did not catch."""
        return not self._mask_errors

    def mask_error_details_by_default(self) -> None:
        """Mask the texts of exceptions, unless `mask_error_details=` was given."""
        if self._mask_errors is None:
            self._mask_errors = True

    @_with_signature_of(MCPServer.streamable_http_app)
    def streamable_http_app(self, **options: "Unpack[HttpOptions]") -> Starlette:
        """Return the ASGI application that serves streamable HTTP; the arguments are the SDK's.

        Clients on 2025-11-25 and older can be asked only without `stateless_http` and `json_response`. Such a call
        ends when its client has left, unless an `event_store` lets the client come back to it.

        A request may be as large as `max_request_body_size`, but is rejected if it has more than 50,000 JSON values.
        """
        from roundtrip.server.connections import watch_app

        self._warn_of_exposure(options.get("transport_security"))
        return watch_app(self, super().streamable_http_app(**options), options)

    @_with_signature_of(MCPServer.sse_app)  # pyright: ignore[reportDeprecated]
    def sse_app(self, **options: "Unpack[SseOptions]") -> Starlette:
        """Return the ASGI application that serves the old HTTP+SSE transport; the arguments are the SDK's."""
        self._warn_of_exposure(options.get("transport_security"))
        return super().sse_app(**options)  # pyright: ignore[reportDeprecated]

    def _warn_of_exposure(self, security: "TransportSecuritySettings | None") -> None:
        from roundtrip.server.connections import warn_of_readable_errors, warn_of_unchecked_names

        if self.shows_error_details and self.settings.auth is None and not self._has_warned_of_errors:
            self._has_warned_of_errors = True
            warn_of_readable_errors(self.name)
        warn_of_unchecked_names(security)

    # Tools.

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
        tool = register(fn, spec, defaults=self._defaults, since=self._visibility.stamp())
        self._adopt(tool.function)
        if tool.visibility_gate is not None:
            self._track(tool.visibility_gate.planned)
        # No token outlives the policy's clock, which serves all tools; a tool's own, if shorter, is in its journal.
        policy = self._parts.protection.policy
        limits = tool.function.limits
        self._check_promises(tool)
        policy.ttl = max(policy.ttl, limits.ttl + limits.recover)
        if self._tools.add(tool):
            self._announcer.note("tools")

    def _check_promises(self, tool: RegisteredTool) -> None:
        """Check that the server can keep the promises of a tool.

        Raises:
            ValueError: The server can never keep one.
        """
        protection = self._parts.protection
        if tool.function.limits.recover and protection.policy.bind_principal is None:
            raise ValueError(
                f"tool {tool.name!r}: recover= shows a user their former answers, so the server has to know its "
                "users; leave recover= out, or principal=False"
            )
        if tool.spec.exactly_once and self._forgets_with_its_process and not protection.own_key:
            logger.warning(
                "tool %r has to run exactly once, and other processes may have the keys of its calls; give all of them "
                "one ledger= (a SqliteLedger or a RedisLedger), or say ledger=MemoryLedger() if this process is alone",
                tool.name,
            )

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
                result in the server's ledger), and
                on_unknown (`"rerun"` runs it again if its process died while it ran; by default that is an error).
        """
        if isinstance(target, str):
            name, target = name if name is not None else target, None

        def decorate(fn: _CallableT) -> _CallableT:
            self.add_tool(fn, name, title, description, annotations, icons, meta, structured_output, **options)
            return fn

        return decorate if target is None else decorate(target)

    def remove_tool(self, name: str, version: str | None = None) -> None:
        """Remove a tool, in one version or in all.

        Raises:
            ToolError: No tool has that name.
        """
        if self._tools.remove(name, version):
            self._announcer.note("tools")

    @property
    def local_provider(self) -> "Server[LifespanResultT]":
        """Return the server: FastMCP keeps the tools of a server in a provider of this name."""
        return self

    async def list_tools(self) -> list[WireTool]:
        """Return the tools as the client of the request sees them."""
        gates = self._tools.gates
        if not gates:
            return list(self._tools.listing)
        return self._tools.listing_for((await self._gates.open_all(gates)).gates)

    def tool_schema(self, name: str) -> dict[str, Any] | None:
        """Return the input schema for the SDK's check of headers, of a tool that all clients see; else None.

        The SDK checks before there is a request to evaluate visibility gates for; see `check_headers`.
        """
        tool = self._tools.seen.get(name)
        # Without a schema the SDK does not search it for headers that are not there.
        if tool is None or not tool.names_headers or name in self._tools.by_request:
            return None
        return tool.listing.input_schema

    @property
    def plans(self) -> Mapping[str, Plan]:
        """Return the plans that fill the parameters of tools, by name; without resolvers a plan is empty."""
        return {name: tool.function.plan for name, tool in self._tools.seen.items()}

    def plan_of(self, name: str, version: str | None = None) -> Plan | None:
        """Return the plan that fills the parameters of a tool in a version, by default its highest, even if hidden."""
        try:
            return self._tools.registered_as(name, version).function.plan
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
        incoming = Incoming.by(context) if context is not None else NO_REQUEST
        for_client = begins_for_client()
        try:
            return result_of(await self._calls.serve(name, arguments, incoming, version))
        except UnknownTool as error:
            if not for_client:
                raise
            from roundtrip.server.failures import log_unknown

            log_unknown("Tool")
            return CallToolResult(content=[TextContent(type="text", text=str(error))], is_error=True)

    # What clients see.

    def enable(
        self,
        *,
        keys: Strings | None = None,
        names: Strings | None = None,
        tags: Strings | None = None,
        only: bool = False,
    ) -> None:
        """Let clients see tools, prompts and resources again; later calls win over earlier ones.

        Args:
            keys: `tool:name`, `tool:name@version`, `prompt:name`, `resource:uri` or `resource:template`.
            names: Names of tools, prompts and resources.
            tags: Labels; one in common is enough. Of several arguments, all must fit.
            only: Disable everything else.

        Raises:
            ValueError: Nothing was chosen, or a key has none of these forms.
        """
        with self._deciding():
            self._visibility.enable(keys=keys, names=names, tags=tags, only=only)

    def disable(
        self,
        *,
        keys: Strings | None = None,
        names: Strings | None = None,
        tags: Strings | None = None,
        only: bool = False,
    ) -> None:
        """Hide tools, prompts and resources: lists omit them, and requests for them are answered as for unknown ones.

        Args:
            keys: As for `enable`.
            names: As for `enable`.
            tags: As for `enable`.
            only: Enable everything else.

        Raises:
            ValueError: Nothing was chosen, or a key has none of these forms.
        """
        with self._deciding():
            self._visibility.disable(keys=keys, names=names, tags=tags, only=only)

    def allow_tools(self, names: Iterable[str] | None) -> None:
        """Show clients no other tools than these, whatever else is enabled; None lifts that again.

        The tools may be registered later. A name that no tool has when clients first list them is logged.

        Raises:
            TypeError: It is one string.
        """
        with self._deciding():
            self._tools.allow(names)

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

    def is_private(self, method: str) -> bool:
        """Return True if the answers of a method depend on the caller, and must not be cached for others."""
        return self._tools.has_gates if method == "tools/list" else super().is_private(method)

    async def _recover(self, ctx: Request, journal: Journal, now: float) -> Mapping[str, Entry] | None:
        """Return the answers of an expired call if it may be begun again."""
        from roundtrip.server.recovery import Recovery  # calls rarely expire

        parts = self._parts
        recovery = Recovery(
            self._tools.begun_by, protection=parts.protection, effects=parts.effects, system=parts.system
        )
        return await recovery(ctx, journal, now)

    @contextmanager
    def _deciding(self) -> Generator[None]:
        """Surround a change of visibility, one at a time."""
        with self._decision:
            before = self._tools.seen_versions
            yield
            self._tools.refresh()
            if self._tools.seen_versions != before:
                self._announcer.note("tools")
            for kind in self._catalog.refresh():
                self._announcer.note(LISTINGS[kind])

    @contextmanager
    def watched_by(self, tracer: Tracer) -> Generator[None]:
        """Add a tracer inside a `with` block, as tests do."""
        self._parts.effects.tracers.add(tracer)
        try:
            yield
        finally:
            self._parts.effects.tracers.remove(tracer)

    @contextmanager
    def hurried(self, *, page_wait: float) -> Generator[None]:
        """Limit the seconds that legs inside a `with` block wait for a page, as tests do."""
        with self._legs.hurried(page_wait):
            yield

    def verify_ticket(
        self, ticket: str, *, principal: str | AccessToken | None, purpose: str | None = None
    ) -> "Ticket":
        """Read the ticket that a browser brought to the page behind an `ElicitUrl`.

        Args:
            ticket: The ticket in the URL (`ctx.call.ticket`).
            principal: The user of the browser, by your own login: their access token, or the text that
                `Server(principal=...)` returns for them. None only for a ticket that was issued unbound.
            purpose: The purpose of the page, to reject the ticket of another one.

        Raises:
            TicketRejected: It is forged, expired or another user's; do not show the page then.
        """
        if isinstance(principal, AccessToken):
            principal = compact_json(principal_components(principal))
        verified = self._parts.protection.ticket_office().verify(
            ticket, principal=principal, now=self._parts.system.time()
        )
        if purpose is not None and verified.purpose != purpose:
            raise TicketRejected(TicketReason.PURPOSE)
        return verified

    def _probe_if_wanted(self, wanted: bool | None) -> "Probe | None":
        if wanted is None and _PROBE_VARIABLE not in os.environ:
            return None
        from roundtrip.server.probe import Probe, probe_wanted

        if not probe_wanted(wanted, environment=os.environ):
            return None
        return Probe(self._parts, self._tools, identity=self.identity, defaults=self._defaults)

    def is_one_of(self, workers: int, *, group: str) -> None:
        """Tell the probe the number of workers that serve together.

        Args:
            workers: Their number, this process included.
            group: A name that all of them have, and no others.
        """
        if self._probe is not None:
            self._probe.fellows = (group, workers)

    @property
    def effects(self) -> Effects:
        """Return the ledger, the tracers and the bus; a rehearsal replaces them."""
        return self._parts.effects

    @property
    def ledger(self) -> Ledger:
        """Return the ledger, which keeps the results of calls of tools that run once."""
        return self._parts.effects.ledger

    def identity(self) -> "Identity":
        """Return the facts that all instances of the service must have in common, now that tools are registered."""
        from roundtrip.server.probe import identity_of

        return identity_of(self.name, parts=self._parts, tools=self._tools.registered)

    @property
    def journal_codec(self) -> JournalCodec:
        """Return the codec of journals."""
        return self._parts.protection.journals
