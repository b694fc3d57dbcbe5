"""Fleets, which create server instances, connect to them, and send legs to them."""

import inspect
import itertools
import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, Final, Literal, cast

import anyio
from anyio.abc import TaskGroup, TaskStatus
from mcp.client import Client
from mcp.client.extension import ClientExtension, advertise
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.lowlevel import Server as LowLevelServer
from mcp.server.mcpserver.exceptions import UnexpectedToolError
from mcp.shared.exceptions import MCPError

from roundtrip.adapters.finding import AnyServer, FastMcpServer, attached, is_fastmcp, is_server, low_level
from roundtrip.channels.server_channels import APP_MIME_TYPE, UI_EXTENSION
from roundtrip.client.legs import Era, LegRequest, LegResult, send
from roundtrip.client.link_client import FormClient, LinkClient
from roundtrip.client.tasks import RemoteTask, TaskRequests, TasksExtension, follow
from roundtrip.machine.call import Transition
from roundtrip.machine.facts import BodyBegan, IntentFound, Watch
from roundtrip.testing.conversations import Message
from roundtrip.testing.hosting import served
from roundtrip.testing.networks.deliveries import Inapplicable, LegDelivery
from roundtrip.testing.tap import tapped
from roundtrip.tools.failures import tool_failure
from roundtrip.tracing import Beginning, Raised, TokenRejection, Tracer, Wrote

Transport = AbstractAsyncContextManager[Any]
Instance = MCPServer[Any] | LowLevelServer[Any] | FastMcpServer | StdioServerParameters | Transport | str
"""One server, given as an object in this process, the command of a stdio server, a transport, or a URL."""

PlayedClient = Literal["no-elicitation", "links", "apps", "app-forms"]
"""The clients that show less than forms and links, or show questions in apps."""

APP_SETTINGS: Final[Mapping[str | None, dict[str, Any]]] = {
    "apps": {"mimeTypes": [APP_MIME_TYPE]},
    "app-forms": {"mimeTypes": [APP_MIME_TYPE], "elicitation": {}},
}
"""What each client declares for MCP Apps."""

Make = Callable[..., AnyServer]
"""A function that makes a new server instance. If the function has a parameter `keys`, it receives keys."""

Target = Instance | Make | Sequence[Instance]
"""A server, a function that makes instances, or a sequence of instances."""

KEYS: Final = tuple(f"roundtrip.testing: key {number}, which everybody knows".encode() for number in range(8))
"""The keys for instances that are made with `keys=`, in the order in which the keys are rotated."""

ELSEWHERE_FACTOR: Final = 5
"""The user's patience is multiplied by this factor for a server in another process, whose page wait cannot be
shortened.
"""
_POLL_SECONDS: Final = 0.01

_CURRENT_DELIVERY: ContextVar[LegDelivery | None] = ContextVar("roundtrip_sending", default=None)


class TaskUnfinished(AssertionError):
    """A task neither asked a question nor ended in time."""

    def __init__(self, task: RemoteTask, seconds: float) -> None:
        shown = "" if task.status_message is None else f" ({task.status_message!r})"
        super().__init__(
            f"the task has been {task.status!r}{shown} for {seconds:g} s without a change. If it waits for an "
            "approval, pass User an approver= who can see and decide it. If it sleeps or waits for a signal, the test "
            "must advance the fixture `clock` or call server.signal(...) while the call runs. Otherwise, pass User a "
            "higher patience="
        )


class Instances:
    """A target's instances, and the function that makes more instances."""

    def __init__(self, target: Target) -> None:
        one_only = isinstance(target, str) or not isinstance(target, Sequence)
        instances = [cast("Instance", target)] if one_only else list(cast("Sequence[Instance]", target))
        for one in cast("list[object]", instances):
            if one is None or (isinstance(one, str) and not one.startswith(("http://", "https://"))):
                raise TypeError(
                    "the server must be a server object, a function that makes a server, a URL, or "
                    f"StdioServerParameters(command=..., args=[...]) for a stdio server, got {one!r}"
                )
        maker = cast("object", target)
        is_maker = callable(maker) and not is_server(maker) and not isinstance(maker, AbstractAsyncContextManager)
        self._make = cast("Make", maker) if is_maker else None
        self._all: list[Instance] = instances if self._make is None else []

    @property
    def takes_keys(self) -> bool:
        """Return True if the target can make instances with given keys."""
        return self._make is not None and _takes_keys(self._make)

    def first(self) -> Instance:
        """Return the instance on which calls begin."""
        if not self._all:
            self._all.append(self.make("an instance"))
        return self._all[0]

    def after(self, instance: Instance) -> Instance:
        """Return the instance that follows the given one. If the target makes instances, two instances alternate."""
        if len(self._all) == 1:
            self._all.append(self.make("another instance"))
        index = next((index for index, one in enumerate(self._all) if one is instance), -1)
        return self._all[(index + 1) % len(self._all)]

    def in_turn(self) -> Iterator[Instance]:
        """Yield the instances in a cycle. If the target makes instances, yield a new instance each time."""
        while self._make is not None:
            yield self.make("an instance")
        yield from itertools.cycle(self._all)

    def make(self, what: str, *, keys: Sequence[bytes] | None = None) -> Instance:
        """Make an instance. Raise Inapplicable if the target cannot make instances, or if keys are given and the target
        does not take keys.
        """
        if keys is not None and not self.takes_keys:
            raise Inapplicable(
                "to play other keys, pass a function that makes a server with given keys: def make_server(keys): ..."
            )
        if self._make is None:
            raise Inapplicable(f"{what} needs a function that makes the server: User(make_server), not User(server)")
        return make_instance(self._make, keys=keys)


def make_instance(make: Make, *, keys: Sequence[bytes] | None = None) -> Instance:
    """Make an instance. If the function takes keys and no keys are given, pass the first of `KEYS`."""
    return make(keys=list(keys or KEYS[:1])) if _takes_keys(make) else make()


def _takes_keys(make: Make) -> bool:
    try:
        return "keys" in inspect.signature(make).parameters
    except (TypeError, ValueError):
        return False


def ignore(fact: object) -> None:
    """Ignore a fact."""


@dataclass(eq=False)
class NetworkFleet:
    """One call's instances, with the client's connection to each instance. The fleet is also a tracer.

    A separate asyncio task opens and closes each connection. The caller's exit stack ends these tasks.
    """

    instances: Instances
    callbacks: Mapping[str, Any]
    _: KW_ONLY
    era: Era
    stack: AsyncExitStack
    record_messages: bool = False
    over: Literal["memory", "http"] = "memory"
    listen: Callable[[Transition, bool], None] = lambda step, by_worker: None
    principal: AccessToken | str | None = None
    """The authenticated user, if any."""
    tracers: Sequence[Tracer] = ()
    patience: float = math.inf
    """How many seconds a leg waits for a page. A task's status may stay unchanged for five times this limit."""
    client: PlayedClient | None = None
    """What the client shows its user; None for forms and links."""
    messages: list[Message] = field(default_factory=list[Message])
    """The JSON-RPC messages, if the fleet records them."""
    _clients: list[tuple[Instance, Client]] = field(default_factory=list[tuple[Instance, Client]])
    _open_deliveries: list[LegDelivery] = field(default_factory=list[LegDelivery])
    _deployed: dict[Make, Instance] = field(default_factory=dict[Make, Instance])
    _worker_transitions: dict[str, list[Transition]] = field(default_factory=dict[str, list[Transition]])
    """The transitions on legs that workers ran, by call id, until a delivery contains the transitions. Only this
    fleet's calls have entries.
    """
    at: Instance = field(init=False)
    """The current instance, to which the next leg is sent."""
    _group: TaskGroup = field(init=False)
    _closing: anyio.Event = field(default_factory=anyio.Event)

    @property
    def is_in_this_process(self) -> bool:
        """Return True if the current instance runs in this process and shares its clock."""
        return is_server(self.at)

    @property
    def is_in_memory(self) -> bool:
        """Return True if requests go to the instances in memory, without a network. Such requests carry the sender's
        authentication.
        """
        return self.is_in_this_process and self.over == "memory" and not self.record_messages

    async def start(self) -> None:
        """Connect to the first instance."""
        self._group = await self.stack.enter_async_context(anyio.create_task_group())
        self.stack.callback(self._closing.set)
        await self.go_to(self.instances.first())

    async def deploy(self, make: Make) -> None:
        """Switch to an instance of another build. That instance is made only once."""
        if make not in self._deployed:
            if _takes_keys(make) and not self.instances.takes_keys:
                raise Inapplicable(
                    "the other build needs keys=, but the server's keys are not known; pass a function that "
                    "takes keys= and makes the server, as in User(make_server)"
                )
            self._deployed[make] = make_instance(make)
        await self.go_to(self._deployed[make])

    async def go_to(self, instance: Instance) -> None:
        """Switch to an instance, and connect to it if necessary."""
        if all(one is not instance for one, _ in self._clients):
            # A separate asyncio task holds the connection. Concurrent legs can connect, and must not close a connection
            # that another leg uses.
            self._clients.append((instance, await self._group.start(self._keep_connected, instance)))
        self.at = instance

    async def send(self, leg: LegRequest) -> LegDelivery:
        """Send a leg to the current instance, and return the delivery."""
        delivery = LegDelivery(leg, transitions=[] if attached(self.at) is not None else None)
        self._open_deliveries.append(delivery)
        reset = _CURRENT_DELIVERY.set(delivery)
        try:
            delivery.result = await (self._follow(delivery) if self.era is Era.TASK else send(self.session, leg))
        except MCPError as error:
            delivery.error = error
        except Exception as error:  # noqa: BLE001  # the server sent a response that the client cannot parse
            delivery.crash = error
        finally:
            _CURRENT_DELIVERY.reset(reset)
            self._open_deliveries.remove(delivery)
            if delivery.transitions is not None:
                delivery.transitions += self.take_worker_transitions(_call_id_of(delivery))
        return delivery

    async def _follow(self, delivery: LegDelivery) -> LegResult:
        """Send a leg. If the call is or becomes a task, poll the task until it asks questions or ends."""
        changed_at = anyio.current_time()
        status: str | None = None
        delivery.task_id = delivery.leg.task_id

        def check_progress(task: RemoteTask) -> None:
            nonlocal changed_at, status
            delivery.task_id = task.task_id
            now, before = anyio.current_time(), status
            status = task.shown
            if status != before:
                changed_at = now
            elif now - changed_at > (longest := self.patience * ELSEWHERE_FACTOR):
                raise TaskUnfinished(task, longest)

        session = self.session
        return await follow(session, delivery.leg, send=partial(send, session), seen=check_progress, pace=_POLL_SECONDS)

    def take_worker_transitions(self, call_id: str) -> list[Transition]:
        """Return and remove a call's new worker transitions. They happened on legs that workers ran without a client
        request.
        """
        transitions = self._worker_transitions.get(call_id, [])
        taken = transitions[:]
        transitions.clear()
        return taken

    def has_task(self, call_id: str) -> bool:
        """Return True if a call belongs to this fleet, and may therefore have become a task."""
        return call_id in self._worker_transitions

    def requests_to(self, task_id: str) -> TaskRequests:
        """Return an object that sends requests about one task to the current instance."""
        return TaskRequests(self.session, task_id)

    async def tools(self) -> dict[str, Mapping[str, Any]]:
        """Return the input schemas of the current instance's tools, by name."""
        return {tool.name: tool.input_schema for tool in (await self.session.list_tools()).tools}

    @property
    def session(self) -> ClientSession:
        """Return the session with the current instance."""
        return next(client for instance, client in self._clients if instance is self.at).session

    async def _keep_connected(self, instance: Instance, *, task_status: TaskStatus[Client]) -> None:
        async with AsyncExitStack() as stack:
            target: Any = instance
            if (ours := attached(instance)) is not None:
                stack.enter_context(ours.legs.limit_page_wait(self.patience))
                for tracer in (self, *self.tracers):
                    ours.parts.effects.tracers.add(tracer)
                    stack.callback(ours.parts.effects.tracers.remove, tracer)
            if is_fastmcp(instance):
                target = low_level(instance)
            if is_server(instance) and (self.record_messages or self.over == "http"):
                target = await stack.enter_async_context(served(instance))
            if self.record_messages:
                if not isinstance(target, str):
                    raise Inapplicable("messages can be recorded only over HTTP: pass User a server object or a URL")
                target = tapped(streamable_http_client(target), self.messages.append)
            extensions: list[ClientExtension] = [TasksExtension()] if self.era is Era.TASK else []
            if self.client in APP_SETTINGS:
                extensions.append(advertise(UI_EXTENSION, APP_SETTINGS[self.client]))
            kind = {"links": LinkClient, "app-forms": FormClient}.get(self.client or "", Client)
            client = kind(target, mode=self.era.mode, cache=None, extensions=extensions, **self.callbacks)
            task_status.started(await stack.enter_async_context(client))
            await self._closing.wait()

    def begin(self, beginning: Beginning) -> Watch:
        """Watch the leg of a delivery, but not the calls that are nested in the leg."""
        if beginning.era == "task":
            return self._watch_worker(beginning)
        delivery = _CURRENT_DELIVERY.get()
        if delivery is None or delivery not in self._open_deliveries:
            # Over HTTP, a server does not see this context, so take the first open delivery. Concurrent legs are
            # copies, so it does not matter which delivery is taken.
            delivery = next((one for one in self._open_deliveries if one.transitions == []), None)
        if beginning.within is not None or delivery is None or delivery.transitions is None:
            return ignore
        delivery.call_id = beginning.call_id
        self._worker_transitions.setdefault(beginning.call_id, [])
        return partial(self._record_fact, delivery, delivery.transitions)

    def _watch_worker(self, beginning: Beginning) -> Watch:
        """Watch a leg that a worker runs for one of this fleet's calls."""
        transitions = self._worker_transitions.get(beginning.call_id)
        if transitions is None or beginning.within is not None:
            return ignore
        following = next(
            (one for one in self._open_deliveries if _call_id_of(one) == beginning.call_id), LegDelivery(LegRequest(""))
        )
        return partial(self._record_fact, following, transitions, by_worker=True)

    def _record_fact(
        self, delivery: LegDelivery, into: list[Transition], fact: object, *, by_worker: bool = False
    ) -> None:
        if isinstance(fact, Transition):
            into.append(fact)
            self.listen(fact, by_worker)
        elif isinstance(fact, BodyBegan):
            delivery.bodies += 1
        elif isinstance(fact, IntentFound):
            delivery.has_intent = True
        elif isinstance(fact, Raised) and is_crash(fact.error):
            delivery.crash = fact.error
        elif isinstance(fact, Wrote):
            delivery.computed = [computed.value for computed in fact.journal.computed.values()]

    def reject(self, rejection: TokenRejection) -> None:
        """Ignore a rejected token, because the client also receives an error."""


def _call_id_of(delivery: LegDelivery) -> str:
    """Return the id of a delivery's call; "" if the server is not a roundtrip server."""
    return delivery.call_id or (delivery.leg.task_id or "").rpartition(".")[0]


def is_crash(error: BaseException) -> bool:
    """Return True if an exception is unexpected."""
    return isinstance(error, Exception) and isinstance(tool_failure("", error, mask=True), UnexpectedToolError)


@contextmanager
def acting_as(principal: AccessToken | str | None) -> Generator[None]:
    """Authenticate in-memory requests until the `with` block ends. If the principal is a string, it becomes the
    subject.
    """
    if principal is None:
        yield
        return
    if isinstance(principal, str):
        token = f"testing-{principal}"
        principal = AccessToken(token=token, client_id="roundtrip.testing", scopes=[], subject=principal)
    reset = auth_context_var.set(AuthenticatedUser(principal))
    try:
        yield
    finally:
        auth_context_var.reset(reset)
