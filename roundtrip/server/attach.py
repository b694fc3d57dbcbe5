"""Installation on a low-level SDK server: the token boundary, the leg runner and the wrapped functions.

`roundtrip.Server` uses this module, and so can any server that is built on the SDK's low-level server. `install` adds
the token boundary and the leg runner. `wrap` makes a plain function that serves the legs of a function that asks
questions. `Attached` holds a server's roundtrip parts, which other modules use. A `Server` has them as
`server.internals`.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakSet

from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerMiddleware, ServerRequestContext
from mcp.server.lowlevel import Server as LowLevelServer
from mcp.server.mcpserver import Context as SdkContext
from mcp.server.request_state import RequestStateBoundary
from mcp_types import InputResponseRequestParams
from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider
from starlette.routing import BaseRoute
from typing_extensions import override

from roundtrip.errors import KeysMissing
from roundtrip.legs.boundary import RequestBoundary, SubjectOf
from roundtrip.legs.functions import AskingFunction, FunctionSignature, Planned
from roundtrip.legs.parts import Parts
from roundtrip.legs.requests import asking_request
from roundtrip.legs.runner import LegRunner
from roundtrip.on_demand import load_on_use
from roundtrip.once.extension import GuessCounter
from roundtrip.resolvers.plan import Plan
from roundtrip.resolvers.signatures import display_name, hints_of
from roundtrip.sdk import Shelf
from roundtrip.server.features import extensions_of, reject_waits, stored_features
from roundtrip.stored.storage import Storage
from roundtrip.tools.promises import OncePolicy
from roundtrip.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from roundtrip.channels.stored_calls import StoredCalls
    from roundtrip.ledger.contract import Ledger
    from roundtrip.server import context, intent_desk, overrides, probe
    from roundtrip.server.context import Context
    from roundtrip.server.overrides import Overrides
    from roundtrip.stored.service import CallService
    from roundtrip.trace.writing import unwritten
    from roundtrip.visibility.catalog import Catalog

load_on_use(
    globals(),
    "roundtrip.server.context",
    "roundtrip.server.intent_desk",
    "roundtrip.server.overrides",
    "roundtrip.server.probe",
    "roundtrip.trace.writing.unwritten",
)

T = TypeVar("T")

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
    """Let the functions of a low-level server ask questions.

    The token boundary replaces the SDK's boundary. The SDK's spans are created only if they can be recorded.

    Args:
        server: The server. Its list of middlewares is changed.
        parts: The keys, the ledger and everything else that legs use.
        host: The value of `ctx.mcp_server`.
        subject_of: Returns the name of a request's tool, prompt or template, for logs and traces.

    Returns:
        The runner that serves the functions' legs.
    """
    legs = LegRunner(host, parts, GuessCounter(parts).count, reject_waits, _make_context)
    place = next(i for i, entry in enumerate(server.middleware) if isinstance(entry, RequestStateBoundary))
    # Put the boundary inside the SDK's span for the request, so that tracer spans belong to that span.
    server.middleware[place] = RequestBoundary(
        parts, service=server.name, make_context=legs.context_of, subject_of=subject_of
    )
    # The list has no span middleware if the author removed it.
    server.middleware[:] = [_lazy(entry) if _makes_spans(entry) else entry for entry in server.middleware]
    server.lifespan = _recorded(server.lifespan, legs)
    return legs


def _make_context(**options: Any) -> Context[Any, Any]:
    sent: InputResponseRequestParams | None = options.get("input_params")
    if sent is not None and sent.input_responses is not None:
        answers = answers_for_author(sent.input_responses)
        options["input_params"] = sent.model_copy(update={"input_responses": answers})
    return context.Context(**options)


def answers_for_author(answers: Mapping[str, T]) -> Mapping[str, T] | None:
    """Return the current request's answers without those to roundtrip's own questions; None if no answer remains.

    The author's code reads the others, if it asks by hand: it returns an `InputRequiredResult`.
    """
    record = asking_request()
    if record is None or record.journal is None:
        return answers
    return {name: answer for name, answer in answers.items() if name not in record.journal.asked} or None


class Attached(ABC):
    """One server's roundtrip parts: those that its legs use, its stored calls, and its overrides for tests."""

    low_level: LowLevelServer[Any]
    """The SDK's low-level server."""
    legs: LegRunner
    """Serves the legs of the server's functions."""

    def __init__(self, parts: Parts, routes: Callable[[], list[BaseRoute]]) -> None:
        self.parts = parts
        self._routes = routes
        self._planned: WeakSet[Planned] = WeakSet()
        """The plans in which `overrides` can replace functions."""
        self.stored_calls: StoredCalls | None = None
        """Calls whose questions are answered by users on pages, or by models; None if no channel needs such calls."""
        self.has_intents = False
        """True if a tool has `once_per=`."""
        self.storage = Storage(
            stored_features, around=lambda service: intent_desk.IntentDesk(service, lambda: self.stored_calls)
        )
        self._features = extensions_of(parts, stored_of=lambda: self.stored_calls, service_of=self._service)
        """The server's features, outermost first."""

    def _service(self) -> str:
        return self.parts.protection.policy.audience or self.name

    def attach(self, low_level: LowLevelServer[Any], *, host: MCPServer[Any] | None, subject_of: SubjectOf) -> None:
        """Let functions behind a low-level server ask; see `install`."""
        self.low_level = low_level
        self.legs = install(low_level, self.parts, host=host, subject_of=subject_of)

    @property
    def name(self) -> str:
        """Return the server's name."""
        return self.low_level.name

    @property
    def own_routes(self) -> list[BaseRoute]:
        """Return the author's HTTP routes outside MCP, such as the pages that `ElicitUrl` opens."""
        return self._routes()

    @property
    @abstractmethod
    def plans(self) -> Mapping[str, Plan]:
        """Return each tool's plan for filling its parameters, by tool name."""

    @abstractmethod
    def asking_item(self, kind: Shelf, identifier: str) -> str | None:
        """Return the name of the asking prompt, or the template of the asking resource, that serves this name or URI;
        None if no asking item serves it.
        """

    @property
    def call_service(self) -> CallService | None:
        """Return the service that stores calls, or None if no option or tool needs it."""
        return self.storage.tasks

    async def signal(self, call_id: str, name: str, payload: Any = None) -> bool:
        """Send a signal to a call's task; see `Server.signal`."""
        service = self.call_service
        if service is None:
            raise RuntimeError("signal(...) needs a tool that runs as a task (task=True)")
        return await service.signal(call_id, name, payload)

    def identity(self) -> probe.Identity:
        """Return the facts that all instances of the service must share. Register all tools first."""
        identity = self._identity()
        return identity if self.stored_calls is None else identity._replace(channels=self.stored_calls.channel_names)

    @abstractmethod
    def _identity(self) -> probe.Identity: ...

    def is_one_of(self, workers: int, *, group: str) -> None:  # noqa: B027 - only some servers have a probe
        """Tell the server how many workers serve together.

        Args:
            workers: The number of workers, including this process.
            group: A name that only these workers share.
        """

    def own_lifespan(self) -> AbstractAsyncContextManager[Any]:
        """Return the server's lifespan, for use without a transport."""
        return self.low_level.lifespan(self.low_level)

    @cached_property
    def overrides(self) -> Overrides:
        """Return the replaced functions with their replacements, for tests that would otherwise monkeypatch."""
        return overrides.Overrides(self._planned)

    def track(self, planned: Planned) -> None:
        """Let `overrides` replace functions in a plan."""
        self._planned.add(planned)
        if "overrides" in vars(self) and self.overrides:
            planned.replace(self.overrides.replacements)

    @property
    def ledger(self) -> Ledger:
        """Return the ledger, which keeps the results of tools that run once."""
        return self.parts.effects.ledger

    def adopt(self, function: AskingFunction) -> None:
        """Prepare the server for a function's features, time limit and overrides.

        Raises:
            KeysMissing: The function keeps values secret, and the server has no key for that.
        """
        if function.planned.plan.may_carry_secrets and not self.parts.protection.journals.can_seal:
            raise KeysMissing(
                f"{function.owner} must keep a value secret from the client (remember=True), but the server has no key "
                "for that; pass seal_keys= together with request_state_security="
            )
        once = function.policy(OncePolicy)
        self.has_intents |= once is not None and once.intent is not None
        function.extensions += tuple(each for each in self._features if each.concerns(function))
        # The policy has one time limit for all tools, so use the longest. A journal's deadline enforces a tool's
        # shorter limit.
        policy = self.parts.protection.policy
        policy.ttl = max(policy.ttl, function.limits.ttl)
        self.track(function.planned)


class ServerInternals(Attached):
    """The roundtrip parts of a `Server`.

    Args:
        parts: What the server's legs use.
        tools: The server's tools.
        catalog: Returns the catalog of prompts and resources.
        resources_for: Yields the URIs and URI templates that match a URI, in lookup order.
        routes: Returns the author's routes.
        masks_errors: The author's choice, if there is one.
    """

    doctor_probe: probe.Probe | None = None
    """The tool that answers `roundtrip doctor`, if the server has it."""
    warns_of_readable_errors = True
    """True until the server has warned that clients can read error texts. It is False from the start if only the
    developer can reach the server.
    """

    def __init__(
        self,
        parts: Parts,
        tools: ToolRegistry,
        *,
        catalog: Callable[[], Catalog],
        resources_for: Callable[[str], Iterator[str]],
        routes: Callable[[], list[BaseRoute]],
        masks_errors: bool | None,
    ) -> None:
        super().__init__(parts, routes)
        self._tools = tools
        self._catalog = catalog
        self._resources_for = resources_for
        self.masks_errors = masks_errors
        """True to hide the texts of uncaught exceptions from clients; None if the author did not choose."""

    @override
    def is_one_of(self, workers: int, *, group: str) -> None:
        if self.doctor_probe is not None:
            self.doctor_probe.worker_group = (group, workers)

    @property
    @override
    def plans(self) -> Mapping[str, Plan]:
        """Return each tool's plan for filling its parameters, by tool name. The plan of a tool without resolvers is
        empty.
        """
        return {name: highest.function.planned.plan for name, (highest, *_) in self._tools.seen.versions.items()}

    @override
    def asking_item(self, kind: Shelf, identifier: str) -> str | None:
        name = next(self._resources_for(identifier), None) if kind == "resource" else identifier
        return name if name is not None and self._catalog().is_served_in_legs(kind, name) else None

    @override
    def _identity(self) -> probe.Identity:
        tools, stores = self._tools.registered, self.storage.tasks is not None
        return probe.identity_of_tools(self.name, parts=self.parts, tools=tools, stores_calls=stores)


Lifespan = Callable[[LowLevelServer[Any]], AbstractAsyncContextManager[Any]]

Serve = Callable[[dict[str, Any], Any], Awaitable[Any]]
"""A function that serves one leg. It receives the client's arguments, and the host's context or None."""


def wrap(
    signature: FunctionSignature, serve: Serve, *, context_type: type[Any] | None = SdkContext
) -> Callable[..., Awaitable[Any]]:
    """Return a function that has only the client's parameters and serves one leg when it is called.

    The host derives arguments and URI variables from the new function's signature, as for any other function.

    Args:
        signature: The signature of the function that asks questions.
        serve: Serves one leg of that function.
        context_type: The annotation that marks the parameter for the host's context; None if the host passes no
            context.
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


def _makes_spans(middleware: object) -> bool:
    kind = type(middleware)
    return kind.__name__ == "OpenTelemetryMiddleware" and kind.__module__.startswith("mcp.server.")


def _lazy(spans: ServerMiddleware[Any]) -> ServerMiddleware[Any]:
    """Make spans lazy. The result also has the class of the SDK's middleware, by which authors find and remove it."""
    return type("LazySpans", (LazySpans, type(spans)), {})(spans)


class LazySpans:
    """The SDK's span middleware, which is skipped if no tracer provider is set and the request carries no trace.

    Without a provider, nothing records the spans, but creating them would take 5 % of a call's time. A client's trace
    is always passed on to the services that its call uses.
    """

    def __init__(self, spans: ServerMiddleware[Any]) -> None:
        self._spans = spans

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve one message, like the SDK's middlewares."""
        if isinstance(get_tracer_provider(), ProxyTracerProvider) and not _may_carry_trace(ctx.meta):
            return await call_next(ctx)
        return await self._spans(ctx, call_next)


def _recorded(lifespan: Lifespan, legs: LegRunner) -> Lifespan:
    """Return a lifespan that also runs tasks, and writes all recorder lines when it ends."""

    @asynccontextmanager
    async def lifespan_recorded(server: LowLevelServer[Any]) -> AsyncGenerator[Any]:
        try:
            async with lifespan(server) as state, legs.alive(state):
                yield state
        finally:
            # Write the lines now, because the event loop may end together with the lifespan.
            if legs.parts.effects.tracers:
                unwritten.flush_all()

    return lifespan_recorded


def _may_carry_trace(meta: Mapping[str, Any] | None) -> bool:
    return meta is not None and any(key != _PROGRESS_META and not key.startswith(_PROTOCOL_META) for key in meta)
