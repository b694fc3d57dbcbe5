"""The contract between a leg and the ledger. The ledger ensures that a body runs once, even if the call's legs reach
different instances.

A leg with a token claims the call before the leg runs anything. The leg reports the start of its body, and later the
body's result. A suspension releases the claim, because the next leg continues the call.
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
"""Errors from a body's questions. They do not end the call: it can continue later, with another answer or another
client.
"""
_DIGEST_BYTES: Final = 16
_LAST_WORDS_SECONDS: Final = 15.0
"""Time limit for recording a call's outcome. Cancellation does not interrupt the recording."""


class Claim(Protocol):
    """One leg's claim on its call. The claim is a lease, and only its holder may record how the call ends."""

    noted: list[NotedValue]
    """Values that were computed when this leg ran before."""

    async def hold(self, work: Awaitable[T]) -> T:
        """Await the leg's work, and cancel the work if another leg takes the call over.

        Raises:
            CallTakenOver: Another leg has taken the call over.
        """
        ...

    async def require_held(self) -> None:
        """Check that this leg still has the claim. Call this before any action that must not happen twice.

        Raises:
            CallTakenOver: Another leg has taken the call over.
        """
        ...

    async def start_body(self) -> None:
        """Record that the body begins. If this process dies after that, the call's outcome is unknown.

        Raises:
            CallTakenOver: Another leg has taken the call over.
        """
        ...

    async def note(self, noted: NotedValue) -> None:
        """Save a computed value, in case this leg runs again.

        Raises:
            CallTakenOver: Another leg has taken the call over.
        """
        ...


class RecordedClaim(Claim, Protocol):
    """A claim that also records how its call ended, so that a repeated leg gets the same result."""

    async def begin(self, terms: str, *, at_once: bool) -> Any:
        """Claim the call, and return None. If the call has already ended with the same answers, return its result
        instead.

        Args:
            terms: The digest of the client's answers.
            at_once: True if the body is the first code to run.

        Raises:
            RoundtripError: The call must not begin, for example because it has ended with other answers, or because its
                outcome is unknown.
            Exception: The error with which an earlier run ended.
        """
        ...

    async def record(self, outcome: Any) -> None:
        """Record the body's result or error; None if the outcome is unknown and will remain so."""
        ...

    async def release(self) -> None:
        """Release the claim, so that the next leg can continue the call."""
        ...


def answers_digest(journal: Journal, responses: Mapping[str, InputResponse | None] | None) -> str:
    """Return a digest of all the client's answers. A recorded result is valid only for one set of answers."""
    given: dict[str, Any] = {key: [int(entry.action), entry.data] for key, entry in journal.entries.items()}
    brought = {
        key: response.model_dump(mode="json", by_alias=True, exclude_none=True) if response is not None else None
        for key, response in (responses or {}).items()
        # If the author asks by hand, the question names are not known here, so keep all answers.
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
        call: The call. Its state shows whether the body has begun.
        work: The awaitable that does the leg's work.
        result_of: Returns the body's result, given the work's result; None if there is nothing to record.
        computed: Returns the values that the call has computed. They are saved if the leg is suspended.
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
                    # Release the claim even if saving a value fails. Otherwise the claim would be renewed forever.
                    await claim.release()
            elif call.state is not State.EXECUTING or isinstance(verdict, _ENDS_NO_CALL):
                # The body has not begun, or one of its questions ended the leg. A later leg may still run the body.
                await claim.release()
            else:
                # The outcome is unknown if the body was cancelled midway, or is still running in a thread.
                is_known = isinstance(verdict, Exception) and not isinstance(verdict, ToolTimedOut)
                await claim.record(verdict if is_known else None)
        raise
    value = result_of(end)
    # The body has finished, so record the outcome even if the client has left.
    with anyio.move_on_after(_LAST_WORDS_SECONDS, shield=True):
        if value is None or isinstance(value, InputRequiredResult):
            await claim.release()
        else:
            await claim.record(value)
    return end
