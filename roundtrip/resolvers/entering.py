"""Entering and exiting a plain dependency's context manager in one worker thread.

An SQLite connection, for example, works only in the thread that made it. Both halves of a plain generator therefore run
in its lane's thread, and in one copied context. Until the second half has run, the leg sees the context variables that
the first half set.
"""

import inspect
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, suppress
from contextvars import Context, ContextVar, Token, copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, cast

from roundtrip.errors import InvalidSignature
from roundtrip.questions.markers import is_marker
from roundtrip.resolvers.threads import HeldThread

_UNSET: Final = object()


def never_yielded(label: str) -> InvalidSignature:
    """Return the error for a generator that yields no value."""
    return InvalidSignature(
        f"dependency {label!r} is a generator that ended before it yielded; make it yield on every path"
    )


def checked(label: str, value: Any) -> Any:
    """Return the value that a context manager yields. Raise InvalidSignature if the value is a question."""
    if is_marker(value):
        raise InvalidSignature(f"context manager {label!r} must not ask a question; ask in one of its dependencies")
    return value


def enter_plain(label: str, made: Any) -> tuple[AbstractContextManager[Any], Any] | None:
    """Enter a plain generator or context manager, and return the context manager and its value. Return None if the
    object is neither.
    """
    if inspect.isgenerator(made):
        generator = cast("Generator[Any]", made)
        try:
            value = next(generator)
        except StopIteration:
            raise never_yielded(label) from None
        return contextmanager(lambda: generator)(), value
    if isinstance(made, AbstractContextManager) and not isinstance(made, AbstractAsyncContextManager):
        held = cast("AbstractContextManager[Any]", made)
        return held, held.__enter__()
    return None


def exc_info(error: BaseException | None) -> tuple[Any, Any, Any]:
    """Return the arguments for `__exit__`: for this error, or for a success if the error is None."""
    return (None, None, None) if error is None else (type(error), error, error.__traceback__)


@dataclass(slots=True, eq=False, repr=False)
class PlainEntry:
    """A plain dependency's context manager. Call this object in a worker thread to enter the context manager.

    Args:
        label: The dependency's name.
        func: Makes the context manager.
        hold: Reserves the current thread.
        enter: Enters the object that `func` returned, if it is not a plain context manager. Runs on the loop.
    """

    label: str
    func: Callable[[], Any]
    hold: Callable[[], HeldThread]
    enter: Callable[[str, Any], Awaitable[Any]]
    value: Any = None
    """The context manager's value, once it is entered."""
    _changed: list[tuple[ContextVar[Any], Any]] = field(default_factory=list[tuple[ContextVar[Any], Any]])
    _tokens: list[Token[Any]] = field(default_factory=list[Token[Any]])
    # Held while the context manager is entered or exited: a leg may end while an abandoned thread is still entering it.
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _entered: tuple[AbstractContextManager[Any], HeldThread, Context] | None = None
    _over: tuple[BaseException | None] | None = None
    _failure: BaseException | None = None
    """The error that the exit raised in the thread."""

    # Methods that run in the thread.

    def __call__(self) -> Any:
        """Enter the context manager. Outside the loop, return this object. On the loop, return a coroutine that returns
        the value.
        """
        context = copy_context()
        return context.run(self._enter, context)

    def _enter(self, context: Context) -> Any:
        before, label = copy_context(), self.label
        try:
            made = self.func()
            entered = enter_plain(label, made)
        except RuntimeError as error:
            if "event loop" not in str(error):
                raise
            raise InvalidSignature(
                f"dependency {label!r} must not use the event loop, because it runs in a worker thread; use "
                f"Depends({label}, inline=True), or make it an async generator"
            ) from error
        if entered is None:
            return self._enter_on_loop(made)
        manager, self.value = entered
        with self._lock:
            over = self._over
            if over is None:
                self._entered = manager, self.hold(), context
        if over is not None:
            manager.__exit__(*exc_info(over[0]))
            return self
        after = copy_context().items()
        self._changed = [(variable, value) for variable, value in after if before.get(variable, _UNSET) is not value]
        checked(label, self.value)
        return self

    async def _enter_on_loop(self, made: Any) -> Any:
        value = await self.enter(self.label, await made if inspect.isawaitable(made) else made)
        return checked(self.label, value)

    @property
    def is_exited(self) -> bool:
        """Return True if there is nothing to exit."""
        return self._entered is None

    @property
    def is_here(self) -> bool:
        """Return True if the calling code runs in the thread that entered the context manager."""
        return self._entered is not None and self._entered[1].is_here

    def exit_here(self) -> None:
        """After a success, exit the context manager in its thread. If the exit fails, `leave` raises the error."""
        if self._entered is None:
            return
        (manager, thread, context), self._entered = self._entered, None
        try:
            context.run(_exit, manager, thread, None)
        except BaseException as error:  # noqa: BLE001 - raised by `leave`
            self._failure = error

    # Methods that run on the loop, in the leg's asyncio task.

    def share(self) -> None:
        """In the current context, set the context variables that were set on entry."""
        self._tokens = [variable.set(value) for variable, value in self._changed]

    @property
    def is_left(self) -> bool:
        """Return True while the thread runs a function that the leg no longer waits for."""
        return self._entered is not None and self._entered[1].is_left

    async def leave(self, error: BaseException | None) -> Any:
        """Exit the context manager in its thread, and restore the context variables. Return True if the context manager
        swallows the error.
        """
        with self._lock:
            self._over = (error,)
        # Drop the entered context here, because that context may refer to this object.
        entered, self._entered = self._entered, None
        failure, self._failure = self._failure, None
        try:
            if failure is not None:
                raise failure
            if entered is None:
                return None
            manager, thread, context = entered
            return await thread.run(partial(_exit, manager, thread, error), context)
        finally:
            # The failure's traceback refers to this frame.
            del failure
            # If the leg did not wait for its thread, this code may run in another context, where the tokens are not
            # valid.
            with suppress(ValueError):
                for token in reversed(self._tokens):
                    token.var.reset(token)
            self._tokens = []


def _exit(manager: AbstractContextManager[Any], thread: HeldThread, error: BaseException | None) -> Any:
    try:
        return manager.__exit__(*exc_info(error))
    finally:
        thread.let_go()


class Managers(Protocol):
    """One leg's context managers, which exit when the leg ends."""

    async def enter(self, label: str, made: Any) -> Any:
        """Enter a dependency's context manager on the loop, and return the value that it yields."""
        ...

    def keep(self, entry: PlainEntry) -> None:
        """Take responsibility for exiting a context manager that a thread is about to enter."""
        ...
