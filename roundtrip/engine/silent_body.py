"""A leg of a tool that cannot ask: the tool has no resolvers, confirmation, claim or context.

Most tools are like this. A server that has only such tools never imports `leg_run` and its dependencies.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import anyio
from mcp_types import InputRequiredResult

from roundtrip.engine.leg import Authored, Finished
from roundtrip.errors import ToolTimedOut
from roundtrip.machine.call import Call
from roundtrip.machine.table import Event
from roundtrip.on_demand import load_on_use
from roundtrip.resolvers.cancellation import cancel_requests, is_cancelled, strayed

if TYPE_CHECKING:
    from roundtrip.engine import interruptions
    from roundtrip.machine import facts

load_on_use(globals(), "roundtrip.engine.interruptions", "roundtrip.machine.facts")

Execute = Callable[[dict[str, Any], Any], Awaitable[Any]]
"""Runs the body, given its resolved values and the context."""


async def serve_silent_body(
    call: Call, execute: Execute, *, seconds: float | None, end_authored: Callable[[InputRequiredResult], Authored]
) -> Finished | Authored:
    """Serve a leg that only needs to run a body without a context.

    Args:
        call: The call.
        execute: Runs the body.
        seconds: How long the body may take; None for no limit.
        end_authored: Ends a leg whose body returned questions that the author asks by hand.

    Raises:
        ToolTimedOut: The body took too long.
        Exception: An error in the author's code.
    """
    cancelled = cancel_requests()
    try:
        call.begin_leg()
        call.apply(Event.EXECUTE)
        if call.watch is not None:
            call.watch(facts.BodyBegan())
        work = execute({}, None)
        if seconds is not None:
            work = interruptions.with_timeout(seconds, work)
        value = await work
        if isinstance(value, InputRequiredResult):
            return end_authored(value)
        call.apply(Event.FINISH)
        return Finished(value)
    except (anyio.get_cancelled_exc_class(), Exception) as error:
        failure = fail(call, error, cancelled)
        if failure is error:
            raise
        raise failure from error


def fail(call: Call, error: BaseException, cancelled: int) -> BaseException:
    """End the call with an exception from the author's code, and return the exception.

    If the call itself was not cancelled, a cancellation becomes an error.
    """
    if isinstance(error, anyio.get_cancelled_exc_class()):
        if is_cancelled(cancelled):
            call.apply(Event.FAIL, error="cancelled")
            return error
        error = strayed()
    call.apply(Event.FAIL, error=described(error))
    return error


def described(error: BaseException) -> str:
    """Describe an error for the trace."""
    return "timed out" if isinstance(error, ToolTimedOut) else f"{type(error).__name__}: {error}"
