"""Questions as authors write them: `Elicit`, `ElicitUrl`, `Sample`, `ListRoots`.

All but `ElicitUrl` extend the SDK classes with the same names, so functions that use these classes also work on SDK
servers, and roundtrip also accepts the SDK classes.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeGuard, overload

from mcp.server.mcpserver.resolve import Elicit as SdkElicit
from mcp.server.mcpserver.resolve import ListRoots as SdkListRoots
from mcp.server.mcpserver.resolve import Sample as SdkSample
from mcp_types import (
    CreateMessageResult,
    CreateMessageResultWithTools,
    IncludeContext,
    ListRootsResult,
    ModelPreferences,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
)
from typing_extensions import TypedDict, TypeForm, TypeVar, Unpack

from roundtrip.on_demand import load_on_use

if TYPE_CHECKING:
    from roundtrip.questions import samples

load_on_use(globals(), "roundtrip.questions.samples")

# Other modules import these SDK classes from here, and `__all__` tells type checkers that this is permitted.
__all__ = ["SdkElicit", "SdkListRoots", "SdkSample"]

T = TypeVar("T", default=Any)
ChoiceT = TypeVar("ChoiceT")


class _Nothing(Enum):
    """Marks a missing `fallback=`. None cannot serve as this mark, because None may be the fallback."""

    NOTHING = "nothing"


NOTHING = _Nothing.NOTHING

Fallback: TypeAlias = T | Callable[[], T | Awaitable[T]] | Literal[_Nothing.NOTHING]
"""Value that replaces the answer if the client cannot be asked, or a function that returns this value."""

AnsweredBy: TypeAlias = Literal["human", "anyone"]
"""Who may answer a form: `anyone` includes the model that called the tool."""

_ANSWERERS: Final = ("human", "anyone")

ATTEMPTS = 3
"""How many times a question is asked before an invalid answer ends the call."""


class FormOptions(TypedDict, total=False):
    """Form options other than the message, the schema and `fallback`."""

    answered_by: AnsweredBy
    attempts: int
    guesses: int | None
    volatile_ok: bool


class Elicit(SdkElicit[Any], Generic[T]):
    """Ask the user to fill in a form.

    Args:
        message: The text above the form.
        schema: The answer's type. A flat Pydantic model, dataclass or TypedDict becomes a form with the same fields. A
            single value may be a `bool`, `int`, `float`, `str`, `date`, `datetime`, `Enum` or `Literal`, or a list of
            an `Enum` or a `Literal`. All of these may be wrapped in `Annotated[..., Field(...)]`. A mapping from values
            to titles lets the user choose one value; a list that contains such a mapping lets the user choose several.
        attempts: How many times to ask before an invalid answer ends the call. This does not stop an attacker: a client
            can send an earlier leg again, and then has all attempts again.
        guesses: How many different answers the call reads, including answers on replayed legs. The ledger counts each
            answer before it is validated; while the ledger is down, no answer is read. Use this option only for a
            secret that was made for this call, because a client can begin another call and get new guesses.
        fallback: The value to use for a client that cannot be asked, or a function that makes the value.
        volatile_ok: Do not fail if the wording changes between legs. Answers to an earlier wording are still dropped.
        answered_by: `"anyone"` lets the model that called the tool answer instead of the user, if the server's
            `channels=` includes `model` and the client cannot ask. A question for a `"human"` is never offered to a
            model.

    Example:
        ```python
        async def confirm(title: str) -> Backorder | Elicit[Backorder]:
            return Elicit(f"{title} is out of stock. Order anyway?", Backorder)
        ```
    """

    # This overload must come first. Otherwise options with unknown types would select the overload for `fallback=None`.
    # Each overload lists the type form separately, because mypy infers nothing from a union of a type form and a
    # mapping.
    @overload
    def __init__(self, message: str, schema: TypeForm[T], **options: Unpack[FormOptions]) -> None: ...
    @overload
    def __init__(
        self: "Elicit[ChoiceT | None]",
        message: str,
        schema: TypeForm[ChoiceT],
        *,
        fallback: None,
        **options: Unpack[FormOptions],
    ) -> None: ...
    @overload
    def __init__(
        self, message: str, schema: TypeForm[T], *, fallback: Fallback[T], **options: Unpack[FormOptions]
    ) -> None: ...
    @overload
    def __init__(
        self, message: str, schema: Mapping[T, str], *, fallback: Fallback[T] = ..., **options: Unpack[FormOptions]
    ) -> None: ...
    @overload
    def __init__(
        self: "Elicit[list[ChoiceT]]",
        message: str,
        schema: list[Mapping[ChoiceT, str]],
        *,
        fallback: Fallback[list[ChoiceT]] = ...,
        **options: Unpack[FormOptions],
    ) -> None: ...
    def __init__(
        self,
        message: str,
        schema: Any,
        *,
        attempts: int = ATTEMPTS,
        guesses: int | None = None,
        fallback: Any = NOTHING,
        volatile_ok: bool = False,
        answered_by: AnsweredBy = "human",
    ) -> None:
        if not isinstance(message, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"Elicit's message must be a string, got {type(message).__name__}")
        super().__init__(message, schema)
        _check_count("Elicit(attempts=...)", attempts)
        if guesses is not None:
            _check_count("Elicit(guesses=...)", guesses)
        if answered_by not in _ANSWERERS:
            raise ValueError(
                f"Elicit(answered_by=...) must be 'human' or 'anyone', got {answered_by!r}; leave it out for a "
                "question that only a human may answer"
            )
        self.attempts = attempts
        self.guesses = guesses
        self.fallback = fallback
        self.volatile_ok = volatile_ok
        self.answered_by: AnsweredBy = answered_by


def _check_count(option: str, value: object) -> None:
    """Check that an option is a whole number and at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{option} must be a whole number of at least 1, got {value!r}")


WEB: Final = ("https", "http")
"""Web address schemes."""

_SCHEME: Final = r"(?ias)([a-z][a-z0-9+.-]*):(.*)"
_NOT_IN_URLS: Final = r"[\s\x00-\x20\x7f\\]"
"""Characters that a client's URL parser may skip or replace. The parser might then read another scheme or host."""


def require_scheme(url: str, schemes: Collection[str]) -> None:
    """Check a page's URL.

    Raises:
        ValueError: The URL is not absolute, has a scheme that is not in `schemes`, or has spaces, control characters or
            backslashes.
    """
    # The error messages contain no part of the URL, because it may contain a ticket.
    if re.search(_NOT_IN_URLS, url) is not None:
        raise ValueError("the url of a page must percent-encode spaces, control characters and backslashes")
    found = re.fullmatch(_SCHEME, url)
    allowed = [scheme.lower() for scheme in schemes]
    if found is None or found[1].lower() not in allowed:
        raise ValueError(
            f"the url of a page must begin with {' or '.join(f'{scheme}:' for scheme in allowed)}, but this URL "
            "does not; give a web address, or allow this URL's scheme with schemes=[...]"
        )
    if found[1].lower() in WEB and re.match(r"//[^/?#]", found[2]) is None:
        raise ValueError("the url of a page must name a host, as https://shop.example/pay does")


class PageOptions(TypedDict, Generic[T], total=False):
    """Page options other than the message, the URL and `done`."""

    fallback: Fallback[T]
    wait: float
    volatile_ok: bool
    elicitation_id: str | None
    schemes: Collection[str]


class ElicitUrl(Generic[T]):
    """Send the user to a page, for data that must not pass through the client: a login, a payment, a secret.

    The client learns only that the user agreed to visit the page. `done` decides when the user has finished.

    Args:
        message: Why the user should visit the page.
        url: The page. If the URL contains a `ctx.call.ticket("...")`, the page knows its call and its user.
        done: A function that runs after the user has agreed. It may take the same parameters as a resolver. It returns
            None or False until the user has finished, and then the value that the consumer receives. Without `done`,
            the answer is the user's consent, `True`.
        wait: How many seconds a leg waits for `done` before it asks again.
        fallback: The value to use for a client that cannot open pages, or a function that makes the value.
        volatile_ok: Do not fail if the wording changes between legs.
        elicitation_id: The page's id for the client; generated by default. Set it if your own code announces the
            completion.
        schemes: The schemes that the URL may have; by default `https` and `http`. Clients open the URL, so untrusted
            input must not be able to turn the URL into a script or a file.

    Raises:
        ValueError: The URL is not absolute, has another scheme, or has spaces, control characters or backslashes.
    """

    @overload
    def __init__(
        self: "ElicitUrl[bool]", message: str, url: str, *, done: None = ..., **options: Unpack[PageOptions[bool]]
    ) -> None: ...
    @overload
    def __init__(
        self, message: str, url: str, *, done: Callable[..., Awaitable[T | None]], **options: Unpack[PageOptions[T]]
    ) -> None: ...
    @overload
    def __init__(
        self, message: str, url: str, *, done: Callable[..., T | None], **options: Unpack[PageOptions[T]]
    ) -> None: ...
    def __init__(
        self,
        message: str,
        url: str,
        *,
        done: Callable[..., Any] | None = None,
        wait: float = 20.0,
        fallback: Any = NOTHING,
        volatile_ok: bool = False,
        elicitation_id: str | None = None,
        schemes: Collection[str] = WEB,
    ) -> None:
        if not wait >= 0:
            raise ValueError(f"ElicitUrl(wait=...) must be at least 0 seconds, got {wait}")
        require_scheme(url, schemes)
        self.message = message
        self.url = url
        self.done = done
        self.wait = wait
        self.fallback = fallback
        self.volatile_ok = volatile_ok
        self.elicitation_id = elicitation_id


class SamplingParams(TypedDict, total=False):
    """Sampling request parameters other than the messages and the maximum length."""

    system_prompt: str | None
    include_context: IncludeContext | None
    temperature: float | None
    stop_sequences: list[str] | None
    metadata: dict[str, Any] | None
    model_preferences: ModelPreferences | None
    tools: list[Tool] | None
    tool_choice: ToolChoice | None


class SampleOptions(SamplingParams, total=False):
    """`Sample` options other than the messages, the maximum length and the result type."""

    attempts: int
    fallback: Fallback[CreateMessageResult | CreateMessageResultWithTools]


class Sample(SdkSample):
    """Ask the client's model to complete a conversation; the consumer receives its `CreateMessageResult`.

    Args:
        messages: The conversation; a string is a single user message.
        max_tokens: The answer's maximum length, in tokens.
        result_type: Ask the model for JSON with this type, and ask again if its answer does not fit.
        attempts: How many times to ask for this JSON before an invalid answer ends the call.
        fallback: The result to use for a client that cannot be asked, or a function that makes the result.
        **params: More request parameters. With `tools` or `tool_choice`, the result is a
            `CreateMessageResultWithTools`, and the client must have declared `sampling.tools`.
    """

    def __init__(
        self,
        messages: str | Sequence[SamplingMessage],
        *,
        max_tokens: int,
        result_type: Any = None,
        attempts: int = ATTEMPTS,
        fallback: Fallback[CreateMessageResult | CreateMessageResultWithTools] = NOTHING,
        **params: Unpack[SamplingParams],
    ) -> None:
        _check_count("Sample(attempts=...)", attempts)
        self.result_type = result_type
        self.attempts = attempts
        self.fallback = fallback
        if isinstance(messages, str):
            messages = [SamplingMessage(role="user", content=TextContent(type="text", text=messages))]
        if result_type is not None:
            prompt = params.get("system_prompt")
            params["system_prompt"] = "\n\n".join(filter(None, [prompt, samples.instruction_for(result_type)]))
        super().__init__(list(messages), max_tokens=max_tokens, **params)


class ListRoots(SdkListRoots):
    """Ask the client for its roots; the consumer receives the `ListRootsResult`.

    `fallback` is the result to use for a client that cannot be asked, or a function that makes the result.
    """

    def __init__(self, *, fallback: Fallback[ListRootsResult] = NOTHING) -> None:
        super().__init__()
        self.fallback = fallback


class ExternalMarker(Generic[T]):
    """A question that is never sent to a client. The server takes the outcome from the stored call."""

    outcome_type: ClassVar[Any] = Any
    """The type that the consumer receives."""
    max_chars: ClassVar[int]
    """Maximum message length in characters."""
    message: str
    fallback: Any = NOTHING

    def question(self) -> Any:
        """Return the `Question` that `question_of` makes from this marker."""
        raise NotImplementedError

    def worded(self, message: str) -> "ExternalMarker[T]":
        """Return the same question with another message."""
        raise NotImplementedError


Marker = SdkElicit[Any] | ElicitUrl[Any] | SdkSample | SdkListRoots | ExternalMarker[Any]
"""Question from this library or the SDK."""

MARKERS: Final = (SdkElicit, ElicitUrl, SdkSample, SdkListRoots, ExternalMarker)
"""A tuple of marker types. A union in an `isinstance` call would be created again on each call."""


def is_marker(value: object) -> TypeGuard[Marker]:
    """Return True if a value that a function returned is a question."""
    return isinstance(value, MARKERS)
