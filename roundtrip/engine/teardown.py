"""Enter and exit the context managers of a leg's dependencies.

They are entered and exited in the leg's own task, the last one first. The exception that ends the leg is thrown into
them, also a suspension: otherwise a generator would commit its transaction at each question.

If a thread continues after the leg, they are exited when that thread has ended (`Outlive`).
"""

import asyncio
import inspect
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, TypeVar, cast

import anyio

from roundtrip.engine.interruptions import cancellations_restored
from roundtrip.errors import DependencyEndedCall, InvalidSignature
from roundtrip.resolvers.cancellation import cancel_requests

__all__ = ["Outlive", "Report", "TeardownStack", "innermost_scope"]

T = TypeVar("T")

Report = Callable[[str, BaseException], None]
"""Reports an exception of a dependency's exit that does not end the call."""

_NEVER_YIELDED: Final = "dependency {!r} is a generator that ended before it yielded; have it yield on every path"

_Leave = Callable[[BaseException | None], Awaitable[Any]]

Outlive = Callable[[Callable[[], Awaitable[None]]], bool]
"""Runs a function when the threads that a leg left behind have ended; returns False if there are none."""


@dataclass(slots=True, eq=False, repr=False)
class TeardownStack:
    """Entered dependencies of one leg, or of the request before it."""

    report: Report
    _entered: list[tuple[str, _Leave]] = field(default_factory=list[tuple[str, _Leave]], init=False)
    _holds_scope: bool = field(default=False, init=False)

    async def enter(self, label: str, made: Any) -> Any:
        """Enter a generator or context manager that a dependency has made. Anything else is the value itself."""
        if inspect.isasyncgen(made):
            generator = cast("AsyncGenerator[Any]", made)
            before = innermost_scope()
            try:
                value = await anext(generator)
            except StopAsyncIteration:
                raise InvalidSignature(_NEVER_YIELDED.format(label)) from None
            self._holds_scope |= innermost_scope() is not before
            self._keep_async(label, asynccontextmanager(lambda: generator)())
            return value
        if inspect.isgenerator(made):
            plain = cast("Generator[Any]", made)
            try:
                value = next(plain)
            except StopIteration:
                raise InvalidSignature(_NEVER_YIELDED.format(label)) from None
            self._keep(label, contextmanager(lambda: plain)())
            return value
        if isinstance(made, AbstractAsyncContextManager):
            entered = cast("AbstractAsyncContextManager[Any]", made)
            before = innermost_scope()
            value = await entered.__aenter__()
            self._holds_scope |= innermost_scope() is not before
            self._keep_async(label, entered)
            return value
        if isinstance(made, AbstractContextManager):
            held = cast("AbstractContextManager[Any]", made)
            value = held.__enter__()
            self._keep(label, held)
            return value
        return made

    def _keep_async(self, label: str, entered: AbstractAsyncContextManager[Any]) -> None:
        self._entered.append((label, lambda error: entered.__aexit__(*_exc_info(error))))

    def _keep(self, label: str, entered: AbstractContextManager[Any]) -> None:
        async def leave(error: BaseException | None) -> Any:
            return entered.__exit__(*_exc_info(error))

        self._entered.append((label, leave))

    async def around(
        self, work: Awaitable[T], *, ended_by: Callable[[T], BaseException | None], outlive: Outlive | None = None
    ) -> T:
        """Await the work of a leg, and exit everything.

        Args:
            work: The work.
            ended_by: Returns the exception to exit with, given a result; None for a success.
            outlive: Exits everything later, if a thread of the work still uses it.

        Raises:
            BaseException: The exception that ended the work, or one that an exit raised in its place.
        """
        try:
            result = await work
        except BaseException as raised:
            # A cancel scope can only be left by the task that entered it, and in the order of entering.
            if outlive is not None and self._entered and not self._holds_scope and outlive(self._leave_later(raised)):
                raise
            error = await self.leave(raised)
            if error is raised:
                raise
            # A cancel scope of a dependency has replaced its own cancellation.
            raise error from raised
        verdict = ended_by(result)
        error = await self.leave(verdict)
        if error is not None and error is not verdict:
            raise error
        return result

    def _leave_later(self, error: BaseException) -> Callable[[], Awaitable[None]]:
        """Return a function that exits everything entered by now, outside of the leg."""
        entered = self._entered.copy()

        async def leave_all() -> None:
            self._entered.clear()
            for label, leave in reversed(entered):
                try:
                    await leave(error)
                except BaseException as raised:
                    if raised is error or _only_wraps(raised, error):
                        continue
                    if not isinstance(raised, Exception | BaseExceptionGroup):
                        raise
                    self.report(label, cast("BaseException", raised))

        return leave_all

    async def leave(self, error: BaseException | None) -> Any:
        """Exit everything, the last first. Return the exception that then ends the call; None without one."""
        while self._entered:
            label, leave = self._entered.pop()
            error = await self._leave(label, leave, error)
        return error

    async def _leave(self, label: str, leave: _Leave, error: BaseException | None) -> BaseException | None:
        requests = cancel_requests()
        try:
            # A task group of the dependency may fail only now, and would leave its cancellation behind.
            with cancellations_restored():
                swallowed = await leave(error)
        except BaseException as raised:  # noqa: BLE001 - returned, to be raised where the leg ends
            return self._settle(label, raised, error, requests)
        if swallowed and isinstance(error, anyio.get_cancelled_exc_class()) and not _is_still_cancelled(requests):
            return DependencyEndedCall(label)
        return error

    def _settle(
        self, label: str, raised: BaseException, error: BaseException | None, requests: int
    ) -> BaseException | None:
        """Return the exception that ends the call: the one that ended it before, or the one that an exit raised."""
        if raised is error or (error is not None and _only_wraps(raised, error)):
            return error
        cancelled = anyio.get_cancelled_exc_class()
        if isinstance(error, cancelled):
            if isinstance(raised, cancelled):
                return error
            if not _is_still_cancelled(requests):
                # A scope or a task group of the dependency had cancelled the leg, and now raises the reason.
                return raised
        if isinstance(raised, Exception | BaseExceptionGroup):
            self.report(label, cast("BaseException", raised))
            return error
        return raised


def innermost_scope() -> object:
    """Return the innermost cancel scope of the running task, to compare; None without one, or on another loop.

    anyio has no public name for it. A test fails if anyio moves it.
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
    """Return True if a cancellation did not come from the dependency just exited, which undoes its own.

    `requests` is the number of cancellation requests before.
    """
    return anyio.current_effective_deadline() == -math.inf or 0 < requests <= cancel_requests()


def _only_wraps(raised: BaseException, error: BaseException) -> bool:
    """Return True for a group that contains only the exception that passed through a task group."""
    if not isinstance(raised, BaseExceptionGroup):
        return False
    group = cast("BaseExceptionGroup[BaseException]", raised)
    return all(inner is error or _only_wraps(inner, error) for inner in group.exceptions)


def _exc_info(error: BaseException | None) -> tuple[Any, Any, Any]:
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)
