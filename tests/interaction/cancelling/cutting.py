"""Cancel a leg at its n-th suspension, check that it left nothing behind, and serve it again."""

import asyncio
import contextvars
from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import Enum
from typing import Any

import anyio
from mcp.server.context import CallNext, ServerRequestContext

__all__ = ["Cut", "How", "counting_tasks"]


class How(Enum):
    """Cause of a leg's cancellation."""

    SCOPE = "scope"
    """A scope around it, as the SDK's when a client leaves or takes its request back."""
    TASK = "task"
    """Its task, as a client in memory or the end of the process does."""


_CUT: contextvars.ContextVar["Cut | None"] = contextvars.ContextVar("cut", default=None)


class Cut:
    """The outermost middleware of a server: cancels one leg where it, or a task of its own, waits for the n-th time.

    Afterwards the same leg is served once more, as for a client that sends it again.
    """

    def __init__(self, *, leg: int, at: int, how: How) -> None:
        self._leg = leg
        self._at = at
        self.how = how
        self._legs = 0
        self._suspensions = 0
        self._cancel: Callable[[], object] | None = None
        self.was_reached = False
        """Whether there was such a leg."""
        self.was_cut = False
        """Whether it was cancelled."""
        self.outlasted = False
        """Whether it ended as if it had not been."""
        self.left: dict[str, Any] = {}
        """What it left behind: context variables, cancellations."""
        self.tasks: set[asyncio.Task[Any]] = set()
        """Those that were not done when it ended: they still notify a ledger or a client."""
        self.look: Callable[[], None] | None = None
        """Looks at what else there may be."""

    def __repr__(self) -> str:
        return f"leg {self._leg} cut where it waited for the {self._at}. time by {self.how.value}; left: {self.left}"

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> Any:
        """Serve one message, as the SDK's middlewares do."""
        if ctx.method != "tools/call":
            return await call_next(ctx)
        self._legs += 1
        if self._legs != self._leg:
            return await call_next(ctx)
        self.was_reached = True
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("not in a task")
        tasks, variables, requests = asyncio.all_tasks(), _variables(), task.cancelling()
        ended: list[Any] = []
        with anyio.CancelScope() as scope:
            self._cancel = scope.cancel if self.how is How.SCOPE else task.cancel
            counting = _CUT.set(self)
            try:
                ended.append(await _Counted(call_next(ctx)))
            except asyncio.CancelledError:
                if self.how is How.SCOPE:
                    raise
            finally:
                self._cancel = None
                _CUT.reset(counting)
        if not self.was_cut:
            return ended[0]
        self.outlasted = bool(ended)
        while self.how is How.TASK and task.cancelling() > requests:
            task.uncancel()
        if task.cancelling() != requests:
            self.left["cancellations"] = task.cancelling() - requests
        self.tasks = asyncio.all_tasks() - tasks
        if (now := _variables()) != variables:
            self.left["variables"] = {name for name in now if now.get(name) is not variables.get(name)}
        if self.look is not None:
            self.look()
        return await call_next(ctx)

    def suspended(self) -> None:
        """Count one suspension, and cancel the leg if it is the chosen one."""
        self._suspensions += 1
        if self._suspensions == self._at and self._cancel is not None:
            self.was_cut = True
            # When the task waits, and not while it still runs.
            asyncio.get_running_loop().call_soon(self._cancel)


class _Counted:
    """Awaits a coroutine in the task that awaits this, and counts where it waits."""

    def __init__(self, steps: Any) -> None:
        self._steps = steps

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self._steps.__await__()
        error: BaseException | None = None
        received: Any = None
        try:
            while True:
                try:
                    pending = steps.send(received) if error is None else steps.throw(error)
                except StopIteration as done:
                    return done.value
                cut = _CUT.get()
                if cut is not None:
                    cut.suspended()
                received = error = None
                try:
                    received = yield pending
                except GeneratorExit:
                    steps.close()
                    raise
                except BaseException as thrown:  # noqa: BLE001 - passed on to where it belongs
                    error = thrown
        finally:
            del error


def _variables() -> dict[Any, Any]:
    return dict(contextvars.copy_context().items())


@contextmanager
def counting_tasks() -> Generator[None]:
    """Count the suspensions of tasks that a leg starts, and raise errors that no code caught."""
    loop = asyncio.get_running_loop()
    uncaught: list[dict[str, Any]] = []

    async def counted(coroutine: Any) -> Any:
        return await _Counted(coroutine)

    def make(loop: Any, coroutine: Any, **options: Any) -> Any:
        return asyncio.Task(coroutine if _CUT.get() is None else counted(coroutine), loop=loop, **options)

    before = loop.get_exception_handler()
    loop.set_task_factory(make)
    loop.set_exception_handler(lambda loop, context: uncaught.append(context))
    try:
        yield
    finally:
        loop.set_task_factory(None)
        loop.set_exception_handler(before)
    if uncaught:
        raise AssertionError(f"not caught: {uncaught}")
