"""`Installation`: the roundtrip parts of a server whose class is not `roundtrip.Server`.

A middleware inside the token boundary records which installation serves a request. An asking function uses the recorded
installation, because a different server may have registered the function. FastMCP servers can be mounted on each other,
and only the outermost server has a client.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, cast

from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server as LowLevelServer
from mcp.server.request_state import RequestStateSecurity
from mcp.server.subscriptions import SubscriptionBus
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate
from mcp_types import InputRequiredResult
from starlette.routing import BaseRoute
from typing_extensions import override

from roundtrip.docket import foreign
from roundtrip.errors import InvalidSignature
from roundtrip.legs.boundary import Request, RequestBoundary
from roundtrip.legs.functions import AskingFunction, Kind
from roundtrip.legs.requests import holding
from roundtrip.on_demand import load_on_use
from roundtrip.resolvers.plan import Plan
from roundtrip.sdk import Shelf
from roundtrip.server.attach import Attached
from roundtrip.server.settings import ConsentOptions, PartsOptions, StoringOptions, parts_of
from roundtrip.stored.desk import CallDesk
from roundtrip.switches import runs_tasks
from roundtrip.tools.options import ToolSpec, unknown_option
from roundtrip.tools.promises import OncePolicy
from roundtrip.tools.registered import ToolDefaults

if TYPE_CHECKING:
    from roundtrip.server import probe
    from roundtrip.stored.desk import PageHandler, ToolHost
    from roundtrip.stored.service import CallService
    from roundtrip.stored.worker import DistributedEngine
    from roundtrip.tasks import extension
    from roundtrip.tools import consent_rules

load_on_use(globals(), "roundtrip.server.probe", "roundtrip.tasks.extension", "roundtrip.tools.consent_rules")

HostT = TypeVar("HostT")


class InstallOptions(PartsOptions, StoringOptions, ConsentOptions, total=False):
    """Options for `install`; see the same options in `roundtrip.Server` for details."""

    request_state_security: RequestStateSecurity | None
    """The SDK's policy, which replaces `keys`. A FastMCP server takes the policy in its own constructor."""
    build: str | None
    """A name for this build of the application. The default is a digest of the tools' source."""
    run_tasks: bool | Literal["own"] | None
    """False if other processes run the stored calls; "own" if this process runs only its own clients' calls."""
    task_engine: DistributedEngine | None
    """`DocketEngine(...)`: delivers tasks to workers. By default, workers look for due tasks in the ledger."""


@dataclass(slots=True, eq=False)
class InstalledServing:
    """A request that an installation serves."""

    installation: Installation[Any]
    request: ServerRequestContext[Any, Any]
    """The request's context, whose `requestState` contains only the author's part."""
    failure: MCPError | None = None
    """The protocol error to send to the client instead of the host's result."""
    accepted: set[str] = field(default_factory=set[str])
    """The tools and arguments to which the user has consented. The host's middleware may repeat a call."""
    handle: dict[str, Any] | None = None
    """The task handle to send to the client instead of the host's placeholder; see `hold_place`."""

    def hold_place(self, handle: dict[str, Any]) -> InputRequiredResult:
        """Keep a task handle, and return the result that stands for the handle in the host's middleware.

        A host has no result for a task. Middleware passes an unfinished result on, and does not cache it.
        """
        self.handle = handle
        return InputRequiredResult(request_state=handle["taskId"])

    def replaced(self, result: HandlerResult) -> HandlerResult:
        """Return the task handle if the result is its placeholder, else the result."""
        if self.handle is None:
            return result
        state: Any = (
            result.get("requestState") if isinstance(result, Mapping) else getattr(result, "request_state", None)
        )
        return self.handle if state == self.handle["taskId"] else result


_SERVING: Final[ContextVar[InstalledServing | None]] = ContextVar("roundtrip_serving", default=None)


def serving_now() -> InstalledServing | None:
    """Return the current request, if its server has an installation."""
    return _SERVING.get()


class Installation(Attached, Generic[HostT]):
    """The leg runner and asking functions that roundtrip adds to a server of another class.

    It is a middleware on that server, inside the token boundary.

    Args:
        host: The server.
        low_level: The SDK's low-level server inside the host.
        given: The host's own token policy. A policy in `options` overrides it.
        options: The options that the author passed to `install`.
        context_server: The value of `ctx.mcp_server`.
        bus: The host's bus for change announcements.
        routes: Returns the author's HTTP pages, which are not part of MCP.
        mounted: Returns the installations on servers that the host mounts.
        shown: Returns a request in the form that the host's own code receives.
    """

    custom_route: Callable[..., Callable[[PageHandler], object]]
    """Adds an HTTP page, on servers that store calls."""
    add_tool: Callable[..., None]
    """Registers an asking tool, on servers that store calls."""
    tool_host: ToolHost
    """The server's tools, for features that store calls."""

    def __init__(
        self,
        host: HostT,
        low_level: LowLevelServer[Any],
        options: InstallOptions,
        *,
        given: RequestStateSecurity | None = None,
        context_server: MCPServer[Any] | None = None,
        bus: SubscriptionBus | None = None,
        routes: Callable[[], list[BaseRoute]] = list,
        mounted: Callable[[], Iterable[Installation[Any]]] = tuple,
        shown: Callable[[Request], Request] = lambda ctx: ctx,
    ) -> None:
        _check_names(options)
        self._shown = shown
        self.host = host
        self._mounted = mounted
        self.functions: dict[tuple[Kind, str, str | None], AskingFunction] = {}
        """The asking functions, by kind, name and version."""
        self.desk = CallDesk()
        for_parts: dict[str, Any] = {name: options[name] for name in options.keys() & PartsOptions.__annotations__}
        given = options.get("request_state_security") or given
        super().__init__(parts_of(low_level.name, given=given, bus=bus, **for_parts), routes)
        self.storage.engine = options.get("task_engine")
        self.storage.runs_tasks = runs_tasks(options.get("run_tasks"), environment=os.environ)
        consents = not ConsentOptions.__annotations__.keys().isdisjoint(options)
        self.consent = (
            consent_rules.ConsentPolicy.of(options.get("consent"), trust_hints=options.get("trust_hints", False))
            if consents
            else None
        )
        """Decides which tools without a confirmation ask their users; None if no tool does."""
        self.defaults = ToolDefaults(
            self.parts.limits, build=options.get("build"), foreign=foreign, consent=self.consent
        )
        self.attach(low_level, host=context_server, subject_of=self._subject_of)
        place = next(i for i, entry in enumerate(low_level.middleware) if isinstance(entry, RequestBoundary))
        low_level.middleware.insert(place + 1, self)
        self.legs.workers.append(self)

    async def __call__(self, ctx: Request, call_next: CallNext) -> HandlerResult:
        """Serve one message as an SDK middleware. Record this installation for the message; if there is a protocol
        error, raise it.
        """
        serving = InstalledServing(self, ctx)
        with holding(_SERVING, serving):
            result = await call_next(self._shown(ctx))
        if serving.failure is not None:
            raise serving.failure
        return serving.replaced(result)

    def start(self) -> None:
        """Implement `LifespanWorker.start`. Tools may have been added to mounted servers."""
        if any(function.hands_over for function in self._all_functions()):
            self.serve_tasks()

    async def stop(self) -> None:
        """Implement `LifespanWorker.stop`."""

    def serve_tasks(self) -> None:
        """Serve the Tasks extension. Mounted servers' tools need it on the server that clients connect to.

        Raises:
            InvalidSignature: The ledger cannot store calls.
        """
        extension.serve_extension(self.tool_host, self.storage.require(self.tool_host))

    @property
    @override
    def call_service(self) -> CallService | None:
        self.start()
        return self.storage.tasks

    @override
    def _identity(self) -> probe.Identity:
        functions = list(self._all_functions())
        descriptions = (
            f"{function.kind} {function.name}@{function.version or ''}\n{function.build}" for function in functions
        )
        once = any(function.policy(OncePolicy) is not None for function in functions)
        stores = self.call_service is not None
        return probe.identity_of(
            self.name, parts=self.parts, tools=descriptions, exactly_once=once, stores_calls=stores
        )

    def _all_functions(self) -> Iterator[AskingFunction]:
        yield from self.functions.values()
        for each in self._mounted():
            yield from each._all_functions()

    @override
    def adopt(self, function: AskingFunction) -> None:
        """Register an asking function with this installation.

        Raises:
            InvalidSignature: This server cannot serve the function.
            ValueError: The server lacks something that the function needs, such as a key.
        """
        self.prepare(function)
        self.functions[function.kind, function.name, function.version] = function
        if function.hands_over:
            self.serve_tasks()

    def prepare(self, function: AskingFunction) -> None:
        """Prepare this server for a function without registering it.

        Raises:
            KeysMissing: The function keeps values secret, and the server has no key for that.
        """
        super().adopt(function)

    @property
    @override
    def plans(self) -> dict[str, Plan]:
        """Return each asking tool's plan for filling its parameters, by tool name."""
        return {name: function.planned.plan for (kind, name, _), function in self.functions.items() if kind == "tool"}

    @override
    def asking_item(self, kind: Shelf, identifier: str) -> str | None:
        for known, name, _ in self.functions:
            if known == kind and (
                name == identifier or (kind == "resource" and UriTemplate.parse(name).match(identifier) is not None)
            ):
                return name
        return None

    def _subject_of(self, ctx: Request) -> tuple[str | None, bool]:
        """Return the name of a request's asking function, or None. The second value is True, because every request is
        traced.
        """
        named = (ctx.params or {}).get("name")
        known = any(name == named for _, name, _ in self.functions)
        return (named if isinstance(named, str) and known else None), True


def _check_names(options: InstallOptions) -> None:
    """Reject options that do not exist.

    Raises:
        TypeError: An option does not exist.
    """
    for name in options.keys() - InstallOptions.__annotations__:
        raise unknown_option("install()", name, [*InstallOptions.__annotations__])


def installation_in(low_level: LowLevelServer[Any]) -> Installation[Any] | None:
    """Return the installation on a low-level server, or None."""
    found = [cast("Installation[Any]", each) for each in low_level.middleware if isinstance(each, Installation)]
    return found[0] if found else None


def reject_second_install(low_level: LowLevelServer[Any]) -> None:
    """Reject a server on which roundtrip is already installed.

    Raises:
        ValueError: roundtrip is already installed on this server.
    """
    if any(isinstance(each, RequestBoundary) for each in low_level.middleware):
        raise ValueError(
            f"roundtrip is already installed on server {low_level.name!r}; call install() once, before adding tools"
        )


def reject_options(given: ToolSpec, reasons: Iterable[tuple[Sequence[str], str]], *, owner: str) -> None:
    """Reject options from the standalone `@tool` that have no effect on this server.

    Args:
        given: The options.
        reasons: Groups of option names. Each group has the reason for the rejection and the fix.
        owner: The tool, for the error message.

    Raises:
        InvalidSignature: An option belongs to one of the groups.
    """
    for name in given:
        for group, reason in reasons:
            if name in group:
                raise InvalidSignature(f"{owner}: {name}= of roundtrip's @tool {reason}")
