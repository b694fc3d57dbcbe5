"""Run a body once, whichever instance serves the legs of its call: the contract between a leg and the ledger.

A leg that brings a token claims its call before it runs anything. It reports the start of its body, and afterwards the
result. A suspension releases the claim, because the next leg continues the call.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeVar

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

T = TypeVar("T")

_ENDS_NO_CALL: Final = (QuestionDeclined, CannotAsk, AnswerRejected, GuessUncounted)
"""Errors of a body's questions: the call can still go on, with another answer, another client or later."""
_DIGEST_BYTES: Final = 16
_LAST_WORDS_SECONDS: Final = 15.0
"""Time to record the outcome of a call, shielded from cancellation."""


class Recalled(NamedTuple):
    """Result of an earlier run of the body."""

    value: Any


class Claim:
    """Claim of one leg on its call: a lease, whose holder alone writes what becomes of the call.

    Args:
        owner: The tool, for error messages.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.is_taken_over = False
        """True if another leg has taken the call over, or if it was cancelled."""
        self._noted: dict[int, dict[str, Any]] = {}
        self._confirmed_at = 0.0
        """Time at which the ledger last confirmed the claim."""
        self._scope: anyio.CancelScope | None = None

    @property
    def lease(self) -> float:
        """Return the seconds that the claim lasts without a renewal."""
        raise NotImplementedError

    async def begin(self, terms: str, *, at_once: bool) -> Recalled | None:
        """Claim the call, or return its result if it has ended with the same answers. By default it is claimed already.

        Args:
            terms: The digest of the client's answers.
            at_once: True if the body is the first thing that runs.

        Raises:
            RoundtripError: The call must not begin: it has ended with other answers, its outcome is unknown, ...
            Exception: The error of an earlier run.
        """

    def noted(self) -> Mapping[int, Mapping[str, Any]]:
        """Return the values that an earlier run of the same leg has computed, by their revision."""
        return self._noted

    @contextmanager
    def holding(self) -> Generator[None]:
        """Surround the work of the leg, and cancel it when another leg has taken the call over.

        Raises:
            CallTakenOver: Another leg has taken the call over.
        """
        with anyio.CancelScope() as self._scope:
            if self.is_taken_over:
                self._scope.cancel()
            try:
                yield
            except Exception as error:
                if self.is_taken_over:
                    raise CallTakenOver(self.owner) from error
                raise
        if self.is_taken_over:
            raise CallTakenOver(self.owner)

    def lose_lease(self) -> None:
        """End the leg: another one has the call, or it was cancelled."""
        self.is_taken_over = True
        if self._scope is not None:
            self._scope.cancel()

    async def renew(self) -> None:
        """Extend the lease, or raise CallTakenOver if another leg has the claim."""
        raise NotImplementedError

    def stop_renewals(self) -> None:
        """Let the lease end. By default nothing renews it."""

    async def require_held(self) -> None:
        """Renew the claim if it was last confirmed more than half a lease ago; called before what must not run twice.

        Raises:
            CallTakenOver: Another leg has taken the call over.
        """
        if anyio.current_time() - self._confirmed_at > self.lease / 2:
            await self.renew()

    async def start_body(self) -> None:
        """Report that the body begins, or raise CallTakenOver. If this process now dies, the outcome is unknown."""
        raise NotImplementedError

    async def note(self, noted: NotedValue) -> None:
        """Save a computed value, in case this leg runs again. Raise CallTakenOver if another leg has the claim."""
        raise NotImplementedError

    # By default, the owner of the claim stores how its leg has ended.

    async def settle(self, value: Any) -> None:
        """Record the body's result."""

    async def fail(self, error: Exception) -> None:
        """Record the body's error."""

    async def lose(self) -> None:
        """Record that the outcome of the body is unknown."""

    async def release(self) -> None:
        """Release the claim."""


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
                # which was stopped in the middle, would begin again. If another claim raised it, this one lapses.
                claim.stop_renewals()
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
