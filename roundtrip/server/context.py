"""`Context`: the SDK's, with questions and steps that work on every protocol revision."""

from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, ParamSpec, TypeVar, cast, overload

from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.connection import allowed_log_levels
from mcp.server.context import LifespanContextT, RequestT, ServerRequestContext
from mcp.server.elicitation import AcceptedUrlElicitation, UrlElicitationResult
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context as SdkContext
from mcp.server.subscriptions import SubscriptionBus
from mcp_types import (
    CreateMessageResult,
    InputResponseRequestParams,
    ListRootsResult,
    LoggingLevel,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
    SamplingMessage,
)
from pydantic import AnyUrl, BaseModel
from typing_extensions import TypeForm, Unpack

from roundtrip.engine.body import Body
from roundtrip.engine.interruptions import clock_paused
from roundtrip.errors import AskedTooLate, BodyMistake, QuestionRefused, UsedUnawaited
from roundtrip.machine.journal import Action
from roundtrip.questions.markers import (
    WEB,
    Elicit,
    ElicitUrl,
    ListRoots,
    Marker,
    Sample,
    SampleOptions,
    SdkElicit,
    SdkListRoots,
    SdkSample,
    require_scheme,
)
from roundtrip.questions.outcomes import ElicitationResult, Outcome
from roundtrip.questions.samples import Sampled, read_structured, text_of
from roundtrip.server.blocking import BlockingAsks
from roundtrip.server.calls import CallInfo
from roundtrip.server.notifications import announced_by_author
from roundtrip.server.sdk_private import session_id_of

__all__ = ["Asking", "Context"]

T = TypeVar("T")
P = ParamSpec("P")
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

    # Type checkers see none of these, so that they complain of the same mistakes.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            if name.startswith("_"):
                raise AttributeError(name)
            raise UsedUnawaited(repr(self._key))

        def __getitem__(self, place: object) -> Never:
            raise UsedUnawaited(repr(self._key))

        def __iter__(self) -> Never:
            raise UsedUnawaited(repr(self._key))

        def __bool__(self) -> Never:
            raise UsedUnawaited(repr(self._key))


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
    _publishes_on: SubscriptionBus | None

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
        self._publishes_on = subscriptions

    @property
    def call(self) -> CallInfo:
        """The call that this request is a leg of."""
        if self._call is None:
            raise ValueError("Context is not available outside of a call")
        return self._call

    @overload
    def ask(
        self, key: str, question: Elicit[T] | ElicitUrl[T], *, was: Sequence[str] = ..., unwrap: Literal[False] = ...
    ) -> Asking[ElicitationResult[T]]: ...
    @overload
    def ask(
        self, key: str, question: Elicit[T] | ElicitUrl[T], *, was: Sequence[str] = ..., unwrap: Literal[True]
    ) -> Asking[T]: ...
    @overload
    def ask(
        self, key: str, question: SdkElicit[ModelT], *, was: Sequence[str] = ..., unwrap: Literal[False] = ...
    ) -> Asking[ElicitationResult[ModelT]]: ...
    @overload
    def ask(
        self, key: str, question: SdkElicit[ModelT], *, was: Sequence[str] = ..., unwrap: Literal[True]
    ) -> Asking[ModelT]: ...
    @overload
    def ask(
        self, key: str, question: SdkSample, *, was: Sequence[str] = ..., unwrap: bool = ...
    ) -> Asking[CreateMessageResult]: ...
    @overload
    def ask(
        self, key: str, question: SdkListRoots, *, was: Sequence[str] = ..., unwrap: bool = ...
    ) -> Asking[ListRootsResult]: ...
    @overload
    def ask(self, key: str, question: Marker, *, was: Sequence[str] = ..., unwrap: bool = ...) -> Asking[Any]: ...
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

    def review(self, key: str, message: str, of: Sequence[str]) -> Asking[ElicitationResult[dict[str, Any]]]:
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
    def step(self, key: str, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> Asking[T]: ...
    @overload
    def step(self, key: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Asking[T]: ...
    def step(self, key: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Asking[Any]:
        """Run a function once for the whole call; later legs get the same result.

        The result must have a JSON form; a return annotation tells how to read it back. It travels sealed in the
        token, so it exists once a response has carried it: a leg that is lost or replayed runs the function again.
        """
        body = self._asks(key)

        async def run() -> Any:
            return await body.step(key, fn, args, kwargs)

        return Asking(body, key, run, _as_is)

    @overload
    async def elicit(self, message: str, schema: type[T], *, key: str | None = ...) -> ElicitationResult[T]: ...
    @overload
    async def elicit(self, message: str, schema: Mapping[T, str], *, key: str | None = ...) -> ElicitationResult[T]: ...
    @overload
    async def elicit(
        self, message: str, schema: list[Mapping[T, str]], *, key: str | None = ...
    ) -> ElicitationResult[list[T]]: ...
    @overload
    async def elicit(self, message: str, schema: TypeForm[T], *, key: str | None = ...) -> ElicitationResult[T]: ...
    async def elicit(self, message: str, schema: Any, *, key: str | None = None) -> ElicitationResult[Any]:
        """Ask the user to fill in a form; as `ask`, with a name made of the question if none is given."""
        if self._body is None or not self._body.is_running:
            self._refuse_outside_a_body("elicit")
            with clock_paused():
                return cast("ElicitationResult[Any]", await super().elicit(message, schema))
        return (await self._body.ask(key, Elicit(message, schema))).as_result()

    @overload
    async def sample(
        self,
        messages: str | Sequence[SamplingMessage],
        *,
        result_type: TypeForm[T],
        max_tokens: int = ...,
        key: str | None = ...,
        **options: Unpack[SampleOptions],
    ) -> Sampled[T]: ...
    @overload
    async def sample(
        self,
        messages: str | Sequence[SamplingMessage],
        *,
        max_tokens: int = ...,
        key: str | None = ...,
        **options: Unpack[SampleOptions],
    ) -> Sampled[str]: ...
    async def sample(
        self,
        messages: str | Sequence[SamplingMessage],
        *,
        result_type: Any = None,
        max_tokens: int = 1024,
        key: str | None = None,
        **options: Unpack[SampleOptions],
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

    @overload
    async def elicit_url(
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
    async def elicit_url(
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
    async def elicit_url(
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
    async def elicit_url(
        self,
        message: str,
        url: str,
        elicitation_id: str | None = None,
        *,
        key: str | None = None,
        done: Callable[..., Any] | None = None,
        wait: float = 20.0,
        schemes: Collection[str] = WEB,
    ) -> UrlElicitationResult | ElicitationResult[Any]:
        """Send the user to a page; as `ask` with an `ElicitUrl`.

        Args:
            message: Why.
            url: The page.
            elicitation_id: The page's id for its client; without one it gets its own.
            key: The question's name; by default made of what it says.
            done: Decides whether the user has finished; without it, agreeing to go there is the whole answer.
            wait: Seconds a leg waits for `done` before it asks again.
            schemes: The schemes that the URL may have, as `ElicitUrl` takes them.
        """
        require_scheme(url, schemes)
        if self._body is None or not self._body.is_running:
            self._refuse_outside_a_body("elicit_url")
            if done is not None:
                raise BodyMistake(
                    "ctx.elicit_url(done=...) outside of a body cannot wait for the page; return the question instead: "
                    "`return ElicitUrl(message, url, done=...)`"
                )
            if elicitation_id is None:
                raise BodyMistake("ctx.elicit_url() outside of a body needs an elicitation_id")
            with clock_paused():
                return await super().elicit_url(message, url, elicitation_id)
        outcome = await self._body.ask(
            key, ElicitUrl(message, url, done=done, wait=wait, elicitation_id=elicitation_id, schemes=schemes)
        )
        if done is None and outcome.action is Action.ACCEPT:
            return AcceptedUrlElicitation()
        return outcome.as_result()

    async def list_roots(self, *, key: str | None = None) -> ListRootsResult:
        """Ask the client for its roots."""
        body = self._asks(key or "list_roots")
        return cast("ListRootsResult", (await body.ask(key, ListRoots())).value)

    async def read_resource(self, uri: str | AnyUrl) -> list[ReadResourceContents]:
        """Read a resource of this server; one that asks can be read only where its client is asked live.

        Returns:
            Its contents, each with `.content` (text or bytes) and `.mime_type`.

        Raises:
            ResourceNotFoundError: There is none of that URI that clients may see.
            BodyMistake: It asks, and the answer would come with another request, which is not this one's.
        """
        try:
            return list(await super().read_resource(uri))
        except RuntimeError as error:
            # The resource's own errors are resource errors: this is the SDK's, for one that asks.
            raise BodyMistake(
                f"ctx.read_resource({str(uri)!r}) reads a resource that asks the client, and the answers to its "
                "questions could not come back to it from here; ask them in this function, and share what the two do"
            ) from error

    async def log(
        self,
        level: LoggingLevel,
        data: Any,
        *,
        logger_name: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Send the client a message for its log; a client of 2026-07-28 gets only what its request asked for.

        Code before a question runs on every leg, and its messages are sent by every leg.

        Args:
            level: How grave it is.
            data: The message, or any other JSON.
            logger_name: Who says it.
            extra: More about it. The client then gets an object with both, as `msg` and `extra`.
        """
        request = self.request_context
        # The session's own method does the same, and warns that the protocol's logging is deprecated.
        if level in allowed_log_levels(request.protocol_version, request.meta):
            params = LoggingMessageNotificationParams(
                level=level,
                data=data if extra is None else {"msg": data, "extra": dict(extra)},
                logger=logger_name,
            )
            await request.session.send_notification(LoggingMessageNotification(params=params), request.request_id)

    async def debug(self, data: Any, *, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        """As `log`, for whoever looks for a fault."""
        await self.log("debug", data, logger_name=logger_name, extra=extra)

    async def info(self, data: Any, *, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        """As `log`, for what goes as it should."""
        await self.log("info", data, logger_name=logger_name, extra=extra)

    async def warning(
        self, data: Any, *, logger_name: str | None = None, extra: Mapping[str, Any] | None = None
    ) -> None:
        """As `log`, for what may be wrong."""
        await self.log("warning", data, logger_name=logger_name, extra=extra)

    async def error(self, data: Any, *, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        """As `log`, for what went wrong."""
        await self.log("error", data, logger_name=logger_name, extra=extra)

    @property
    def client_id(self) -> str | None:
        """The client that the request's access token was issued to; None on a server without authentication."""
        token = get_access_token()
        return token.client_id if token is not None else None

    async def notify_tools_changed(self) -> None:
        """Tell clients that the tools have changed; a change that this request made is not announced again."""
        with announced_by_author("tools", self._publishes_on):
            await super().notify_tools_changed()

    async def notify_prompts_changed(self) -> None:
        """Tell clients that the prompts have changed; a change that this request made is not announced again."""
        with announced_by_author("prompts", self._publishes_on):
            await super().notify_prompts_changed()

    async def notify_resources_changed(self) -> None:
        """Tell clients that the resources have changed; a change that this request made is not announced again."""
        with announced_by_author("resources", self._publishes_on):
            await super().notify_resources_changed()

    @property
    def session_id(self) -> str | None:
        """The id of the streamable HTTP session that the request belongs to, if it belongs to one.

        2026-07-28 has no sessions, nor have other transports or a server with `stateless_http`.
        """
        return session_id_of(self.request_context.session)

    @property
    def blocking(self) -> BlockingAsks:
        """The same for a plain `def` tool, which waits in its worker thread."""
        return BlockingAsks(self)

    @property
    def is_over(self) -> bool:
        """Whether the body that it was made for has ended."""
        return self._body is not None and self._body.is_over

    def _asks(self, key: str) -> Body:
        if self.is_over:
            raise AskedTooLate(key)
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


def _as_result(outcome: Outcome) -> ElicitationResult[Any]:
    return outcome.as_result()


def _as_is(value: Any) -> Any:
    return value
