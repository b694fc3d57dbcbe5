"""One leg of one call: resolve, ask or execute, and end with a result, with questions, or refused.

A call is moved here, and around each round of questions in `rounds`, through the table's events alone. Both eras take
the same way: a retry leg ends at `ask` and the next one starts with `resume`; a live leg waits there and goes on.
"""

# The functions that `serve` makes on each leg would evaluate their annotations each time.
from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import anyio
import anyio.to_thread
from mcp_types import InputRequiredResult, InputResponse

from roundtrip.engine.answers import Answers, PendingQuestion
from roundtrip.engine.body import Body
from roundtrip.engine.client_port import Client
from roundtrip.engine.once import Once, answers_digest, record_outcome
from roundtrip.engine.outlasting import CancellationShield
from roundtrip.engine.rounds import Guess, Rounds
from roundtrip.engine.teardown import Outlive, Report, TeardownStack
from roundtrip.engine.timeouts import within
from roundtrip.engine.unwinding import Revision, Suspension, cancellations_restored, verdict_on
from roundtrip.errors import BodyMistake, CannotAsk, QuestionRefused, RoundtripError, TokenTooLarge, ToolTimedOut
from roundtrip.machine.call import Call
from roundtrip.machine.facts import BodyBegan
from roundtrip.machine.journal import Action, Entry, Journal
from roundtrip.machine.pins import Pinner
from roundtrip.machine.table import Event, State
from roundtrip.questions.markers import Marker
from roundtrip.questions.outcomes import Outcome
from roundtrip.resolvers.cancelling import cancel_requests, is_cancelled, strayed
from roundtrip.resolvers.plan import Node, Plan
from roundtrip.resolvers.scheduler import DeclinedParameter, Enter, RunInThread, Scheduler, enter_nothing
from roundtrip.revisions import is_retry_era

__all__ = ["DONE", "Authored", "Declined", "Finished", "Leg", "LegEnd", "Limits", "Suspended", "open_call", "serve"]


@dataclass(frozen=True, slots=True)
class Limits:
    """The two clocks of a call: thinking time per leg, and its whole age. In seconds.

    `recover` is for how long after either has run out what was answered may still fill in the questions of a new call.
    """

    ttl: float
    max_age: float
    recover: float = 0.0

    def __post_init__(self) -> None:
        for name in ("ttl", "max_age", "recover"):
            given: object = getattr(self, name)
            if isinstance(given, bool) or not isinstance(given, int | float):
                raise ValueError(f"{name}={given!r}: a number of seconds, not a {type(given).__name__}")
        if not 0 <= self.recover < math.inf:
            raise ValueError(
                f"recover={self.recover}: seconds for which an expired call can be begun again, 0 for none"
            )
        if not 0 < self.ttl <= self.max_age < math.inf:
            raise ValueError(
                f"ttl={self.ttl} and max_age={self.max_age}: finite seconds, more than 0, and ttl no more than max_age"
            )


class Finished(NamedTuple):
    """The body ran to its end."""

    value: Any


class Suspended(NamedTuple):
    """The leg ends with questions, to be resumed from the state."""

    questions: dict[str, PendingQuestion]
    state: str

    def result(self) -> InputRequiredResult:
        """What the SDK's handlers return to ask them."""
        requests = {key: waiting.request() for key, waiting in self.questions.items()}
        return InputRequiredResult(input_requests=requests, request_state=self.state)


class Authored(NamedTuple):
    """The leg ends with a result in which the author asks by hand; `state` holds theirs, if they gave one."""

    result: InputRequiredResult
    state: str | None


class Declined(NamedTuple):
    """The user declined or cancelled what the call could not do without."""

    reason: str


DONE: Final = "done"
"""The parameter that the plan of a page's `done` function fills."""

LegEnd = Finished | Suspended | Authored | Declined


def _report_nothing(label: str, error: BaseException) -> None:
    del label, error


def _offer_nothing(context: Callable[[], Any]) -> None:
    del context


@dataclass(slots=True)
class Leg:
    """What one leg works with. The clock and the ids are handed in: this floor has none of its own.

    `write` turns what the call remembers into the state to resume from.
    """

    call: Call
    plan: Plan
    client: Client
    born: float
    end: float
    """When no leg of the call can come any more, as the build that began it has set it."""
    clock: Callable[[], float]
    limits: Limits
    write: Callable[[Journal], str]
    plan_for: Callable[[Callable[..., Any]], Plan]
    """Plans the `done` function of a page, which may take what a resolver may take."""
    gate: tuple[str, Marker] | None = None
    """A question, with its name, that must be accepted before anything runs."""
    build: str = ""
    managers: TeardownStack | None = None
    """What has been entered for the request before the leg began, to be left with what the leg enters."""
    known: Mapping[Hashable, Outcome] | None = None
    """What nodes have yielded for the request before the leg began."""
    report: Report = _report_nothing
    offer: Callable[[Callable[[], Any]], object] = _offer_nothing
    """Lets the author's code find the context, though it is handed none."""
    version: str | None = None
    """The version of the tool, which the call stays on."""
    journal: Journal | None = None
    responses: Mapping[str, InputResponse] | None = None
    seeds: Mapping[str, Entry] | None = None
    """What was answered in an expired call that this new one takes the place of."""
    origin: str | None = None
    """That expired call: its pins stay good, so this one makes its own for the same id."""
    pinner: Pinner | None = None
    """Makes the pins of questions; without it they are only salted."""
    once: Once | None = None
    """Keeps the books, where the body must run once."""
    begin_uncovered: Callable[[], None] | None = None
    """Told of a body that should run once and begins without a token; without this, an empty round gets it one."""
    guess: Guess | None = None
    """Counts answers to questions with `guesses=`; without it there can be none."""
    timeout: float | None = None
    """Seconds that its work may take; while somebody is asked, nothing is counted."""
    outlive: Outlive | None = None
    """Keeps what has been entered for threads that go on after it, where it has a timeout."""
    page_wait: float = math.inf
    """Seconds that it waits for a page at most, whatever the page's `wait=` says."""
    run_in_thread: RunInThread = anyio.to_thread.run_sync
    """For plain resolvers and steps."""

    @property
    def books(self) -> Once | None:
        """Who keeps the books, once a token has given the call a name."""
        return self.once if self.journal is not None else None

    @property
    def recover(self) -> float:
        """For how many seconds after a deadline the call's answers may fill in a new one."""
        return self.limits.recover if self.journal is None else self.journal.recover

    def left(self) -> float:
        """Seconds until the call is older than its calls may get."""
        return self.end - self.clock()

    def remember(self, answers: Answers | None = None, *, authored: str | None = None) -> str:
        """The state that tells the next leg what it has to know.

        Raises:
            TokenTooLarge: It is more than a token may hold.
        """
        now = self.clock()
        journal = Journal(
            call_id=self.call.id,
            born=self.born,
            # No leg outlives the call's whole age, however late it starts.
            deadline=min(now + self.limits.ttl, self.end),
            end=self.end,
            leg=self.call.leg,
            round=self.call.round,
            fingerprint=self.plan.fingerprint,
            build=self.build,
            version=self.version,
            entries=answers.with_unread() if answers is not None else {},
            asked=answers.still_asked() if answers is not None else {},
            computed=answers.computed if answers is not None else {},
            authored=authored,
            seeds=answers.unused_seeds() if answers is not None else {},
            written=now,
            recover=self.recover,
            origin=self.origin,
        )
        try:
            return self.write(journal)
        except TokenTooLarge:
            if not journal.seeds:
                raise
            # They only spare somebody typing.
            return self.write(replace(journal, seeds={}))


def open_call(journal: Journal | None, *, fresh_id: Callable[[], str]) -> Call:
    """The call a leg belongs to: a new one, or the one its journal tells of."""
    if journal is None:
        return Call(fresh_id())
    return Call(
        journal.call_id,
        leg=journal.leg + 1,
        round=journal.round,
        state=State.AWAITING_INPUT,
    )


async def serve(
    leg: Leg,
    *,
    arguments: Mapping[str, Any],
    make_context: Callable[[Body], Any],
    silent: bool,
    execute: Callable[[dict[str, Any], Any], Awaitable[Any]],
) -> LegEnd:
    """Serve one leg.

    Args:
        leg: The call, its plan and its client.
        arguments: The tool's validated arguments, as resolvers may ask for them by name.
        make_context: Makes what a parameter annotated as context receives; called when one is needed.
        silent: Whether the body takes no context, and so has nothing to ask with.
        execute: Runs the body with the values of its filled parameters, and the context.

    Raises:
        ToolTimedOut: Its work took too long.
        RoundtripError: The call cannot go on (a question cannot be put, an answer was invalid too often, ...).
        Exception: What the author's code raised.
    """
    call = leg.call
    if silent and not leg.plan.nodes and leg.gate is None and leg.managers is None and leg.once is None:
        return await _serve_silent(leg, execute)
    answers = Answers(
        leg.plan,
        leg.journal,
        build=leg.build,
        call_id=call.id,
        watch=call.watch,
        seeds=leg.seeds,
        pinner=leg.pinner,
        pinned_for=leg.origin,
    )

    run = _BodyRun(leg, answers, make_context)
    leg.offer(run.context)

    plans: dict[int, Plan] = {}

    async def finish(done: Callable[..., Any]) -> Any:
        # Asked again and again while a leg waits; its question keeps the function, and so its id, alive.
        plan = plans.get(id(done)) or plans.setdefault(id(done), leg.plan_for(done))
        if not plan.enters:
            return await _finish(plan, leg, arguments, run.context, enter_nothing)
        managers = TeardownStack(leg.report)
        finishing = _finish(plan, leg, arguments, run.context, managers.enter)
        return await managers.around(finishing, ended_by=lambda value: None)

    cancelled = cancel_requests()
    rounds = run.rounds = Rounds(call, leg.client, answers, finish, leg.left, leg.page_wait, leg.guess)
    try:
        _begin(call)
        once = leg.books
        if once is not None and leg.journal is not None:
            at_once = not leg.plan.nodes and leg.gate is None
            recalled = await once.begin(answers_digest(leg.journal, leg.responses), at_once=at_once)
            if recalled is not None:
                call.apply(Event.RECALL)
                return Finished(recalled.value)
            answers.recall_computed(once.noted())
        work = _work(leg, answers, run, arguments, silent, execute)
        if leg.timeout is not None:
            work = within(leg.timeout, work)
        if leg.managers is not None:
            # What was entered before the leg is left outside of its clock, as it was entered.
            work = leg.managers.around(work, ended_by=_ended_by, outlive=leg.outlive)
        if once is not None:
            work = record_outcome(once, call, work, value_of=_returned, computed=answers.newly_computed)
            work = run.outlasting.around(work)
        end = await work
        if isinstance(end, Declined):
            call.apply(Event.DECLINE, reason=end.reason)
            return end
        rounds.go_on()
        return _end(leg, end)
    except (QuestionRefused, Suspension, BaseExceptionGroup) as raised:
        verdict = verdict_on(raised)
        if isinstance(verdict, Suspension):
            return _suspend(leg, answers, rounds)
        if isinstance(verdict, QuestionRefused):
            rounds.go_on()
            call.apply(Event.DECLINE, reason=str(verdict))
            return Declined(str(verdict))
        if isinstance(verdict, CannotAsk):
            call.apply(Event.REJECT, error=str(verdict))
        else:
            call.apply(Event.FAIL, error=_described(verdict))
        if verdict is raised:
            raise
        raise verdict from None
    except CannotAsk as error:
        call.apply(Event.REJECT, error=str(error))
        raise
    except (anyio.get_cancelled_exc_class(), Exception) as error:
        failure = _fail(call, error, cancelled)
        if failure is error:
            raise
        raise failure from error


async def _work(
    leg: Leg,
    answers: Answers,
    run: _BodyRun,
    arguments: Mapping[str, Any],
    silent: bool,
    execute: Callable[[dict[str, Any], Any], Awaitable[Any]],
) -> Finished | Declined:
    """All of a leg that may take long: have it confirmed, resolve, and run the body until it revises nothing."""
    call, rounds = leg.call, run.rounds
    if leg.journal is not None:
        answers.deliver(leg.responses or {}, leg.journal.asked)
    if leg.gate is not None:
        await _pass(leg.gate, answers, rounds)
    while True:
        try:
            if not leg.plan.enters:
                return await _run_once(leg, answers, run, arguments, silent, execute, enter_nothing)
            managers = TeardownStack(leg.report)
            once = _run_once(leg, answers, run, arguments, silent, execute, managers.enter)
            with cancellations_restored():
                return await managers.around(once, ended_by=_ended_by, outlive=leg.outlive)
        except (Revision, BaseExceptionGroup) as raised:
            if not isinstance(verdict_on(raised), Revision):
                raise
            rounds.go_on()
            call.apply(Event.REVISE)
            run.renew()


async def _run_once(
    leg: Leg,
    answers: Answers,
    run: _BodyRun,
    arguments: Mapping[str, Any],
    silent: bool,
    execute: Callable[[dict[str, Any], Any], Awaitable[Any]],
    enter: Enter,
) -> Finished | Declined:
    """Resolve, and run the body."""
    values: dict[str, Any] = {}
    if leg.plan.nodes:
        refusal = await _resolve(leg, answers, run.rounds, arguments, run.context, values, enter)
        if refusal is not None:
            return Declined(str(refusal))
    uncovered = leg.once is not None and leg.journal is None
    if uncovered:
        if leg.begin_uncovered is None:
            # A round without questions: only a token gives the call a name by which its body is known to have run.
            raise Suspension
        leg.begin_uncovered()
    elif leg.once is not None:
        await leg.once.start_body()
        run.outlasting.begin()
    leg.call.apply(Event.EXECUTE)
    if leg.call.watch is not None:
        leg.call.watch(BodyBegan(uncovered))
    if silent and not run.has_context:
        return Finished(await execute(values, None))
    with run.body.running(), cancellations_restored():
        return Finished(await execute(values, run.context()))


def _returned(end: Finished | Declined) -> Any:
    """What there is to remember of how a leg ended."""
    return end.value if isinstance(end, Finished) else None


def _ended_by(end: Finished | Declined) -> BaseException | None:
    """What a refused call is to what it has entered: not a success."""
    if isinstance(end, Declined):
        return RoundtripError(end.reason)
    # A body that asks by hand ends the leg as any other question does.
    return Suspension() if isinstance(end.value, InputRequiredResult) else None


class _BodyRun:
    """One run of a body: its asking side and its context, each made when it is first needed."""

    __slots__ = ("_answers", "_body", "_context", "_leg", "_make_context", "outlasting", "rounds")

    rounds: Rounds
    outlasting: CancellationShield
    """Around all of the leg, where its body must run once."""

    def __init__(self, leg: Leg, answers: Answers, make_context: Callable[[Body], Any]) -> None:
        self._leg = leg
        self._answers = answers
        self._make_context = make_context
        if leg.once is not None:
            self.outlasting = CancellationShield(bounded=leg.timeout is not None)
        self._body: Body | None = None
        self._context: Any = None

    def renew(self) -> None:
        """Begin another run."""
        self._body = self._context = None

    @property
    def body(self) -> Body:
        """The asking side."""
        if self._body is None:
            once = self._leg.books
            self._body = Body(
                self._leg.plan,
                self._answers,
                self.rounds,
                self._leg.run_in_thread,
                watch=self._leg.call.watch,
                note=once.note if once is not None else None,
                require_held=once.require_held if once is not None else None,
            )
        return self._body

    @property
    def has_context(self) -> bool:
        """Whether anything has been handed the context, and may have handed it on."""
        return self._context is not None

    def context(self) -> Any:
        """What a parameter annotated as context receives."""
        if self._context is None:
            self._context = self._make_context(self.body)
        return self._context


async def _serve_silent(leg: Leg, execute: Callable[[dict[str, Any], Any], Awaitable[Any]]) -> LegEnd:
    """Serve a leg of a tool that has nothing to ask with."""
    call = leg.call
    cancelled = cancel_requests()
    try:
        _begin(call)
        call.apply(Event.EXECUTE)
        if call.watch is not None:
            call.watch(BodyBegan())
        work = execute({}, None)
        return _end(leg, Finished(await (work if leg.timeout is None else within(leg.timeout, work))))
    except (anyio.get_cancelled_exc_class(), Exception) as error:
        failure = _fail(call, error, cancelled)
        if failure is error:
            raise
        raise failure from error


def _fail(call: Call, error: BaseException, cancelled: int) -> BaseException:
    """End the call with what its code raised; gives what the leg raises, which of a stray cancellation is a failure."""
    if isinstance(error, anyio.get_cancelled_exc_class()):
        if is_cancelled(cancelled):
            call.apply(Event.FAIL, error="cancelled")
            return error
        error = strayed()
    call.apply(Event.FAIL, error=_described(error))
    return error


def _begin(call: Call) -> None:
    if call.state is State.AWAITING_INPUT:
        call.apply(Event.RESUME)
        call.apply(Event.RESOLVE)
    else:
        call.apply(Event.BEGIN)


def _end(leg: Leg, end: Finished) -> LegEnd:
    value = end.value
    if isinstance(value, InputRequiredResult):
        if leg.client.protocol_version is not None and not is_retry_era(leg.client.protocol_version):
            # The SDK answers such a client with an internal error, as on its own server.
            leg.call.apply(Event.FAIL, error="returned an InputRequiredResult, which its client does not know")
        else:
            requests = value.input_requests or {}
            leg.call.apply(Event.ASK, keys=tuple(requests), authored=True, requests=requests)
        state = value.request_state
        if state is None and leg.once is not None:
            # Without a token the next leg would be another call, which nobody keeps books on.
            state = ""
        return Authored(value, leg.remember(authored=state) if state is not None else None)
    leg.call.apply(Event.FINISH)
    return end


def _suspend(leg: Leg, answers: Answers, rounds: Rounds) -> Suspended:
    """End the leg with the questions that are out.

    Raises:
        QuestionVolatile: One of them changes each time it is asked.
        TokenTooLarge: The call remembers too much.
    """
    try:
        answers.check_volatile()
        rounds.note_ask()
        return Suspended(rounds.batch, leg.remember(answers))
    except RoundtripError as error:
        error.words = answers.words
        leg.call.apply(Event.FAIL, error=_described(error))
        raise


async def _pass(gate: tuple[str, Marker], answers: Answers, rounds: Rounds) -> None:
    """Have the call confirmed.

    Raises:
        QuestionRefused: It was not.
    """
    key, marker = gate
    while (outcome := answers.settle((key,), marker)) is None:
        await rounds.put([answers.open[key]])
    if outcome.action is not Action.ACCEPT:
        raise QuestionRefused(key, outcome.word)


async def _resolve(
    leg: Leg,
    answers: Answers,
    rounds: Rounds,
    arguments: Mapping[str, Any],
    context: Callable[[], Any],
    values: dict[str, Any],
    enter: Enter,
) -> DeclinedParameter | None:
    """Fill `values`, asking what has to be asked; a refusal is what the user would not answer."""
    walk = Scheduler(
        leg.plan,
        arguments=arguments,
        context=context,
        settle=answers.settle_node,
        recall=answers.recall,
        keeps=answers.keeps,
        remember=answers.remember,
        run_in_thread=leg.run_in_thread,
        enter=enter,
        known=leg.known,
        watch=leg.call.watch,
    )
    await walk.advance()
    while walk.refusal is None and walk.waiting:
        if not answers.adopt(walk.is_blocked):
            await rounds.put([answers.open[node.key] for node, _ in walk.order()])
        walk.answered()
        await walk.advance()
    if walk.refusal is None:
        walk.fill(values)
    return walk.refusal


async def _finish(plan: Plan, leg: Leg, arguments: Mapping[str, Any], context: Callable[[], Any], enter: Enter) -> Any:
    """Call the `done` function of a page."""

    def settle(node: Node, marker: Marker) -> Outcome | None:
        del marker
        raise BodyMistake(f"{node.label} decides whether a page is done with, and cannot ask a question of its own")

    walk = Scheduler(
        plan,
        arguments=arguments,
        context=context,
        settle=settle,
        run_in_thread=leg.run_in_thread,
        enter=enter,
    )
    await walk.advance()
    values: dict[str, Any] = {}
    walk.fill(values)
    return values[DONE]


def _described(error: BaseException) -> str:
    if isinstance(error, ToolTimedOut):
        return "timed out"
    return f"{type(error).__name__}: {error}"
