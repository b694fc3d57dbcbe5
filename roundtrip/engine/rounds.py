"""One leg's rounds: ask the client a batch of questions, in either era, and apply the matching events to the call.

In the live era, `ask` waits for the answers. In the retry era, `ask` raises `Suspension`, which unwinds the code that
asked, and the leg ends with the batch.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from mcp_types import ClientCapabilities, ElicitResult, InputResponse
from pydantic import ValidationError

from roundtrip.engine.answers import Answers
from roundtrip.engine.interruptions import Suspension, cancel_after, clock_paused
from roundtrip.engine.leg import Leg, Suspended
from roundtrip.engine.ports import Client, Wait
from roundtrip.errors import (
    BodyMistake,
    CallOutlived,
    CannotAsk,
    ChannelMissing,
    GuessesSpent,
    UrlRequired,
)
from roundtrip.machine.journal import Journal
from roundtrip.machine.table import Event, State
from roundtrip.questions.markers import NOTHING
from roundtrip.questions.wire import ExternalQuestion, FormQuestion, ModelQuestion, PendingQuestion, UrlQuestion

_PAGE_POLL_SECONDS: Final = 0.25
_DONE_SECONDS: Final = 30.0
"""A `done` function may run this long, even if its page has a shorter `wait`."""


@dataclass(slots=True, eq=False, repr=False)
class Rounds:
    """One leg's question rounds."""

    leg: Leg
    answers: Answers
    call_done: Callable[[Any], Awaitable[Any]]
    """Calls a page's `done` function with the parameters that the function takes."""
    answers_come_later: bool
    batch: dict[str, PendingQuestion] = field(default_factory=dict[str, PendingQuestion])
    """The questions with which the leg will end."""
    waits: list[Wait] = field(default_factory=list[Wait])
    """The sleeps and signals that are still pending when the leg ends."""
    external: dict[str, PendingQuestion] = field(default_factory=dict[str, PendingQuestion])
    """The external questions that are still open when the leg ends."""
    needs_page: bool = False
    """True if the leg asks the user to visit a link, but the client can show only forms. A page then shows all
    remaining questions.
    """

    async def ask(self, batch: Sequence[PendingQuestion]) -> None:
        """Ask questions and deliver the answers. Questions that the client cannot be asked get their `fallback=`.

        After a fallback, a counted answer or a finished page, the caller must ask the remaining questions again.

        Raises:
            Suspension: The answers will come with the next leg.
            CannotAsk: The client cannot be asked, and the question has no fallback.
            CallOutlived: The call expired before it could ask, or before the client answered.
            GuessesSpent: A question received too many different answers.
            GuessUncounted: An answer must be counted before it is read, but the ledger cannot count it now.
        """
        answers, client = self.answers, self.leg.client
        external = {waiting: waiting.question for waiting in batch if isinstance(waiting.question, ExternalQuestion)}
        if external:
            batch = [waiting for waiting in batch if waiting not in external]
            if await self._await_external(external, are_alone=not batch):
                return
        guesses = [waiting for waiting in batch if waiting.guess is not NOTHING]
        if guesses:
            # The counted answers can be read now, so the caller settles the batch again.
            for waiting in guesses:
                await self._count(waiting)
            return
        if any(isinstance(waiting.question, UrlQuestion) for waiting in batch):
            if await self._visit_pages(batch):
                return
            self.needs_page = self.leg.ports.channels.for_links is not None
        capabilities = client.capabilities
        unaskable = [waiting for waiting in batch if not self._can_ask(waiting, capabilities)]
        if unaskable:
            for waiting in unaskable:
                await answers.use_fallback(waiting)
            return
        # First ask the questions that only the client can answer, if its connection can carry them.
        whole, batch = batch, [waiting for waiting in batch if not self._ends_leg(waiting)] or batch
        ends_leg = self._ends_leg(batch[0])
        left = 0.0 if ends_leg else self.leg.end - self.leg.clock()
        if not ends_leg and left <= 0:
            raise CallOutlived([waiting.key for waiting in batch])
        self.end_abandoned()
        for waiting in batch:
            self.batch[waiting.key] = waiting
        if ends_leg or self.leg.ports.asks_between_legs:
            raise Suspension
        await self._ask_live(batch, whole, left)

    async def _ask_live(
        self, batch: Sequence[PendingQuestion], whole: Sequence[PendingQuestion], seconds: float
    ) -> None:
        """Ask over the open connection, and deliver the answers.

        Args:
            batch: The questions to ask.
            whole: The questions in `batch`, and those that the next leg asks.
            seconds: How long the call may still wait.
        """
        call, client = self.leg.call, self.leg.client
        was_executing = call.state is State.EXECUTING
        self._note_ask()
        responses = None
        # Limit the wait, because the user may never answer and a plain body occupies a thread.
        with clock_paused(), anyio.CancelScope() as patience:
            cancel_after(patience, seconds)
            responses = await answers_of(client, batch)
        if responses is None:
            raise CallOutlived([waiting.key for waiting in batch])
        self.batch.clear()
        call.apply(Event.RESUME, keys=tuple(responses))
        call.apply(Event.RESOLVE)
        if was_executing:
            call.apply(Event.EXECUTE)
        self.answers.deliver(responses, {waiting.key: waiting.asked for waiting in whole})

    async def _await_external(self, external: Mapping[PendingQuestion, ExternalQuestion], *, are_alone: bool) -> bool:
        """Note the external questions that the call must wait for after this leg.

        Return True if a question has expired and its fallback has replaced the outcome.

        Raises:
            Suspension: There are no other questions to ask before the leg ends.
            RoundtripError: The call is not allowed to wait for one or more of the questions.
            ValueNotStorable: A fallback value cannot be stored.
        """
        over = [waiting for waiting in external if waiting.is_over]
        for waiting in over:
            await self.answers.use_fallback(waiting)
        if over:
            return True
        # If the leg hands the call over, the call's task makes these checks.
        if not self.leg.ports.hands_over:
            for waiting, question in external.items():
                settler = self.leg.ports.settlers.get(type(question))
                if settler is None:
                    raise question.no_settler(waiting.key)
                settler.check(waiting)
        self.external |= {waiting.key: waiting for waiting in external}
        if are_alone:
            self.end_abandoned()
            raise Suspension
        return False

    async def _count(self, waiting: PendingQuestion) -> None:
        """Count an answer to a question with `guesses=`. An answer may be read only after it has been counted."""
        guesses = waiting.question.guesses if isinstance(waiting.question, FormQuestion) else None
        if self.leg.ports.count_guess is None or guesses is None:
            raise BodyMistake(
                f"question {waiting.key!r} has guesses=, but only a roundtrip Server's ledger can count guesses"
            )
        if not await self.leg.ports.count_guess(waiting.key, waiting.guess, guesses):
            raise GuessesSpent(waiting.key, guesses=guesses)
        self.answers.count(waiting.key, waiting.guess)

    async def _visit_pages(self, batch: Sequence[PendingQuestion]) -> bool:
        """Wait for pages that the user agreed to visit. Return True if the user has completed at least one page."""
        client = self.leg.client
        pages = [
            (waiting, waiting.question)
            for waiting in batch
            if isinstance(waiting.question, UrlQuestion)
            and waiting.question.done is not None
            # A client that cannot be asked live receives the page in an error, sends its user there, and calls the tool
            # again.
            and (waiting.consented or not (self.answers_come_later or client.can_be_asked_live))
        ]
        if not pages:
            return False
        patience = max(question.wait if waiting.consented else 0.0 for waiting, question in pages)
        if not self.answers_come_later and any(waiting.consented for waiting, _ in pages):
            # Pause between two questions. Without a pause, a live client that agrees immediately would be asked again
            # and again.
            patience = max(patience, _PAGE_POLL_SECONDS)
        patience = min(patience, self.leg.ports.page_wait)
        done_seconds = max(patience, min(_DONE_SECONDS, self.leg.ports.page_wait))
        if self.leg.ports.is_stored:
            # A stored call checks the page once on this leg, and again on a later leg.
            patience, done_seconds = 0.0, _DONE_SECONDS
        started = anyio.current_time()
        while True:
            is_done = False
            for waiting, question in pages:
                value = None
                with anyio.move_on_after(done_seconds):
                    value = await self.call_done(question.done)
                if value is not None and value is not False:
                    self.answers.keep(waiting, value, source="done=")
                    is_done = True
                    if not self.answers_come_later:
                        await client.tell_done(question.elicitation_id)
            if is_done or anyio.current_time() - started >= patience:
                return is_done
            with clock_paused():
                await anyio.sleep(_PAGE_POLL_SECONDS)

    def _ends_leg(self, waiting: PendingQuestion) -> bool:
        """Return True if the question's answer comes with the next leg, and False if the question is asked live."""
        if self.leg.ports.channels.is_live and isinstance(waiting.question, ModelQuestion):
            return False
        return self.answers_come_later or self.needs_page

    def _can_ask(self, waiting: PendingQuestion, capabilities: ClientCapabilities | None) -> bool:
        question, client = waiting.question, self.leg.client
        if self.leg.ports.channels.model and question.is_for_anyone:
            return True
        if self.needs_page and not isinstance(question, ModelQuestion):
            return True
        try:
            if not self._ends_leg(waiting):
                declared = capabilities.elicitation if capabilities is not None else None
                shows_pages = declared is not None and declared.url is not None
                if isinstance(question, UrlQuestion) and shows_pages and not client.can_be_asked_live:
                    raise UrlRequired(waiting.key, request=question.params)
                # Check this before the capabilities, because the server does not know them without a session.
                if not client.can_be_asked_live:
                    raise ChannelMissing(
                        [waiting.key], protocol_version=client.protocol_version, in_session=client.in_session
                    )
            question.require(waiting.key, capabilities)
        except CannotAsk:
            if question.fallback is NOTHING:
                raise
            return False
        return True

    def end_abandoned(self) -> None:
        """Continue a call whose body stopped waiting for a question, for example because of a timeout."""
        call = self.leg.call
        if call.state is State.AWAITING_INPUT:
            self.batch.clear()
            call.apply(Event.RESUME)
            call.apply(Event.RESOLVE)
            call.apply(Event.EXECUTE)

    def suspend(self) -> Suspended:
        """End the leg with the batch's questions.

        Raises:
            QuestionVolatile: A question changes on every leg.
            TokenTooLarge: The call remembers more than a token may hold.
        """
        self.answers.judge_volatile()
        self._note_ask()
        for waiting in self.external.values():
            waiting.after = (*self.answers.entries, *self.answers.known.responses)
        return Suspended(self.batch, self.write_journal(), tuple(self.waits), self._channel(), self.external)

    def _channel(self) -> str | None:
        """Return the channel whose page or result carries the whole batch; None if the client itself asks."""
        channels = self.leg.ports.channels
        asked = [waiting for waiting in self.batch.values() if not isinstance(waiting.question, ModelQuestion)]
        if not asked:
            return None
        if channels.model and all(waiting.question.is_for_anyone for waiting in asked):
            return "model"
        return channels.for_links if self.needs_page else channels.page

    def _note_ask(self) -> None:
        """Move the call to the state in which it waits for the batch."""
        detail: dict[str, Any] = {}
        call = self.leg.call
        if call.watch is not None:
            detail["keys"] = tuple(self.batch)
            detail["reasons"] = {key: waiting.reason for key, waiting in self.batch.items()}
            detail["questions"] = tuple(self.batch.values())
            if (channel := self._channel()) is not None:
                detail["channel"] = channel
            if self.waits:
                detail["waits"] = tuple(self.waits)
            if self.external and not self.batch:
                detail["external"] = tuple(self.external.values())
        call.apply(Event.ASK, **detail)

    def write_journal(self, *, authored: str | None = None) -> str:
        """Write the journal, and return the placeholder that stands for the token in the result. See `Leg.write`.

        Args:
            authored: The `request_state` from an author who asks by hand. The journal then has no open questions.

        Raises:
            TokenTooLarge: The journal is more than a token may hold.
        """
        return self.leg.write(self.journal(authored=authored))

    def journal(self, *, authored: str | None = None) -> Journal:
        """Return everything that the call remembers now."""
        leg, answers, known = self.leg, self.answers, self.answers.known
        now = leg.clock()
        journal = Journal(
            call_id=leg.call.id,
            born=leg.born,
            # A leg that starts late must also end before the call reaches its maximum age.
            deadline=min(now + leg.limits.ttl, leg.end),
            end=leg.end,
            leg=leg.call.leg,
            round=leg.call.round,
            fingerprint=leg.plan.fingerprint,
            build=leg.build,
            version=leg.version,
            authored=authored,
            written=now,
            chain=leg.ports.chain,
            skipped=leg.ports.skipped_rounds,
        )
        journal.entries, journal.computed = answers.entries, answers.computed.values
        if known.asked:
            journal.entries = known.entries_to_write()
        if authored is None:
            # Clients answer only the questions that they were asked, and they are never asked an external question.
            journal.asked = {
                key: waiting.asked
                for key, waiting in answers.open.items()
                if not isinstance(waiting.question, ExternalQuestion)
            }
            if known.asked:
                journal.asked = known.foreign_asked() | journal.asked
        return journal


async def answers_of(client: Client, batch: Sequence[PendingQuestion]) -> Mapping[str, InputResponse | None]:
    """Ask the questions one after another, and wait for each answer.

    A malformed answer becomes None. If the user declines a question without which the call cannot continue, the
    remaining questions are not asked.
    """
    answers: dict[str, InputResponse | None] = {}
    for waiting in batch:
        try:
            answer = await client.send(waiting.request(), waiting.question.result_type)
        except ValidationError:
            answer = None
        answers[waiting.key] = answer
        if waiting.decisive and isinstance(answer, ElicitResult) and answer.action != "accept":
            break
    return answers
