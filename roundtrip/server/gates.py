"""Gates: what `enabled=` says of a tool, a prompt or a resource, asked again for every request that lists or uses it.

A gate is a plan of its own, and a list walks the gates of all its items as one plan, so that what they share runs once.
Whatever a gate does but yield a true value shuts it: the item is hidden from this request, and the log says why.

What gates found out holds until their request ends, for the gates of calls within the call too. What depends on
something entered is the exception: it is passed inwards only, and left with the item that it was entered for.
"""

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, reduce
from typing import Any, TypeVar, cast

from mcp.server import MCPServer
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import Context as SdkContext
from mcp.server.subscriptions import SubscriptionBus
from mcp_types import CacheableResult, InputRequiredResult

from roundtrip.engine.body import Body
from roundtrip.engine.teardown import Report, TeardownStack
from roundtrip.errors import BodyMistake, InvalidSignature
from roundtrip.questions.outcomes import Outcome
from roundtrip.resolvers.annotations import asking_arms
from roundtrip.resolvers.cancelling import cancel_requests, is_cancelled
from roundtrip.resolvers.markers import Dependency, Marker, SdkResolve
from roundtrip.resolvers.plan import Plan
from roundtrip.resolvers.planner import Replacements, make_plan
from roundtrip.resolvers.scheduler import NodeOutcomes, Scheduler
from roundtrip.resolvers.signatures import hints_of, returns_input_required
from roundtrip.revisions import is_retry_era
from roundtrip.server.context import Context
from roundtrip.server.effects import Effects
from roundtrip.server.overrides import Overrides, Planned
from roundtrip.server.requests import REQUEST, RequestRecord, offer, take_back
from roundtrip.server.threads import run_in_thread

__all__ = ["Admission", "Enabled", "Gate", "GateEvaluator", "Gates", "PrivateAnswers", "read_enabled"]

logger = logging.getLogger("roundtrip")

T = TypeVar("T")

Enabled = bool | Callable[..., Any] | Marker
"""What `enabled=` takes: whether it is seen at first, or what decides that for each request."""

_Found = dict[Hashable, Outcome]

_UNRUN = (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncIterator,
    BaseException,
    Dependency,
    Future,
    InputRequiredResult,
    Iterator,
    SdkResolve,
    type,
)
"""What is true only for being there, whatever it would say if it were entered, run or waited for."""


@dataclass(frozen=True, slots=True, eq=False)
class Gate:
    """Decides for each request whether one item is there."""

    owner: str
    marker: Marker
    planned: Planned

    @property
    def enters(self) -> bool:
        """Whether something is entered to decide it, and left when the item has been served."""
        return self.planned.plan.enters


def read_enabled(enabled: Enabled | None, *, owner: str) -> tuple[bool, Gate | None]:
    """Whether an item is seen at first, and what decides that for each request.

    Args:
        enabled: What its author said.
        owner: What it is, for messages: `tool 'forecast'`.

    Raises:
        InvalidSignature: It decides nothing, or the gate can never be asked.
    """
    if enabled is None or isinstance(enabled, bool):
        return enabled is not False, None
    if isinstance(enabled, SdkResolve | Dependency):
        marker: Marker = enabled
    elif callable(cast("object", enabled)):
        marker = Dependency(enabled)
    else:
        raise InvalidSignature(f"{owner}: enabled={enabled!r} decides nothing; it takes a bool, a function or Depends")
    roots = {owner: marker}
    planned = Planned(lambda replacements: _plan(f"the gate of {owner}", roots, replacements))
    return True, Gate(owner, marker, planned)


def _plan(owner: str, roots: Mapping[str, Marker], replacements: Replacements) -> Plan:
    plan = make_plan(
        None,
        owner=f"{owner} (which is asked before there are arguments)",
        arguments={},
        context_types=(SdkContext,),
        resolved={root: (marker, False) for root, marker in roots.items()},
        replacements=replacements,
    )
    for node in plan.nodes:
        if _asks(node.fn):
            raise InvalidSignature(
                f"{owner} may not ask, and {node.label!r} returns a question: a list has to be answered at once. Ask "
                "in a resolver of the function itself, or have the call confirmed"
            )
        if node.once:
            raise InvalidSignature(
                f"{owner} is asked for every request, and Resolve({node.label}, once=True) would keep what it found "
                "for a whole call; leave once= out"
            )
    return plan


def _asks(fn: Callable[..., Any]) -> bool:
    returns = fn if inspect.isclass(fn) else hints_of(fn).get("return")
    return bool(asking_arms(returns)) or returns_input_required(fn)


@dataclass(frozen=True, slots=True)
class _Round:
    """Gates that are walked as one."""

    gates: tuple[Gate, ...]
    plan: Plan
    lasting: frozenset[Hashable]
    """The nodes whose values do not depend on anything entered."""


def _round(gates: tuple[Gate, ...], plan: Plan) -> _Round:
    lasting: set[int] = set()
    for node in plan.nodes:
        if not node.enters and lasting.issuperset(node.needs):
            lasting.add(node.index)
    return _Round(gates, plan, frozenset(plan.nodes[index].shared_as for index in lasting))


class Gates:
    """All the gates of one list, planned as few plans."""

    __slots__ = ("_gates", "_planned")

    def __init__(self, gates: Iterable[Gate]) -> None:
        self._gates = tuple(gates)
        self._planned: tuple[Replacements, list[_Round]] | None = None

    def __bool__(self) -> bool:
        return bool(self._gates)

    def rounds(self, replacements: Replacements) -> list[_Round]:
        """What to walk, one after the other."""
        planned = self._planned
        if planned is None or planned[0] is not replacements:
            # What is entered can end a whole walk, by a cancel scope of its own: those that enter nothing come first.
            plain = tuple(gate for gate in self._gates if not gate.enters)
            entering = tuple(gate for gate in self._gates if gate.enters)
            rounds = [*_together(plain, replacements), *_together(entering, replacements)]
            planned = self._planned = (replacements, rounds)
        return planned[1]


def _together(gates: tuple[Gate, ...], replacements: Replacements) -> list[_Round]:
    if not gates:
        return []
    if len(gates) == 1:
        return [_round(gates, gates[0].planned.plan)]
    try:
        plan = _plan("the gates of a list", {gate.owner: gate.marker for gate in gates}, replacements)
    except InvalidSignature:
        # Each can be planned. Together they may use one name for two things, which matters to questions only.
        half = len(gates) // 2
        return [*_together(gates[:half], replacements), *_together(gates[half:], replacements)]
    return [_round(gates, plan)]


@dataclass(frozen=True, slots=True)
class Admission:
    """What has been let in, and what was found out on the way."""

    gates: frozenset[Gate]
    request: RequestRecord | None
    doorkeeper: "GateEvaluator"
    known: Mapping[Hashable, Outcome] = field(default_factory=dict[Hashable, Outcome])
    """For a leg, and for the gates of what it calls."""
    managers: TeardownStack | None = None
    """What was entered, to be left when the item has been served."""

    @property
    def is_over(self) -> bool:
        """Whether its request has ended, which a task of it may outlive."""
        return self.request is not None and self.request.ended

    async def around(self, work: Awaitable[T]) -> T:
        """Serve the item, and leave what was entered for it."""
        inside = _INSIDE.set(self)
        try:
            return await (work if self.managers is None else self.managers.around(work, ended_by=lambda value: None))
        finally:
            _INSIDE.reset(inside)


_INSIDE: ContextVar[Admission | None] = ContextVar("roundtrip_admission", default=None)
"""What has been let in where this code runs."""


async def _run_for_gate(call: Callable[[], T], /) -> T:
    # One slow gate must not hold up the others.
    return await run_in_thread(call, owner=("gate", id(getattr(call, "func", call))))


class GateEvaluator:
    """Asks the gates of one server."""

    def __init__(self, server: MCPServer[Any], *, effects: Effects, overrides: Overrides, report: Report) -> None:
        self._server = server
        self._effects = effects
        self._report = report
        self._overrides = overrides

    def track(self, gate: Gate | None) -> None:
        """Have a gate's functions replaced as those of parameters are."""
        if gate is not None:
            self._overrides.track(gate.planned)

    def admission_of(self, gate: Gate | None) -> Admission | None:
        """How an item was let in that is being served here; None where its gate is shut, or was not asked."""
        inside = _INSIDE.get()
        if inside is None or gate not in inside.gates or inside.request is not REQUEST.get() or inside.is_over:
            return None
        return inside

    async def admit_all(self, gates: Gates) -> Admission:
        """Ask all the gates of a list."""
        request = REQUEST.get()
        found = self._found(request)
        context = cache(lambda: self._context(request.context if request is not None else None))
        opened: set[Gate] = set()
        for round_ in gates.rounds(self._overrides.replacements):
            managers = TeardownStack(self._report)
            asking = self._ask(round_, context, {**self._held(request), **found}, managers)
            try:
                some, outcomes = await managers.around(asking, ended_by=lambda value: None)
            except Exception as error:  # noqa: BLE001 - a gate's failure hides what it gates, and nothing else
                _log_failure(round_.gates, error)
            else:
                opened |= some
                found |= _lasting(round_, outcomes)
        return Admission(frozenset(opened), request, self)

    async def admit(self, gate: Gate, asked: ServerRequestContext[Any, Any] | None = None) -> Admission | None:
        """Ask the gate of one item; None if it is shut. Whoever is let in has to go on with `around`.

        `asked` is the request, where it is one that no middleware of this package has seen.
        """
        request = REQUEST.get()
        made = cache(lambda: self._context(request.context if request is not None else asked))
        found = self._found(request)
        known = {**self._held(request), **found}
        round_ = _round((gate,), gate.planned.plan)
        managers = TeardownStack(self._report)
        try:
            opened, outcomes = await self._ask(round_, made, known, managers)
        except BaseException as error:
            ended = await managers.leave(error)
            if isinstance(ended, Exception):
                _log_failure((gate,), ended)
                return None
            raise
        found |= _lasting(round_, outcomes)
        if opened:
            return Admission(opened, request, self, known | outcomes, managers if gate.enters else None)
        if (ended := await managers.leave(None)) is not None:
            raise ended
        return None

    async def shut_out(self, work: Awaitable[T]) -> T:
        """Answer a request for what it may not know of: nothing that was let in before counts."""
        inside = _INSIDE.set(None)
        try:
            return await work
        finally:
            _INSIDE.reset(inside)

    async def _ask(
        self, round_: _Round, context: Callable[[], Any], known: Mapping[Hashable, Outcome], managers: TeardownStack
    ) -> tuple[frozenset[Gate], _Found]:
        """Which gates are open, and all that was found out."""
        walk = Scheduler(
            round_.plan,
            arguments={},
            context=context,
            outcomes=NodeOutcomes(),
            run_in_thread=_run_for_gate,
            enter=managers.enter,
            known=known,
            is_isolated=_its_own(),
        )
        offered = offer(context)
        try:
            await walk.advance()
        finally:
            take_back(offered)
        # The context of a gate cannot ask, and is nothing for a body.
        outcomes = {who: found for who, found in walk.outcomes().items() if not isinstance(found.value, GateContext)}
        opened: set[Gate] = set()
        failures: dict[int, tuple[BaseException, list[Gate]]] = {}
        own = _its_own()
        for gate, root in zip(round_.gates, round_.plan.roots, strict=True):
            outcome = outcomes.get(round_.plan.nodes[root.node].shared_as)
            failure = None
            if outcome is None:
                failure = walk.failure_of(root.node) or BodyMistake(
                    "a gate yielded a question, and may not ask, or its own context, which says nothing"
                )
            else:
                try:
                    if _is_true(outcome.value):
                        opened.add(gate)
                except BaseException as error:
                    if not own(error):
                        raise
                    failure = error
            if failure is not None:
                failures.setdefault(id(failure), (failure, []))[1].append(gate)
        for error, failed in failures.values():
            _log_failure(failed, error)
        return frozenset(opened), outcomes

    def _found(self, request: RequestRecord | None) -> _Found:
        """What gates of this server found out for the request, and that holds until it ends; may be added to."""
        return {} if request is None or request.ended else request.found.setdefault(self, {})

    def _held(self, request: RequestRecord | None) -> Mapping[Hashable, Outcome]:
        """What was found out for the item that is being served here."""
        inside = _INSIDE.get()
        mine = inside is not None and inside.doorkeeper is self and inside.request is request and not inside.is_over
        return inside.known if inside is not None and mine else {}

    def _context(self, wire: ServerRequestContext[Any, Any] | None) -> "GateContext":
        return GateContext(request_context=wire, mcp_server=self._server, subscriptions=self._effects.bus)


class GateContext(Context[Any, Any]):
    """The context that gates receive: of a request that may be a list, and so without anything to ask with."""

    # Said again for type checkers: to them a model's subclass has a constructor of its own making.
    def __init__(
        self,
        *,
        request_context: ServerRequestContext[Any, Any] | None,
        mcp_server: MCPServer[Any],
        subscriptions: SubscriptionBus,
    ) -> None:
        super().__init__(request_context=request_context, mcp_server=mcp_server, subscriptions=subscriptions)

    def _asks(self, key: str) -> Body:
        raise BodyMistake(f"{key!r} is asked in a gate, which may not ask: a list has to be answered at once")

    def _refuse_outside_a_body(self, what: str) -> None:
        raise BodyMistake(f"ctx.{what}() is called in a gate, which may not ask: a list has to be answered at once")


class PrivateAnswers:
    """The middleware that has answers which depend on who asks kept by nobody, whatever the cache hints say."""

    def __init__(self, depends: Callable[[str], bool]) -> None:
        """`depends` tells of a method whether its answers depend on who asks."""
        self._depends = depends

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve one message, as the SDK's middlewares do."""
        result = await call_next(ctx)
        if not self._depends(ctx.method) or not is_retry_era(ctx.protocol_version):
            return result
        if isinstance(result, CacheableResult):
            return result.model_copy(update={"ttl_ms": 0, "cache_scope": "private"})
        if isinstance(result, dict) and result.get("resultType") != "input_required":
            return {**result, "ttlMs": 0, "cacheScope": "private"}
        return result


def _lasting(round_: _Round, outcomes: Mapping[Hashable, Outcome]) -> _Found:
    return {who: outcome for who, outcome in outcomes.items() if who in round_.lasting}


def _its_own() -> Callable[[BaseException], bool]:
    """Tells what a gate has raised itself from a cancellation of the request, and from what ends the process."""
    before = cancel_requests()

    def is_own(error: BaseException) -> bool:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            return False
        return isinstance(error, Exception) or not is_cancelled(before)

    return is_own


def _is_true(value: object) -> bool:
    """Whether what a gate yielded opens it.

    Raises:
        InvalidSignature: It is true only for being there: what would have to be run or answered first.
    """
    says_itself = hasattr(type(value), "__bool__") or hasattr(type(value), "__len__")
    unrun = isinstance(value, _UNRUN) or inspect.isawaitable(value) or (callable(value) and not says_itself)
    if unrun or value is NotImplemented:
        kind = type(cast("object", value)).__name__
        raise InvalidSignature(f"a gate yielded a {kind}, which says nothing; have it yield a bool")
    return bool(cast("object", value))


def _log_failure(gates: Sequence[Gate], error: BaseException) -> None:
    hidden = reduce(lambda names, gate: f"{names}, {gate.owner}", gates[1:], gates[0].owner)
    logger.warning("hidden from this request, as the gate failed: %s", hidden, exc_info=error)
