"""The contract between a leg and the ledger that runs a body once, whichever instance serves the call's legs.

A leg that brings a token claims its call before it runs anything. It reports when its body starts, and then the result.
A suspension releases the claim, because the next leg continues the call.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeVar

import anyio
from mcp_types import InputRequiredResult, InputResponse

from roundtrip.engine.computed import NotedValue
from roundtrip.engine.interruptions import Suspension, verdict_on
from roundtrip.errors import (
    AnswerRejected,
    CannotAsk,
    GuessUncounted,
    QuestionDeclined,
    ToolTimedOut,
)
from roundtrip.machine.call import Call
from roundtrip.machine.journal import Journal
from roundtrip.machine.table import State

T = TypeVar("T")

_ENDS_NO_CALL: Final = (QuestionDeclined, CannotAsk, AnswerRejected, GuessUncounted)
"""Errors from a body's questions. The call can still continue with another answer, another client, or later."""
_DIGEST_BYTES: Final = 16
_LAST_WORDS_SECONDS: Final = 15.0
"""Time to record a call's outcome, shielded from cancellation."""


class Claim(Protocol):
    """One leg's claim on its call: a lease. Only its holder writes how the call ends."""

    noted: list[NotedValue]
    """Values that an earlier run of the same leg has computed."""

    async def hold(self, work: Awaitable[T]) -> T:
        """Await the leg's work, and cancel it when another leg has taken the call over.

        Raises:
            CallTakenOver: Another leg has taken the call over.
        """
        ...

    async def require_held(self) -> None:
        """Check that this leg still has the claim, before anything that must not run twice.

        Raises:
            CallTakenOver: Another leg has taken the call over.
        """
        ...

    async def start_body(self) -> None:
        """Report that the body begins, or raise CallTakenOver. If this process now dies, the outcome is unknown."""
        ...

    async def note(self, noted: NotedValue) -> None:
        """Save a computed value, in case this leg runs again. Raise CallTakenOver if another leg has the claim."""
        ...


class RecordedClaim(Claim, Protocol):
    """Claim that also records how its call ended, so that a repeated leg gets the same result."""

    async def begin(self, terms: str, *, at_once: bool) -> Any:
        """Claim the call and return None, or return its result if it has ended with the same answers.

        Args:
            terms: The digest of the client's answers.
            at_once: True if nothing runs before the body.

        Raises:
            RoundtripError: The call must not begin, for example because it ended with other answers or its outcome is
                unknown.
            Exception: The error of an earlier run.
        """
        ...

    async def record(self, outcome: Any) -> None:
        """Record the body's result, its error, or None if its outcome will never be known."""
        ...

    async def release(self) -> None:
        """Release the claim, so that the next leg can continue the call."""
        ...


def answers_digest(journal: Journal, responses: Mapping[str, InputResponse | None] | None) -> str:
    """Return a digest over all the client's answers: a result belongs to one set of answers."""
    given: dict[str, Any] = {key: [int(entry.action), entry.data] for key, entry in journal.entries.items()}
    brought = {
        key: response.model_dump(mode="json", by_alias=True, exclude_none=True) if response is not None else None
        for key, response in (responses or {}).items()
        # The names of hand-made questions are unknown here, so keep all answers.
        if key in journal.asked or journal.authored is not None
    }
    text = json.dumps([journal.leg, given, brought], sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


async def record_outcome(
    claim: RecordedClaim,
    call: Call,
    work: Awaitable[T],
    *,
    result_of: Callable[[T], Any],
    computed: Callable[[], Iterable[NotedValue]],
) -> T:
    """Await a leg's work, and record its outcome in the ledger.

    Args:
        claim: The claim on the call.
        call: The call, whose state tells whether its body has begun.
        work: The work.
        result_of: Extracts the body's result from the work's; None if there is nothing to record.
        computed: Returns the values that the call has computed, to save them on suspension.
    """
    try:
        end = await work
    except BaseException as raised:
        verdict = verdict_on(raised)
        with anyio.move_on_after(_LAST_WORDS_SECONDS, shield=True):
            if isinstance(verdict, Suspension):
                try:
                    for noted in computed():
                        await claim.note(noted)
                finally:
                    # Release it even if saving a value fails. An unreleased claim would be renewed forever.
                    await claim.release()
            elif call.state is not State.EXECUTING or isinstance(verdict, _ENDS_NO_CALL):
                # The body has not begun, or one of its questions ended the leg. A later leg may still run it.
                await claim.release()
            else:
                # The outcome is unknown if the body was cancelled midway or left running in a thread.
                is_known = isinstance(verdict, Exception) and not isinstance(verdict, ToolTimedOut)
                await claim.record(verdict if is_known else None)
        raise
    value = result_of(end)
    # The body has finished, even if the client no longer listens.
    with anyio.move_on_after(_LAST_WORDS_SECONDS, shield=True):
        if value is None or isinstance(value, InputRequiredResult):
            await claim.release()
        else:
            await claim.record(value)
    return end
