"""Rounds of one leg: putting a batch of questions to the client, in either era, and moving the call along.

In the live era `put` waits for the answers. In the retry era it raises `Suspension`, which unwinds whatever asked, and
the leg ends with the batch.
"""

from collections.abc import Sequence
from typing import Any

from roundtrip.asks.markers import NOTHING
from roundtrip.errors import CannotAsk
from roundtrip.machine.call import Call
from roundtrip.machine.table import Event, State
from roundtrip.runtime.answers import Answers, Open
from roundtrip.runtime.eras import Client, ask_live, is_retry_era, require_channel

__all__ = ["Rounds", "Suspension"]


class Suspension(BaseException):
    """Ends a leg that has questions out. Not an `Exception`, so that `except Exception` in user code lets it pass."""


class Rounds:
    """Puts questions for one leg; `batch` holds those the leg will end with."""

    __slots__ = ("_answers", "_call", "_client", "batch", "retry")

    def __init__(self, call: Call, client: Client, answers: Answers) -> None:
        self._call = call
        self._client = client
        self._answers = answers
        self.retry = is_retry_era(client.protocol_version)
        self.batch: dict[str, Open] = {}

    async def put(self, batch: Sequence[Open]) -> None:
        """Ask, and have the answers delivered; or, where a client cannot be asked, what stands in for them.

        After stand-ins the rest of the batch is still open, and is put again by whoever settles it.

        Raises:
            Suspension: The answers will come with the next leg.
            CannotAsk: The client cannot be asked, and nothing stands in for the answer.
        """
        unaskable = [waiting for waiting in batch if not self._can_ask(waiting)]
        if unaskable:
            for waiting in unaskable:
                await self._answers.stand_in(waiting)
            return
        self.batch.update((waiting.key, waiting) for waiting in batch)
        if self.retry:
            raise Suspension
        executing = self._call.state is State.EXECUTING
        self.note_ask()
        responses = await ask_live(self._client, batch)
        self.batch.clear()
        self._call.apply(Event.RESUME)
        self._call.apply(Event.RESOLVE)
        if executing:
            self._call.apply(Event.EXECUTE)
        self._answers.deliver(responses, {waiting.key: waiting.asked for waiting in batch})

    def _can_ask(self, waiting: Open) -> bool:
        try:
            if not self.retry:
                # First, as without a session the server has not kept what the client declared either.
                require_channel(self._client, [waiting])
            waiting.question.require(waiting.key, self._client.capabilities)
        except CannotAsk:
            if waiting.question.otherwise is NOTHING:
                raise
            return False
        return True

    def note_ask(self) -> None:
        """Move the call to where it waits for the batch."""
        detail: dict[str, Any] = {}
        if self._call.observed:
            detail["keys"] = tuple(self.batch)
            detail["reasons"] = {key: waiting.reason for key, waiting in self.batch.items()}
        self._call.apply(Event.ASK, **detail)
