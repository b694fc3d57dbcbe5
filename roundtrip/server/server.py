"""`Server`: an `MCPServer` whose tools may ask, on every protocol revision, and resume on any instance."""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, TypeVar

from mcp.server import MCPServer
from mcp.server.auth.provider import OAuthAuthorizationServerProvider, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import ServerMiddleware, ServerRequestContext
from mcp.server.extension import Extension
from mcp.server.lowlevel.server import LifespanResultT
from mcp.server.mcpserver import DEFAULT_RESOURCE_SECURITY, ResourceSecurity
from mcp.server.mcpserver import Context as SdkContext
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resources import Resource
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity, authenticated_principal
from mcp.server.subscriptions import InMemorySubscriptionBus, SubscriptionBus
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    CallToolResult,
    Icon,
    InputRequiredResult,
    InputResponseRequestParams,
    ToolAnnotations,
)
from mcp_types import Tool as WireTool

from roundtrip.errors import InvalidSignature, RoundtripError
from roundtrip.graph.plan import Plan
from roundtrip.machine.call import Call, Observer, Step
from roundtrip.machine.journal import Journal, to_text
from roundtrip.runtime.body import Body
from roundtrip.runtime.leg import Authored, Finished, Leg, Limits, Refused, open_call, serve
from roundtrip.server.clients import RequestClient
from roundtrip.server.context import CallInfo, Context
from roundtrip.server.requests import CURRENT, Explainer, InFlight, Restorer, WatchedCodec
from roundtrip.server.seams import SchemaSource
from roundtrip.server.tools import RegisteredTool, guard, register
from roundtrip.tokens import MAX_JOURNAL_BYTES, MAX_TOKEN_BYTES, JournalCodec, KeyRing, Sealer, TokenCodec

__all__ = ["Server"]

logger = logging.getLogger("roundtrip")

_CallableT = TypeVar("_CallableT", bound=Callable[..., Any])
Principal = Callable[[ServerRequestContext[Any, Any]], str | None]
Keys = Sequence[bytes | bytearray | str]

_ID_BYTES = 9
_UNNAMED = "mcp-server"
"""What the SDK calls a server without a name."""


class Server(SchemaSource[LifespanResultT]):
    """An MCP server whose tools can ask the client before they finish, whatever instance serves the next leg.

    It is the SDK's `MCPServer`: the same constructor, decorators and `run`. What it adds are these arguments.

    Args:
        keys: Secrets of at least 32 bytes, newest first, the same on every instance. The first signs, all verify,
            so a key is replaced in three steps: `[old, new]`, `[new, old]`, `[new]`. Without keys the server makes one
            of its own, and only this process can resume its calls.
        ttl: Seconds a client may take over one leg's questions.
        max_age: Seconds after which a call cannot be resumed, however often it was.
        encrypt: Encrypt tokens wholly. What the server computed is never readable either way.
        principal: Whom a token belongs to. By default the authenticated identity; `False` binds it to nobody.
        audience: The service a token is for. By default the server's name.
        request_state_security: The SDK's policy, instead of `keys`: its codec then carries the journal.
        seal_keys: With `request_state_security`, the keys that seal what the server computed.
        build: A name for this build of the application. By default a digest of the tools' source.
        trace: Called with each change of state of each call.
        max_token_bytes: A longer token is neither minted nor accepted.
        max_journal_bytes: How much a call may remember.

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
        tools: list[SdkTool] | None = None,
        resources: list[Resource] | None = None,
        extensions: Sequence[Extension] | None = None,
        debug: bool = False,
        log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO",
        warn_on_duplicate_resources: bool = True,
        warn_on_duplicate_tools: bool = True,
        warn_on_duplicate_prompts: bool = True,
        dependencies: list[str] | None = None,
        lifespan: Callable[[MCPServer[LifespanResultT]], AbstractAsyncContextManager[LifespanResultT]] | None = None,
        auth: AuthSettings | None = None,
        resource_security: ResourceSecurity = DEFAULT_RESOURCE_SECURITY,
        request_state_security: RequestStateSecurity | None = None,
        cache_hints: Mapping[CacheableMethod, CacheHint] | None = None,
        subscriptions: SubscriptionBus | Literal[False] | None = None,
        middleware: Sequence[ServerMiddleware[Any]] | None = None,
        keys: Keys | None = None,
        ttl: float = 600.0,
        max_age: float = 3600.0,
        encrypt: bool = False,
        principal: Principal | Literal[False] | None = None,
        audience: str | None = None,
        seal_keys: Keys | None = None,
        build: str | None = None,
        trace: Observer | None = None,
        max_token_bytes: int = MAX_TOKEN_BYTES,
        max_journal_bytes: int = MAX_JOURNAL_BYTES,
    ) -> None:
        # Extensions register their tools from inside the SDK's constructor, so all of this must stand before it runs.
        self._tools: dict[str, RegisteredTool] = {}
        self._warn_on_duplicate_tools = warn_on_duplicate_tools
        self._limits = Limits(ttl=ttl, max_age=max_age)
        self._build = build
        self._observers: tuple[Observer, ...] = () if trace is None else (_harmless(trace),)
        self._bus: SubscriptionBus = (
            InMemorySubscriptionBus() if subscriptions is None or subscriptions is False else subscriptions
        )
        if not 0 < ttl <= max_age:
            raise ValueError(f"ttl={ttl} and max_age={max_age}: both in seconds, and no leg outlives its call")
        self._token_codec: TokenCodec | None = None
        security = self._secure(
            request_state_security,
            name=name,
            keys=keys,
            encrypt=encrypt,
            principal=principal,
            audience=audience,
            seal_keys=seal_keys,
            max_token_bytes=max_token_bytes,
            max_journal_bytes=max_journal_bytes,
        )
        self._security = security
        for tool in tools or ():
            self._add(self._prepare(tool))
        super().__init__(
            name,
            title,
            description,
            instructions,
            website_url,
            icons,
            version,
            auth_server_provider,
            token_verifier,
            resources=resources,
            extensions=extensions,
            debug=debug,
            log_level=log_level,
            warn_on_duplicate_resources=warn_on_duplicate_resources,
            warn_on_duplicate_tools=warn_on_duplicate_tools,
            warn_on_duplicate_prompts=warn_on_duplicate_prompts,
            dependencies=dependencies,
            lifespan=lifespan,
            auth=auth,
            resource_security=resource_security,
            request_state_security=security,
            cache_hints=cache_hints,
            subscriptions=False if subscriptions is False else self._bus,
            middleware=middleware,
        )
        restorer = Restorer(self._journals, time.time)
        restorer.wrap = self._wrap_authored
        place = next(i for i, entry in enumerate(self.middleware) if isinstance(entry, RequestStateBoundary))
        self.middleware.insert(place + 1, restorer)
        stated = security.audience if security.audience is not None else self.name
        self.middleware.insert(
            0, Explainer(security, journals=self._journals, audience=stated, observers=self._observers)
        )

    def _secure(
        self,
        given: RequestStateSecurity | None,
        *,
        name: str | None,
        keys: Keys | None,
        encrypt: bool,
        principal: Principal | Literal[False] | None,
        audience: str | None,
        seal_keys: Keys | None,
        max_token_bytes: int,
        max_journal_bytes: int,
    ) -> RequestStateSecurity:
        if given is not None:
            if keys is not None or encrypt or principal is not None or audience is not None:
                raise ValueError(
                    "request_state_security= brings its own keys, principal and audience; give it alone (with "
                    "seal_keys= for what the server computes), or leave it out and use keys="
                )
            ring = KeyRing(seal_keys) if seal_keys is not None else None
            self._journals = JournalCodec(_sealer(ring), max_bytes=max_journal_bytes)
            return RequestStateSecurity(
                codec=WatchedCodec(given.codec),
                ttl=given.ttl,
                bind_principal=given.bind_principal,
                audience=given.audience,
            )
        if seal_keys is not None:
            raise ValueError("seal_keys= goes with request_state_security=; keys= seals by itself")
        if keys is not None and not name and audience is None:
            raise ValueError(
                "keys= are shared between instances and perhaps services, so a token says which service it is for: "
                'name the server, Server("bookshop", keys=...), or give audience='
            )
        ring = KeyRing(keys if keys is not None else [os.urandom(32)])
        self._journals = JournalCodec(_sealer(ring), max_bytes=max_journal_bytes)
        self._token_codec = TokenCodec(
            ring,
            entropy=os.urandom,
            encrypt=encrypt,
            max_token_bytes=max_token_bytes,
            max_payload_bytes=max_journal_bytes,
        )
        if keys is None and not name and audience is None:
            # The SDK wants a service stated with any policy; this one's key never leaves the process.
            audience = _UNNAMED
        bind = None if principal is False else (principal or authenticated_principal)
        return RequestStateSecurity(
            codec=WatchedCodec(self._token_codec), ttl=self._limits.ttl, bind_principal=bind, audience=audience
        )

    # Tools.

    def add_tool(
        self,
        fn: Callable[..., Any],
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: list[Icon] | None = None,
        meta: dict[str, Any] | None = None,
        structured_output: bool | None = None,
        *,
        ttl: float | None = None,
        max_age: float | None = None,
    ) -> None:
        """Register a function as a tool; see `tool`.

        Raises:
            InvalidSignature: A parameter or a resolver of it can never be filled.
        """
        limits = Limits(
            ttl=ttl if ttl is not None else self._limits.ttl,
            max_age=max_age if max_age is not None else max(self._limits.max_age, ttl or 0.0),
        )
        if not 0 < limits.ttl <= limits.max_age:
            raise ValueError(
                f"ttl={limits.ttl} and max_age={limits.max_age}: both in seconds, and no leg outlives its call"
            )
        tool = register(
            fn,
            name=name,
            title=title,
            description=description,
            annotations=annotations,
            icons=icons,
            meta=meta,
            structured_output=structured_output,
            limits=limits,
            build=self._build,
        )
        self._add(tool)

    def tool(
        self,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: ToolAnnotations | None = None,
        icons: list[Icon] | None = None,
        meta: dict[str, Any] | None = None,
        structured_output: bool | None = None,
        *,
        ttl: float | None = None,
        max_age: float | None = None,
    ) -> Callable[[_CallableT], _CallableT]:
        """Register the decorated function as a tool.

        Everything the SDK's decorator takes, and:

        Args:
            name: The tool's name; by default the function's.
            title: A name for people.
            description: What it does; by default the docstring.
            annotations: Hints about its behaviour.
            icons: Icons for people.
            meta: Metadata passed on to the client.
            structured_output: Whether results carry structured content; by default as the return annotation allows.
            ttl: Seconds a client may take over one leg's questions of this tool.
            max_age: Seconds after which a call of this tool cannot be resumed.
        """
        if callable(name):
            raise TypeError(
                "The @tool decorator was used incorrectly. Did you forget to call it? Use @tool() instead of @tool"
            )

        def decorate(fn: _CallableT) -> _CallableT:
            self.add_tool(
                fn,
                name,
                title,
                description,
                annotations,
                icons,
                meta,
                structured_output,
                ttl=ttl,
                max_age=max_age,
            )
            return fn

        return decorate

    def remove_tool(self, name: str) -> None:
        """Take a tool away.

        Raises:
            ToolError: There is none of that name.
        """
        if name not in self._tools:
            raise ToolError(f"Unknown tool: {name}")
        del self._tools[name]

    async def list_tools(self) -> list[WireTool]:
        """The tools as clients see them."""
        return [tool.listing for tool in self._tools.values()]

    def tool_schema(self, name: str) -> dict[str, Any] | None:
        """The input schema of a tool, or None where there is none of that name."""
        tool = self._tools.get(name)
        return None if tool is None else tool.listing.input_schema

    @property
    def plans(self) -> Mapping[str, Plan]:
        """What fills the parameters of each tool, by its name; the plan of a tool without resolvers is empty."""
        return {name: tool.plan for name, tool in self._tools.items()}

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: SdkContext[LifespanResultT, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Serve one leg of a call of a tool.

        Raises:
            ToolError: The tool is unknown, its arguments do not fit, or it failed in a way that it foresaw.
            UnexpectedToolError: It crashed; `__cause__` is why.
            MCPError: A protocol error: one that the tool raised, or that its client cannot be asked.
        """
        tool = self._tools.get(name)
        if tool is None:
            raise ToolError(f"Unknown tool: {name}")
        if context is None:
            context = SdkContext(mcp_server=self, subscriptions=self._bus)
        return await guard(name, self._serve(tool, arguments, context))

    async def _serve(
        self, tool: RegisteredTool, arguments: dict[str, Any], context: SdkContext[LifespanResultT, Any]
    ) -> CallToolResult | InputRequiredResult:
        validated = tool.validate(arguments)
        request = CURRENT.get()
        outermost = request is not None and not request.claimed
        journal = None
        if request is not None and outermost:
            request.claimed = True
            journal = request.journal
        if request is not None:
            wire: ServerRequestContext[Any, Any] | None = request.context
        else:
            wire = context.request_context if context.protocol_version is not None else None
        leg = Leg(
            call=self._open_call(journal),
            plan=tool.plan,
            client=RequestClient(wire),
            born=journal.born if journal is not None else time.time(),
            clock=time.time,
            limits=tool.limits,
            write=self._mint,
            build=tool.build,
            journal=journal,
            responses=context.input_responses if journal is not None else None,
        )

        async def execute(filled: dict[str, Any], made: Any) -> Any:
            return await tool.execute(validated, filled, made)

        def make_context(body: Body) -> Context[Any, Any]:
            return Context(
                request_context=wire,
                mcp_server=self,
                input_params=_input_params(context),
                subscriptions=self._bus,
                body=body,
                call=CallInfo(leg.call.id, leg.call.leg, leg.call.round),
            )

        end = await serve(
            leg,
            arguments=validated,
            make_context=make_context if tool.wants_context else None,
            execute=execute,
        )
        if isinstance(end, Refused):
            raise ToolError(end.reason)
        if isinstance(end, Finished):
            return end.value
        if isinstance(end, Authored) and (end.state is None or not outermost):
            return end.result
        if request is not None and outermost:
            request.minted = end.state
        if isinstance(end, Authored):
            return end.result.model_copy(update={"request_state": end.state})
        # Built of checked parts; validating them again costs a fifth of the leg when there are many.
        return InputRequiredResult.model_construct(
            result_type="input_required", input_requests=end.requests, request_state=end.state
        )

    # Journals.

    @property
    def journal_codec(self) -> JournalCodec:
        """Writes and reads what calls remember."""
        return self._journals

    def _open_call(self, journal: Journal | None) -> Call:
        return open_call(journal, fresh_id=_fresh_id, observers=self._observers)

    def _mint(self, journal: Journal) -> str:
        text = self._journals.write(journal)
        if self._token_codec is not None:
            # The envelope adds the tool's name, the audience and some 150 bytes of digests and times.
            self._token_codec.check(journal, text, margin=512)
        return text

    def _wrap_authored(self, ctx: ServerRequestContext[Any, Any], request: InFlight, state: str) -> str:
        """Put a state that a prompt, a resource or an extension returned by hand under the seal."""
        journal = request.journal
        call = self._open_call(journal)
        now = time.time()
        born = journal.born if journal is not None else now
        note = Journal(
            call_id=call.id,
            born=born,
            deadline=min(now + self._limits.ttl, born + self._limits.max_age),
            leg=call.leg,
            round=call.round,
            authored=state,
        )
        try:
            return self._mint(note)
        except (RoundtripError, ValueError) as error:
            logger.error("cannot carry the request state of %s: %s", ctx.method, error)
            raise MCPError(code=INTERNAL_ERROR, message="Internal error") from error

    def _add(self, tool: RegisteredTool) -> None:
        if not self._journals.can_seal and (tool.plan.seals or tool.authors_questions):
            raise InvalidSignature(
                f"tool {tool.name!r} has to keep something from the client's eyes (once=True, or a request_state of "
                "its own), and request_state_security= gives no key for that; add seal_keys="
            )
        if tool.name in self._tools:
            if self._warn_on_duplicate_tools:
                logger.warning("Tool already exists: %s", tool.name)
            return
        self._tools[tool.name] = tool
        # One clock of the boundary serves all tools; a tool's own, if shorter, is in its journal.
        self._security.ttl = max(self._security.ttl, tool.limits.ttl)

    def _prepare(self, tool: SdkTool) -> RegisteredTool:
        return register(
            tool.fn,
            name=tool.name,
            title=tool.title,
            description=tool.description,
            annotations=tool.annotations,
            icons=tool.icons,
            meta=tool.meta,
            limits=self._limits,
            build=self._build,
            prepared=tool,
        )


def _input_params(context: SdkContext[Any, Any]) -> InputResponseRequestParams | None:
    """The answers and the author's own state of a request, for a context made anew."""
    responses, state = context.input_responses, context.request_state
    if responses is None and state is None:
        return None
    return InputResponseRequestParams(input_responses=responses, request_state=state)


def _sealer(ring: KeyRing | None) -> Sealer | None:
    return Sealer(ring, purpose=b"seal", entropy=os.urandom) if ring is not None else None


def _fresh_id() -> str:
    return to_text(os.urandom(_ID_BYTES))


def _harmless(observer: Observer) -> Observer:
    """An observer whose own failure is logged and does not end the call it watches."""

    def observe(step: Step) -> None:
        try:
            observer(step)
        except Exception:
            logger.exception("the trace observer raised on %s", step.event)

    return observe
