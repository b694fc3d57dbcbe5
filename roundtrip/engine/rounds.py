"""Rounds of one leg: putting a batch of questions to the client, in either era, and moving the call along.

In the live era `put` waits for the answers. In the retry era it raises `Suspension`, which unwinds whatever asked, and
the leg ends with the batch.
"""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
from mcp_types import ClientCapabilities

from roundtrip.engine.answers import Answers, PendingQuestion
from roundtrip.engine.client_port import Client, ask_live, require_channel
from roundtrip.engine.timeouts import clock_standing, end_after
from roundtrip.engine.unwinding import Suspension
from roundtrip.errors import BodyMistake, CallOutlived, CannotAsk, GuessesSpent, UrlRequired
from roundtrip.machine.call import Call
from roundtrip.machine.table import Event, State
from roundtrip.questions.markers import NOTHING
from roundtrip.questions.wire import FormQuestion, UrlQuestion
from roundtrip.revisions import is_retry_era

__all__ = ["Guess", "Rounds"]


_POLL = 0.25
_DONE_TAKES = 30.0
"""Seconds a `done` function may take, however short its page's `wait` is."""

Guess = Callable[[str, Any, int], Awaitable[bool]]
"""Counts an answer to a question, of which the call may have so many; whether it is one of those."""

Finish = Callable[[Any], Awaitable[Any]]
"""Calls the `done` function of a page, with what it asks for."""


class Rounds:
    """Puts questions for one leg; `batch` holds those the leg will end with."""

    __slots__ = ("_answers", "_call", "_client", "_finish", "_guess", "_left", "_page_wait", "batch", "retry")

    def __init__(
        self,
        call: Call,
        client: Client,
        answers: Answers,
        finish: Finish,
        left: Callable[[], float],
        page_wait: float = math.inf,
        guess: Guess | None = None,
    ) -> None:
        self._finish = finish
        self._guess = guess
        self._page_wait = page_wait
        self._left = left
        self._call = call
        self._client = client
        self._answers = answers
        self.retry = is_retry_era(client.protocol_version)
        self.batch: dict[str, PendingQuestion] = {}

    async def put(self, batch: Sequence[PendingQuestion]) -> None:
        """Ask, and have the answers delivered; or, where a client cannot be asked, what stands in for them.

        After stand-ins the rest of the batch is still open, and is put again by whoever settles it.

        Raises:
            Suspension: The answers will come with the next leg.
            CannotAsk: The client cannot be asked, and nothing stands in for the answer.
            CallOutlived: The call is too old to be asked for, or gets so while the client is silent.
            GuessesSpent: A question was answered in too many different ways.
            GuessUncounted: Nothing can count such an answer now.
        """
        if any([await self._count(waiting) for waiting in batch if waiting.guess is not NOTHING]):
            return
        if any(isinstance(waiting.question, UrlQuestion) for waiting in batch) and await self._visit_pages(batch):
            return
        capabilities = self._client.capabilities
        unaskable = [waiting for waiting in batch if not self._can_ask(waiting, capabilities)]
        if unaskable:
            for waiting in unaskable:
                await self._answers.stand_in(waiting)
            return
        left = 0.0 if self.retry else self._left()
        if not self.retry and left <= 0:
            raise CallOutlived([waiting.key for waiting in batch])
        self.go_on()
        for waiting in batch:
            self.batch[waiting.key] = waiting
        if self.retry:
            raise Suspension
        executing = self._call.state is State.EXECUTING
        self.note_ask()
        responses = None
        # Whoever is asked may never answer, and a plain body holds a thread meanwhile.
        with clock_standing(), anyio.CancelScope() as patience:
            end_after(patience, left)
            responses = await ask_live(self._client, batch)
        if responses is None:
            raise CallOutlived([waiting.key for waiting in batch])
        self.batch.clear()
        self._call.apply(Event.RESUME, keys=tuple(responses))
        self._call.apply(Event.RESOLVE)
        if executing:
            self._call.apply(Event.EXECUTE)
        self._answers.deliver(responses, {waiting.key: waiting.asked for waiting in batch})

    async def _count(self, waiting: PendingQuestion) -> bool:
        """Count an answer that may then be looked at; its question is settled again."""
        guesses = waiting.question.guesses if isinstance(waiting.question, FormQuestion) else None
        if self._guess is None or guesses is None:
            raise BodyMistake(
                f"question {waiting.key!r} has guesses=, which only the ledger of a roundtrip Server counts"
            )
        if not await self._guess(waiting.key, waiting.guess, guesses):
            raise GuessesSpent(waiting.key, guesses=guesses)
        self._answers.counted(waiting.key, waiting.guess)
        return True

    async def _visit_pages(self, batch: Sequence[PendingQuestion]) -> bool:
        """See whether pages that users agreed to go to are done with, waiting a while; True if one is."""
        pages = [
            (waiting, waiting.question)
            for waiting in batch
            if isinstance(waiting.question, UrlQuestion)
            and waiting.question.done is not None
            # Without a way back the client goes to the page by itself, and calls again.
            and (waiting.consented or not (self.retry or self._client.can_be_asked_live))
        ]
        if not pages:
            return False
        patience = max(question.wait if waiting.consented else 0.0 for waiting, question in pages)
        if not self.retry and any(waiting.consented for waiting, _ in pages):
            # A live client that agrees at once would otherwise be asked as fast as it can agree.
            patience = max(patience, _POLL)
        patience = min(patience, self._page_wait)
        done_takes = max(patience, min(_DONE_TAKES, self._page_wait))
        started = anyio.current_time()
        while True:
            finished = False
            for waiting, question in pages:
                value = None
                with anyio.move_on_after(done_takes):
                    value = await self._finish(question.done)
                if value is not None and value is not False:
                    self._answers.keep(waiting, value, source="done=")
                    finished = True
                    if not self.retry:
                        await self._client.tell_done(question.elicitation_id)
            if finished or anyio.current_time() - started >= patience:
                return finished
            with clock_standing():
                await anyio.sleep(_POLL)

    def _can_ask(self, waiting: PendingQuestion, capabilities: ClientCapabilities | None) -> bool:
        try:
            if not self.retry:
                self._require_page(waiting, capabilities)
                # First, as without a session the server has not kept what the client declared either.
                require_channel(self._client, [waiting])
            waiting.question.require(waiting.key, capabilities)
        except CannotAsk:
            if waiting.question.otherwise is NOTHING:
                raise
            return False
        return True

    def _require_page(self, waiting: PendingQuestion, capabilities: ClientCapabilities | None) -> None:
        """Raise UrlRequired where the client can only be told of a page."""
        question = waiting.question
        declared = capabilities.elicitation if capabilities is not None else None
        can_show = declared is not None and declared.url is not None
        if isinstance(question, UrlQuestion) and can_show and not self._client.can_be_asked_live:
            raise UrlRequired(waiting.key, request=question.params)

    def go_on(self) -> None:
        """Move the call on from a question that a body has given up, as by a timeout around it."""
        if self._call.state is State.AWAITING_INPUT:
            self.batch.clear()
            self._call.apply(Event.RESUME)
            self._call.apply(Event.RESOLVE)
            self._call.apply(Event.EXECUTE)

    def note_ask(self) -> None:
        """Move the call to where it waits for the batch."""
        detail: dict[str, Any] = {}
        if self._call.watch is not None:
            detail["keys"] = tuple(self.batch)
            detail["reasons"] = {key: waiting.reason for key, waiting in self.batch.items()}
            detail["questions"] = tuple(self.batch.values())
        self._call.apply(Event.ASK, **detail)
