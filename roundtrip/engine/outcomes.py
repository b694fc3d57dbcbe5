"""How a leg with a claim records its end."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import anyio
from mcp_types import InputRequiredResult

from roundtrip.engine.claim import RecordedClaim
from roundtrip.engine.computed import NotedValue
from roundtrip.engine.interruptions import Suspension, verdict_on
from roundtrip.engine.leg import Declined, Finished
from roundtrip.errors import AnswerRejected, CannotAsk, GuessUncounted, QuestionDeclined, ToolTimedOut
from roundtrip.machine.call import Call
from roundtrip.machine.table import State

_ENDS_NO_CALL: Final = (QuestionDeclined, CannotAsk, AnswerRejected, GuessUncounted)
"""Errors from a body's questions. They do not end the call: it can continue later, with another answer or another
client.
"""
_LAST_WORDS_SECONDS: Final = 15.0
"""Time limit for recording a call's outcome. Cancellation does not interrupt the recording."""


async def record_outcome(
    claim: RecordedClaim,
    call: Call,
    work: Awaitable[Finished | Declined],
    *,
    computed: Callable[[], Iterable[NotedValue]],
) -> Finished | Declined:
    """Await a leg's work, and record in the ledger how it ended.

    Args:
        claim: The claim on the call.
        call: The call. Its state shows whether the body has begun.
        work: The awaitable that does the leg's work.
        computed: Returns the values that the call has computed. They are saved if the leg is suspended.
    """
    try:
        end = await work
    except BaseException as raised:
        verdict = verdict_on(raised)
        with anyio.move_on_after(_LAST_WORDS_SECONDS, shield=True):
            if isinstance(verdict, Suspension):
                await claim.suspend(computed())
            elif isinstance(verdict, QuestionDeclined):
                await claim.decline(str(verdict))
            elif call.state is not State.EXECUTING or isinstance(verdict, _ENDS_NO_CALL):
                # The body has not begun, or one of its questions ended the leg. A later leg may still run the body.
                await claim.release()
            else:
                # The outcome is unknown if the body was cancelled midway, or is still running in a thread.
                is_known = isinstance(verdict, Exception) and not isinstance(verdict, ToolTimedOut)
                await claim.record(verdict if is_known else None)
        raise
    # The leg has ended, so record the outcome even if the client has left.
    with anyio.move_on_after(_LAST_WORDS_SECONDS, shield=True):
        if isinstance(end, Declined):
            await claim.decline(end.reason)
        elif isinstance(value := end.value, InputRequiredResult):
            await claim.suspend(())
        else:
            await claim.record(value)
    return end
