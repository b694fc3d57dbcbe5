"""Provide `ctx.blocking`: the awaitable methods of `Context` for plain functions, which wait in their worker thread."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

import anyio
import anyio.from_thread
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context as SdkContext
from mcp_types import LoggingLevel
from pydantic import AnyUrl

from roundtrip.errors import AskedTooLate, BodyMistake
from roundtrip.server.asking import AskingContext
from roundtrip.server.threads import unless_left

if TYPE_CHECKING:
    from roundtrip.server.context import Context

__all__ = ["BlockingContext"]

T = TypeVar("T")
P = ParamSpec("P")


def _waiting(
    method: Callable[Concatenate[AskingContext[Any, Any], P], Awaitable[T]],
) -> "Callable[Concatenate[BlockingContext, P], T]":
    """Derive the method that waits for the result of an awaitable one, with the same parameters and overloads."""
    name = method.__name__

    def wait(self: "BlockingContext", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._wait(lambda: getattr(self._context, name)(*args, **kwargs))  # pyright: ignore[reportPrivateUsage]

    wait.__name__, wait.__qualname__ = name, f"BlockingContext.{name}"
    wait.__doc__ = f"As `Context.{name}`, waiting in place."
    return wait


class BlockingContext:
    """Methods of a `Context` that has to be awaited, for plain functions, which wait in their worker thread."""

    __slots__ = ("_context",)

    def __init__(self, context: "Context[Any, Any]") -> None:
        self._context = context

    ask = _waiting(AskingContext.ask)
    ask_outcome = _waiting(AskingContext.ask_outcome)
    ask_all = _waiting(AskingContext.ask_all)
    ask_all_outcomes = _waiting(AskingContext.ask_all_outcomes)
    review = _waiting(AskingContext.review)
    review_outcome = _waiting(AskingContext.review_outcome)
    elicit = _waiting(AskingContext.elicit)
    elicit_url = _waiting(AskingContext.elicit_url)
    sample = _waiting(AskingContext.sample)
    list_roots = _waiting(AskingContext.list_roots)
    report_progress = _waiting(SdkContext.report_progress)

    # Derived, it would lose the parameters of the function that it runs.
    @overload
    def step(self, key: str, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def step(self, key: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    def step(self, key: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """As `Context.step`, waiting in place."""
        return self._wait(lambda: self._context.step(key, fn, *args, **kwargs))

    def read_resource(self, uri: str | AnyUrl) -> list[ReadResourceContents]:
        """As `Context.read_resource`, waiting in place."""
        return self._wait(lambda: self._context.read_resource(uri))

    def log(
        self,
        level: LoggingLevel,
        data: Any,
        *,
        logger_name: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """As `Context.log`, waiting until it is sent."""
        self._wait(lambda: self._context.log(level, data, logger_name=logger_name, extra=extra))

    def debug(self, data: Any, *, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        """As `Context.debug`, waiting until it is sent."""
        self._wait(lambda: self._context.debug(data, logger_name=logger_name, extra=extra))

    def info(self, data: Any, *, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        """As `Context.info`, waiting until it is sent."""
        self._wait(lambda: self._context.info(data, logger_name=logger_name, extra=extra))

    def warning(self, data: Any, *, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        """As `Context.warning`, waiting until it is sent."""
        self._wait(lambda: self._context.warning(data, logger_name=logger_name, extra=extra))

    def error(self, data: Any, *, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        """As `Context.error`, waiting until it is sent."""
        self._wait(lambda: self._context.error(data, logger_name=logger_name, extra=extra))

    def _wait(self, make: Callable[[], Awaitable[T]]) -> T:
        # A thread that was left behind has no leg to ask in. If it reached for its event loop all the same, anyio would
        # cancel it there forever.
        if self._context.is_over:
            raise AskedTooLate("ctx.blocking")
        if _is_on_event_loop():
            raise BodyMistake(
                "ctx.blocking must be used in a plain `def` function, got an `async def` one; "
                "write `await ctx.ask(...)` there, without blocking"
            )

        async def run() -> T:
            # anyio puts this task into the scope of the leg. If that scope was cancelled before, anyio tells the task
            # only when it leaves a scope of its own; untold, the task would spin forever at the first thing it awaits.
            with anyio.CancelScope():  # noqa: ASYNC100 - entered in order to be left
                pass
            with unless_left():
                return await make()
            raise AskedTooLate("ctx.blocking")

        return anyio.from_thread.run(run)


def _is_on_event_loop() -> bool:
    """Return True in code that an event loop runs, and False in a worker thread."""
    try:
        anyio.get_cancelled_exc_class()
    except RuntimeError:
        return False
    return True
