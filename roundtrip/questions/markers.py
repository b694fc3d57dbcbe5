"""What a resolver returns to ask: `Elicit`, `ElicitUrl`, `Sample`, `ListRoots`.

All but `ElicitUrl` extend the SDK's classes of the same names, so a function written with either runs on either server.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Generic, Literal, TypeAlias, TypeGuard, overload

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

from roundtrip.questions.samples import instruction_for

__all__ = [
    "ATTEMPTS",
    "NOTHING",
    "Elicit",
    "ElicitUrl",
    "FormOptions",
    "ListRoots",
    "Marker",
    "Otherwise",
    "Sample",
    "SampleOptions",
    "Schema",
    "SdkElicit",
    "SdkListRoots",
    "SdkSample",
    "is_marker",
]

T = TypeVar("T", default=Any)
ChoiceT = TypeVar("ChoiceT")


class _Nothing(Enum):
    """The absence of a fallback, where None may be one."""

    NOTHING = "nothing"


NOTHING = _Nothing.NOTHING

Otherwise: TypeAlias = T | Callable[[], T | Awaitable[T]] | Literal[_Nothing.NOTHING]
"""What stands in for an answer that cannot be asked for."""

Schema: TypeAlias = type[T] | Mapping[T, str]
"""The type of a form's answer, or the titles of the values that its user chooses from."""

ATTEMPTS = 3
"""How often a question is put before an invalid answer ends the call."""


class FormOptions(TypedDict, total=False):
    """Options of a form besides its message, its schema and the value that stands in for an answer."""

    attempts: int
    guesses: int | None
    volatile_ok: bool


class Elicit(SdkElicit[Any], Generic[T]):
    """Ask the user to fill in a form.

    Args:
        message: What the user reads above the form.
        schema: What the answer is. A flat Pydantic model, dataclass or TypedDict, each field a field of the form; or
            one value: `bool`, `int`, `float`, `str`, `date`, `datetime`, an `Enum`, a `Literal`, a list of these two,
            or any of them with `Annotated[..., Field(...)]`; or a mapping of values to titles (in a list to choose
            several).
        attempts: How often to ask before an invalid answer ends the call. A convenience and not a lock: a client can
            send an earlier leg again, and have attempts again.
        guesses: How many different answers the call may be sent in all, replays of its legs included. The ledger counts
            them before they are validated; while it is down, none is. For a secret that was made for this call alone:
            a client can begin another call, with guesses of its own.
        otherwise: The value, or a function that makes it, for a client that cannot be asked.
        volatile_ok: Accept that the wording changes from leg to leg (it must settle for an answer to count).

    Example:
        ```python
        async def confirm(title: str) -> Backorder | Elicit[Backorder]:
            return Elicit(f"{title} is out of stock. Order anyway?", Backorder)
        ```
    """

    @overload
    def __init__(
        self, message: str, schema: Schema[T], *, otherwise: Otherwise[T] = ..., **options: Unpack[FormOptions]
    ) -> None: ...
    @overload
    def __init__(
        self: "Elicit[list[ChoiceT]]",
        message: str,
        schema: list[Mapping[ChoiceT, str]],
        *,
        otherwise: Otherwise[list[ChoiceT]] = ...,
        **options: Unpack[FormOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: "Elicit[ChoiceT | None]",
        message: str,
        schema: TypeForm[ChoiceT],
        *,
        otherwise: None,
        **options: Unpack[FormOptions],
    ) -> None: ...
    @overload
    def __init__(
        self, message: str, schema: TypeForm[T], *, otherwise: Otherwise[T] = ..., **options: Unpack[FormOptions]
    ) -> None: ...
    def __init__(
        self,
        message: str,
        schema: Any,
        *,
        attempts: int = ATTEMPTS,
        guesses: int | None = None,
        otherwise: Any = NOTHING,
        volatile_ok: bool = False,
    ) -> None:
        super().__init__(message, schema)
        if not _is_count(attempts):
            raise ValueError(f"Elicit(attempts=...) must be a whole number of at least 1, got {attempts!r}")
        if guesses is not None and not _is_count(guesses):
            raise ValueError(f"Elicit(guesses=...) must be a whole number of at least 1, got {guesses!r}")
        self.attempts = attempts
        self.guesses = guesses
        self.otherwise = otherwise
        self.volatile_ok = volatile_ok


def _is_count(value: object) -> bool:
    """Return True for a whole number of at least 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


WEB: Final = ("https", "http")
"""The schemes of web addresses."""

_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*):(.*)", re.IGNORECASE | re.ASCII | re.DOTALL)
_NOT_IN_URLS: Final = re.compile(r"[\s\x00-\x20\x7f\\]")
"""Parsers of clients skip these, or take a backslash for a slash, and so may find another scheme or host."""


def require_scheme(url: str, schemes: Collection[str]) -> None:
    """Check where a page would send its user.

    Raises:
        ValueError: The URL is not absolute, has another scheme than these, or holds spaces or control characters.
    """
    # Neither the URL nor anything of it is repeated: it may hold a ticket.
    if _NOT_IN_URLS.search(url) is not None:
        raise ValueError("the url of a page must have no spaces, control characters or backslashes; quote them")
    found = _SCHEME.fullmatch(url)
    allowed = [scheme.lower() for scheme in schemes]
    if found is None or found[1].lower() not in allowed:
        raise ValueError(
            f"the url of a page must begin with {' or '.join(f'{scheme}:' for scheme in allowed)}, and this one does "
            "not; give a web address, or allow its scheme with schemes=[...]"
        )
    if found[1].lower() in WEB and re.match(r"//[^/?#]", found[2]) is None:
        raise ValueError("the url of a page must name a host, as https://shop.example/pay does")


class ElicitUrl(Generic[T]):
    """Send the user to a page, for what must not pass through the client: a login, a payment, a secret.

    The client only learns whether the user agreed to go there. `done` decides whether they have finished.

    Args:
        message: Why the user is sent there.
        url: The page. Put `ctx.call.ticket("...")` into it, and the page can tell whose call it is.
        done: Called after the user agreed, with what a resolver may take: None or False until the page has been
            dealt with, then the value that the consumer receives. Without it, agreeing is the whole answer, `True`.
        wait: Seconds a leg waits for `done` before it asks again.
        otherwise: The value, or a function that makes it, for a client that cannot be sent to pages.
        volatile_ok: Accept that the wording changes from leg to leg.
        elicitation_id: The page's id for its client, for an author who tells of its completion; by default its own.
        schemes: The schemes that its URL may have. Only web addresses by default, as a client opens what it is given:
            a URL that is made of what somebody else said must not become a script or a file.

    Raises:
        ValueError: The URL is not absolute, has another scheme, or holds spaces or control characters.
    """

    @overload
    def __init__(
        self: "ElicitUrl[bool]",
        message: str,
        url: str,
        *,
        done: None = ...,
        wait: float = ...,
        otherwise: Otherwise[bool] = ...,
        volatile_ok: bool = ...,
        elicitation_id: str | None = ...,
        schemes: Collection[str] = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        message: str,
        url: str,
        *,
        done: Callable[..., Awaitable[T | None]],
        wait: float = ...,
        otherwise: Otherwise[T] = ...,
        volatile_ok: bool = ...,
        elicitation_id: str | None = ...,
        schemes: Collection[str] = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        message: str,
        url: str,
        *,
        done: Callable[..., T | None],
        wait: float = ...,
        otherwise: Otherwise[T] = ...,
        volatile_ok: bool = ...,
        elicitation_id: str | None = ...,
        schemes: Collection[str] = ...,
    ) -> None: ...
    def __init__(
        self,
        message: str,
        url: str,
        *,
        done: Callable[..., Any] | None = None,
        wait: float = 20.0,
        otherwise: Any = NOTHING,
        volatile_ok: bool = False,
        elicitation_id: str | None = None,
        schemes: Collection[str] = WEB,
    ) -> None:
        if not wait >= 0:
            raise ValueError(f"ElicitUrl(wait={wait}): seconds, not less than none")
        require_scheme(url, schemes)
        self.message = message
        self.url = url
        self.done = done
        self.wait = wait
        self.otherwise = otherwise
        self.volatile_ok = volatile_ok
        self.elicitation_id = elicitation_id


class SampleOptions(TypedDict, total=False):
    """What `Sample` may be told besides its messages, their length and the type of the result."""

    system_prompt: str | None
    include_context: IncludeContext | None
    temperature: float | None
    stop_sequences: list[str] | None
    metadata: dict[str, Any] | None
    model_preferences: ModelPreferences | None
    tools: list[Tool] | None
    tool_choice: ToolChoice | None
    attempts: int
    otherwise: Otherwise[CreateMessageResult | CreateMessageResultWithTools]


class Sample(SdkSample):
    """Ask the client's model to complete a conversation; the consumer receives its `CreateMessageResult`.

    `messages` may be one string, which becomes a single user message. With `tools` or `tool_choice` the result is
    a `CreateMessageResultWithTools`, and the client must have declared `sampling.tools`. `otherwise` is the result,
    or a function that makes it, for a client that cannot be asked. With `result_type` the model is told to answer with
    JSON of that type, and asked again, up to `attempts` times, if it does not.
    """

    def __init__(
        self,
        messages: str | Sequence[SamplingMessage],
        *,
        max_tokens: int,
        system_prompt: str | None = None,
        include_context: IncludeContext | None = None,
        temperature: float | None = None,
        stop_sequences: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        model_preferences: ModelPreferences | None = None,
        tools: list[Tool] | None = None,
        tool_choice: ToolChoice | None = None,
        result_type: Any = None,
        attempts: int = ATTEMPTS,
        otherwise: Otherwise[CreateMessageResult | CreateMessageResultWithTools] = NOTHING,
    ) -> None:
        self.result_type = result_type
        self.attempts = attempts
        self.otherwise = otherwise
        if isinstance(messages, str):
            messages = [SamplingMessage(role="user", content=TextContent(type="text", text=messages))]
        if result_type is not None:
            system_prompt = "\n\n".join(filter(None, [system_prompt, instruction_for(result_type)]))
        super().__init__(
            list(messages),
            max_tokens=max_tokens,
            system_prompt=system_prompt,
            include_context=include_context,
            temperature=temperature,
            stop_sequences=stop_sequences,
            metadata=metadata,
            model_preferences=model_preferences,
            tools=tools,
            tool_choice=tool_choice,
        )


class ListRoots(SdkListRoots):
    """Ask the client for its roots; the consumer receives the `ListRootsResult`.

    `otherwise` is the result, or a function that makes it, for a client that cannot be asked.
    """

    def __init__(self, *, otherwise: Otherwise[ListRootsResult] = NOTHING) -> None:
        super().__init__()
        self.otherwise = otherwise


Marker = SdkElicit[Any] | ElicitUrl[Any] | SdkSample | SdkListRoots
"""Anything that asks, whichever library it comes from."""


_MARKERS = (SdkElicit, ElicitUrl, SdkSample, SdkListRoots)
"""Made once: a union in the call would be made anew for each value."""


def is_marker(value: object) -> TypeGuard[Marker]:
    """Whether a resolver returned a question instead of a value."""
    return isinstance(value, _MARKERS)
