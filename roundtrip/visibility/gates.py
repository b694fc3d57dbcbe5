"""Visibility gates: functions passed as `enabled=` that decide per request whether an item exists.

Each visibility gate has a plan. For a list, the gates of all items are evaluated in one plan, so that shared
dependencies run once. A gate opens if it yields a true value. A false value or an error hides the item from the
request, and errors are logged.

Values that gates computed are reused until the request ends, including in calls that the request makes. A value that
depends on a context manager is reused only while its item is being served.
"""

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, TypeVar, cast

from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Context as SdkContext
from mcp_types import InputRequiredResult

from roundtrip.engine.teardown import Report, TeardownStack
from roundtrip.errors import BodyMistake, InvalidSignature
from roundtrip.legs.functions import Planned
from roundtrip.legs.requests import REQUEST, RequestRecord, holding, offer, take_back
from roundtrip.questions.outcomes import Outcome
from roundtrip.resolvers.annotations import Reject, accept, asking_arms
from roundtrip.resolvers.cancellation import cancel_requests, is_cancelled
from roundtrip.resolvers.markers import Dependency, Marker, SdkResolve
from roundtrip.resolvers.node_outcomes import NodeOutcomes, Reused
from roundtrip.resolvers.plan import Plan, Source
from roundtrip.resolvers.planner import Replacements, make_plan
from roundtrip.resolvers.scheduler import Scheduler
from roundtrip.resolvers.signatures import hints_of, returns_input_required
from roundtrip.threads.leg_threads import LegThreads

logger = logging.getLogger("roundtrip")

T = TypeVar("T")

_Outcomes = dict[Hashable, Outcome]

_MAX_PLANNED_LISTS: Final = 16
"""Number of cached plans for lists. A server has four lists, and a changed list needs a new plan."""

_ALWAYS_TRUE_TYPES = (
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
"""Types whose instances are always true, even if entering, running or awaiting them would yield a false value."""


@dataclass(frozen=True, slots=True, eq=False)
class VisibilityGate:
    """Function passed as `enabled=` that decides per request whether one item exists."""

    owner: str
    marker: Marker
    planned: Planned

    @property
    def enters(self) -> bool:
        """Return True if the gate enters a context manager, which is exited after the item has been served."""
        return self.planned.plan.enters


def read_gate(enabled: Callable[..., Any] | Marker, *, owner: str, reject: Reject = accept) -> VisibilityGate:
    """Return the gate for an item's `enabled=`.

    Raises:
        InvalidSignature: `enabled` is neither a function nor `Depends`, or the gate can never be evaluated.
    """
    if isinstance(enabled, SdkResolve | Dependency):
        marker: Marker = enabled
    elif callable(cast("object", enabled)):
        marker = Dependency(enabled)
    else:
        raise InvalidSignature(f"{owner}: enabled= must be a bool, a function or Depends, got {enabled!r}")
    roots = {owner: marker}
    subject = f"the visibility gate of {owner}"
    planned = Planned(lambda replacements: _plan_gates(subject, roots, replacements, reject))
    return VisibilityGate(owner, marker, planned)


def _plan_gates(owner: str, roots: Mapping[str, Marker], replacements: Replacements, reject: Reject = accept) -> Plan:
    """Return one plan for several visibility gates.

    Raises:
        InvalidSignature: A gate asks, keeps a value for a whole call, or has a parameter that nothing can fill.
    """
    plan = make_plan(
        None,
        owner=f"{owner} (which is evaluated before there are arguments)",
        arguments={},
        context_types=(SdkContext,),
        resolved={root: (marker, False) for root, marker in roots.items()},
        replacements=replacements,
        reject=reject,
    )
    for node in plan.nodes:
        if _asks(node.fn):
            raise InvalidSignature(
                f"{owner} must not ask questions, but {node.label!r} returns one: a list must be answered at once. Ask "
                "in a resolver of the function itself, or use confirm="
            )
        if node.remember:
            raise InvalidSignature(
                f"{owner} is evaluated for every request, and Resolve({node.label}, remember=True) would keep its "
                "value for a whole call; leave remember= out"
            )
    return plan


def _asks(fn: Callable[..., Any]) -> bool:
    returns = fn if inspect.isclass(fn) else hints_of(fn).get("return")
    return bool(asking_arms(returns)) or returns_input_required(fn)


@dataclass(frozen=True, slots=True)
class _GateWalk:
    """Gates that are evaluated together with one plan."""

    gates: tuple[VisibilityGate, ...]
    plan: Plan
    lasting: frozenset[Hashable]
    """Nodes whose values do not depend on a context manager, and so can be reused until the request ends."""


def _walk_of(gates: tuple[VisibilityGate, ...], plan: Plan) -> _GateWalk:
    lasting: set[int] = set()
    for node in plan.nodes:
        if not node.enters and lasting.issuperset(node.needs):
            lasting.add(node.index)
    return _GateWalk(gates, plan, frozenset(plan.nodes[index].shared_as for index in lasting))


def _plan_walks(gates: tuple[VisibilityGate, ...], replacements: Replacements) -> list[_GateWalk]:
    if not gates:
        return []
    if len(gates) == 1:
        return [_walk_of(gates, gates[0].planned.plan)]
    try:
        plan = _plan_gates("the visibility gates of a list", {gate.owner: gate.marker for gate in gates}, replacements)
    except InvalidSignature:
        # Two gates that use the same name for different things cannot share a plan, so plan the two halves of the list
        # separately. Names matter only for questions, which gates do not ask.
        half = len(gates) // 2
        return [*_plan_walks(gates[:half], replacements), *_plan_walks(gates[half:], replacements)]
    return [_walk_of(gates, plan)]


@dataclass(frozen=True, slots=True)
class OpenGates:
    """Visibility gates that are open for a request, with the values that they computed."""

    gates: frozenset[VisibilityGate]
    request: RequestRecord | None
    evaluator: "GateEvaluator"
    known: Mapping[Hashable, Outcome] = field(default_factory=dict[Hashable, Outcome])
    """Computed values that can be reused by a leg, and by the gates of items that the leg uses."""
    managers: TeardownStack | None = None
    """Context managers to exit after the item has been served."""
    threads: LegThreads | None = None
    """Threads that ran the gates' functions."""
    lanes: Mapping[Hashable, Hashable] = field(default_factory=dict[Hashable, Hashable])
    """The lane of each plain gate function in these threads, keyed by node identity."""

    @property
    def is_over(self) -> bool:
        """Return True if the request has ended. An asyncio task may outlive its request."""
        return self.request is not None and self.request.ended

    async def around(self, work: Awaitable[T]) -> T:
        """Serve the item, then exit the context managers that were entered for it."""
        try:
            if self.managers is not None:
                work = self.managers.around(work, ended_by=lambda value: None)
            with holding(_SERVED_GATES, self):
                return await work
        finally:
            if self.threads is not None:
                self.threads.close()

    def reused_in(self, plan: Plan) -> Reused | None:
        """Return the values that a leg can reuse; None if there are no values."""
        return reuse_known(plan, self.known) if self.known else None

    def hand_over(self, threads: LegThreads, plan: Plan) -> None:
        """Run a leg's functions in the threads of the gate functions whose values they reuse."""
        if self.threads is not None:
            known = ((plan.lanes[node.index], self.lanes.get(node.shared_as)) for node in plan.nodes)
            threads.take_over(self.threads, {lane: ours for lane, ours in known if None not in (lane, ours)})


_SERVED_GATES: ContextVar[OpenGates | None] = ContextVar("roundtrip_open_gates", default=None)
"""Gates of the item being served. A call may use several items at once, each with its own gates."""


class _GateThreads(LegThreads):
    """Worker threads for the visibility gates' functions."""

    __slots__ = ()

    @property
    def share_one(self) -> bool:
        """Return False, because each function takes its own slot."""
        return False

    def _owner_of(self, call: Callable[[], Any]) -> Hashable:
        # A slow gate must not block the other gates.
        return ("gate", id(getattr(call, "func", call)))


@dataclass(slots=True, eq=False, repr=False)
class GateEvaluator:
    """Evaluator for one server's visibility gates."""

    make_context: Callable[[ServerRequestContext[Any, Any] | None], SdkContext[Any, Any]]
    replacements: Callable[[], Replacements]
    report: Report
    _walks: dict[tuple[VisibilityGate, ...], tuple[Replacements, list[_GateWalk]]] = field(
        default_factory=dict[tuple[VisibilityGate, ...], tuple[Replacements, list["_GateWalk"]]], init=False
    )

    def opened_here(self, gate: VisibilityGate | None) -> OpenGates | None:
        """Return the open gates of the item being served in this context; None if `gate` is not among them."""
        inside = _SERVED_GATES.get()
        if inside is None or gate not in inside.gates or inside.request is not REQUEST.get() or inside.is_over:
            return None
        return inside

    async def open_all(self, gates: tuple[VisibilityGate, ...]) -> OpenGates:
        """Evaluate all visibility gates of a list."""
        request = REQUEST.get()
        found = self._request_values(request)
        context = cache(lambda: self.make_context(request.context if request is not None else None))
        opened: set[VisibilityGate] = set()
        for walk in self._walks_of(gates):
            managers, threads = TeardownStack(self.report), _GateThreads()
            evaluating = self._evaluate(walk, context, {**self._item_values(request), **found}, managers, threads)
            try:
                some, outcomes = await managers.around(evaluating, ended_by=lambda value: None)
            except Exception as error:  # noqa: BLE001 - the failure of a gate hides its item, and nothing else
                _log_failure(walk.gates, error)
            else:
                opened |= some
                found |= _lasting_outcomes(walk, outcomes)
            finally:
                threads.close()
        return OpenGates(frozenset(opened), request, self)

    async def open(
        self, gate: VisibilityGate, unseen: ServerRequestContext[Any, Any] | None = None
    ) -> OpenGates | None:
        """Evaluate one item's gate. Return None if it stays closed. The caller serves the item with `OpenGates.around`.

        Args:
            gate: The gate.
            unseen: The request, if it has not passed a roundtrip middleware.
        """
        request = REQUEST.get()
        context = cache(lambda: self.make_context(request.context if request is not None else unseen))
        found = self._request_values(request)
        known = {**self._item_values(request), **found}
        walk = _walk_of((gate,), gate.planned.plan)
        managers, threads = TeardownStack(self.report), _GateThreads()
        opened: frozenset[VisibilityGate] = frozenset()
        try:
            opened, outcomes = await self._evaluate(walk, context, known, managers, threads)
        except BaseException as error:
            ended = await managers.leave(error)
            if isinstance(ended, Exception):
                _log_failure((gate,), ended)
                return None
            raise
        finally:
            if not opened:
                threads.close()
        found |= _lasting_outcomes(walk, outcomes)
        if opened:
            plan = walk.plan
            lanes = {
                node.shared_as: lane for node, lane in zip(plan.nodes, plan.lanes, strict=True) if lane is not None
            }
            kept = managers if gate.enters else None
            return OpenGates(opened, request, self, known | outcomes, kept, threads, lanes)
        if (ended := await managers.leave(None)) is not None:
            raise ended
        return None

    async def serve_unseen(self, work: Awaitable[T]) -> T:
        """Answer a request whose item is hidden from it. Gates opened earlier in this context are not used."""
        with holding(_SERVED_GATES, None):
            return await work

    def _walks_of(self, gates: tuple[VisibilityGate, ...]) -> list[_GateWalk]:
        replacements = self.replacements()
        planned = self._walks.get(gates)
        if planned is None or planned[0] is not replacements:
            # A context manager can cancel all gates evaluated with it, so evaluate gates without context managers
            # first.
            plain = tuple(gate for gate in gates if not gate.enters)
            entering = tuple(gate for gate in gates if gate.enters)
            planned = (replacements, [*_plan_walks(plain, replacements), *_plan_walks(entering, replacements)])
            if len(self._walks) >= _MAX_PLANNED_LISTS:
                self._walks.clear()
            self._walks[gates] = planned
        return planned[1]

    async def _evaluate(
        self,
        walk: _GateWalk,
        context: Callable[[], Any],
        known: Mapping[Hashable, Outcome],
        managers: TeardownStack,
        threads: LegThreads,
    ) -> tuple[frozenset[VisibilityGate], _Outcomes]:
        """Return the open gates, and all computed values."""
        scheduler = Scheduler(
            walk.plan,
            arguments={},
            context=context,
            outcomes=NodeOutcomes(),
            threads=threads,
            managers=managers,
            reused=reuse_known(walk.plan, known) if known else None,
            is_isolated=_own_error_test(),
        )
        offered = offer(context)
        try:
            await scheduler.advance()
        finally:
            take_back(offered)
        # Drop the gates' contexts, because they cannot ask questions. A body needs a context that can.
        outcomes = {
            who: found for who, found in shared_outcomes(scheduler).items() if not isinstance(found.value, SdkContext)
        }
        opened: set[VisibilityGate] = set()
        failures: dict[int, tuple[BaseException, list[VisibilityGate]]] = {}
        own = _own_error_test()
        for gate, root in zip(walk.gates, walk.plan.roots, strict=True):
            outcome = outcomes.get(walk.plan.nodes[root.node].shared_as)
            failure = None
            if outcome is None:
                failure = failure_of(scheduler, root.node) or BodyMistake(
                    "a visibility gate must yield a bool, got a question or its own context; gates must not ask"
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

    def _request_values(self, request: RequestRecord | None) -> _Outcomes:
        """Return the values that stay valid until the request ends. The caller may add values."""
        return {} if request is None or request.ended else request.found.setdefault(self, {})

    def _item_values(self, request: RequestRecord | None) -> Mapping[Hashable, Outcome]:
        """Return the values that were computed for the item being served in this context."""
        inside = _SERVED_GATES.get()
        mine = inside is not None and inside.evaluator is self and inside.request is request and not inside.is_over
        return inside.known if inside is not None and mine else {}


def shared_outcomes(scheduler: Scheduler) -> dict[Hashable, Outcome]:
    """Return all outcomes so far, keyed by node identity."""
    found = zip(scheduler.plan.nodes, scheduler.settled, strict=True)
    return {node.shared_as: outcome for node, outcome in found if outcome is not None}


def failure_of(scheduler: Scheduler, index: int) -> BaseException | None:
    """Return the error that left an isolated node without a value. The node itself or a dependency raised it."""
    below = [index]
    while below:
        place = below.pop()
        if place in scheduler.failed:
            return scheduler.failed[place]
        if scheduler.settled[place] is None:
            below.extend(scheduler.plan.nodes[place].needs)
    return None


def reuse_known(plan: Plan, known: Mapping[Hashable, Outcome]) -> Reused:
    """Reuse outcomes from another plan, and skip the nodes that are only needed to compute them."""
    nodes = plan.nodes
    # Do not reuse nodes that take call arguments or are remembered for the call. Gates run before the call, when these
    # nodes have other values.
    of_call: set[int] = set()
    for node in nodes:
        takes = node.remember or any(entry.source is Source.ARGUMENT for entry in node.inputs)
        if takes or not of_call.isdisjoint(node.needs):
            of_call.add(node.index)
    outcomes: dict[int, Outcome] = {}
    needed: set[int] = set()
    open_ = [root.node for root in plan.roots]
    while open_:
        index = open_.pop()
        if index in needed:
            continue
        needed.add(index)
        outcome = known.get(nodes[index].shared_as) if index not in of_call else None
        if outcome is None:
            open_.extend(nodes[index].needs)
        else:
            outcomes[index] = outcome
    return Reused(outcomes, {node.index for node in nodes if node.index not in needed})


def _lasting_outcomes(walk: _GateWalk, outcomes: Mapping[Hashable, Outcome]) -> _Outcomes:
    return {who: outcome for who, outcome in outcomes.items() if who in walk.lasting}


def _own_error_test() -> Callable[[BaseException], bool]:
    """Return a function that distinguishes a gate's own errors from a cancelled request or a process exit."""
    before = cancel_requests()

    def is_own(error: BaseException) -> bool:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            return False
        return isinstance(error, Exception) or not is_cancelled(before)

    return is_own


def _is_true(value: object) -> bool:
    """Return True if the value that a gate yielded opens the gate.

    Raises:
        InvalidSignature: The value, such as a coroutine or a question, would always count as true.
    """
    has_truth_value = hasattr(type(value), "__bool__") or hasattr(type(value), "__len__")
    is_always_true = (
        isinstance(value, _ALWAYS_TRUE_TYPES) or inspect.isawaitable(value) or (callable(value) and not has_truth_value)
    )
    if is_always_true or value is NotImplemented:
        kind = type(cast("object", value)).__name__
        raise InvalidSignature(f"a visibility gate must yield a bool, got a {kind}")
    return bool(cast("object", value))


def _log_failure(gates: Sequence[VisibilityGate], error: BaseException) -> None:
    hidden = ", ".join(gate.owner for gate in gates)
    logger.warning("hidden from this request, because the visibility gate failed: %s", hidden, exc_info=error)
