"""Run the nodes of a plan on one leg: side by side where they wait, until all are settled or asking.

The scheduler awaits the author's functions and nothing else. It hands a question to its `NodeOutcomes` and gets an
outcome, or leaves the node waiting.

Nodes that have never suspended are awaited in place, one after the other, because a task costs more than they do. The
scheduler learns which those are by watching coroutines, so a wrong guess costs time, never correctness. No coroutine
changes its task: cancel scopes and context variables in it hold.
"""

import functools
import heapq
import inspect
import types
from collections.abc import Awaitable, Callable, Generator, Hashable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from roundtrip.errors import InvalidSignature
from roundtrip.machine.facts import NodeBegan, NodeEnded, NodeHow, Watch
from roundtrip.machine.journal import Action
from roundtrip.questions.markers import Marker, is_marker
from roundtrip.questions.outcomes import Outcome
from roundtrip.resolvers.cancellation import cancel_requests, is_cancelled, strayed
from roundtrip.resolvers.plan import Input, Node, Plan, Source

__all__ = [
    "DeclinedParameter",
    "Enter",
    "NodeOutcomes",
    "RunInThread",
    "Scheduler",
    "enter_nothing",
]


class DeclinedParameter(NamedTuple):
    """Parameter whose question the user declined, and whose consumer needs the bare value."""

    parameter: str
    outcome: Outcome

    def __str__(self) -> str:
        return (
            f"Resolver for parameter {self.parameter!r} could not resolve: elicitation was {self.outcome.action.word}"
        )


class NodeOutcomes:
    """Source of outcomes besides the nodes' functions. This base class has none."""

    __slots__ = ()

    def settle(self, node: Node, marker: Marker) -> Outcome | None:
        """Return the outcome of a node's question, or None while it has no answer."""
        del node, marker
        return None

    def recall(self, node: Node) -> Outcome | None:
        """Return the outcome of a `once` node on an earlier leg, if it has one."""
        del node
        return None

    def keeps(self, node: Node) -> bool:
        """Return True if `recall` would give the value of a `once` node."""
        del node
        return False

    def remember(self, node: Node, value: Any) -> None:
        """Keep the value that a `once` node has computed."""


RunInThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a plain function in a worker thread."""

Enter = Callable[[str, Any], Awaitable[Any]]
"""Enters the context manager that a dependency of some name has made, and returns its value."""


async def enter_nothing(label: str, made: Any) -> Any:
    """Reject a context manager, for plans whose context managers are never exited."""
    raise InvalidSignature(f"{label!r} must not make a context manager here, got {type(made).__name__}")


@dataclass(slots=True, eq=False, repr=False)
class Scheduler:
    """Nodes of one leg. After `advance`, `waiting` has the questions without an answer."""

    plan: Plan
    _: KW_ONLY
    arguments: Mapping[str, Any]
    """The tool's arguments, by name."""
    context: Callable[[], Any]
    """Makes the value of parameters annotated as context."""
    outcomes: NodeOutcomes
    """Knows the answers to questions, and the kept values of `once` nodes."""
    run_in_thread: RunInThread = anyio.to_thread.run_sync
    enter: Enter = enter_nothing
    known: Mapping[Hashable, Outcome] | None = None
    """Outcomes of nodes that ran for this request already, in another plan."""
    is_isolated: Callable[[BaseException], bool] | None = None
    """Returns True for an error that ends only its node and those that need it. It is kept in `failed`."""
    watch: Watch | None = None
    """Takes the facts about nodes that run."""
    cancelled: int = field(default_factory=cancel_requests)
    """The number of cancellation requests when the leg began."""
    failed: dict[int, BaseException] = field(default_factory=dict[int, BaseException], init=False)
    waiting: dict[int, Marker] = field(default_factory=dict[int, Marker], init=False)
    declined: DeclinedParameter | None = field(default=None, init=False)
    _failure: BaseException | None = field(default=None, init=False)
    _settled: list[Outcome | None] = field(init=False)
    _missing: list[int] = field(init=False)
    """For each node, the number of nodes that it needs and that are not settled."""
    # Heaps, so that the first in plan order runs. Context managers are entered one at a time: that must happen in
    # the leg's own task, and not in one that is over when the body begins.
    _ready: list[int] = field(default_factory=list[int], init=False)
    _entering: list[int] = field(default_factory=list[int], init=False)

    def __post_init__(self) -> None:
        plan = self.plan
        self._settled = [None] * len(plan.nodes)
        self._missing = [len(node.needs) for node in plan.nodes]
        if self.known:
            self._accept(self.known)
        elif plan.may_carry_secrets:
            self._skip_unneeded()
        for node in plan.nodes:
            if not self._missing[node.index] and self._settled[node.index] is None:
                self._push(node.index)

    async def advance(self) -> None:
        """Run every node that can run.

        Afterwards `declined` is set, or `waiting` holds the questions to ask, or every node is settled.

        Raises:
            Exception: The error of the first failing node; those beside it are cancelled.
        """
        while (self._ready or self._entering) and self.declined is None:
            if len(self._ready) > 1:
                await self._run_together()
            else:
                # A single node delays no other node, so it needs no task of its own.
                heap = self._ready or self._entering
                await self._run(self.plan.nodes[heapq.heappop(heap)])

    def settle_waiting(self) -> None:
        """Settle the waiting questions again, without running any function twice."""
        for index, marker in sorted(self.waiting.items()):
            node = self.plan.nodes[index]
            outcome = self.outcomes.settle(node, marker)
            if outcome is not None:
                del self.waiting[index]
                self._settle(node, outcome)

    def fill(self, values: dict[str, Any]) -> None:
        """Add the value of each of the tool's filled parameters; sets `declined` if the user declined one."""
        for root in self.plan.roots:
            if not self._take(root, values):
                return

    def is_blocked(self, index: int) -> bool:
        """Return True for a node that needs a waiting node."""
        return self._settled[index] is None and index not in self.waiting

    def failure_of(self, index: int) -> BaseException | None:
        """Return the error for which an isolated node has no value: its own, or that of a node it needs."""
        below = [index]
        while below:
            place = below.pop()
            if place in self.failed:
                return self.failed[place]
            if self._settled[place] is None:
                below.extend(self.plan.nodes[place].needs)
        return None

    def shared_outcomes(self) -> dict[Hashable, Outcome]:
        """Return the outcomes so far, by the identities of the nodes."""
        found = zip(self.plan.nodes, self._settled, strict=True)
        return {node.shared_as: outcome for node, outcome in found if outcome is not None}

    def waiting_nodes(self) -> list[Node]:
        """Return the nodes whose questions wait for an answer, in the plan's order."""
        return [self.plan.nodes[index] for index in sorted(self.waiting)]

    def _accept(self, known: Mapping[Hashable, Outcome]) -> None:
        """Take known outcomes, and do not run nodes that only those would need."""
        nodes = self.plan.nodes
        # A node that takes the call's arguments, or is kept for the call, has another value in the call than before it.
        of_call: set[int] = set()
        for node in nodes:
            takes = node.once or any(entry.source is Source.ARGUMENT for entry in node.inputs)
            if takes or not of_call.isdisjoint(node.needs):
                of_call.add(node.index)
        needed: set[int] = set()
        open_ = [root.node for root in self.plan.roots]
        while open_:
            index = open_.pop()
            if index not in needed:
                needed.add(index)
                if index not in of_call:
                    self._settled[index] = known.get(nodes[index].shared_as)
                if self._settled[index] is None:
                    open_.extend(nodes[index].needs)
        self._skip({node.index for node in nodes if node.index not in needed})

    def _skip_unneeded(self) -> None:
        """Skip kept `once` nodes if every node that needs them is kept, too."""
        nodes = self.plan.nodes
        kept = {node.index for node in nodes if node.once and self.outcomes.keeps(node)}
        roots = {root.node for root in self.plan.roots}
        skipped = {index for index in kept - roots if kept.issuperset(nodes[index].dependents)}
        if not skipped:
            return
        recalled = {index: self.outcomes.recall(nodes[index]) for index in sorted(kept - skipped)}
        if None in recalled.values():
            # A node without a value must run, and may need the skipped nodes.
            return
        for index, outcome in recalled.items():
            self._settled[index] = outcome
            if self.watch is not None:
                self.watch(NodeBegan(nodes[index].key))
                self.watch(NodeEnded(nodes[index].key, "recalled"))
        self._skip(skipped)

    def _skip(self, skipped: set[int]) -> None:
        """Never run some nodes, and count again the outcomes that each of the others needs."""
        for node in self.plan.nodes:
            # A skipped node gets one more, so that its count never reaches 0.
            needed = sum(self._settled[need] is None for need in node.needs)
            self._missing[node.index] = needed + (node.index in skipped)

    async def _run_together(self) -> None:
        async with anyio.create_task_group() as group:
            await self._drain(group)
        if self._failure is not None:
            raise self._failure

    async def _drain(self, group: TaskGroup, node: Node | None = None) -> None:
        """Run a node, then all that are ready: in place those that never suspended, the rest in their own tasks."""
        try:
            if node is not None:
                await self._run(node)
            while self._ready and self.declined is None:
                node = self.plan.nodes[heapq.heappop(self._ready)]
                if self.plan.never_suspended[node.index]:
                    # If it suspends this time, another task runs the other nodes, for which it may be waiting.
                    await self._run(node, beside=group)
                else:
                    group.start_soon(self._drain, group, node)
        except Exception as error:  # noqa: BLE001 - raised by `_run_together`, without the group around it
            if self._failure is None:
                self._failure = error
            group.cancel_scope.cancel()
        if self.declined is not None:
            group.cancel_scope.cancel()

    async def _run(self, node: Node, beside: TaskGroup | None = None) -> None:
        if self.watch is None:
            await self._run_node(node, beside)
            return
        self.watch(NodeBegan(node.key))
        how: NodeHow = "failed"
        try:
            how = await self._run_node(node, beside)
        finally:
            self.watch(NodeEnded(node.key, how))

    async def _run_node(self, node: Node, beside: TaskGroup | None) -> NodeHow:
        outcome = self.outcomes.recall(node) if node.once else None
        how: NodeHow = "recalled"
        if outcome is None:
            named: dict[str, Any] = {}
            placed: list[Any] = []
            for entry in node.inputs:
                if not self._take(entry, named):
                    return "failed"
                if entry.positional:
                    placed.append(named.pop(entry.parameter))
            try:
                if node.is_async and not node.enters:
                    value = await self._await_tracking_suspension(node.fn(*placed, **named), node, beside)
                else:
                    value = await self._invoke(node, placed, named)
            except BaseException as error:
                if self.is_isolated is None or not self.is_isolated(error):
                    if isinstance(error, anyio.get_cancelled_exc_class()) and not is_cancelled(self.cancelled):
                        raise strayed() from error
                    raise
                self.failed[node.index] = error
                return "failed"
            if is_marker(value):
                outcome = self.outcomes.settle(node, value)
                if outcome is None:
                    self.waiting[node.index] = value
                    return "asked"
                how = "answered"
            else:
                if value is None and node.must_ask:
                    raise InvalidSignature(
                        f"resolver {node.label!r} must return the question that its annotation names, got None; "
                        "return it: `return Elicit(...)`"
                    )
                if node.once:
                    self.outcomes.remember(node, value)
                outcome = Outcome(value)
                how = "entered" if node.enters else "computed"
        self._settle(node, outcome)
        return how

    @types.coroutine
    def _await_tracking_suspension(
        self, awaitable: Awaitable[Any], node: Node, beside: TaskGroup | None
    ) -> Generator[Any, Any, Any]:
        """Await a coroutine in the current task. When it first suspends, note that, and let the other nodes go on."""
        never_suspended = self.plan.never_suspended
        steps = awaitable.__await__()
        try:
            pending = next(steps)
        except StopIteration as done:
            never_suspended[node.index] = True
            return done.value
        never_suspended[node.index] = False
        if beside is not None:
            beside.start_soon(self._drain, beside)
        while True:
            try:
                received = yield pending
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:  # noqa: BLE001 - thrown in from outside, and passed on to the coroutine
                try:
                    pending = steps.throw(error)
                except StopIteration as done:
                    return done.value
            else:
                try:
                    pending = steps.send(received)
                except StopIteration as done:
                    return done.value

    async def _invoke(self, node: Node, placed: list[Any], named: dict[str, Any]) -> Any:
        if node.enters:
            made = node.fn(*placed, **named)
            value = await self.enter(node.label, await made if inspect.isawaitable(made) else made)
            if is_marker(value):
                raise InvalidSignature(
                    f"{node.label!r} is a context manager, and must not ask; ask in a function that it takes"
                )
            return value
        value = await self.run_in_thread(functools.partial(node.fn, *placed, **named))
        # A plain function may return a coroutine: a lambda around an async function does.
        return await value if inspect.isawaitable(value) else value

    def _take(self, entry: Input, into: dict[str, Any]) -> bool:
        """Add an input's value; False (and `declined` set) if the user declined it."""
        if entry.source is Source.CONTEXT:
            into[entry.parameter] = self.context()
        elif entry.source is Source.ARGUMENT:
            into[entry.parameter] = self.arguments[entry.name]
        else:
            outcome = self._settled[entry.node]
            if outcome is None:
                raise RuntimeError(f"{self.plan.nodes[entry.node].label} was needed before it was settled")
            if entry.outcome:
                into[entry.parameter] = outcome.as_result()
            elif outcome.action is Action.ACCEPT:
                into[entry.parameter] = outcome.value
            else:
                self.declined = self.declined or DeclinedParameter(entry.parameter, outcome)
                return False
        return True

    def _settle(self, node: Node, outcome: Outcome) -> None:
        self._settled[node.index] = outcome
        if outcome.action is not Action.ACCEPT and node.consumer is not None:
            self.declined = self.declined or DeclinedParameter(node.consumer, outcome)
            return
        for index in node.dependents:
            self._missing[index] -= 1
            if not self._missing[index] and self._settled[index] is None:
                self._push(index)

    def _push(self, index: int) -> None:
        heapq.heappush(self._entering if self.plan.nodes[index].enters else self._ready, index)
