"""`ctx.blocking`: what a `Context` has to be awaited for, for plain functions in worker threads."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast, overload

import anyio
import anyio.from_thread
from mcp.server.elicitation import UrlElicitationResult
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp_types import CreateMessageResult, ListRootsResult, LoggingLevel, SamplingMessage
from pydantic import AnyUrl, BaseModel
from typing_extensions import TypeForm, Unpack

from roundtrip.errors import AskedTooLate, BodyMistake
from roundtrip.questions.markers import Elicit, ElicitUrl, Marker, SampleOptions, SdkElicit, SdkListRoots, SdkSample
from roundtrip.questions.outcomes import ElicitationResult
from roundtrip.questions.samples import Sampled
from roundtrip.server.threads import unless_left

if TYPE_CHECKING:
    from roundtrip.server.context import Context

__all__ = ["BlockingAsks"]

T = TypeVar("T")
P = ParamSpec("P")
ModelT = TypeVar("ModelT", bound=BaseModel)


class BlockingAsks:
    """What a `Context` has to be awaited for, for plain functions, which wait for it in their worker thread."""

    __slots__ = ("_context",)

    def __init__(self, context: "Context[Any, Any]") -> None:
        self._context = context

    @overload
    def ask(
        self, key: str, question: Elicit[T] | ElicitUrl[T], *, was: Sequence[str] = ..., unwrap: Literal[False] = ...
    ) -> ElicitationResult[T]: ...
    @overload
    def ask(
        self, key: str, question: Elicit[T] | ElicitUrl[T], *, was: Sequence[str] = ..., unwrap: Literal[True]
    ) -> T: ...
    @overload
    def ask(
        self, key: str, question: SdkElicit[ModelT], *, was: Sequence[str] = ..., unwrap: Literal[False] = ...
    ) -> ElicitationResult[ModelT]: ...
    @overload
    def ask(
        self, key: str, question: SdkElicit[ModelT], *, was: Sequence[str] = ..., unwrap: Literal[True]
    ) -> ModelT: ...
    @overload
    def ask(
        self, key: str, question: SdkSample, *, was: Sequence[str] = ..., unwrap: bool = ...
    ) -> CreateMessageResult: ...
    @overload
    def ask(
        self, key: str, question: SdkListRoots, *, was: Sequence[str] = ..., unwrap: bool = ...
    ) -> ListRootsResult: ...
    @overload
    def ask(self, key: str, question: Marker, *, was: Sequence[str] = ..., unwrap: bool = ...) -> Any: ...
    def ask(self, key: str, question: Any, *, was: Sequence[str] = (), unwrap: Any = False) -> Any:
        """As `Context.ask`, waiting in place."""
        return self._wait(lambda: cast("Awaitable[Any]", self._context.ask(key, question, was=was, unwrap=unwrap)))

    def ask_all(self, questions: Mapping[str, Marker]) -> dict[str, Any]:
        """As `Context.ask_all`, waiting in place."""
        return self._wait(lambda: self._context.ask_all(questions))

    def review(self, key: str, message: str, of: Sequence[str]) -> ElicitationResult[dict[str, Any]]:
        """As `Context.review`, waiting in place."""
        return self._wait(lambda: self._context.review(key, message, of))

    @overload
    def elicit(self, message: str, schema: type[T], *, key: str | None = ...) -> ElicitationResult[T]: ...
    @overload
    def elicit(self, message: str, schema: Mapping[T, str], *, key: str | None = ...) -> ElicitationResult[T]: ...
    @overload
    def elicit(
        self, message: str, schema: list[Mapping[T, str]], *, key: str | None = ...
    ) -> ElicitationResult[list[T]]: ...
    @overload
    def elicit(self, message: str, schema: TypeForm[T], *, key: str | None = ...) -> ElicitationResult[T]: ...
    def elicit(self, message: str, schema: Any, *, key: str | None = None) -> ElicitationResult[Any]:
        """As `Context.elicit`, waiting in place."""
        return self._wait(lambda: self._context.elicit(message, schema, key=key))

    @overload
    def elicit_url(
        self,
        message: str,
        url: str,
        elicitation_id: str | None = ...,
        *,
        key: str | None = ...,
        done: None = ...,
        wait: float = ...,
        schemes: Collection[str] = ...,
    ) -> UrlElicitationResult: ...
    @overload
    def elicit_url(
        self,
        message: str,
        url: str,
        elicitation_id: str | None = ...,
        *,
        key: str | None = ...,
        done: Callable[..., Awaitable[T | None]],
        wait: float = ...,
        schemes: Collection[str] = ...,
    ) -> ElicitationResult[T]: ...
    @overload
    def elicit_url(
        self,
        message: str,
        url: str,
        elicitation_id: str | None = ...,
        *,
        key: str | None = ...,
        done: Callable[..., T | None],
        wait: float = ...,
        schemes: Collection[str] = ...,
    ) -> ElicitationResult[T]: ...
    def elicit_url(
        self, message: str, url: str, elicitation_id: str | None = None, **options: Any
    ) -> UrlElicitationResult | ElicitationResult[Any]:
        """As `Context.elicit_url`, waiting in place."""
        return self._wait(
            lambda: cast("Awaitable[Any]", self._context.elicit_url(message, url, elicitation_id, **options))
        )

    @overload
    def sample(
        self,
        messages: str | Sequence[SamplingMessage],
        *,
        result_type: TypeForm[T],
        max_tokens: int = ...,
        key: str | None = ...,
        **options: Unpack[SampleOptions],
    ) -> Sampled[T]: ...
    @overload
    def sample(
        self,
        messages: str | Sequence[SamplingMessage],
        *,
        max_tokens: int = ...,
        key: str | None = ...,
        **options: Unpack[SampleOptions],
    ) -> Sampled[str]: ...
    def sample(self, messages: str | Sequence[SamplingMessage], **options: Any) -> Sampled[Any]:
        """As `Context.sample`, waiting in place."""
        return self._wait(lambda: self._context.sample(messages, **options))

    def list_roots(self, *, key: str | None = None) -> ListRootsResult:
        """As `Context.list_roots`, waiting in place."""
        return self._wait(lambda: self._context.list_roots(key=key))

    @overload
    def step(self, key: str, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def step(self, key: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    def step(self, key: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """As `Context.step`, waiting in place."""
        return self._wait(lambda: self._context.step(key, fn, *args, **kwargs))

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

    def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """As `Context.report_progress`, waiting until it is sent."""
        self._wait(lambda: self._context.report_progress(progress, total, message))

    def read_resource(self, uri: str | AnyUrl) -> list[ReadResourceContents]:
        """As `Context.read_resource`, waiting in place."""
        return self._wait(lambda: self._context.read_resource(uri))

    def _wait(self, make: Callable[[], Awaitable[T]]) -> T:
        # A thread that nobody waits for any more has no leg to ask in. Reaching for its event loop all the same would
        # have anyio cancel it there for ever.
        if self._context.is_over:
            raise AskedTooLate("ctx.blocking")
        if _is_on_event_loop():
            raise BodyMistake(
                "ctx.blocking must be used in a plain `def` function, got an `async def` one; "
                "write `await ctx.ask(...)` there, without blocking"
            )

        async def put() -> T:
            # anyio puts this task into the scope of the leg, but if that has been cancelled before, it tells the task
            # only when a scope in it is left. Untold, it would spin for ever at the first thing that it waits for.
            with anyio.CancelScope():  # noqa: ASYNC100 - entered in order to be left
                pass
            with unless_left():
                return await make()
            raise AskedTooLate("ctx.blocking")

        return anyio.from_thread.run(put)


def _is_on_event_loop() -> bool:
    """Return True in code that an event loop runs, and False in a worker thread."""
    try:
        anyio.get_cancelled_exc_class()
    except RuntimeError:
        return False
    return True
