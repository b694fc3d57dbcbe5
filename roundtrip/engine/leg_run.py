"""One leg: resolve, then ask or execute. The leg ends with a result, with questions, or with a decline.

Only this module and `rounds` change a call's state, and they do so by applying events from the table. Both eras take
the same path. In the retry era, a leg ends at `ask`, and the next leg starts with `resume`. In the live era, the leg
waits at `ask` and then continues.
"""

# Without this import, the nested functions that each leg defines would evaluate their annotations each time.
from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp_types import ElicitResult, InputRequiredResult, InputResponse

from roundtrip.engine.answers import Answers
from roundtrip.engine.body import Body
from roundtrip.engine.claim import answers_digest
from roundtrip.engine.interruptions import (
    CancellationShield,
    Revision,
    Suspension,
    cancellations_restored,
    verdict_on,
    with_timeout,
)
from roundtrip.engine.leg import DONE, Authored, Declined, Finished, HandedOver, Leg, LegEnd, PlainBody, Suspended
from roundtrip.engine.outcomes import record_outcome
from roundtrip.engine.rounds import Rounds
from roundtrip.engine.silent_body import Execute, described, fail
from roundtrip.engine.teardown import TeardownStack
from roundtrip.errors import BodyMistake, CannotAsk, QuestionDeclined, RoundtripError
from roundtrip.machine.facts import BodyBegan
from roundtrip.machine.journal import Action, Journal
from roundtrip.machine.table import Event, State
from roundtrip.questions.markers import Marker
from roundtrip.resolvers.cancellation import cancel_requests
from roundtrip.resolvers.node_outcomes import NodeOutcomes
from roundtrip.resolvers.plan import Plan
from roundtrip.resolvers.scheduler import Scheduler
from roundtrip.resolvers.threads import Threads
from roundtrip.revisions import is_retry_era


async def serve(
    leg: Leg,
    *,
    arguments: Mapping[str, Any],
    make_context: Callable[[Body], Any],
    body_takes_no_context: bool,
    execute: Execute,
) -> LegEnd:
    """Serve one leg.

    Args:
        leg: The call, its plan and its client.
        arguments: The tool's validated arguments, by the names that resolvers use.
        make_context: Makes the value of a context parameter. It is called only when the value is needed.
        body_takes_no_context: True if the body takes no context.
        execute: Runs the body.

    Raises:
        ToolTimedOut: The leg's work took too long.
        RoundtripError: The call cannot continue, for example because a question cannot be asked, or because the last
            permitted answer was invalid.
        Exception: An error in the author's code.
    """
    run = LegRun(leg, arguments, make_context, body_takes_no_context, execute)
    leg.ports.offer(run.context)
    try:
        return await run.serve()
    finally:
        # Break the reference cycle through `call_done`, so that the run is freed at once. A body that has ended asks
        # nothing.
        del run.rounds.call_done


async def _execute_nothing(filled: dict[str, Any], context: Any) -> None:
    del filled, context


def end_authored(leg: Leg, result: InputRequiredResult) -> Authored:
    """End a silent body's leg with the questions that the author asks by hand."""
    return LegRun(leg, {}, lambda body: None, True, _execute_nothing).end_authored(result)


@dataclass(slots=True, eq=False, repr=False)
class LegRun:
    """One leg while it is being served. Only one run of its body is active at a time."""

    leg: Leg
    arguments: Mapping[str, Any]
    make_context: Callable[[Body], Any]
    body_takes_no_context: bool
    execute: Execute
    answers: Answers = field(init=False)
    rounds: Rounds = field(init=False)
    shield: CancellationShield | None = field(default=None, init=False)
    _body: Body | None = field(default=None, init=False)
    given_context: Any = field(default=None, init=False)
    """The context that one of the leg's functions has received; None until then."""
    _body_value: tuple[Any] | None = field(default=None, init=False)
    """The value that the body returned, if it ran in the resolvers' thread."""
    _hands_over_now: bool = field(default=False, init=False)
    _cancel_requests: int = field(default_factory=cancel_requests, init=False)
    _done_plans: dict[int, Plan] = field(default_factory=dict[int, Plan], init=False)

    def __post_init__(self) -> None:
        leg = self.leg
        self.answers = Answers(leg)
        self.rounds = Rounds(leg, self.answers, self._call_done, is_retry_era(leg.client.protocol_version))

    def body(self) -> Body:
        """Return the current run of the body. It can ask questions."""
        if self._body is None:
            self._body = Body(self.rounds)
        return self._body

    def context(self) -> Any:
        """Return the value of context parameters."""
        if self.given_context is None:
            self.given_context = self.make_context(self.body())
        return self.given_context

    async def serve(self) -> LegEnd:
        """Serve the leg. See the function `serve` in this module."""
        leg, call, rounds = self.leg, self.leg.call, self.rounds
        claim, recorded = leg.ports.claim, leg.ports.recorded_claim
        try:
            # A task's first leg is already in `resolving`, because its client's leg was handed over in that state.
            if call.state is not State.RESOLVING:
                call.begin_leg()
            if recorded is not None:
                accepted = leg.confirmation is None or accepts(leg.journal, leg.responses, leg.confirmation[0])
                terms = answers_digest(leg.journal, leg.responses)
                at_once = accepted and not leg.plan.nodes
                recalled = await recorded.begin(terms, at_once=at_once, remember=rounds.journal)
                if recalled is not None:
                    call.apply(Event.RECALL)
                    return Finished(recalled)
            if claim is not None:
                self.answers.computed.take_noted(claim.noted)
            work = self._resolve_and_execute()
            if leg.timeout is not None:
                work = with_timeout(leg.timeout, work)
            if leg.ports.entered is not None:
                # These dependencies were entered before the timeout began, so the timeout must not apply to their
                # exits.
                work = leg.ports.entered.around(work, ended_by=_exception_of, outlive=leg.ports.outlive)
            if claim is not None:
                self.shield = CancellationShield(has_timeout=leg.timeout is not None)
                work = claim.hold(work)
                if recorded is not None:
                    computed = self.answers.computed.unnoted
                    work = record_outcome(recorded, call, work, computed=computed)
                work = self.shield.around(work)
            end = await work
            if isinstance(end, Declined):
                call.apply(Event.DECLINE, reason=end.reason)
                return end
            rounds.end_abandoned()
            if isinstance(end.value, InputRequiredResult):
                return self.end_authored(end.value)
            call.apply(Event.FINISH)
            return end
        except Suspension:
            return self._suspend()
        except (BaseExceptionGroup, anyio.get_cancelled_exc_class(), Exception) as raised:
            verdict = verdict_on(raised)
            if isinstance(verdict, Suspension):
                return self._suspend()
            if isinstance(verdict, QuestionDeclined):
                rounds.end_abandoned()
                call.apply(Event.DECLINE, reason=str(verdict))
                return Declined(str(verdict))
            failure = verdict
            if isinstance(verdict, CannotAsk):
                call.apply(Event.REJECT, error=str(verdict))
            else:
                failure = fail(call, verdict, self._cancel_requests)
            if failure is raised:
                raise
            raise failure from (None if failure is verdict else raised)

    async def _resolve_and_execute(self) -> Finished | Declined:
        """Ask for the confirmation. Then resolve the parameters and run the body, and repeat this after each review
        that changes answers.
        """
        leg, answers = self.leg, self.answers
        if leg.journal is not None:
            answers.deliver(leg.responses or {}, leg.journal.asked)
        if leg.confirmation is not None:
            await self._confirm(*leg.confirmation)
        while True:
            try:
                if not leg.plan.enters:
                    return await self._run_once(None)
                entered = TeardownStack(leg.ports.report)
                with cancellations_restored():
                    return await entered.around(
                        self._run_once(entered), ended_by=_exception_of, outlive=leg.ports.outlive
                    )
            except (Revision, BaseExceptionGroup) as raised:
                if not isinstance(verdict_on(raised), Revision):
                    raise
                self.rounds.end_abandoned()
                self.leg.call.apply(Event.REVISE)
                self._body = self.given_context = self._body_value = None

    async def _confirm(self, key: str, marker: Marker) -> None:
        """Ask for the confirmation, and raise QuestionDeclined unless the user accepts."""
        while (outcome := self.answers.settle_question((key,), marker)) is None:
            await self.rounds.ask([self.answers.open[key]])
        outcome.require_value(key)

    async def _run_once(self, entered: TeardownStack | None) -> Finished | Declined:
        """Resolve the parameters, then run the body once."""
        leg, call = self.leg, self.leg.call
        values: dict[str, Any] = {}
        if leg.plan.nodes:
            declined = await self._resolve(values, entered)
            if declined is not None:
                return declined
            if self._body_value is not None and leg.plain_body is not None:
                return Finished(await leg.plain_body.finish(self._body_value[0]))
        ports = leg.ports
        if ports.begin_unclaimed is not None:
            ports.begin_unclaimed()
        if ports.hands_over or ports.needs_token:
            # End the leg with a round that has no questions. The ledger identifies the body by the call's id, and only
            # a token can carry the id to the next leg.
            self._hands_over_now = ports.hands_over and not ports.needs_token
            raise Suspension
        if ports.claim is not None and self.shield is not None:
            await ports.claim.start_body()
            self.shield.begin()
        call.apply(Event.EXECUTE)
        if call.watch is not None:
            call.watch(BodyBegan(ports.begin_unclaimed is not None))
        if self.body_takes_no_context and self.given_context is None:
            return Finished(await self.execute(values, None))
        with self.body().running(), cancellations_restored():
            return Finished(await self.execute(values, self.context()))

    async def _resolve(self, values: dict[str, Any], entered: TeardownStack | None) -> Declined | None:
        """Resolve the parameters into `values`, and ask the questions that resolving needs."""
        leg, answers = self.leg, self.answers
        last: _BodyInThread | None = None
        # If there is a watcher, the body must not run in the resolvers' thread: only the leg's own asyncio task may
        # report facts.
        if leg.plain_body is not None and leg.call.watch is None:
            last = _BodyInThread(self, leg.plain_body, values, entered)
        scheduler = Scheduler(
            leg.plan,
            arguments=self.arguments,
            context=self.context,
            outcomes=answers,
            threads=leg.threads,
            managers=entered,
            reused=leg.reused,
            watch=self.leg.call.watch,
            cancelled=self._cancel_requests,
            last=last,
        )
        await scheduler.advance()
        while scheduler.declined is None and scheduler.waiting:
            if leg.journal is None or not answers.known.adopt(answers.open, scheduler.is_blocked):
                await self.rounds.ask([answers.open[node.key] for node in scheduler.waiting_nodes()])
            scheduler.settle_waiting()
            await scheduler.advance()
        self._body_value = last.value if last is not None else None
        if scheduler.declined is None and self._body_value is None:
            scheduler.fill(values)
        if (declined := scheduler.declined) is None:
            return None
        return Declined(declined.as_on_sdk() if leg.is_of_tool else str(declined))

    async def _call_done(self, done: Callable[..., Any]) -> Any:
        """Call a page's `done` function. A leg that waits for the page calls the function many times."""
        # The id stays unique, because the question keeps the function alive.
        plan = self._done_plans.get(id(done))
        if plan is None:
            plan = self._done_plans[id(done)] = self.leg.plan_for(done)
        entered = TeardownStack(self.leg.ports.report)
        # Use separate threads, because a waiting body may occupy the leg's thread.
        threads = self.leg.threads.apart()
        try:
            return await entered.around(self._run_done(plan, entered, threads), ended_by=lambda value: None)
        finally:
            threads.close()

    async def _run_done(self, plan: Plan, entered: TeardownStack, threads: Threads) -> Any:
        scheduler = Scheduler(
            plan,
            arguments=self.arguments,
            context=self.context,
            outcomes=NodeOutcomes(),
            threads=threads,
            managers=entered,
        )
        await scheduler.advance()
        if scheduler.waiting:
            label = scheduler.waiting_nodes()[0].label
            raise BodyMistake(f"{label} decides whether a page is finished, so it must not ask questions")
        values: dict[str, Any] = {}
        scheduler.fill(values)
        return values[DONE]

    def end_authored(self, result: InputRequiredResult) -> Authored:
        """End the leg with the questions that the author asks by hand."""
        leg = self.leg
        if leg.client.protocol_version is not None and not self.rounds.answers_come_later:
            # On an SDK server, the client also receives an internal error in this case.
            self.leg.call.apply(Event.FAIL, error="returned an InputRequiredResult, which the client does not support")
        else:
            requests = result.input_requests or {}
            self.leg.call.apply(Event.ASK, keys=tuple(requests), authored=True, requests=requests)
        state = result.request_state
        if state is None and (self.answers.entries or leg.ports.claim or leg.ports.begin_unclaimed is not None):
            # Without a token, the next leg would belong to another call, which has neither the answers nor the claim.
            state = ""
        return Authored(result, self.rounds.write_journal(authored=state) if state is not None else None)

    def _suspend(self) -> Suspended | HandedOver:
        """End the leg with the open questions, or hand the call over before its body runs."""
        try:
            if self.leg.ports.hands_over and self.rounds.external and not self.rounds.batch:
                # The call's task will wait for these outcomes. If the call has no token yet, a round without questions
                # must come first.
                self._hands_over_now = not self.leg.ports.needs_token
                self.rounds.external.clear()
            if self._hands_over_now and not self.rounds.batch:
                self.rounds.write_journal()
                return HandedOver()
            return self.rounds.suspend()
        except RoundtripError as error:
            error.words = self.answers.words
            self.leg.call.apply(Event.FAIL, error=described(error))
            raise


@dataclass(slots=True, eq=False, repr=False)
class _BodyInThread:
    """A plain body that runs in the resolvers' thread. Context managers then exit in the same thread."""

    _run: LegRun
    _body: PlainBody
    _values: dict[str, Any]
    _entered: TeardownStack | None
    value: tuple[Any] | None = None
    """The value that the body returned."""

    def next(self, fill: Callable[[dict[str, Any]], bool]) -> Callable[[], Any] | None:
        """Return the body on the first call. On each later call, return a function that exits one context manager.
        Return None if the body must begin on the loop, or if this thread cannot exit the next context manager.
        """
        if self.value is not None:
            return self._entered.next_exit(self.value[0]) if self._entered is not None else None
        # A resolver that has received the context may still be asking questions with it, in an asyncio task of its own.
        if self._run.given_context is not None or not fill(self._values):
            return None
        self._run.leg.call.apply(Event.EXECUTE)
        return self._body.call(self._values)

    def settle(self, value: Any) -> bool:
        """Keep the value that the body returned. Return False if the loop must await the value."""
        if self.value is None:
            self.value = (value,)
        return not inspect.isawaitable(value)


def accepts(journal: Journal | None, responses: Mapping[str, InputResponse | None] | None, confirmation: str) -> bool:
    """Return True if the user accepts a confirmation on this leg, or has accepted it on an earlier leg."""
    response = (responses or {}).get(confirmation)
    if isinstance(response, ElicitResult):
        return response.action == "accept"
    entry = journal.entries.get(confirmation) if journal is not None else None
    return entry is not None and entry.action is Action.ACCEPT


def _exception_of(end: Finished | Declined) -> BaseException | None:
    """Return the exception that dependencies receive when they exit; None after a success."""
    if isinstance(end, Declined):
        return RoundtripError(end.reason)
    # When a body asks by hand, the call is suspended, as for any other question.
    return Suspension() if isinstance(end.value, InputRequiredResult) else None
