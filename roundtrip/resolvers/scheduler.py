"""Running a plan's nodes on one leg, until each node is settled or waits for an answer.

The scheduler itself awaits only the author's functions. It passes a question to its `NodeOutcomes`, and either gets an
outcome or leaves the node waiting.

Nodes that suspend run concurrently. Nodes that have never suspended are awaited in place, one after the other, because
an asyncio task costs more than such a node. The scheduler learns which nodes never suspend by watching their
coroutines. A wrong guess costs time, never correctness. A coroutine stays in its asyncio task, so its cancel scopes and
context variables remain valid.

Plain functions run in worker threads. If no coroutine can run, `_PlainNodes` passes the scheduler itself to a thread.
"""

import functools
import heapq
import inspect
import types
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Protocol

import anyio

from roundtrip.errors import InvalidSignature
from roundtrip.machine.facts import NodeBegan, NodeEnded, NodeHow, Watch
from roundtrip.machine.journal import Action
from roundtrip.questions.markers import Marker, is_marker
from roundtrip.questions.outcomes import Outcome
from roundtrip.resolvers.cancellation import cancel_requests, is_cancelled, strayed
from roundtrip.resolvers.entering import Managers, PlainEntry, checked
from roundtrip.resolvers.node_outcomes import DeclinedParameter, NodeOutcomes, Reused, reuse_kept
from roundtrip.resolvers.plan import Input, Node, Plan, Source
from roundtrip.resolvers.threads import Threads


class LastFunctions(Protocol):
    """Plain functions that run after the last node, in its thread."""

    def next(self, fill: Callable[[dict[str, Any]], bool]) -> Callable[[], Any] | None:
        """Return the next function to run; None if the loop must take over.

        Args:
            fill: Adds the values of the tool's filled parameters. Returns False if the user declined a question for one
                of them.
        """
        ...

    def settle(self, value: Any) -> bool:
        """Accept the value that the last function returned. Return False if the loop must take over."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class _Group:
    """Nodes that one scheduler runs concurrently, in asyncio tasks."""

    start: Callable[..., object]
    """Starts a function in a separate asyncio task."""
    scope: anyio.CancelScope
    in_flight: int = 0
    """How many nodes run in separate asyncio tasks."""
    failure: BaseException | None = None
    """The first error that a node raised."""


@dataclass(slots=True, eq=False, repr=False)
class Scheduler:
    """One leg's nodes. After `advance`, `waiting` has the questions that have no answer."""

    plan: Plan
    _: KW_ONLY
    arguments: Mapping[str, Any]
    """The tool's arguments, by name."""
    context: Callable[[], Any]
    """Makes the value of a context parameter."""
    outcomes: NodeOutcomes
    """Knows the answers to questions, and the values that remembered nodes have kept."""
    threads: Threads
    managers: Managers | None = None
    """Exits context managers. If it is None, dependencies must not make context managers."""
    reused: Reused | None = None
    """Outcomes of nodes that another plan has already run for this request."""
    is_isolated: Callable[[BaseException], bool] | None = None
    """Returns True if an error ends only the node that raised it and the nodes that need that node. Such errors are
    kept in `failed`.
    """
    watch: Watch | None = None
    """Receives a fact when a node begins and when it ends."""
    cancelled: int = field(default_factory=cancel_requests)
    """How many cancellation requests the leg's asyncio task had received when the leg began."""
    last: LastFunctions | None = None
    """Functions to run after the last node, in the last node's thread. The scheduler may leave them to its caller."""
    failed: dict[int, BaseException] = field(default_factory=dict[int, BaseException], init=False)
    waiting: dict[int, Marker] = field(default_factory=dict[int, Marker], init=False)
    declined: DeclinedParameter | None = field(default=None, init=False)
    settled: list[Outcome | None] = field(init=False)
    """Each node's outcome; None until the node is settled."""
    _missing: list[int] = field(init=False)
    """For each node: how many of its needed nodes are not settled yet."""
    # Heaps, so that the first node in plan order runs first. Context managers are entered one at a time, in the leg's
    # own asyncio task: any other task would have ended before the body begins.
    _ready: list[int] = field(default_factory=list[int], init=False)
    _plain: list[int] = field(default_factory=list[int], init=False)
    """Plain functions that are ready to run in threads."""
    _entering: list[int] = field(default_factory=list[int], init=False)

    def __post_init__(self) -> None:
        plan = self.plan
        self.settled = [None] * len(plan.nodes)
        self._missing = [len(node.needs) for node in plan.nodes]
        if self.reused is not None:
            self._reuse(self.reused)
        elif plan.may_carry_secrets and (reused := reuse_kept(plan, self.outcomes)) is not None:
            self._reuse(reused)
            for index in reused.outcomes:
                self._note_begin(plan.nodes[index])
                self._note_end(plan.nodes[index], "recalled")
        for node in plan.nodes:
            if not self._missing[node.index] and self.settled[node.index] is None:
                self._push(node.index)

    async def advance(self) -> None:
        """Run every node that can run.

        Afterwards `declined` is set, or `waiting` holds the questions to ask, or every node is settled.

        Raises:
            Exception: The first error that a node raised. Nodes that were running at the time are cancelled.
        """
        while (self._ready or self._plain or self._entering) and self.declined is None:
            if self._plain and self._recall_plain():
                continue
            if self._has_one_lane():
                await self._drive(None)
            elif len(self._ready) + len(self._plain) > 1:
                await self._run_together()
            else:
                # A single node cannot delay another node, so it does not need a separate asyncio task.
                heap = self._ready or self._plain or self._entering
                await self._run(self.plan.nodes[heapq.heappop(heap)])

    def settle_waiting(self) -> None:
        """Settle the waiting questions again, without running any function again."""
        for index, marker in sorted(self.waiting.items()):
            node = self.plan.nodes[index]
            outcome = self.outcomes.settle(node, marker)
            if outcome is not None:
                del self.waiting[index]
                self._settle(node, outcome)

    def fill(self, values: dict[str, Any]) -> bool:
        """Add the values of the tool's filled parameters.

        Return False, and set `declined`, if the user declined a question for one of them.
        """
        return all(self._take(root, values) for root in self.plan.roots)

    def is_blocked(self, index: int) -> bool:
        """Return True if this node needs a node that waits for an answer."""
        return self.settled[index] is None and index not in self.waiting

    def waiting_nodes(self) -> list[Node]:
        """Return the nodes whose questions wait for an answer, in the plan's order."""
        return [self.plan.nodes[index] for index in sorted(self.waiting)]

    def _reuse(self, reused: Reused) -> None:
        """Before any node runs, settle the nodes whose outcomes are known, and skip the nodes that only such nodes
        need.
        """
        for index, outcome in reused.outcomes.items():
            self.settled[index] = outcome
        for node in self.plan.nodes:
            # For a skipped node, count one need more than it has, so that the count never reaches 0.
            needed = sum(self.settled[need] is None for need in node.needs)
            self._missing[node.index] = needed + (node.index in reused.skipped)

    async def _run_together(self) -> None:
        running = anyio.create_task_group()
        group = _Group(running.start_soon, running.cancel_scope)
        async with running:
            await self._drain(group)
        if group.failure is not None:
            raise group.failure

    async def _drain(self, group: _Group, node: Node | None = None) -> None:
        """Run this node, then all ready nodes.

        Nodes that have never suspended run in place, and other nodes run in separate asyncio tasks.
        """
        try:
            if node is not None:
                await self._run(node)
                group.in_flight -= 1
            while (self._ready or self._plain) and self.declined is None:
                if not self._ready and not group.in_flight and self.threads.share_one:
                    if not self._recall_plain():
                        await self._drive(group)
                    continue
                node = self.plan.nodes[heapq.heappop(self._ready or self._plain)]
                group.in_flight += 1
                if self.plan.never_suspended[node.index]:
                    # If the node suspends this time, another asyncio task runs the other nodes, because this node may
                    # be waiting for them.
                    await self._run(node, beside=group)
                    group.in_flight -= 1
                else:
                    group.start(self._drain, group, node)
        except Exception as error:  # noqa: BLE001 - raised by `_run_together`, without the group around it
            if group.failure is None:
                group.failure = error
            group.scope.cancel()
        if self.declined is not None:
            group.scope.cancel()

    def _recall_plain(self) -> bool:
        """Settle plain remembered nodes whose values are kept, without using a thread. Return True if any node was
        settled.
        """
        found = False
        while self._plain and self.declined is None:
            node = self.plan.nodes[self._plain[0]]
            outcome = self.outcomes.recall(node) if node.remember else None
            if outcome is None:
                break
            found = True
            heapq.heappop(self._plain)
            self._note_begin(node)
            self._note_end(node, "recalled")
            self._settle(node, outcome)
        return found

    def _has_one_lane(self) -> bool:
        """Return True if only plain functions in one lane can run. Then none of them could run in another thread."""
        plain, lanes = self._plain, self.plan.lanes
        if self._ready or not self.threads.share_one:
            return False
        if not plain:
            return self._enters_in_thread()
        return len(plain) == 1 or all(lanes[index] == lanes[plain[0]] for index in plain)

    def _enters_in_thread(self) -> bool:
        """Return True if a thread must enter the next context manager."""
        return bool(self._entering) and self.plan.lanes[self._entering[0]] is not None

    async def _drive(self, group: _Group | None) -> None:
        """Let a thread run plain functions. If there is a group, the group runs other nodes during a slow function."""
        run = _PlainNodes(self, group)
        how: NodeHow = "failed"
        try:
            try:
                await self.threads.drive(run, lane=self.plan.lanes[(self._plain or self._entering)[0]])
                # A plain function may return a coroutine, for example if it is a lambda that calls an async function.
                value = await run.value if inspect.isawaitable(run.value) else run.value
            except BaseException as error:
                if run.node is None:
                    raise
                self._isolate(run.node, error)
                return
            if run.node is not None:
                how = self._conclude(run.node, value)
        finally:
            if run.node is not None:
                self._note_end(run.node, how)
            if run.is_beside and group is not None:
                group.in_flight -= 1
            for entry in run.entries:
                entry.share()

    async def _run(self, node: Node, beside: _Group | None = None) -> None:
        self._note_begin(node)
        how: NodeHow = "failed"
        try:
            how = await self._run_node(node, beside)
        finally:
            self._note_end(node, how)

    def _note_begin(self, node: Node) -> None:
        if self.watch is not None:
            self.watch(NodeBegan(node.key))

    def _note_end(self, node: Node, how: NodeHow) -> None:
        if self.watch is not None:
            self.watch(NodeEnded(node.key, how))

    async def _run_node(self, node: Node, beside: _Group | None) -> NodeHow:
        outcome = self.outcomes.recall(node) if node.remember else None
        if outcome is not None:
            self._settle(node, outcome)
            return "recalled"
        call = self._call_of(node)
        if call is None:
            return "failed"
        try:
            if node.enters:
                value = await self._enter(node, call)
            elif node.is_async:
                value = await self._await_tracking_suspension(call(), node, beside)
            else:
                value = call() if node.inline else await self.threads.run(call, lane=self.plan.lanes[node.index])
                # A plain function may return a coroutine, for example if it is a lambda that calls an async function.
                if inspect.isawaitable(value):
                    value = await self._await_tracking_suspension(value, node, beside)
        except BaseException as error:  # noqa: BLE001 - raised again, unless it ends only this node
            self._isolate(node, error)
            return "failed"
        return self._conclude(node, value)

    def _call_of(self, node: Node) -> Callable[[], Any] | None:
        """Return a node's function with its arguments bound.

        Return None, and set `declined`, if the user declined a question whose answer the function needs.
        """
        if not node.inputs:
            return node.fn
        named: dict[str, Any] = {}
        placed: list[Any] = []
        for entry in node.inputs:
            if not self._take(entry, named):
                return None
            if entry.positional:
                placed.append(named.pop(entry.parameter))
        return functools.partial(node.fn, *placed, **named)

    def _isolate(self, node: Node, error: BaseException) -> None:
        """Keep an error that ends only its own node, and raise any other error."""
        if self.is_isolated is not None and self.is_isolated(error):
            self.failed[node.index] = error
            return
        if isinstance(error, anyio.get_cancelled_exc_class()) and not is_cancelled(self.cancelled):
            raise strayed() from error
        raise error

    def _conclude(self, node: Node, value: Any) -> NodeHow:
        """Settle a node with the value or the question that its function returned."""
        if isinstance(value, PlainEntry):
            value = value.value
        how: NodeHow = "entered" if node.enters else "computed"
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
            if node.remember:
                self.outcomes.remember(node, value)
            outcome = Outcome(value)
        self._settle(node, outcome)
        return how

    @types.coroutine
    def _await_tracking_suspension(
        self, awaitable: Awaitable[Any], node: Node, beside: _Group | None
    ) -> Generator[Any, Any, Any]:
        """Await a coroutine in the current asyncio task. When the coroutine first suspends, note this and let the other
        nodes continue.
        """
        never_suspended = self.plan.never_suspended
        steps = awaitable.__await__()
        try:
            pending = next(steps)
        except StopIteration as done:
            never_suspended[node.index] = True
            return done.value
        never_suspended[node.index] = False
        if beside is not None:
            beside.start(self._drain, beside)
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

    async def _enter(self, node: Node, call: Callable[[], Any]) -> Any:
        lane = self.plan.lanes[node.index]
        if lane is None:
            managers, made = self._managers(node), call()
            value = await managers.enter(node.label, await made if inspect.isawaitable(made) else made)
            return checked(node.label, value)
        entry = self._entry(node, call)
        made = await self.threads.run(entry, lane=lane)
        if made is not entry:
            return await made
        entry.share()
        return entry.value

    def _entry(self, node: Node, call: Callable[[], Any]) -> PlainEntry:
        managers = self._managers(node)
        entry = PlainEntry(node.label, call, hold=self.threads.hold, enter=managers.enter)
        managers.keep(entry)
        return entry

    def _managers(self, node: Node) -> Managers:
        if self.managers is None:
            raise InvalidSignature(f"{node.label!r} must not make a context manager here: nothing would exit it")
        return self.managers

    def _take(self, entry: Input, into: dict[str, Any]) -> bool:
        """Add an input's value. Return False, and set `declined`, if the user declined the input's question."""
        if entry.source is Source.CONTEXT:
            into[entry.parameter] = self.context()
        elif entry.source is Source.ARGUMENT:
            into[entry.parameter] = self.arguments[entry.name]
        else:
            outcome = self.settled[entry.node]
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
        self.settled[node.index] = outcome
        if outcome.action is not Action.ACCEPT and node.consumer is not None:
            self.declined = self.declined or DeclinedParameter(node.consumer, outcome)
            return
        for index in node.dependents:
            self._missing[index] -= 1
            if not self._missing[index] and self.settled[index] is None:
                self._push(index)

    def _push(self, index: int) -> None:
        if self.plan.nodes[index].enters:
            heapq.heappush(self._entering, index)
        else:
            heapq.heappush(self._ready if self.plan.lanes[index] is None else self._plain, index)

    def next_plain(self, *, may_enter: bool) -> tuple[Node, Callable[[], Any]] | None:
        """Return the next plain node to run, with its function; None if the loop must take over."""
        if self.plan.may_carry_secrets:
            self._recall_plain()
        if self._ready or self.declined is not None:
            return None
        if not self._plain and not (may_enter and self._enters_in_thread()):
            return None
        node = self.plan.nodes[heapq.heappop(self._plain or self._entering)]
        self.threads.start(self.plan.lanes[node.index])
        self._note_begin(node)
        found: tuple[Node, Callable[[], Any]] | None = None
        try:
            call = self._call_of(node)
            if call is not None:
                found = node, self._entry(node, call) if node.enters else call
        finally:
            if found is None:
                self._note_end(node, "failed")
        return found

    def next_last(self) -> Callable[[], Any] | None:
        """Return the function to run after all nodes; None if some nodes have not run, or if the function must run
        elsewhere.
        """
        is_done = not (self._plain or self._ready or self._entering or self.waiting or self.failed)
        if self.last is None or not is_done or self.declined is not None:
            return None
        self.threads.start(self.plan.home)
        return self.last.next(self.fill)

    def settle_plain(self, node: Node, value: Any) -> None:
        """Settle a plain node that has run in a thread that also runs other nodes."""
        how: NodeHow = "failed"
        try:
            if isinstance(value, PlainEntry):
                # The next functions in this thread need the context variables.
                value.share()
            how = self._conclude(node, value)
        finally:
            self._note_end(node, how)

    def delays_others(self, node: Node) -> bool:
        """Return True if a plain function in another lane is waiting."""
        lanes = self.plan.lanes
        return any(lanes[index] != lanes[node.index] for index in self._plain)

    def continue_beside(self, group: _Group) -> None:
        """Run other nodes while a thread is still running a node."""
        group.in_flight += 1
        group.start(self._drain, group)


@dataclass(slots=True, eq=False, repr=False)
class _PlainNodes:
    """Plain nodes that a thread runs one after the other, followed by the functions that run after the last node."""

    _scheduler: Scheduler
    _group: _Group | None
    """Runs other nodes while a slow node is running. Without a group, the other nodes wait."""
    node: Node | None = None
    """The node whose function is running, or has run but is not settled yet."""
    value: Any = None
    """The node's value, if the loop must handle it."""
    is_beside: bool = False
    """True once other nodes run at the same time as this one."""
    entries: list[PlainEntry] = field(default_factory=list[PlainEntry])
    """Entries whose context variables have not been copied into the leg's context yet."""

    def next(self) -> Callable[[], Any] | None:
        """Return the next function to run; None if the loop must take over."""
        found = self._scheduler.next_plain(may_enter=self._group is None)
        if found is None:
            return self._scheduler.next_last()
        self.node, call = found
        if isinstance(call, PlainEntry):
            self.entries.append(call)
        return call

    def settle(self, value: Any) -> bool:
        """Settle the function that has run. Return False if the loop must handle its value."""
        if self.node is None:
            last = self._scheduler.last
            return last is not None and last.settle(value)
        if inspect.isawaitable(value):
            self.value = value
            return False
        node, self.node = self.node, None
        self._scheduler.settle_plain(node, value)
        return True

    def delays_others(self) -> bool:
        """Return True if a waiting plain function in another lane could run at the same time as this one."""
        return self._group is not None and self.node is not None and self._scheduler.delays_others(self.node)

    def continue_beside(self) -> None:
        """Run other nodes while the thread is still running a function."""
        if self._group is not None:
            self.is_beside = True
            self._scheduler.continue_beside(self._group)
