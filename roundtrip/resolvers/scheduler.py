"""One leg's walk over a plan: run what can run, side by side where it waits, until all is settled or asked.

The walk awaits the author's functions and nothing else. Whether a question has an answer is not its business:
it hands the question to `settle` and gets an outcome, or leaves the node waiting.

Nodes that have never had to wait are awaited in place, one after the other, because a task costs more than they do.
Which those are is learnt by watching whether a coroutine ever yields, so a wrong guess costs time, never correctness.
No coroutine changes its task on the way: cancel scopes and context variables in it hold.
"""

import functools
import heapq
import inspect
import types
from collections.abc import Awaitable, Callable, Generator, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from roundtrip.errors import InvalidSignature
from roundtrip.machine.facts import NodeBegan, NodeEnded, NodeHow, Watch
from roundtrip.machine.journal import Action
from roundtrip.questions.markers import Marker, is_marker
from roundtrip.questions.outcomes import Outcome
from roundtrip.resolvers.cancelling import cancel_requests, is_cancelled, strayed
from roundtrip.resolvers.plan import Input, Node, Plan, Source

__all__ = ["DeclinedParameter", "Enter", "RunInThread", "Scheduler", "enter_nothing"]


@dataclass(frozen=True, slots=True)
class DeclinedParameter:
    """A parameter whose value the user would not give, and whose consumer did not ask for the outcome."""

    parameter: str
    outcome: Outcome

    def __str__(self) -> str:
        return f"Resolver for parameter {self.parameter!r} could not resolve: elicitation was {self.outcome.word}"


Settle = Callable[[Node, Marker], Outcome | None]
"""The outcome of a node's question, or None while there is none."""

Recall = Callable[[Node], Outcome | None]
"""What a `once` node yielded on an earlier leg, if it did."""

Keeps = Callable[[Node], bool]
"""Whether `recall` would give what a `once` node has yielded, which nobody may need to have restored."""

Remember = Callable[[Node, Any], None]
"""Keep what a `once` node has computed."""


RunInThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a plain function in a worker thread."""

Enter = Callable[[str, Any], Awaitable[Any]]
"""Enters what a dependency of some name has made, and gives the value for those that need it."""


async def enter_nothing(label: str, made: Any) -> Any:
    """Refuse what would have to be left again, where there is nobody to leave it."""
    raise InvalidSignature(f"{label!r} is to be entered and left, and cannot be here (it made {type(made).__name__})")


class Scheduler:
    """The nodes of one leg. `advance` until it is quiet; what then waits is in `waiting`, in plan order."""

    __slots__ = (
        "_arguments",
        "_cancelled",
        "_context",
        "_enter",
        "_entering",
        "_failure",
        "_isolated",
        "_missing",
        "_outcomes",
        "_plan",
        "_ready",
        "_recall",
        "_remember",
        "_run_in_thread",
        "_settle",
        "_watch",
        "failed",
        "refusal",
        "waiting",
    )

    def __init__(
        self,
        plan: Plan,
        *,
        arguments: Mapping[str, Any],
        context: Callable[[], Any],
        settle: Settle,
        recall: Recall = lambda node: None,
        keeps: Keeps = lambda node: False,
        remember: Remember = lambda node, value: None,
        run_in_thread: RunInThread = anyio.to_thread.run_sync,
        enter: Enter = enter_nothing,
        known: Mapping[Hashable, Outcome] | None = None,
        isolated: Callable[[BaseException], bool] | None = None,
        watch: Watch | None = None,
    ) -> None:
        """Prepare to walk a plan.

        Args:
            plan: The plan.
            arguments: The tool's arguments, by name.
            context: Makes what a parameter annotated as context receives.
            settle: As its type says.
            recall: As its type says.
            keeps: As its type says.
            remember: As its type says.
            run_in_thread: As its type says.
            enter: As its type says.
            known: Outcomes of nodes that have run for this request already, in another plan.
            isolated: Whether an error is a node's own, and takes only those with it that need the node; it is kept in
                `failed`. By default none is.
            watch: Told which nodes run.
        """
        self._plan = plan
        self._arguments = arguments
        self._context = context
        self._settle = settle
        self._recall = recall
        self._remember = remember
        self._run_in_thread = run_in_thread
        self._outcomes: list[Outcome | None] = [None] * len(plan.nodes)
        self._missing = [len(node.needs) for node in plan.nodes]
        # Heaps, so that of all that could run the first in plan order does. What is entered runs by itself: it has to
        # be in the task of the leg, and not in one that is over when the body begins.
        self._ready: list[int] = []
        self._entering: list[int] = []
        self._enter = enter
        self._isolated = isolated
        self._watch = watch
        self._cancelled = cancel_requests()
        self._failure: BaseException | None = None
        self.failed: dict[int, BaseException] = {}
        self.waiting: dict[int, Marker] = {}
        self.refusal: DeclinedParameter | None = None
        if known:
            self._accept(known)
        elif plan.seals:
            self._spare(keeps)
        for node in plan.nodes:
            if not self._missing[node.index] and self._outcomes[node.index] is None:
                self._push(node.index)

    async def advance(self) -> None:
        """Run everything that can run.

        Afterwards either `refusal` is set, or `waiting` holds the questions to ask, or every node is settled.

        Raises:
            Exception: Whatever the first failing node raised; those beside it are cancelled.
        """
        while (self._ready or self._entering) and self.refusal is None:
            if len(self._ready) > 1:
                await self._run_together()
            else:
                # There is nothing it could hold up, so it needs no task of its own.
                heap = self._ready or self._entering
                await self._run(self._plan.nodes[heapq.heappop(heap)])

    def answered(self) -> None:
        """Look again for the outcomes of what waits, without running anything twice."""
        for index, marker in sorted(self.waiting.items()):
            node = self._plan.nodes[index]
            outcome = self._settle(node, marker)
            if outcome is not None:
                del self.waiting[index]
                self._settled(node, outcome)

    def fill(self, values: dict[str, Any]) -> None:
        """Put in the value of each of the tool's filled parameters; sets `refusal` if one was refused."""
        for root in self._plan.roots:
            if not self._take(root, values):
                return

    def is_blocked(self, index: int) -> bool:
        """Whether a node has not come to run, as something it needs is still out."""
        return self._outcomes[index] is None and index not in self.waiting

    def failure_of(self, index: int) -> BaseException | None:
        """Why an isolated node has no value: its own failure, or that of one that it needs."""
        below = [index]
        while below:
            place = below.pop()
            if place in self.failed:
                return self.failed[place]
            if self._outcomes[place] is None:
                below.extend(self._plan.nodes[place].needs)
        return None

    def outcomes(self) -> dict[Hashable, Outcome]:
        """What has been settled, by what the nodes are."""
        found = zip(self._plan.nodes, self._outcomes, strict=True)
        return {node.shared_as: outcome for node, outcome in found if outcome is not None}

    def order(self) -> list[tuple[Node, Marker]]:
        """What waits, in the plan's order."""
        return [(self._plan.nodes[index], self.waiting[index]) for index in sorted(self.waiting)]

    def _accept(self, known: Mapping[Hashable, Outcome]) -> None:
        """Take what is known, and keep from running what only that would need."""
        nodes = self._plan.nodes
        # What takes arguments of the call, or is kept for it, is another value here than where there is no call.
        of_call: set[int] = set()
        for node in nodes:
            takes = node.once or any(entry.source is Source.ARGUMENT for entry in node.inputs)
            if takes or not of_call.isdisjoint(node.needs):
                of_call.add(node.index)
        needed: set[int] = set()
        open_ = [root.node for root in self._plan.roots]
        while open_:
            index = open_.pop()
            if index not in needed:
                needed.add(index)
                if index not in of_call:
                    self._outcomes[index] = known.get(nodes[index].shared_as)
                if self._outcomes[index] is None:
                    open_.extend(nodes[index].needs)
        for node in nodes:
            self._missing[node.index] = sum(self._outcomes[need] is None for need in node.needs)
            if node.index not in needed:
                # One more than will ever be settled.
                self._missing[node.index] += 1

    def _spare(self, keeps: Keeps) -> None:
        """Restore of what is kept only what somebody needs who still has to run."""
        nodes = self._plan.nodes
        kept = {node.index for node in nodes if node.once and keeps(node)}
        roots = {root.node for root in self._plan.roots}
        spared = {index for index in kept - roots if kept.issuperset(nodes[index].dependents)}
        if not spared:
            return
        recalled = {index: self._recall(nodes[index]) for index in sorted(kept - spared)}
        if None in recalled.values():
            # It has to run after all, and then needs what was to be spared.
            return
        for index, outcome in recalled.items():
            self._outcomes[index] = outcome
            if self._watch is not None:
                self._watch(NodeBegan(nodes[index].key))
                self._watch(NodeEnded(nodes[index].key, "recalled"))
        for node in nodes:
            if node.index in spared:
                # One more than will ever be settled.
                self._missing[node.index] += 1
            elif node.index not in recalled:
                self._missing[node.index] = sum(self._outcomes[need] is None for need in node.needs)

    def _next(self) -> Node:
        return self._plan.nodes[heapq.heappop(self._ready)]

    async def _run_together(self) -> None:
        async with anyio.create_task_group() as group:
            await self._drain(group)
        if self._failure is not None:
            raise self._failure

    async def _drain(self, group: TaskGroup, node: Node | None = None) -> None:
        """Run a node, then whatever is ready: in place what has never had to wait, the rest in tasks of its own."""
        try:
            if node is not None:
                await self._run(node)
            while self._ready and self.refusal is None:
                node = self._next()
                if self._plan.steady[node.index]:
                    # Should it wait all the same, another task goes on with the rest: it may be waiting for that.
                    await self._run(node, beside=group)
                else:
                    group.start_soon(self._drain, group, node)
        except Exception as error:  # noqa: BLE001 - raised by `_run_together`, without the group around it
            if self._failure is None:
                self._failure = error
            group.cancel_scope.cancel()
        if self.refusal is not None:
            group.cancel_scope.cancel()

    async def _run(self, node: Node, beside: TaskGroup | None = None) -> None:
        if self._watch is None:
            await self._run_node(node, beside)
            return
        self._watch(NodeBegan(node.key))
        how: NodeHow = "failed"
        try:
            how = await self._run_node(node, beside)
        finally:
            self._watch(NodeEnded(node.key, how))

    async def _run_node(self, node: Node, beside: TaskGroup | None) -> NodeHow:
        outcome = self._recall(node) if node.once else None
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
                    value = await self._noticing_waits(node.fn(*placed, **named), node, beside)
                else:
                    value = await self._invoke(node, placed, named)
            except BaseException as error:
                if self._isolated is None or not self._isolated(error):
                    if isinstance(error, anyio.get_cancelled_exc_class()) and not is_cancelled(self._cancelled):
                        raise strayed() from error
                    raise
                self.failed[node.index] = error
                return "failed"
            if is_marker(value):
                outcome = self._settle(node, value)
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
                    self._remember(node, value)
                outcome = Outcome(value)
                how = "entered" if node.enters else "computed"
        self._settled(node, outcome)
        return how

    @types.coroutine
    def _noticing_waits(
        self, awaitable: Awaitable[Any], node: Node, beside: TaskGroup | None
    ) -> Generator[Any, Any, Any]:
        """Await what a node made, in this very task; when it first has to wait, note that, and let the rest go on."""
        steady = self._plan.steady
        steps = awaitable.__await__()
        try:
            pending = next(steps)
        except StopIteration as done:
            steady[node.index] = True
            return done.value
        steady[node.index] = False
        if beside is not None:
            beside.start_soon(self._drain, beside)
        while True:
            try:
                received = yield pending
            except GeneratorExit:
                steps.close()
                raise
            except BaseException as error:  # noqa: BLE001 - thrown in from outside, and passed on to where it belongs
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
            value = await self._enter(node.label, await made if inspect.isawaitable(made) else made)
            if is_marker(value):
                raise InvalidSignature(
                    f"{node.label!r} is entered and left, and cannot ask; ask in a function it takes"
                )
            return value
        value = await self._run_in_thread(functools.partial(node.fn, *placed, **named))
        # A plain function may hand back a coroutine: a lambda around an async function does.
        return await value if inspect.isawaitable(value) else value

    def _take(self, entry: Input, into: dict[str, Any]) -> bool:
        """Put an input's value in place; False (and `refusal` set) if the user refused it."""
        if entry.source is Source.CONTEXT:
            into[entry.parameter] = self._context()
        elif entry.source is Source.ARGUMENT:
            into[entry.parameter] = self._arguments[entry.name]
        else:
            outcome = self._outcomes[entry.node]
            if outcome is None:
                raise RuntimeError(f"{self._plan.nodes[entry.node].label} was needed before it was settled")
            if entry.outcome:
                into[entry.parameter] = outcome.as_result()
            elif outcome.action is Action.ACCEPT:
                into[entry.parameter] = outcome.value
            else:
                self.refusal = self.refusal or DeclinedParameter(entry.parameter, outcome)
                return False
        return True

    def _settled(self, node: Node, outcome: Outcome) -> None:
        self._outcomes[node.index] = outcome
        if outcome.action is not Action.ACCEPT and node.consumer is not None:
            self.refusal = self.refusal or DeclinedParameter(node.consumer, outcome)
            return
        for index in node.dependents:
            self._missing[index] -= 1
            if not self._missing[index] and self._outcomes[index] is None:
                self._push(index)

    def _push(self, index: int) -> None:
        heapq.heappush(self._entering if self._plan.nodes[index].enters else self._ready, index)
