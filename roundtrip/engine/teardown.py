"""Entering and exiting the context managers that a leg depends on.

The leg's own asyncio task exits the context managers, in reverse order. A plain context manager exits in the thread
that entered it. Each context manager receives the exception that ends the leg, even if it is a suspension. Otherwise a
generator would commit its transaction whenever the call asks a question.

If a thread continues after the leg, the context managers exit when that thread has ended (`Outlive`).
"""

import asyncio
import inspect
import math
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar, cast

import anyio
from mcp_types import InputRequiredResult

from roundtrip.engine.interruptions import cancellations_restored
from roundtrip.errors import DependencyEndedCall
from roundtrip.resolvers.cancellation import cancel_requests
from roundtrip.resolvers.entering import PlainEntry, enter_plain, exc_info, never_yielded

T = TypeVar("T")

Report = Callable[[str, BaseException], None]
"""Reports an exception that a dependency raised while exiting. The exception does not end the call."""

Outlive = Callable[[Callable[[], Awaitable[None]]], bool]
"""Runs a function once all threads that are still running for the leg have ended. Returns False if there are no such
threads.
"""


class _LoopEntry(NamedTuple):
    """A dependency that was entered on the loop."""

    label: str
    held: AbstractAsyncContextManager[Any] | AbstractContextManager[Any]
    is_left: bool = False

    async def leave(self, error: BaseException | None) -> Any:
        """Exit the dependency. Return True if the dependency swallows the error."""
        if isinstance(self.held, AbstractAsyncContextManager):
            return await self.held.__aexit__(*exc_info(error))
        return self.held.__exit__(*exc_info(error))


_Entry = PlainEntry | _LoopEntry


@dataclass(slots=True, eq=False, repr=False)
class TeardownStack:
    """The dependencies that one leg has entered, or that its request entered before the leg began."""

    report: Report
    _entered: list[_Entry] = field(default_factory=list[_Entry], init=False)
    _holds_scope: bool = field(default=False, init=False)

    def keep(self, entry: PlainEntry) -> None:
        """Take responsibility for exiting a context manager that a thread is about to enter."""
        self._entered.append(entry)

    async def enter(self, label: str, made: Any) -> Any:
        """Enter a generator or context manager on the loop, and return the value that it yields. Return any other
        object unchanged.
        """
        before = innermost_scope()
        if inspect.isasyncgen(made):
            generator = cast("AsyncGenerator[Any]", made)
            try:
                value = await anext(generator)
            except StopAsyncIteration:
                raise never_yielded(label) from None
            held = asynccontextmanager(lambda: generator)()
        elif isinstance(made, AbstractAsyncContextManager):
            held = cast("AbstractAsyncContextManager[Any]", made)
            value = await held.__aenter__()
        elif (plain := enter_plain(label, made)) is not None:
            held, value = plain
        else:
            return made
        self._holds_scope |= innermost_scope() is not before
        self._entered.append(_LoopEntry(label, held))
        return value

    def next_exit(self, value: Any) -> Callable[[], None] | None:
        """After a success, return a function that exits the newest context manager in the current thread.

        Return None if that context manager must not be exited in this thread.
        """
        if isinstance(value, InputRequiredResult):
            return None
        for entry in reversed(self._entered):
            if not isinstance(entry, PlainEntry):
                return None
            if not entry.is_exited:
                return entry.exit_here if entry.is_here else None
        return None

    async def around(
        self, work: Awaitable[T], *, ended_by: Callable[[T], BaseException | None], outlive: Outlive | None = None
    ) -> T:
        """Await a leg's work, then exit everything.

        Args:
            work: The awaitable that does the leg's work.
            ended_by: Given the work's result, returns the exception that dependencies receive when they exit; None for
                a success.
            outlive: Exits everything later, if a thread that the work started is still running.

        Raises:
            BaseException: The exception that ended the work, or an exception that an exit raised in its place.
        """
        try:
            result = await work
        except BaseException as raised:
            if self._entered and self._leaves_later(raised, outlive):
                raise
            error = await self.leave(raised, outlive)
            if error is raised:
                raise
            # A dependency's cancel scope requested the cancellation, and the dependency's exit then raised this error.
            raise error from raised
        verdict = ended_by(result)
        if any(entry.is_left for entry in self._entered) and self._leaves_later(verdict, outlive):
            # The work succeeded although a function that it started is still running.
            return result
        error = await self.leave(verdict, outlive)
        if error is not None and error is not verdict:
            raise error
        return result

    def _leaves_later(self, error: BaseException | None, outlive: Outlive | None) -> bool:
        """Exit everything once the leg's remaining threads have ended. Return False if no such threads are running."""
        # A cancel scope must be exited by the asyncio task that entered it, in the right order, so it cannot exit
        # later.
        return outlive is not None and not self._holds_scope and outlive(partial(self._leave_all, self._entered, error))

    async def _leave_all(self, entered: list[_Entry], error: BaseException | None) -> None:
        """Exit the given entries after the leg has ended."""
        while entered:
            entry = entered.pop()
            try:
                await entry.leave(error)
            except BaseException as raised:
                if _is_passed_on(raised, error):
                    continue
                if not isinstance(raised, Exception | BaseExceptionGroup):
                    raise
                self.report(entry.label, cast("BaseException", raised))

    async def leave(self, error: BaseException | None, outlive: Outlive | None = None) -> Any:
        """Exit everything in reverse order. Return the exception that then ends the call, or None."""
        while self._entered:
            entry = self._entered.pop()
            if entry.is_left and outlive is not None and outlive(partial(self._leave_all, [entry], error)):
                # The entry's thread is still running a function. Entries with a cancel scope must not wait for that
                # thread.
                continue
            error = await self._leave(entry, error)
        return error

    async def _leave(self, entry: _Entry, error: BaseException | None) -> BaseException | None:
        requests = cancel_requests()
        try:
            # A dependency's task group may fail during this exit. Undo the cancellation that the task group requests.
            with cancellations_restored():
                swallowed = await entry.leave(error)
        except BaseException as raised:  # noqa: BLE001 - returned, to be raised where the leg ends
            return self._settle(entry.label, raised, error, requests)
        if swallowed and isinstance(error, anyio.get_cancelled_exc_class()) and not _is_still_cancelled(requests):
            return DependencyEndedCall(entry.label)
        return error

    def _settle(
        self, label: str, raised: BaseException, error: BaseException | None, requests: int
    ) -> BaseException | None:
        """Return the exception that ends the call: either the earlier exception or an exception that an exit raised."""
        if _is_passed_on(raised, error):
            return error
        cancelled = anyio.get_cancelled_exc_class()
        if isinstance(error, cancelled):
            if isinstance(raised, cancelled):
                return error
            if not _is_still_cancelled(requests):
                # A dependency's scope or task group had cancelled the leg, and its exit now raises the reason.
                return raised
        if isinstance(raised, Exception | BaseExceptionGroup):
            self.report(label, cast("BaseException", raised))
            return error
        return raised


def innermost_scope() -> object:
    """Return the running task's innermost cancel scope, for comparison. Return None if there is no scope, or if the
    event loop is not asyncio's.

    anyio has no public name for this. A test fails if anyio changes it.
    """
    try:
        return _task_states()[asyncio.current_task()].cancel_scope
    except (ImportError, KeyError, RuntimeError, TypeError):
        return None


@cache
def _task_states() -> Any:
    from anyio._backends import _asyncio as backend

    return vars(backend)["_task_states"]


def _is_still_cancelled(requests: int) -> bool:
    """Return True if a cancellation did not come from the dependency that has just exited.

    A dependency undoes its own requests when it exits. `requests` is the number of requests before the exit.
    """
    return anyio.current_effective_deadline() == -math.inf or 0 < requests <= cancel_requests()


def _is_passed_on(raised: BaseException, error: BaseException | None) -> bool:
    """Return True if an exit raised the exception that it had received, directly or inside a task group's exception
    group.
    """
    if not isinstance(raised, BaseExceptionGroup):
        return raised is error
    group = cast("BaseExceptionGroup[BaseException]", raised)
    return group is error or all(_is_passed_on(inner, error) for inner in group.exceptions)
