"""Having a body run once, whoever serves the legs of its call: what a leg asks of whoever keeps the books.

A leg that brings a token claims its call before it runs anything, says when its body begins, and afterwards what came
of it. A suspension takes the claim back, as the next leg goes on with the call.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import anyio
from mcp_types import InputRequiredResult, InputResponse

from roundtrip.engine.answers import Noted
from roundtrip.engine.unwinding import Suspension, verdict_on
from roundtrip.errors import (
    AnswerRejected,
    CallTakenOver,
    CannotAsk,
    GuessUncounted,
    QuestionRefused,
    ToolTimedOut,
)
from roundtrip.machine.call import Call
from roundtrip.machine.journal import Journal
from roundtrip.machine.table import State

__all__ = ["Once", "Recalled", "answers_digest", "record_outcome"]

T = TypeVar("T")

_ENDS_NO_CALL: Final = (QuestionRefused, CannotAsk, AnswerRejected, CallTakenOver, GuessUncounted)
"""Raised in a body by what it asks: another answer, client or time may get further."""
_TERMS_BYTES: Final = 16
_LAST_WORDS: Final = 15.0
"""Seconds for telling what came of a call, which no cancellation cuts short."""


class Recalled(NamedTuple):
    """What an earlier serving has returned."""

    value: Any


class Once(Protocol):
    """Keeps the books on one call."""

    async def begin(self, terms: str, *, at_once: bool) -> Recalled | None:
        """Claim the call; what came of it, if it has been done already with the same answers.

        With `at_once` the body is the first thing that runs.

        Raises:
            RoundtripError: It must not be begun: it has ended otherwise, its outcome is unknown, ...
            Exception: What an earlier serving ended with.
        """
        ...

    def noted(self) -> Mapping[int, Mapping[str, Any]]:
        """Return what an earlier serving of this very leg has computed, by the revision it was computed in."""
        ...

    def holding(self) -> AbstractContextManager[None]:
        """Surround the work of the leg, which ends when another leg turns out to have taken the call over.

        Raises:
            CallTakenOver: Another leg has.
        """
        ...

    async def require_held(self) -> None:
        """Make sure that the call is still this leg's, before it does what must not be done twice.

        Raises:
            CallTakenOver: Another leg has taken it over.
        """
        ...

    async def start_body(self) -> None:
        """Tell that the body begins now: from here on, nobody knows what it did if this process dies.

        Raises:
            RoundtripError: It must not begin: somebody else has taken the call over, ...
        """
        ...

    async def note(self, noted: Noted) -> None:
        """Keep what was computed, for the case that this leg is served again.

        Raises:
            CallTakenOver: Another leg has taken the call over.
        """
        ...

    async def settle(self, value: Any) -> None:
        """Tell what the body returned."""
        ...

    async def fail(self, error: Exception) -> None:
        """Tell how the body failed."""
        ...

    async def lose(self) -> None:
        """Tell that nobody will ever know how far the body got."""
        ...

    async def release(self) -> None:
        """Take the claim back."""
        ...


def answers_digest(journal: Journal, responses: Mapping[str, InputResponse | None] | None) -> str:
    """A digest of everything that the client has said: with other answers a call is another one."""
    said: dict[str, Any] = {key: [int(entry.action), entry.data] for key, entry in journal.entries.items()}
    brought = {
        key: response.model_dump(mode="json", by_alias=True, exclude_none=True) if response is not None else None
        for key, response in (responses or {}).items()
        # Only the author of a question that was put by hand knows what was asked.
        if key in journal.asked or journal.authored is not None
    }
    text = json.dumps([journal.leg, said, brought], sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=_TERMS_BYTES).hexdigest()


async def record_outcome(
    once: Once,
    call: Call,
    work: Awaitable[T],
    *,
    value_of: Callable[[T], Any],
    computed: Callable[[], Iterable[Noted]],
) -> T:
    """Do a leg's work, and tell the books what came of it.

    Args:
        once: The books.
        call: The call, whose state says whether its body has begun.
        work: What is to be done.
        value_of: What the body returned, of what the work yields; None where there is nothing to remember.
        computed: What the call has computed, to be noted when it is suspended.
    """
    try:
        with once.holding():
            end = await work
    except BaseException as raised:
        verdict = verdict_on(raised)
        begun = call.state is State.EXECUTING
        with anyio.move_on_after(_LAST_WORDS, shield=True):
            if isinstance(verdict, Suspension):
                try:
                    for noted in computed():
                        await once.note(noted)
                finally:
                    # Even if noting is cut short: a claim that is not taken back is renewed for ever.
                    await once.release()
            elif not begun or isinstance(verdict, _ENDS_NO_CALL):
                # What the client said ended the leg, or another leg did, and not what the body did.
                await once.release()
            elif isinstance(verdict, Exception) and not isinstance(verdict, ToolTimedOut):
                await once.fail(verdict)
            else:
                # Cancelled in the middle, or left running in a thread.
                await once.lose()
        raise
    value = value_of(end)
    # What has been done is done, whether or not the client still listens.
    with anyio.move_on_after(_LAST_WORDS, shield=True):
        if value is None or isinstance(value, InputRequiredResult):
            await once.release()
        else:
            await once.settle(value)
    return end
