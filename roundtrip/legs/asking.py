"""The context methods with which a running body asks questions and runs steps."""

import math
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Never, ParamSpec, TypeVar, cast, overload

from mcp.server.context import LifespanContextT, RequestT
from mcp.server.elicitation import AcceptedUrlElicitation, UrlElicitationResult
from mcp.server.mcpserver import Context as SdkContext
from mcp.server.subscriptions import SubscriptionBus
from mcp_types import CreateMessageResult, ListRootsResult, SamplingMessage
from pydantic import BaseModel
from typing_extensions import TypedDict, TypeForm, Unpack

from roundtrip.engine.body import Body
from roundtrip.engine.interruptions import clock_paused
from roundtrip.errors import AskedTooLate, BodyMistake, UsedUnawaited
from roundtrip.machine.call import Call
from roundtrip.machine.journal import Action
from roundtrip.questions.markers import (
    WEB,
    AnsweredBy,
    Elicit,
    ElicitUrl,
    ExternalMarker,
    Fallback,
    FormOptions,
    ListRoots,
    Marker,
    Sample,
    SampleOptions,
    SdkElicit,
    SdkListRoots,
    SdkSample,
    is_marker,
    require_scheme,
)
from roundtrip.questions.outcomes import ElicitationResult, Outcome
from roundtrip.questions.samples import Sampled, read_structured, text_of

if TYPE_CHECKING:
    from roundtrip.legs.requests import StoredLeg

T = TypeVar("T")
P = ParamSpec("P")
ModelT = TypeVar("ModelT", bound=BaseModel)


_NO_SCHEMA: Final = object()


def _seconds_of(given: float | timedelta, what: str) -> float:
    """Return a duration in seconds.

    Raises:
        BodyMistake: The value is not a duration.
    """
    seconds: Any = given.total_seconds() if isinstance(given, timedelta) else given
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise BodyMistake(f"{what} must be a number of seconds or a timedelta, at least 0, got {given!r}")
    return float(seconds)


class NameOptions(TypedDict, total=False):
    """Options for a question that is passed as one object."""

    former_names: Sequence[str]


class AskOptions(FormOptions, NameOptions, total=False):
    """Options, other than `fallback`, for a question with a message and a schema."""


class ChoiceOptions(AskOptions, Generic[T], total=False):
    """Options for a question with a message and choices."""

    fallback: Fallback[T]


class VisitOptions(TypedDict, total=False):
    """Options for `ctx.elicit_url`."""

    name: str | None
    wait: float
    schemes: Collection[str]


class Asking(Awaitable[T]):
    """A question or step in a body. Await it to get its result; the call fails if it is never awaited."""

    __slots__ = ("_body", "_name", "_read", "_run")

    def __init__(self, body: Body, name: str, run: Callable[[], Awaitable[Any]], read: Callable[[Any], T]) -> None:
        self._body = body
        self._name = name
        self._run = run
        self._read = read
        body.make(name)

    def __await__(self) -> Generator[Any, Any, T]:
        self._body.put(self._name)
        return self._read((yield from self._run().__await__()))

    # Hide these methods from type checkers, which would otherwise accept the mistakes that the methods reject.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            if name.startswith("_"):
                raise AttributeError(name)
            raise UsedUnawaited(repr(self._name))

        def _use(self, *_: object) -> Never:
            raise UsedUnawaited(repr(self._name))

        __getitem__ = __iter__ = __bool__ = _use


class CallInfo:
    """A call's id and progress."""

    __slots__ = ("_call", "_issue", "intent_key", "stored")

    def __init__(
        self,
        call: Call,
        issue: Callable[[str, bool], str | None],
        *,
        stored: "StoredLeg | None" = None,
        intent_key: str | None = None,
    ) -> None:
        self._call = call
        self._issue = issue
        self.intent_key = intent_key
        """The key of the call's intent for other systems. It is None if the tool has no `once_per=`, or if the intent
        depends on the request.
        """
        self.stored = stored
        """This call's stored leg, if the call is stored."""

    @property
    def id(self) -> str:
        """Return the call's id, which is the same on every leg."""
        return self._call.id

    @property
    def leg(self) -> int:
        """Return how many requests the call has had, including this one."""
        return self._call.leg

    @property
    def round(self) -> int:
        """Return how many question rounds the call has had."""
        return self._call.round

    def ticket(self, purpose: str, *, unbound: bool = False) -> str:
        """Issue a ticket for an `ElicitUrl`'s URL. The page uses the ticket to find the call and its user.

        The ticket is signed, is the same on every leg, and is valid only for this call and purpose. It expires when the
        call does. The page passes the ticket to `server.verify_ticket`, together with the principal of the user in the
        browser.

        Args:
            purpose: What the ticket is for, such as the question's name.
            unbound: Issue the ticket even if no user is known. Everyone who has the link can then use the ticket.

        Raises:
            BodyMistake: No user is authenticated, or the user's access token has no subject, and `unbound` was not
                given.
        """
        ticket = self._issue(purpose, unbound)
        if ticket is None:
            raise BodyMistake(
                f"a ticket for {purpose!r} must be bound to a user, but the server does not know the user: the request "
                "is not authenticated, or its access token has no subject. Identify users with principal= or with a "
                "token verifier that returns AccessToken(subject=...). If everyone who has the link may use the "
                "ticket, write ticket(..., unbound=True)"
            )
        return ticket


class AskingContext(SdkContext[LifespanContextT, RequestT]):
    """One call's context. It asks questions and runs steps by name."""

    _publishes_on: SubscriptionBus | None
    _body: Body | None
    _call: CallInfo | None

    def __init__(
        self,
        *,
        subscriptions: SubscriptionBus | None = None,
        body: Body | None = None,
        call: CallInfo | None = None,
        **options: Any,
    ) -> None:
        super().__init__(subscriptions=subscriptions, **options)
        self._publishes_on = subscriptions
        self._body = body
        self._call = call

    @property
    def call(self) -> CallInfo:
        """Return the call to which this request belongs."""
        if self._call is None:
            raise ValueError("Context is not available outside of a call")
        return self._call

    @property
    def idempotency_key(self) -> str:
        """Return a key to send to other systems, so that they do the work of the call once. It is the same on each leg,
        and for all calls with the same intent. If the intent depends on the request, or if the tool has no `once_per=`,
        it is the call's id.
        """
        return self.call.intent_key or self.call.id

    @property
    def is_over(self) -> bool:
        """Return True if this context's body has ended."""
        return self._body is not None and self._body.is_over

    def _running_body(self, name: str) -> Body:
        if self.is_over:
            raise AskedTooLate(name)
        if self._body is None or not self._body.is_running:
            raise BodyMistake(
                f"{name!r} must be asked in a tool's body. A resolver asks by returning its question; a body asks "
                "with a parameter that is annotated with Context"
            )
        return self._body

    def _require_live_resolver(self, method: str) -> None:
        if self._body is not None and not self._body.is_live:
            raise BodyMistake(
                f"on this protocol revision, ctx.{method}() in a resolver cannot wait; return the question instead: "
                "`return Elicit(message, schema)`"
            )

    @overload
    def ask(
        self, name: str, message: str, schema: TypeForm[T], /, *, fallback: None, **options: Unpack[AskOptions]
    ) -> Asking[T | None]: ...
    @overload
    def ask(
        self,
        name: str,
        message: str,
        schema: list[Mapping[T, str]],
        /,
        **options: Unpack[ChoiceOptions[list[T]]],
    ) -> Asking[list[T]]: ...
    @overload
    def ask(
        self,
        name: str,
        message: str,
        schema: TypeForm[T],
        /,
        *,
        fallback: Fallback[T] = ...,
        **options: Unpack[AskOptions],
    ) -> Asking[T]: ...
    @overload
    def ask(
        self, name: str, message: str, schema: Mapping[T, str], /, **options: Unpack[ChoiceOptions[T]]
    ) -> Asking[T]: ...
    @overload
    def ask(
        self, name: str, question: Elicit[T] | ElicitUrl[T] | ExternalMarker[T], /, **options: Unpack[NameOptions]
    ) -> Asking[T]: ...
    @overload
    def ask(self, name: str, question: SdkElicit[ModelT], /, **options: Unpack[NameOptions]) -> Asking[ModelT]: ...
    @overload
    def ask(self, name: str, question: SdkSample, /, **options: Unpack[NameOptions]) -> Asking[CreateMessageResult]: ...
    @overload
    def ask(self, name: str, question: SdkListRoots, /, **options: Unpack[NameOptions]) -> Asking[ListRootsResult]: ...
    @overload
    def ask(self, name: str, question: Marker, /, **options: Unpack[NameOptions]) -> Asking[Any]: ...
    def ask(
        self, name: str, question: Any, schema: Any = _NO_SCHEMA, /, *, former_names: Sequence[str] = (), **options: Any
    ) -> Asking[Any]:
        """Ask one question, and return its answer. If the user declines or cancels, the call ends.

        Args:
            name: The question's name, which must be the same on every leg and after a redeploy. In a loop, number it:
                `f"item-{i}"`.
            question: The message above a form, followed by the form's schema; or a question object, such as an
                `ElicitUrl`.
            schema: The answer's type, or the choices, in any form that `Elicit` takes.
            former_names: Names that the question had in earlier versions, so that a renamed question is not asked
                again.
            **options: `Elicit`'s options for a message with a schema: `answered_by`, `attempts`, `guesses`,
                `fallback` and `volatile_ok`.

        Raises:
            QuestionDeclined: The user declined or cancelled. Do not catch this error if the call should end.
            BodyMistake: The question cannot be asked this way.
        """
        body, marker = self._running_body(name), _question("ask", name, question, schema, options)
        return Asking(body, name, partial(body.ask, name, marker, former_names), lambda one: one.require_value(name))

    @overload
    def ask_outcome(
        self, name: str, message: str, schema: TypeForm[T], /, *, fallback: None, **options: Unpack[AskOptions]
    ) -> Asking[ElicitationResult[T | None]]: ...
    @overload
    def ask_outcome(
        self,
        name: str,
        message: str,
        schema: list[Mapping[T, str]],
        /,
        **options: Unpack[ChoiceOptions[list[T]]],
    ) -> Asking[ElicitationResult[list[T]]]: ...
    @overload
    def ask_outcome(
        self,
        name: str,
        message: str,
        schema: TypeForm[T],
        /,
        *,
        fallback: Fallback[T] = ...,
        **options: Unpack[AskOptions],
    ) -> Asking[ElicitationResult[T]]: ...
    @overload
    def ask_outcome(
        self, name: str, message: str, schema: Mapping[T, str], /, **options: Unpack[ChoiceOptions[T]]
    ) -> Asking[ElicitationResult[T]]: ...
    @overload
    def ask_outcome(
        self, name: str, question: Elicit[T] | ElicitUrl[T], /, **options: Unpack[NameOptions]
    ) -> Asking[ElicitationResult[T]]: ...
    @overload
    def ask_outcome(
        self, name: str, question: SdkElicit[ModelT], /, **options: Unpack[NameOptions]
    ) -> Asking[ElicitationResult[ModelT]]: ...
    def ask_outcome(
        self, name: str, question: Any, schema: Any = _NO_SCHEMA, /, *, former_names: Sequence[str] = (), **options: Any
    ) -> Asking[ElicitationResult[Any]]:
        """Ask the user one question like `ask`, but return its outcome: accepted, declined or cancelled.

        Raises:
            BodyMistake: The question cannot be asked this way, or it is not a question for a user.
        """
        body, marker = self._running_body(name), _question("ask_outcome", name, question, schema, options)
        if not isinstance(marker, SdkElicit | ElicitUrl):
            raise BodyMistake(
                f"ctx.ask_outcome({name!r}, ...) must be given a form or a page, got {type(marker).__name__}; use "
                "ctx.ask, because no user can decline this question"
            )

        return Asking(body, name, partial(body.ask, name, marker, former_names), Outcome.as_result)

    def ask_all(self, questions: Mapping[str, Marker]) -> Asking[dict[str, Any]]:
        """Ask several questions in one round, and return their answers by name.

        Raises:
            QuestionDeclined: The user declined or cancelled a question. Do not catch this error if the call should end.
        """
        label = _label_of("ask_all", questions)
        body = self._running_body(label)

        def values(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
            return {name: outcome.require_value(name) for name, outcome in outcomes.items()}

        return Asking(body, label, partial(body.ask_all, questions), values)

    def ask_all_outcomes(self, questions: Mapping[str, Marker]) -> Asking[dict[str, Any]]:
        """Ask several questions in one round, and return their outcomes by name. For samples and roots, return the
        results instead of outcomes.
        """
        label = _label_of("ask_all_outcomes", questions)
        body = self._running_body(label)

        def results(outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
            return {
                name: outcome.as_result() if isinstance(questions[name], SdkElicit | ElicitUrl) else outcome.value
                for name, outcome in outcomes.items()
            }

        return Asking(body, label, partial(body.ask_all, questions), results)

    def review(self, name: str, message: str, of: Sequence[str]) -> Asking[dict[str, Any]]:
        """Show this call's earlier answers in one form, let the user change them, and return them by name.

        Everything that depends on a changed answer is asked and computed again. That includes the resolvers that need
        the answer, and the part of the body that follows the question.

        Args:
            name: The review's name.
            message: The text above the form.
            of: The names of the form questions to show, from this body or from resolvers.

        Raises:
            QuestionDeclined: The user declined or cancelled the review. Do not catch this error if the call should end.
            BodyMistake: One of the names does not belong to a form that the user has answered.
        """
        body = self._running_body(name)
        return Asking(body, name, partial(body.review, name, message, of), lambda outcome: outcome.require_value(name))

    def review_outcome(self, name: str, message: str, of: Sequence[str]) -> Asking[ElicitationResult[dict[str, Any]]]:
        """Show earlier answers like `review`, but return the review's outcome: accepted, declined or cancelled."""
        body = self._running_body(name)
        return Asking(body, name, partial(body.review, name, message, of), Outcome.as_result)

    @overload
    def step(self, name: str, fn: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs) -> Asking[T]: ...
    @overload
    def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Asking[T]: ...
    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Asking[Any]:
        """Run a function once for the whole call, and return the same result on later legs.

        The result must be convertible to JSON. Later legs read it back as the type in the function's return annotation.
        The result travels sealed in the token. If a leg is replayed or its response is lost, the function runs again.
        """
        body = self._running_body(name)
        return Asking(body, name, partial(body.step, name, fn, args, kwargs), lambda result: result)

    def sleep(self, duration: float | timedelta, *, name: str | None = None) -> Asking[None]:
        """In a task, wait for the given duration. The wait occupies no worker, thread or connection.

        Args:
            duration: Seconds, or a `timedelta`.
            name: A name for the wait. It is needed if several of the body's asyncio tasks sleep at once.

        Raises:
            NeedsTask: The call is not a task.
        """
        seconds, body = _seconds_of(duration, "ctx.sleep(...)"), self._running_body("ctx.sleep")
        return Asking(body, name or "ctx.sleep", partial(body.sleep, seconds, name), lambda result: result)

    def wait_for(self, name: str, *, timeout: float | timedelta | None = None) -> Asking[Any]:
        """In a task, wait for a signal from `server.signal`, and return its payload.

        A signal that arrives early is kept until the body waits for it. If several signals have the same name, the
        first one counts.

        Args:
            name: The signal's name. A body can wait for each name only once.
            timeout: Seconds, or a `timedelta`. With None, the wait lasts as long as the task.

        Raises:
            TimeoutError: The signal did not arrive in time.
            NeedsTask: The call is not a task.
        """
        seconds = None if timeout is None else _seconds_of(timeout, "timeout=")
        body = self._running_body(name)
        return Asking(body, name, partial(body.wait_for, name, seconds), lambda payload: payload)

    @overload
    async def elicit(
        self, message: str, schema: list[Mapping[T, str]], *, name: str | None = ..., answered_by: AnsweredBy = ...
    ) -> ElicitationResult[list[T]]: ...
    @overload
    async def elicit(
        self, message: str, schema: TypeForm[T], *, name: str | None = ..., answered_by: AnsweredBy = ...
    ) -> ElicitationResult[T]: ...
    @overload
    async def elicit(
        self, message: str, schema: Mapping[T, str], *, name: str | None = ..., answered_by: AnsweredBy = ...
    ) -> ElicitationResult[T]: ...
    async def elicit(
        self, message: str, schema: Any, *, name: str | None = None, answered_by: AnsweredBy = "human"
    ) -> ElicitationResult[Any]:
        """Ask the user to fill in a form, and return the outcome like `ask_outcome`. Without a name, the question's
        name is derived from its wording.
        """
        if self._body is None or not self._body.is_running:
            self._require_live_resolver("elicit")
            with clock_paused():
                return cast("ElicitationResult[Any]", await super().elicit(message, schema))
        return (await self._body.ask(name, Elicit(message, schema, answered_by=answered_by))).as_result()

    @overload
    async def sample(
        self,
        messages: str | Sequence[SamplingMessage],
        *,
        result_type: TypeForm[T],
        max_tokens: int = ...,
        name: str | None = ...,
        **options: Unpack[SampleOptions],
    ) -> Sampled[T]: ...
    @overload
    async def sample(
        self,
        messages: str | Sequence[SamplingMessage],
        *,
        max_tokens: int = ...,
        name: str | None = ...,
        **options: Unpack[SampleOptions],
    ) -> Sampled[str]: ...
    async def sample(
        self,
        messages: str | Sequence[SamplingMessage],
        *,
        result_type: Any = None,
        max_tokens: int = 1024,
        name: str | None = None,
        **options: Unpack[SampleOptions],
    ) -> Sampled[Any]:
        """Ask the client's model to complete a conversation.

        Args:
            messages: The conversation; a string is a single user message.
            result_type: Ask the model for JSON with this type, and parse the JSON into `.result`.
            max_tokens: The answer's maximum length, in the model's tokens.
            name: The question's name; by default derived from its message.
            **options: `Sample`'s options.
        """
        body = self._running_body(name or "sample")
        question = Sample(messages, max_tokens=max_tokens, result_type=result_type, **options)
        message = cast("CreateMessageResult", (await body.ask(name, question)).value)
        text = text_of(message)
        return Sampled(text, text if result_type is None else read_structured(result_type, text), message)

    @overload
    async def elicit_url(
        self,
        message: str,
        url: str,
        elicitation_id: str | None = ...,
        *,
        done: None = ...,
        **options: Unpack[VisitOptions],
    ) -> UrlElicitationResult: ...
    @overload
    async def elicit_url(
        self,
        message: str,
        url: str,
        elicitation_id: str | None = ...,
        *,
        done: Callable[..., Awaitable[T | None]],
        **options: Unpack[VisitOptions],
    ) -> ElicitationResult[T]: ...
    @overload
    async def elicit_url(
        self,
        message: str,
        url: str,
        elicitation_id: str | None = ...,
        *,
        done: Callable[..., T | None],
        **options: Unpack[VisitOptions],
    ) -> ElicitationResult[T]: ...
    async def elicit_url(
        self,
        message: str,
        url: str,
        elicitation_id: str | None = None,
        *,
        name: str | None = None,
        done: Callable[..., Any] | None = None,
        wait: float = 20.0,
        schemes: Collection[str] = WEB,
    ) -> UrlElicitationResult | ElicitationResult[Any]:
        """Send the user to a page, and return the outcome like `ask_outcome` with an `ElicitUrl`.

        Args:
            message: Why the user should visit the page.
            url: The page.
            elicitation_id: The page's id for the client; generated by default.
            name: The question's name; by default derived from its wording.
            done: Decides when the user has finished. Without it, the user's consent to visit the page is the whole
                answer.
            wait: How many seconds a leg waits for `done` before it asks again.
            schemes: The schemes that the URL may have. See `ElicitUrl`.
        """
        require_scheme(url, schemes)
        if self._body is None or not self._body.is_running:
            self._require_live_resolver("elicit_url")
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
            name, ElicitUrl(message, url, done=done, wait=wait, elicitation_id=elicitation_id, schemes=schemes)
        )
        if done is None and outcome.action is Action.ACCEPT:
            return AcceptedUrlElicitation()
        return outcome.as_result()

    async def list_roots(self, *, name: str | None = None) -> ListRootsResult:
        """Ask the client for its roots."""
        body = self._running_body(name or "list_roots")
        return cast("ListRootsResult", (await body.ask(name, ListRoots())).value)


def _label_of(method: str, questions: Any) -> str:
    if not isinstance(questions, Mapping):
        raise BodyMistake(
            f"ctx.{method}(...) must be given a mapping of names to questions, got {type(questions).__name__}; write "
            f"ctx.{method}({{'size': Elicit('How many?', int)}})"
        )
    return ", ".join(map(str, cast("Mapping[Any, Any]", questions)))


def _question(method: str, name: str, question: Any, schema: Any, options: Mapping[str, Any]) -> Marker:
    if schema is _NO_SCHEMA:
        if is_marker(question) and not options:
            return question
    elif isinstance(question, str):
        return Elicit(question, schema, **options)
    given = [type(question).__name__, *([] if schema is _NO_SCHEMA else ["a schema"]), *options]
    if schema is _NO_SCHEMA and not name.isidentifier() and not isinstance(question, str):
        raise BodyMistake(
            f"ctx.{method}({name!r}, ...) must begin with the question's name, but begins with its message; "
            f"write ctx.{method}('size', {name!r}, int), with a name that is the same on every leg"
        )
    raise BodyMistake(
        f"ctx.{method}({name!r}, ...) must be given a message and a schema, or one question, got {', '.join(given)}; "
        f"write ctx.{method}({name!r}, 'How many?', int) or ctx.{method}({name!r}, Elicit('How many?', int))"
    )
