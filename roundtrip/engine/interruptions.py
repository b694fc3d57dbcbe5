"""Ways in which a leg's work ends early: a suspension, a revision, a timeout, or a cancellation."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from dataclasses import dataclass, field
from typing import Final, TypeVar, cast

import anyio
import anyio.lowlevel

from roundtrip.errors import QuestionDeclined, ToolTimedOut
from roundtrip.resolvers.cancellation import cancel_requests

T = TypeVar("T")

SHIELD_SECONDS = 60.0
"""How long a claimed body without a timeout may run after its client has left."""


class Suspension(BaseException):
    """Ends a leg that has open questions. It is not an `Exception`, so `except Exception` in the author's code does not
    catch it.
    """


class Revision(BaseException):
    """Ends one run of a body because the user changed an earlier answer. The body runs again from its top."""


_ENDINGS: Final = (QuestionDeclined, Revision, Suspension)


def verdict_on(raised: BaseException) -> BaseException:
    """Return the exception that ends a leg. An exception group may contain several candidates.

    A crash wins over a decline, a decline over a revision, and a revision over a suspension.
    """
    if isinstance(raised, _ENDINGS):
        return raised
    leaves = list(_leaves(raised))
    endings = [leaf for leaf in leaves if isinstance(leaf, _ENDINGS)]
    crashes = [leaf for leaf in leaves if not isinstance(leaf, _ENDINGS)]
    if len(crashes) == 1:
        # The author must see the crash itself, not a group that also contains suspensions for open questions.
        return crashes[0]
    if crashes:
        return BaseExceptionGroup(str(raised), crashes) if endings else raised
    return next(leaf for kind in _ENDINGS for leaf in leaves if isinstance(leaf, kind))


def _leaves(raised: BaseException) -> Iterator[BaseException]:
    if isinstance(raised, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", raised).exceptions:
            yield from _leaves(inner)
    else:
        yield raised


@contextmanager
def cancellations_restored() -> Generator[None]:
    """Undo the cancellation that a failing `asyncio.TaskGroup` requests for its own task. Python 3.11 does not undo it.

    With an in-memory client, this may be the client's own task, and the request would cancel the client later. A task
    group makes only one request, so only one request is undone. Further requests come from outside. No request is
    undone while a scope around the leg is cancelled.
    """
    before = cancel_requests()
    try:
        yield
    except (BaseExceptionGroup, *_ENDINGS):
        if anyio.current_effective_deadline() > -math.inf:
            _undo_request_since(before)
        raise


def _undo_request_since(before: int) -> None:
    """Undo one cancellation request, if the task has received any since `cancel_requests` returned `before`."""
    if cancel_requests() > before and (asyncio_task := asyncio.current_task()) is not None:
        asyncio_task.uncancel()


@dataclass(slots=True, eq=False, repr=False)
class CancellationShield:
    """Scope around a leg's work. Once a claimed body has begun, the scope protects it from outside cancellations.

    Because of this protection, the ledger gets a result instead of an unknown outcome.
    """

    has_timeout: bool
    _scope: anyio.CancelScope = field(default_factory=anyio.CancelScope, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)

    async def around(self, work: Awaitable[T]) -> T:
        """Await the work inside the scope."""
        try:
            with self._scope:
                return await work
        finally:
            if self._timer is not None:
                self._timer.cancel()
        raise AssertionError("this scope is only a shield, so nothing may cancel it")

    def begin(self) -> None:
        """Ignore outside cancellations from now on."""
        self._scope.shield = True
        if not self.has_timeout and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SHIELD_SECONDS, self._give_up)

    def _give_up(self) -> None:
        self._scope.shield = False


@dataclass(slots=True, eq=False, repr=False)
class LegClock:
    """Clock for the time that one leg has left. After each pause, the leg gets its whole timeout again."""

    scope: anyio.CancelScope
    seconds: float
    outer: "LegClock | None"
    pauses: int = 0
    restarted: Callable[[], None] = lambda: None

    def pause(self) -> None:
        """Stop this leg's clock, and the clocks of the outer legs that made its call."""
        self.pauses += 1
        self.scope.deadline = math.inf
        if self.outer is not None:
            self.outer.pause()

    def resume(self) -> None:
        """Start the clock again, unless another question is still open. Do the same for the outer legs."""
        self.pauses -= 1
        if not self.pauses:
            cancel_after(self.scope, self.seconds)
            self.restarted()
        if self.outer is not None:
            self.outer.resume()


_CLOCK: ContextVar[LegClock | None] = ContextVar("roundtrip_clock", default=None)


def cancel_after(scope: anyio.CancelScope, seconds: float) -> None:
    """Cancel an entered scope after the given number of seconds.

    The event loop keeps a stopped timer and its context until the timer would have fired. The current context keeps the
    whole call in memory, so set the timer in an empty context.
    """
    Context().run(setattr, scope, "deadline", anyio.current_time() + seconds)


@contextmanager
def clock_paused() -> Generator[None]:
    """Stop the leg's timeout while a user or the client's model answers questions."""
    clock = _CLOCK.get()
    if clock is None:
        yield
        return
    clock.pause()
    try:
        yield
    finally:
        clock.resume()


async def with_timeout(
    seconds: float, work: Awaitable[T], *, begun: Callable[[LegClock], None] = lambda clock: None
) -> T:
    """Await a leg's work for at most the given number of seconds.

    Work that takes longer has timed out, even if it catches the cancellation. A cancellation from outside is not a
    timeout.

    Args:
        seconds: The time limit.
        work: The awaitable that does the leg's work.
        begun: Receives the clock before the work begins.

    Raises:
        ToolTimedOut: The work did not finish in time. If the work then raised an exception, that exception is the
            cause.
    """
    crash: Exception | None = None
    requests = cancel_requests()
    scope = anyio.CancelScope()
    clock = LegClock(scope, seconds, _CLOCK.get())
    before = _CLOCK.set(clock)
    try:
        with scope:
            cancel_after(scope, seconds)
            begun(clock)
            result = await work
            if not scope.cancel_called:
                return result
    except (Exception, BaseExceptionGroup, Revision, Suspension) as raised:
        if not scope.cancel_called or _has_outside_cause(raised):
            raise
        crash = raised if isinstance(raised, Exception) else None
    except anyio.get_cancelled_exc_class():
        if not scope.cancel_called:
            raise
    finally:
        _CLOCK.reset(before)
    await anyio.lowlevel.checkpoint_if_cancelled()
    # On Python 3.11, a failed asyncio.TaskGroup does not undo its cancellation request. The request then looks like one
    # from outside.
    _undo_request_since(requests)
    raise ToolTimedOut(seconds) from crash


def _has_outside_cause(raised: BaseException) -> bool:
    """Return True if an exception group contains an outside cancellation or an interrupt, which must not be lost."""
    if not isinstance(raised, BaseExceptionGroup):
        return False
    group = cast("BaseExceptionGroup[BaseException]", raised)
    return group.split((Exception, Revision, Suspension))[1] is not None
