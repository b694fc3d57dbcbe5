"""Run a body once, whichever instance serves the legs of its call: the contract between a leg and the ledger.

A leg that brings a token claims its call before it runs anything. It reports the start of its body, and afterwards the
result. A suspension releases the claim, because the next leg continues the call.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import anyio
from mcp_types import InputRequiredResult, InputResponse

from roundtrip.engine.computed import NotedValue
from roundtrip.engine.interruptions import Suspension, verdict_on
from roundtrip.errors import (
    AnswerRejected,
    CallTakenOver,
    CannotAsk,
    GuessUncounted,
    QuestionDeclined,
    ToolTimedOut,
)
from roundtrip.machine.call import Call
from roundtrip.machine.journal import Journal
from roundtrip.machine.table import State

__all__ = ["Claim", "Recalled", "answers_digest", "record_outcome"]

T = TypeVar("T")

_ENDS_NO_CALL: Final = (QuestionDeclined, CannotAsk, AnswerRejected, GuessUncounted)
"""Errors of a body's questions: the call can still go on, with another answer, another client or later."""
_DIGEST_BYTES: Final = 16
_LAST_WORDS_SECONDS: Final = 15.0
"""Time to record the outcome of a call, shielded from cancellation."""


class Recalled(NamedTuple):
    """Result of an earlier run of the body."""

    value: Any


class Claim(Protocol):
    """Claim on one call in the ledger, held by one leg."""

    async def begin(self, terms: str, *, at_once: bool) -> Recalled | None:
        """Claim the call, or return its result if it has ended with the same answers.

        Args:
            terms: The digest of the client's answers.
            at_once: True if the body is the first thing that runs.

        Raises:
            RoundtripError: The call must not begin: it has ended with other answers, its outcome is unknown, ...
            Exception: The error of an earlier run.
        """
        ...

    def noted(self) -> Mapping[int, Mapping[str, Any]]:
        """Return the values that an earlier run of the same leg has computed, by their revision."""
        ...

    def holding(self) -> AbstractContextManager[None]:
        """Surround the work of the leg, and end it with CallTakenOver when another leg has taken the call over."""
        ...

    async def require_held(self) -> None:
        """Raise CallTakenOver unless this leg has the claim; called before anything that must not run twice."""
        ...

    async def start_body(self) -> None:
        """Report that the body begins, or raise CallTakenOver. If this process now dies, the outcome is unknown."""
        ...

    async def note(self, noted: NotedValue) -> None:
        """Save a computed value, in case this leg runs again. Raise CallTakenOver if another leg has the claim."""
        ...

    async def settle(self, value: Any) -> None:
        """Record the body's result."""
        ...

    async def fail(self, error: Exception) -> None:
        """Record the body's error."""
        ...

    async def lose(self) -> None:
        """Record that the outcome of the body is unknown."""
        ...

    async def release(self) -> None:
        """Release the claim."""
        ...


def answers_digest(journal: Journal, responses: Mapping[str, InputResponse | None] | None) -> str:
    """Return a digest of all answers of the client: a result belongs to one set of answers."""
    given: dict[str, Any] = {key: [int(entry.action), entry.data] for key, entry in journal.entries.items()}
    brought = {
        key: response.model_dump(mode="json", by_alias=True, exclude_none=True) if response is not None else None
        for key, response in (responses or {}).items()
        # The names of questions that a tool asks by hand are unknown here, so keep all.
        if key in journal.asked or journal.authored is not None
    }
    text = json.dumps([journal.leg, given, brought], sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


async def record_outcome(
    claim: Claim,
    call: Call,
    work: Awaitable[T],
    *,
    result_of: Callable[[T], Any],
    computed: Callable[[], Iterable[NotedValue]],
) -> T:
    """Await a leg's work, and record its outcome in the ledger.

    Args:
        claim: The claim on the call.
        call: The call, whose state tells if its body has begun.
        work: The work.
        result_of: Gets the body's result from that of the work; None if there is nothing to record.
        computed: Gets the values that the call has computed, to be noted when it is suspended.
    """
    try:
        with claim.holding():
            end = await work
    except BaseException as raised:
        verdict = verdict_on(raised)
        has_begun = call.state is State.EXECUTING
        with anyio.move_on_after(_LAST_WORDS_SECONDS, shield=True):
            if isinstance(verdict, Suspension):
                try:
                    for noted in computed():
                        await claim.note(noted)
                finally:
                    # Also if a note fails: a claim that is not released is renewed forever.
                    await claim.release()
            elif not has_begun or isinstance(verdict, _ENDS_NO_CALL):
                # The client's answers ended this leg, and not its body.
                await claim.release()
            elif isinstance(verdict, CallTakenOver):
                # The lease has ended, and may still be this leg's. Released, the call would be free, and its body,
                # which was stopped in the middle, would begin again.
                pass
            elif isinstance(verdict, Exception) and not isinstance(verdict, ToolTimedOut):
                await claim.fail(verdict)
            else:
                # Cancelled in the middle, or left running in a thread.
                await claim.lose()
        raise
    value = result_of(end)
    # The body is done, even if the client no longer listens.
    with anyio.move_on_after(_LAST_WORDS_SECONDS, shield=True):
        if value is None or isinstance(value, InputRequiredResult):
            await claim.release()
        else:
            await claim.settle(value)
    return end
