"""How long the work of a leg may take, on a clock that stands while a person, or the client's model, is asked."""

import asyncio
import math
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import TypeVar, cast

import anyio
import anyio.lowlevel

from roundtrip.engine.unwinding import Revision, Suspension
from roundtrip.errors import ToolTimedOut
from roundtrip.resolvers.cancelling import cancel_requests

__all__ = ["clock_standing", "end_after", "within"]

T = TypeVar("T")


class _Clock:
    """The time one leg has left. Whenever it has stood, it starts anew."""

    __slots__ = ("_asking", "_outer", "_scope", "_seconds")

    def __init__(self, scope: anyio.CancelScope, seconds: float, *, outer: "_Clock | None") -> None:
        self._scope = scope
        self._seconds = seconds
        self._outer = outer
        self._asking = 0

    def stand(self) -> None:
        """Stop, and have the clocks of the legs that this one was called from stop too."""
        self._asking += 1
        self._scope.deadline = math.inf
        if self._outer is not None:
            self._outer.stand()

    def go_on(self) -> None:
        """Start anew, unless something else is still being asked."""
        self._asking -= 1
        if not self._asking:
            end_after(self._scope, self._seconds)
        if self._outer is not None:
            self._outer.go_on()


_CURRENT: ContextVar[_Clock | None] = ContextVar("roundtrip_clock", default=None)


def end_after(scope: anyio.CancelScope, seconds: float) -> None:
    """Have a scope that is entered cancelled after so many seconds.

    The event loop keeps a timer that was stopped until it would have rung, and with it the context it was set in, and
    with that all of the call. So this one is set in an empty one.
    """
    Context().run(setattr, scope, "deadline", anyio.current_time() + seconds)


@contextmanager
def clock_standing() -> Generator[None]:
    """Surround what is waiting for somebody rather than work."""
    clock = _CURRENT.get()
    if clock is None:
        yield
        return
    clock.stand()
    try:
        yield
    finally:
        clock.go_on()


async def within(seconds: float, work: Awaitable[T]) -> T:
    """Await the work of a leg, which may take so long.

    Whatever the work makes of its cancellation, once its time was up it has timed out; a cancellation from outside
    stays one.

    Raises:
        ToolTimedOut: It was not done in time; what it raised in the end, if anything, is the cause.
    """
    crash: Exception | None = None
    requests = cancel_requests()
    scope = anyio.CancelScope()
    before = _CURRENT.set(_Clock(scope, seconds, outer=_CURRENT.get()))
    try:
        with scope:
            end_after(scope, seconds)
            result = await work
            if not scope.cancel_called:
                return result
    except (Exception, BaseExceptionGroup, Revision, Suspension) as raised:
        if not scope.cancel_called or _holds_more(raised):
            raise
        crash = raised if isinstance(raised, Exception) else None
    except anyio.get_cancelled_exc_class():
        if not scope.cancel_called:
            raise
    finally:
        _CURRENT.reset(before)
    await anyio.lowlevel.checkpoint_if_cancelled()
    if cancel_requests() > requests and (task := asyncio.current_task()) is not None:
        # A failed asyncio.TaskGroup has left it behind, on Python 3.11. The scope took it for somebody else's.
        task.uncancel()
    raise ToolTimedOut(seconds) from crash


def _holds_more(raised: BaseException) -> bool:
    """Whether a group holds what must not be lost: a cancellation from outside, or an interrupt."""
    if not isinstance(raised, BaseExceptionGroup):
        return False
    group = cast("BaseExceptionGroup[BaseException]", raised)
    return group.split((Exception, Revision, Suspension))[1] is not None
