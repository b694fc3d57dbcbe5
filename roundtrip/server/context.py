"""`Context`: the SDK's, with questions and steps that work on every protocol revision."""

from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar, cast, overload

import anyio.from_thread
from mcp.server import MCPServer
from mcp.server.context import LifespanContextT, RequestT, ServerRequestContext
from mcp.server.elicitation import AcceptedUrlElicitation, UrlElicitationResult
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context as SdkContext
from mcp.server.subscriptions import SubscriptionBus
from mcp_types import CreateMessageResult, InputResponseRequestParams, ListRootsResult, SamplingMessage
from pydantic import AnyUrl, BaseModel

from roundtrip.asks.markers import Elicit, ElicitUrl, ListRoots, Marker, Sample, SdkElicit, SdkListRoots, SdkSample
from roundtrip.asks.outcomes import (
    AcceptedElicitation,
    CancelledElicitation,
    DeclinedElicitation,
    ElicitationResult,
    Outcome,
)
from roundtrip.asks.samples import Sampled, read_structured, text_of
from roundtrip.errors import BodyMistake, QuestionRefused
from roundtrip.machine.journal import Action
from roundtrip.runtime.body import Body
from roundtrip.server.calls import CallInfo

__all__ = ["Asking", "BlockingAsks", "Context"]

T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=BaseModel)


class Asking(Generic[T]):
    """A question that has been made; awaiting it puts it. One that is never awaited fails the call."""

    __slots__ = ("_body", "_key", "_read", "_run")

    def __init__(self, body: Body, key: str, run: Callable[[], Awaitable[Any]], read: Callable[[Any], T]) -> None:
        self._body = body
        self._key = key
        self._run = run
        self._read = read
        body.make(key)

    def __await__(self) -> Generator[Any, Any, T]:
        self._body.put(self._key)
        return self._read((yield from self._run().__await__()))


class Context(SdkContext[LifespanContextT, RequestT]):
    """What a tool's function may ask for by annotating a parameter with it.

    Everything the SDK's context has, and questions by name. On 2026-07-28 a question ends the leg; on the next one
    the function runs again from its top, and each question already answered returns at once. On older revisions the
    function waits in place. Either way it reads as straight-line code:

    ```python
    @server.tool()
    async def order(title: str, ctx: Context) -> str:
        copies = await ctx.ask("copies", Elicit("How many?", Copies), unwrap=True)
        price = await ctx.step("price", quote, title, copies.number)
        ...
    ```

    Code before a question runs on every leg: keep what must not, or what varies, in `step`.
    """

    _body: Body | None
    _call: CallInfo | None

    def __init__(
        self,
        *,
        request_context: ServerRequestContext[LifespanContextT, RequestT] | None = None,
        mcp_server: MCPServer | None = None,
        input_params: InputResponseRequestParams | None = None,
        subscriptions: SubscriptionBus | None = None,
        body: Body | None = None,
        call: CallInfo | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            request_context=request_context,
            mcp_server=mcp_server,
            input_params=input_params,
            subscriptions=subscriptions,
            **kwargs,
        )
        self._body = body
        self._call = call

    @property
    def call(self) -> CallInfo:
        """The call that this request is a leg of."""
        if self._call is None:
            raise ValueError("Context is not available outside of a call")
        return self._call

    @overload
    def ask(
        self, key: str, question: Elicit[ModelT], *, was: Sequence[str] = ..., unwrap: Literal[False] = ...
    ) -> Asking[ElicitationResult[ModelT]]: ...
    @overload
    def ask(self, key: str, question: Elicit[T], *, was: Sequence[str] = ..., unwrap: Literal[True]) -> Asking[T]: ...
    @overload
    def ask(
        self, key: str, question: Elicit[Any], *, was: Sequence[str] = ..., unwrap: Literal[False] = ...
    ) -> Asking[ElicitationResult[Any]]: ...
    @overload
    def ask(
        self, key: str, question: ElicitUrl[T], *, was: Sequence[str] = ..., unwrap: Literal[True]
    ) -> Asking[T]: ...
    @overload
    def ask(
        self, key: str, question: ElicitUrl[Any], *, was: Sequence[str] = ..., unwrap: Literal[False] = ...
    ) -> Asking[ElicitationResult[Any]]: ...
    @overload
    def ask(
        self, key: str, question: SdkSample, *, was: Sequence[str] = ..., unwrap: bool = ...
    ) -> Asking[CreateMessageResult]: ...
    @overload
    def ask(
        self, key: str, question: SdkListRoots, *, was: Sequence[str] = ..., unwrap: bool = ...
    ) -> Asking[ListRootsResult]: ...
    @overload
    def ask(
        self, key: str, question: SdkElicit[Any], *, was: Sequence[str] = ..., unwrap: bool = ...
    ) -> Asking[Any]: ...
    def ask(self, key: str, question: Marker, *, was: Sequence[str] = (), unwrap: bool = False) -> Asking[Any]:
        """Ask one question under a name.

        Args:
            key: Its name, the same on every leg and after a redeploy. In a loop, number it: `f"item-{i}"`.
            question: What to ask.
            was: Names it had in earlier versions, so that a rename does not ask again.
            unwrap: Give the bare value; if the user declines or cancels, end the call.

        Raises:
            QuestionRefused: With `unwrap`, the user declined or cancelled.
            BodyMistake: The question cannot be put this way.
        """
        body = self._asks(key)

        async def run() -> Outcome:
            return await body.ask(key, question, was=tuple(was))

        return Asking(body, key, run, _reader(key, question, unwrap=unwrap))

    def ask_all(self, questions: Mapping[str, Marker]) -> Asking[dict[str, Any]]:
        """Ask several questions in one round; each name with its outcome, or with the result of a sample or roots."""
        label = ", ".join(questions)
        body = self._asks(label)

        async def run() -> dict[str, Outcome]:
            return await body.ask_all(questions)

        def read(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
            return {key: _reader(key, questions[key], unwrap=False)(outcome) for key, outcome in outcomes.items()}

        return Asking(body, label, run, read)

    def review(
        self, key: str, message: str, of: Sequence[str]
    ) -> Asking[AcceptedElicitation[Any] | DeclinedElicitation | CancelledElicitation]:
        """Show earlier answers of this call in one form, and let the user change them.

        What depended on a changed answer is asked and computed again: resolvers that need it, and all that comes after
        it in the body. The accepted outcome holds the answers by their names.

        Args:
            key: The review's name.
            message: What the user reads above the form.
            of: The names of the form questions to show, of this body or of resolvers.

        Raises:
            BodyMistake: One of them is not a form that was answered before.
        """
        body = self._asks(key)

        async def run() -> Outcome:
            return await body.review(key, message, of)

        return Asking(body, key, run, _as_result)

    @overload
    def step(self, key: str, fn: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> Asking[T]: ...
    @overload
    def step(self, key: str, fn: Callable[..., T], *args: Any, **kwargs: Any) -> Asking[T]: ...
    def step(self, key: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Asking[Any]:
        """Run a function once for the whole call; later legs get the same result.

        The result must have a JSON form; a return annotation tells how to read it back. It travels sealed in the
        token, so it exists once a response has carried it: a leg that is lost or replayed runs the function again.
        """
        body = self._asks(key)

        async def run() -> Any:
            return await body.step(key, fn, args, kwargs)

        return Asking(body, key, run, _as_is)

    async def elicit(  # type: ignore[override]
        self, message: str, schema: type[ModelT], *, key: str | None = None
    ) -> ElicitationResult[ModelT]:
        """Ask the user to fill in a form; as `ask`, with a name made of the question if none is given."""
        if self._body is None or not self._body.is_running:
            self._refuse_outside_a_body("elicit")
            return await super().elicit(message, schema)
        outcome = await self._body.ask(key, Elicit(message, schema))
        return cast("ElicitationResult[ModelT]", outcome.as_result())

    @overload
    async def sample(
        self,
        messages: str | Sequence[SamplingMessage],
        *,
        result_type: type[T],
        max_tokens: int = ...,
        key: str | None = ...,
        **options: Any,
    ) -> Sampled[T]: ...
    @overload
    async def sample(
        self,
        messages: str | Sequence[SamplingMessage],
        *,
        max_tokens: int = ...,
        key: str | None = ...,
        **options: Any,
    ) -> Sampled[str]: ...
    async def sample(
        self,
        messages: str | Sequence[SamplingMessage],
        *,
        result_type: Any = None,
        max_tokens: int = 1024,
        key: str | None = None,
        **options: Any,
    ) -> Sampled[Any]:
        """Ask the client's model to complete a conversation.

        Args:
            messages: The conversation; a string is one message of the user's.
            result_type: Have the model answer with JSON of this type, read into `.result`.
            max_tokens: How long the answer may be.
            key: The question's name; by default made of what it says.
            **options: Those of `Sample`.
        """
        body = self._asks(key or "sample")
        question = Sample(messages, max_tokens=max_tokens, result_type=result_type, **options)
        message = cast("CreateMessageResult", (await body.ask(key, question)).value)
        text = text_of(message)
        return Sampled(text, text if result_type is None else read_structured(result_type, text), message)

    async def elicit_url(  # type: ignore[override]
        self,
        message: str,
        url: str,
        elicitation_id: str | None = None,
        *,
        key: str | None = None,
        done: Callable[..., Any] | None = None,
        wait: float = 20.0,
    ) -> UrlElicitationResult | AcceptedElicitation[Any]:
        """Send the user to a page; as `ask` with an `ElicitUrl`.

        Args:
            message: Why.
            url: The page.
            elicitation_id: As the SDK's method takes one; where the call can be resumed, it makes its own.
            key: The question's name; by default made of what it says.
            done: Decides whether the user has finished; without it, agreeing to go there is the whole answer.
            wait: Seconds a leg waits for `done` before it asks again.
        """
        if self._body is None or not self._body.is_running:
            self._refuse_outside_a_body("elicit_url")
            if elicitation_id is None:
                raise BodyMistake("ctx.elicit_url() outside of a body needs an elicitation_id")
            return await super().elicit_url(message, url, elicitation_id)
        outcome = await self._body.ask(key, ElicitUrl(message, url, done=done, wait=wait))
        if done is None and outcome.action is Action.ACCEPT:
            return AcceptedUrlElicitation()
        return outcome.as_result()

    async def list_roots(self, *, key: str | None = None) -> ListRootsResult:
        """Ask the client for its roots."""
        body = self._asks(key or "list_roots")
        return cast("ListRootsResult", (await body.ask(key, ListRoots())).value)

    async def read_resource(self, uri: str | AnyUrl) -> Iterable[ReadResourceContents]:
        """Read a resource of this server; one that asks can be read only where its client is asked live.

        Raises:
            BodyMistake: It asks, and the answer would come with another request, which is not this one's.
        """
        try:
            return await super().read_resource(uri)
        except RuntimeError as error:
            # The resource's own errors are resource errors: this is the SDK's, for one that asks.
            raise BodyMistake(
                f"ctx.read_resource({str(uri)!r}) reads a resource that asks the client, and the answers to its "
                "questions could not come back to it from here; ask them in this function, and share what the two do"
            ) from error

    @property
    def blocking(self) -> "BlockingAsks":
        """The same questions for a plain `def` tool, which waits for them in its worker thread."""
        return BlockingAsks(self)

    def _asks(self, key: str) -> Body:
        if self._body is None or not self._body.is_running:
            raise BodyMistake(
                f"{key!r} is asked outside of a tool's body. A resolver asks by returning its question; in a body, "
                "annotate a parameter with Context"
            )
        return self._body

    def _refuse_outside_a_body(self, what: str) -> None:
        if self._body is not None and not self._body.is_live:
            raise BodyMistake(
                f"ctx.{what}() in a resolver cannot wait on this protocol revision; return the question instead: "
                "`return Elicit(message, schema)`"
            )


class BlockingAsks:
    """The questions and steps of a `Context` for plain functions, which wait for them in their worker thread."""

    __slots__ = ("_context",)

    def __init__(self, context: Context[Any, Any]) -> None:
        self._context = context

    @overload
    def ask(
        self, key: str, question: Elicit[ModelT], *, was: Sequence[str] = ..., unwrap: Literal[False] = ...
    ) -> ElicitationResult[ModelT]: ...
    @overload
    def ask(self, key: str, question: Elicit[T], *, was: Sequence[str] = ..., unwrap: Literal[True]) -> T: ...
    @overload
    def ask(
        self, key: str, question: Elicit[Any], *, was: Sequence[str] = ..., unwrap: Literal[False] = ...
    ) -> ElicitationResult[Any]: ...
    @overload
    def ask(self, key: str, question: ElicitUrl[T], *, was: Sequence[str] = ..., unwrap: Literal[True]) -> T: ...
    @overload
    def ask(
        self, key: str, question: ElicitUrl[Any], *, was: Sequence[str] = ..., unwrap: Literal[False] = ...
    ) -> ElicitationResult[Any]: ...
    @overload
    def ask(
        self, key: str, question: SdkSample, *, was: Sequence[str] = ..., unwrap: bool = ...
    ) -> CreateMessageResult: ...
    @overload
    def ask(
        self, key: str, question: SdkListRoots, *, was: Sequence[str] = ..., unwrap: bool = ...
    ) -> ListRootsResult: ...
    @overload
    def ask(self, key: str, question: SdkElicit[Any], *, was: Sequence[str] = ..., unwrap: bool = ...) -> Any: ...
    def ask(self, key: str, question: Any, *, was: Sequence[str] = (), unwrap: Any = False) -> Any:
        """As `Context.ask`, waiting in place."""
        return _wait(lambda: cast("Asking[Any]", self._context.ask(key, question, was=was, unwrap=unwrap)))

    def ask_all(self, questions: Mapping[str, Marker]) -> dict[str, Any]:
        """As `Context.ask_all`, waiting in place."""
        return _wait(lambda: self._context.ask_all(questions))

    def review(
        self, key: str, message: str, of: Sequence[str]
    ) -> AcceptedElicitation[Any] | DeclinedElicitation | CancelledElicitation:
        """As `Context.review`, waiting in place."""
        return _wait(lambda: self._context.review(key, message, of))

    def elicit(self, message: str, schema: type[ModelT], *, key: str | None = None) -> ElicitationResult[ModelT]:
        """As `Context.elicit`, waiting in place."""
        return _wait(lambda: self._context.elicit(message, schema, key=key))

    def sample(self, messages: str | Sequence[SamplingMessage], **options: Any) -> Sampled[Any]:
        """As `Context.sample`, waiting in place."""
        return _wait(lambda: self._context.sample(messages, **options))

    def list_roots(self, *, key: str | None = None) -> ListRootsResult:
        """As `Context.list_roots`, waiting in place."""
        return _wait(lambda: self._context.list_roots(key=key))

    @overload
    def step(self, key: str, fn: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T: ...
    @overload
    def step(self, key: str, fn: Callable[..., T], *args: Any, **kwargs: Any) -> T: ...
    def step(self, key: str, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """As `Context.step`, waiting in place."""
        return _wait(lambda: self._context.step(key, fn, *args, **kwargs))


def _wait(make: Callable[[], Awaitable[T]]) -> T:
    async def put() -> T:
        return await make()

    return anyio.from_thread.run(put)


def _reader(key: str, marker: Marker, *, unwrap: bool) -> Callable[[Outcome], Any]:
    def read(outcome: Outcome) -> Any:
        if not isinstance(marker, SdkElicit | ElicitUrl):
            return outcome.value
        if not unwrap:
            return outcome.as_result()
        if outcome.action is not Action.ACCEPT:
            raise QuestionRefused(key, outcome.word)
        return outcome.value

    return read


def _as_result(outcome: Outcome) -> AcceptedElicitation[Any] | DeclinedElicitation | CancelledElicitation:
    return outcome.as_result()


def _as_is(value: Any) -> Any:
    return value
