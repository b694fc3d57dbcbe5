"""Serving one leg, which begins with a token's journal, and ends with the function's result or the next journal."""

# Without this import, the nested functions in `run` would evaluate their annotations on each leg.
from __future__ import annotations

import asyncio
import functools
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import anyio.to_thread
from mcp.server import MCPServer
from mcp.server.context import ServerRequestContext

from roundtrip.engine.leg import (
    Authored,
    Declined,
    Finished,
    HandedOver,
    JoinedCall,
    Leg,
    LegEnd,
    PlainBody,
    Suspended,
)
from roundtrip.engine.silent_body import Execute, serve_silent_body
from roundtrip.errors import CallOutlived, ChannelMissing, RoundtripError, ToolTimedOut
from roundtrip.legs.extensions import LegNotes, LegPart, OpenLeg
from roundtrip.legs.functions import AskingFunction, LegFeature
from roundtrip.legs.parts import Parts
from roundtrip.legs.requests import Incoming, RequestClient, client_name, offer, take_back
from roundtrip.limited_logs import LimitedLog
from roundtrip.machine.call import Call
from roundtrip.machine.journal import Journal
from roundtrip.machine.table import Event
from roundtrip.on_demand import load_on_use
from roundtrip.revisions import CLIENTS_STOP_AFTER_ROUNDS, FIRST_OF_RETRY_ERA, is_retry_era
from roundtrip.threads.loops import is_on_asyncio

if TYPE_CHECKING:
    from mcp_types import InputRequiredResult, InputResponse

    from roundtrip import tracing
    from roundtrip.engine import leg_run, ports, rounds
    from roundtrip.engine.body import Body
    from roundtrip.engine.ports import BeginWaits, Channels
    from roundtrip.engine.teardown import TeardownStack
    from roundtrip.legs import asking, leg_facts
    from roundtrip.legs.asking import AskingContext
    from roundtrip.legs.extensions import CountGuessOfLeg, LegExtension, LifespanWorker
    from roundtrip.machine.facts import Watch
    from roundtrip.questions.markers import Marker
    from roundtrip.resolvers.node_outcomes import Reused
    from roundtrip.resolvers.plan import Plan
    from roundtrip.threads.leg_threads import LegThreads

load_on_use(
    globals(),
    "roundtrip.engine.leg_run",
    "roundtrip.engine.ports",
    "roundtrip.engine.rounds",
    "roundtrip.legs.asking",
    "roundtrip.legs.leg_facts",
    "roundtrip.tracing",
)

logger = logging.getLogger("roundtrip")
# These logs are rate limited, because clients can trigger their messages.
_CHANNEL_LOG: Final = LimitedLog(logger)
_ROUNDS_LOG: Final = LimitedLog(logger)
_WARNED_FROM_ROUND: Final = CLIENTS_STOP_AFTER_ROUNDS - 2
_MANY_ROUNDS: Final = (
    "%s asks in round %d of one call, but clients on %s stop after round %d; ask in fewer rounds: ask several "
    "questions at once with ctx.ask_all or with resolvers that do not need each other, or use one form with more fields"
)


ServedEnd = Finished | Suspended | Authored | HandedOver | JoinedCall
"""Every way in which a leg can end, except a decline."""


def result_of(end: ServedEnd) -> Any:
    """Return a leg's result for an SDK handler: the function's result, or the result that asks the questions."""
    if isinstance(end, Finished):
        return end.value
    if isinstance(end, HandedOver | JoinedCall):
        raise RuntimeError("only roundtrip's own handler can return a stored call's handle")
    return end.result() if isinstance(end, Suspended) else end.result


class DeclinedByUser(RoundtripError):
    """The user declined or cancelled a question that the call needs."""


class LegRunner:
    """Runs the legs of one server's functions."""

    def __init__(
        self,
        server: MCPServer[Any] | None,
        parts: Parts,
        count_guess: CountGuessOfLeg | None,
        begin_waits: BeginWaits | None,
        make_context: Callable[..., AskingContext[Any, Any]],
    ) -> None:
        self.server = server
        self.parts = parts
        self.make_context = make_context
        """Makes the author's context from the options of `AskingContext`."""
        self.count_guess = count_guess
        self.begin_waits = begin_waits
        """For calls that are not stored: makes the object that a body uses to sleep and to wait for signals."""
        self.lifespans: dict[asyncio.AbstractEventLoop, list[Any]] = {}
        """The states of the server's active lifespans, by event loop."""
        self.extensions: list[LegExtension] = []
        """The features that take part in every function's legs. Features may be added after the functions."""
        self.workers: list[LifespanWorker] = []
        """Work that runs on an event loop as long as a server lifespan is active there."""
        self._page_waits: list[float] = []
        self.page_wait = math.inf
        """The maximum number of seconds that a leg waits for a page."""

    def context_of(self, request: ServerRequestContext[Any, Any]) -> AskingContext[Any, Any]:
        """Return a context that cannot ask, for code outside legs."""
        return self.make_context(request_context=request, mcp_server=self.server, subscriptions=self.parts.effects.bus)

    @asynccontextmanager
    async def alive(self, state: Any) -> AsyncGenerator[None]:
        """Wrap a server lifespan. The server's workers run while the `with` block is active.

        Args:
            state: The state that the lifespan has yielded.
        """
        if not is_on_asyncio():
            yield
            return
        loop = asyncio.get_running_loop()
        states = self.lifespans.setdefault(loop, [])
        states.append(state)
        for worker in self.workers:
            worker.start()
        try:
            yield
        finally:
            # Compare by identity, because an author's state class may define its own equality.
            states.pop(next(place for place, each in enumerate(states) if each is state))
            if not states:
                del self.lifespans[loop]
                for worker in self.workers:
                    await worker.stop()

    @contextmanager
    def limit_page_wait(self, page_wait: float) -> Generator[None]:
        """Limit how many seconds legs inside a `with` block wait for a page."""
        # Keep a list, because concurrent blocks may end in any order.
        self._page_waits.append(page_wait)
        self.page_wait = min(self._page_waits)
        try:
            yield
        finally:
            self._page_waits.remove(page_wait)
            self.page_wait = min(self._page_waits, default=math.inf)

    async def run(
        self,
        function: AskingFunction,
        arguments: Mapping[str, Any],
        incoming: Incoming,
        opened: OpenedGates | None = None,
        *,
        is_traced: bool = True,
    ) -> ServedEnd:
        """Serve one leg, and return the function's converted result or the questions.

        Args:
            function: The function.
            arguments: The client's arguments, in the form that the function receives.
            incoming: The request that the leg serves, with the answers that came with it.
            opened: The item's opened visibility gates, with the values that they computed; None if the item has none.
            is_traced: True to report the leg to tracers.

        Raises:
            DeclinedByUser: The user declined or cancelled a question that the call needs.
            ToolTimedOut: The function's work took too long.
            RoundtripError: The call cannot continue.
            Exception: An error in the author's code.
        """
        if function.source.text is None:
            # The function was registered on the event loop, where its source files could not be read.
            await anyio.to_thread.run_sync(function.source.read)
        end = await self._serve(served := ServedLeg(self, function, arguments, incoming, opened), is_traced=is_traced)
        while isinstance(end, Suspended) and served.asks_live(end) and (journal := served.notes.written) is not None:
            answers = await served.ask(end)
            if served.record is not None:
                # The next leg belongs to the same request.
                served.record.is_taken = False
            served = ServedLeg(self, function, arguments, incoming, None, (journal, answers))
            end = await self._serve(served, is_traced=is_traced)
        return end

    async def _serve(self, served: ServedLeg, *, is_traced: bool) -> ServedEnd:
        """Serve one leg. See `run`."""
        function, opened = served.function, served.opened
        confirmation = function.confirm(served.arguments) if function.confirm is not None else None
        if function.extensions or self.extensions:
            served.join((*self.extensions, *function.extensions))
        if opened is not None:
            # Do this only after the features have joined: a feature may reject the leg, and then the gates close their
            # own threads.
            opened.hand_over(served.threads, function.planned.plan)
        record, end = served.record, None
        if record is not None:
            record.is_taken = True
        # The context is made only if something on this leg needs it.
        offered = offer(served.make_context)
        openers = [part for part in served.leg_parts if part.opens]
        try:
            ended = None
            try:
                ended = await served.open(openers) if openers else None
            finally:
                # The leg may have adopted another request's call, so this is the first moment at which its id is known.
                if is_traced and self.parts.effects.tracers.tracers:
                    served.watch = leg_facts.begin(self.parts.effects.tracers, served)
                if record is not None:
                    record.call_id = served.call.id
            if ended is not None:
                end = ended
                served.end_at_once(ended)
            elif served.needs_body_only():
                end = await serve_silent_body(
                    served.call, served.execute, seconds=function.timeout, end_authored=served.end_authored
                )
            else:
                end = await leg_run.serve(
                    served.leg(confirmation),
                    arguments=served.arguments,
                    make_context=served.make_context,
                    body_takes_no_context=not function.contexts,
                    execute=served.execute,
                )
            for part in openers:
                await part.finish(end)
        except BaseException as error:
            try:
                for part in openers:
                    await part.finish(None)
            finally:
                served.report(error)
            raise
        finally:
            take_back(offered)
            served.threads.close()
            # Break the reference cycle between the parts and the leg. Otherwise only the garbage collector would free
            # it.
            served.leg_parts = ()
        return served.conclude(end)


class OpenedGates(Protocol):
    """The visibility gates that opened for a request, and the values that their functions computed."""

    def reused_in(self, plan: Plan) -> Reused | None:
        """Return the gates' values that this plan can use; None if there are none."""
        ...

    @property
    def managers(self) -> TeardownStack | None:
        """Return the context managers that must exit after the item has been served."""
        ...

    def hand_over(self, threads: LegThreads, plan: Plan) -> None:
        """If a function in the leg uses a gate function's value, run it in the gate function's thread."""
        ...


# A `ServedLeg` must not refer to its `Leg`. The `Leg` refers to this object's methods, so only the garbage collector
# would free both.
@dataclass(eq=False, repr=False)
class ServedLeg(OpenLeg):
    """One leg, with its request and tracers."""

    runner: LegRunner
    function: AskingFunction
    arguments: Mapping[str, Any]
    incoming: Incoming
    opened: OpenedGates | None
    continues: tuple[Journal, Mapping[str, InputResponse | None]] | None = None
    """The journal and the answers with which a live client's request goes on; None on its first leg."""

    def __post_init__(self) -> None:
        function, incoming, system = self.function, self.incoming, self.parts.system
        served = incoming.record
        self.record = record = served if function.is_asked_for(incoming) else None
        self.stored = self.journal = None
        self.responses: Mapping[str, InputResponse | None] | None = incoming.responses
        self.hands_over = False
        if record is not None:
            self.stored = record.stored
            self.hands_over = function.hands_over and record.may_become_task
            if self.in_retry_era:
                self.journal = record.journal
            elif self.continues is not None:
                self.journal, self.responses = self.continues
        self.leg_parts: Sequence[LegPart] = ()
        self.binds_tickets = True
        self.notes = LegNotes()
        if self.journal is not None:
            self.adopt(self.journal, self.responses)
            if self.stored is not None:
                self.call, self.end = self.stored.call(), self.stored.expires
        else:
            self.call = Call(system.new_id())
            # Use whole milliseconds, like the journal, because all legs must have the same times.
            self.born = int(system.time() * 1000) / 1000
            self.end = round((self.born + function.limits.max_age) * 1000) / 1000
        self.threads = function.threads.of_leg(home=function.planned.plan.home)
        self.watch: Watch | None = None
        """Reports facts to the tracers, if there are any."""

    @property
    def parts(self) -> Parts:
        """Return the server's keys, limits and effects."""
        return self.runner.parts

    @property
    def request(self) -> ServerRequestContext[Any, Any] | None:
        """Return the client's request, even if another function called this one."""
        served = self.incoming.record
        return served.context if served is not None else self.incoming.request

    @property
    def in_retry_era(self) -> bool:
        """Return True if the request belongs to the retry era."""
        request = self.request
        return request is not None and is_retry_era(request.protocol_version)

    @property
    def channels(self) -> Channels | None:
        """Return the channels for the leg's questions; None if the client's forms are the only channel."""
        return self.record.channels if self.record is not None else None

    def adopt(self, journal: Journal | None, responses: Mapping[str, InputResponse | None] | None) -> None:
        """Continue the call that a journal describes. None keeps the leg's new call."""
        if journal is not None:
            self.journal, self.responses = journal, responses
            self.call = Call.resumed(journal)
            self.born, self.end = journal.born, journal.end

    async def open(self, openers: Sequence[LegPart]) -> LegEnd | None:
        """Let features prepare the leg. Return its end if it must not begin."""
        for part in openers:
            if (ended := await part.open()) is not None:
                return ended
        return None

    def end_at_once(self, end: LegEnd) -> None:
        """Move a call that ends before its leg begins."""
        self.call.begin_leg()
        if isinstance(end, Declined):
            self.call.apply(Event.DECLINE, reason=end.reason)
        else:
            self.call.apply(Event.RECALL)

    def asks_live(self, end: Suspended) -> bool:
        """Return True if the request's client must now be asked over its connection, before the next leg."""
        return self.notes.asks_between_legs and end.channel is None and bool(end.questions)

    async def ask(self, end: Suspended) -> Mapping[str, InputResponse | None]:
        """Ask the client, and return its answers.

        Raises:
            CallOutlived: The call expired before the client answered.
        """
        answers: Mapping[str, InputResponse | None] | None = None
        with anyio.move_on_after(self.end - self.parts.system.time()):
            answers = await rounds.answers_of(RequestClient(self.request), [*end.questions.values()])
        if answers is None:
            raise CallOutlived([*end.questions])
        return answers

    def join(self, extensions: Sequence[LegFeature]) -> None:
        """Let features take part in the leg."""
        joined = (cast("LegExtension", extension).join(self) for extension in extensions)
        self.leg_parts = [part for part in joined if part is not None]

    def needs_body_only(self) -> bool:
        """Return True if the leg has nothing to resolve, confirm, claim or exit, and its body takes no context."""
        function, opened = self.function, self.opened
        return (
            not function.contexts
            and not function.planned.plan.nodes
            and function.confirm is None
            and (opened is None or opened.managers is None)
            and not any(part.needs_engine for part in self.leg_parts)
            and self.stored is None
            and not self.hands_over
        )

    def leg(self, confirmation: tuple[str, Marker] | None) -> Leg:
        """Return the values with which the engine serves the leg."""
        runner, function, journal, threads = self.runner, self.function, self.journal, self.threads
        opened, stored, count_guess = self.opened, self.stored, runner.count_guess
        responses = self.responses if journal is not None else None
        limits, claim, clock = function.limits, None, self.parts.system.time
        if stored is not None:
            # A stored call's times come from the store's clock.
            claim, clock = stored.claim, stored.clock
            responses, limits = stored.responses, stored.limits(clock())
        leg = Leg(
            call=self.call,
            plan=function.planned.plan,
            client=RequestClient(self.request),
            born=self.born,
            end=self.end,
            clock=clock,
            limits=limits,
            write=self.write,
            plan_for=function.plan_for,
            confirmation=confirmation,
            build=function.source.read(),
            is_of_tool=function.kind == "tool",
            version=function.version,
            journal=journal,
            responses=responses,
            timeout=function.timeout,
            threads=threads,
            ports=ports.Ports(
                claim=claim,
                count_guess=functools.partial(count_guess, self) if count_guess is not None else None,
                begin_waits=stored.begin_waits if stored is not None else runner.begin_waits,
                is_stored=stored is not None,
                channels=self.channels or ports.Channels(),
                by_model=stored.by_model if stored is not None else (),
                page_wait=runner.page_wait,
                hands_over=self.hands_over,
                pinner=stored.pinner if stored is not None else self.parts.protection.journals.pinner,
                outlive=threads.outlive,
                report=log_teardown,
                offer=offer,
                entered=opened.managers if opened is not None else None,
            ),
            plain_body=self.plain_body(),
            reused=opened.reused_in(function.planned.plan) if opened is not None else None,
        )
        for part in self.leg_parts:
            part.complete(leg)
        self.notes.asks_between_legs = leg.ports.asks_between_legs
        return leg

    def end_authored(self, result: InputRequiredResult) -> Authored:
        """End the leg of a silent body with questions that the author asks by hand."""
        return leg_run.end_authored(self.leg(None), result)

    async def execute(self, filled: dict[str, Any], context: Any) -> Any:
        """Run the body, inside the wrappers that the leg's features add."""
        function = self.function
        if not self.leg_parts:
            return await function.run(self.arguments, filled, context, self.threads)

        def run(values: dict[str, Any], context: Any) -> Awaitable[Any]:
            return function.run(self.arguments, values, context, self.threads)

        execute: Execute = run
        for part in reversed(self.leg_parts):
            execute = part.around(execute)
        return await execute(filled, context)

    def plain_body(self) -> PlainBody | None:
        """Return the body if it may run directly after plain resolvers; otherwise None."""
        is_wrapped = any(type(part).around is not LegPart.around for part in self.leg_parts)
        if not self.function.planned.plan.nodes or is_wrapped or self.hands_over or self.stored is not None:
            return None
        return self.function.plain_body(self.arguments)

    def make_context(self, body: Body | None = None) -> AskingContext[Any, Any]:
        """Return a context for the leg's functions. Without a body, the context cannot ask."""
        return self.runner.make_context(
            request_context=self.request,
            mcp_server=self.runner.server,
            input_params=self.incoming.params(),
            subscriptions=self.parts.effects.bus,
            body=body,
            call=asking.CallInfo(self.call, self._issue_ticket, stored=self.stored, intent_key=self.notes.intent_key),
        )

    def _issue_ticket(self, purpose: str, unbound: bool) -> str | None:
        """Return a page ticket that is bound to the user; None if the user is unknown."""
        protection = self.parts.protection
        user = protection.user(self.request) if self.stored is None else self.stored.user
        principal = None if unbound else user
        if principal is None and not unbound and self.binds_tickets:
            return None
        return protection.ticket_office().issue(self.call.id, purpose, expires=self.end, principal=principal)

    def write(self, journal: Journal) -> str:
        """Write the journal for the boundary or the store, and return the placeholder for the token."""
        watch, record, stored = self.watch, self.record, self.stored
        if watch is not None:
            journal = leg_facts.linked(journal, watch)
        self.notes.written = journal
        if stored is not None:
            stored.written = journal
        else:
            packed = self.parts.protection.write(journal)
            if record is not None:
                record.packed = packed
                may_be_stored = self.hands_over or (self.channels is not None and self.channels.may_store)
                if may_be_stored or any(part.may_store for part in self.leg_parts):
                    record.journal_to_store = journal
        if watch is not None:
            watch(tracing.Wrote(journal))
        return f"{journal.call_id}/{journal.leg}"

    def principal(self) -> str | None:
        """Return the caller's principal."""
        stored = self.stored
        return stored.principal if stored is not None else self.parts.protection.principal(self.request)

    # Reporting to the tracers and the log.

    def conclude(self, end: LegEnd) -> ServedEnd:
        """Report how the leg ended, and return its end unless the user declined.

        Raises:
            DeclinedByUser: The user declined or cancelled a question that the call needs.
        """
        call, record, watch = self.call, self.record, self.watch
        is_asking = not isinstance(end, Finished | Declined | HandedOver | JoinedCall) and self.stored is None
        written = self.notes.written
        own_rounds = call.round if written is None else written.own_rounds
        if is_asking and self.in_retry_era and own_rounds >= _WARNED_FROM_ROUND:
            arguments = (self.function.owner, own_rounds, FIRST_OF_RETRY_ERA, CLIENTS_STOP_AFTER_ROUNDS)
            _ROUNDS_LOG.warning(_MANY_ROUNDS, *arguments)
        if watch is not None:
            leg_facts.report_end(end, self.function, watch)
            if is_asking and record is not None and not (isinstance(end, Suspended) and self.asks_live(end)):
                # The boundary reports this later, once it knows the token's size.
                record.report_size = lambda token_bytes: watch(tracing.Closed(token_bytes))
            else:
                watch(tracing.Closed(None))
        if isinstance(end, Declined):
            raise DeclinedByUser(end.reason)
        if record is not None and self.stored is None and not isinstance(end, Finished | HandedOver | JoinedCall):
            record.minted = end.state
            if isinstance(end, Authored) and end.state is not None:
                return Authored(end.result.model_copy(update={"request_state": end.state}), end.state)
        return end

    def report(self, error: BaseException) -> None:
        """Report an error that ended the leg."""
        owner, threads = self.function.owner, self.threads
        if self.watch is not None:
            self.watch(tracing.Raised(error))
            self.watch(tracing.Closed(None))
        if isinstance(error, ToolTimedOut):
            left = threads.left
            still = f"; number of threads that its functions still occupy: {left}" if left else ""
            can_be_task = self.function.kind == "tool" and not self.function.hands_over
            cure = "; with task=True, the call runs in the background for as long as it needs" if can_be_task else ""
            logger.warning("%s %s%s%s", owner, error, still, cure, exc_info=error.__cause__)
        if isinstance(error, ChannelMissing) and self.request is not None:
            _CHANNEL_LOG.warning(
                "%s could not ask %s: on this transport, clients older than revision %s cannot receive requests; serve "
                "such clients over stdio, or over streamable HTTP with stateless_http=False and json_response=False "
                "(roundtrip serve without --no-sessions)",
                owner,
                client_name(self.request),
                FIRST_OF_RETRY_ERA,
            )


def log_teardown(label: str, error: BaseException) -> None:
    """Log an exception that a dependency raised while exiting."""
    logger.error("dependency %r failed while exiting; the call is not affected", label, exc_info=error)
