"""Attach everything that lets functions ask to a low-level SDK server.

`roundtrip.Server` uses it first; any server built on the SDK's low-level one can use it too. `install` adds the token
boundary and the leg runner. `wrap` makes an asking function look plain to the server.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from mcp.server import MCPServer
from mcp.server.auth.provider import AccessToken
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server as LowLevelServer
from mcp.server.mcpserver import Context as SdkContext
from mcp.server.request_state import RequestStateBoundary
from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider

from roundtrip.errors import KeysMissing
from roundtrip.legs.boundary import RequestBoundary, SubjectOf
from roundtrip.legs.extensions import LegExtension
from roundtrip.legs.functions import AskingFunction, FunctionSignature, Planned
from roundtrip.legs.parts import Effects, Parts
from roundtrip.legs.runner import LegRunner
from roundtrip.on_demand import load_on_use
from roundtrip.once.extension import GuessCounter
from roundtrip.resolvers.signatures import display_name, hints_of
from roundtrip.sdk import SdkSpans
from roundtrip.server.features import extensions_of, reject_waits, stored_features
from roundtrip.stored.storage import Storage
from roundtrip.tokens.token import JournalCodec

if TYPE_CHECKING:
    from roundtrip.channels.stored_calls import StoredCalls
    from roundtrip.ledger.contract import Ledger
    from roundtrip.server import context, overrides
    from roundtrip.server.context import Context
    from roundtrip.server.overrides import Overrides
    from roundtrip.stored.service import CallService
    from roundtrip.tokens.tickets import Ticket
    from roundtrip.trace.writing import unwritten
    from roundtrip.tracing import Tracer
else:
    load_on_use(
        globals(),
        "roundtrip.server.context",
        "roundtrip.server.overrides",
        "roundtrip.trace.writing.unwritten",
    )

_PROTOCOL_META: Final = "io.modelcontextprotocol/"
_PROGRESS_META: Final = "progressToken"
_CONTEXT_PARAMETER: Final = "roundtrip_context"


def install(
    server: LowLevelServer[Any],
    parts: Parts,
    *,
    host: MCPServer[Any] | None,
    subject_of: SubjectOf,
) -> LegRunner:
    """Let functions behind a low-level server ask.

    The token boundary replaces the SDK's, and the SDK's spans are made only if they can be recorded.

    Args:
        server: The server, whose middlewares are changed.
        parts: The keys, the ledger and the rest that legs use.
        host: The server that contexts show as `ctx.mcp_server`.
        subject_of: Names a request's tool, prompt or template for logs and traces.

    Returns:
        The runner that serves the functions' legs.
    """
    legs = LegRunner(host, parts, GuessCounter(parts).count, reject_waits, _make_context)
    place = next(i for i, entry in enumerate(server.middleware) if isinstance(entry, RequestStateBoundary))
    # Place it inside the SDK's span for the request, so that tracer spans belong to that span.
    server.middleware[place] = RequestBoundary(
        parts, service=server.name, make_context=legs.context_of, subject_of=subject_of
    )
    # The author may have removed them.
    server.middleware[:] = [LazySpans() if type(entry) is SdkSpans else entry for entry in server.middleware]
    server.lifespan = _recorded(server.lifespan, legs)
    return legs


def _make_context(**options: Any) -> Context[Any, Any]:
    return context.Context(**options)


class Attached:
    """Server with a leg runner, which a subclass sets: its effects, its stored calls, and what tests change."""

    _legs: LegRunner

    def _set_parts(self, parts: Parts) -> None:
        """Set everything that functions need before they are registered."""
        self._parts = parts
        self._planned: WeakSet[Planned] = WeakSet()
        """The plans that `overrides` changes."""
        self.storage = Storage(stored_features)
        self.stored_calls: StoredCalls | None = None
        """Calls whose users answer on pages, or whose questions a model answers, if its channels have such calls."""
        self._features = extensions_of(parts, stored_of=lambda: self.stored_calls)
        """The server's features, outermost first."""

    @property
    def task_service(self) -> CallService | None:
        """Return the server's stored calls; None if no option and no tool needs them."""
        return self.storage.tasks

    @cached_property
    def overrides(self) -> Overrides:
        """Return the replaced functions with their replacements, for tests that would otherwise monkeypatch."""
        return overrides.Overrides(self._planned)

    def _track(self, planned: Planned) -> None:
        """Let `overrides` replace functions in a plan."""
        self._planned.add(planned)
        if "overrides" in vars(self) and self.overrides:
            planned.replace(self.overrides.replacements)

    @contextmanager
    def watched_by(self, tracer: Tracer) -> Generator[None]:
        """Add a tracer inside a `with` block, for tests."""
        self._parts.effects.tracers.add(tracer)
        try:
            yield
        finally:
            self._parts.effects.tracers.remove(tracer)

    @contextmanager
    def joined_by(self, feature: LegExtension) -> Generator[None]:
        """Let a feature take part in all legs inside a `with` block, around the other features."""
        self._legs.extensions.insert(0, feature)
        try:
            yield
        finally:
            self._legs.extensions.remove(feature)

    def limit_page_wait(self, *, page_wait: float) -> AbstractContextManager[None]:
        """Limit the seconds that legs inside a `with` block wait for a page, for tests."""
        return self._legs.limit_page_wait(page_wait)

    def verify_ticket(self, ticket: str, *, principal: str | AccessToken | None, purpose: str | None = None) -> Ticket:
        """Read the ticket that a browser brought to the page behind an `ElicitUrl`.

        Args:
            ticket: The ticket in the URL (`ctx.call.ticket`).
            principal: The browser's user, from your own login: their access token, or the text that
                `Server(principal=...)` returns for them. None only for a ticket that was issued unbound.
            purpose: The page's purpose, to reject tickets for other pages.

        Raises:
            TicketRejected: The ticket is forged, expired or another user's; do not show the page then.
        """
        office, now = self._parts.protection.ticket_office(), self._parts.system.time()
        return office.verify(ticket, principal=principal, now=now, purpose=purpose)

    @property
    def effects(self) -> Effects:
        """Return the ledger, the tracers and the bus; a rehearsal replaces them."""
        return self._parts.effects

    @property
    def ledger(self) -> Ledger:
        """Return the ledger, which keeps the results of tools that run once."""
        return self._parts.effects.ledger

    @property
    def journal_codec(self) -> JournalCodec:
        """Return the journal codec."""
        return self._parts.protection.journals

    def _adopt(self, function: AskingFunction) -> None:
        """Reject a function that this server could not serve, and let `overrides` replace functions in its graph."""
        if function.planned.plan.may_carry_secrets and not self._parts.protection.journals.can_seal:
            raise KeysMissing(
                f"{function.owner} must keep a value secret from the client (remember=True), but "
                "request_state_security= has no key for that; add seal_keys="
            )
        function.extensions += tuple(each for each in self._features if each.concerns(function))
        # The policy's time limit serves all tools, so it must be the longest. A tool's shorter limit is in its journal.
        policy = self._parts.protection.policy
        policy.ttl = max(policy.ttl, function.limits.ttl)
        self._track(function.planned)


Lifespan = Callable[[LowLevelServer[Any]], AbstractAsyncContextManager[Any]]

Serve = Callable[[dict[str, Any], Any], Awaitable[Any]]
"""Serves one leg, given the client's arguments and the context that the host passes, if any."""


def wrap(
    signature: FunctionSignature, serve: Serve, *, context_type: type[Any] | None = SdkContext
) -> Callable[..., Awaitable[Any]]:
    """Return a function with only the client's parameters, which serves a leg when called.

    The host derives arguments and URI variables from the new function's signature, as for any other function.

    Args:
        signature: The asking function.
        serve: Serves one of its legs.
        context_type: The annotation by which the host passes a context; None if it passes none.
    """
    fn = signature.fn
    hints = hints_of(fn)
    # Hosts call by keyword, so the parameters' order and kind do not matter.
    parameters = [
        parameter.replace(annotation=hints.get(name, parameter.annotation), kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in inspect.signature(fn).parameters.items()
        if name not in signature.hidden
    ]
    if context_type is not None:
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(_CONTEXT_PARAMETER, kind, annotation=context_type))

    async def wrapper(**arguments: Any) -> Any:
        host_context = arguments.pop(_CONTEXT_PARAMETER, None)
        return await serve(arguments, host_context)

    wrapper.__name__ = wrapper.__qualname__ = display_name(fn)
    wrapper.__doc__ = fn.__doc__
    wrapper.__module__ = getattr(fn, "__module__", wrapper.__module__)
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    annotations = {parameter.name: parameter.annotation for parameter in parameters}
    wrapper.__annotations__ = {name: hint for name, hint in annotations.items() if hint is not inspect.Parameter.empty}
    return wrapper


class LazySpans(SdkSpans):
    """The SDK's span middleware, skipped while no tracer provider is set and the request brings no trace.

    Without a provider no span is recorded, but spans cost a twentieth of a call. A client's trace is passed on to the
    services that its call uses, with or without a provider.
    """

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve one message, like the SDK's middlewares."""
        if isinstance(get_tracer_provider(), ProxyTracerProvider) and not _may_carry_trace(ctx.meta):
            return await call_next(ctx)
        return await super().__call__(ctx, call_next)


def _recorded(lifespan: Lifespan, legs: LegRunner) -> Lifespan:
    """Return a lifespan in which tasks run, and at whose end all recorder lines are written."""

    @asynccontextmanager
    async def lifespan_recorded(server: LowLevelServer[Any]) -> AsyncGenerator[Any]:
        try:
            async with lifespan(server) as state, legs.alive(state):
                yield state
        finally:
            # The event loop may end together with the lifespan.
            if legs.parts.effects.tracers:
                unwritten.flush_all()

    return lifespan_recorded


def _may_carry_trace(meta: Mapping[str, Any] | None) -> bool:
    return meta is not None and any(key != _PROGRESS_META and not key.startswith(_PROTOCOL_META) for key in meta)
