"""The request being served: its record, its client, and how the author's code gets access to it.

`RequestBoundary` makes the record, and the context variable `REQUEST` holds it for the whole request. A second context
variable holds the author's context. Each leg and each visibility gate sets the second variable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Hashable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar, cast

from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Context as SdkContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import (
    INVALID_PARAMS,
    ClientCapabilities,
    InputRequest,
    InputResponse,
    InputResponseRequestParams,
    InputResponses,
)
from pydantic import BaseModel
from starlette.requests import Request

from roundtrip.errors import BodyMistake, RejectionReason
from roundtrip.legs.responses import while_answerable
from roundtrip.machine.journal import Journal, Limits
from roundtrip.on_demand import load_on_use
from roundtrip.questions.outcomes import Outcome
from roundtrip.sdk import session_id_of
from roundtrip.text import printable

if TYPE_CHECKING:
    from roundtrip.engine import interruptions
    from roundtrip.engine.claim import Claim
    from roundtrip.engine.computed import ComputedValues
    from roundtrip.engine.ports import Channels, Waits
    from roundtrip.machine.call import Call
    from roundtrip.machine.pins import Pinner

load_on_use(globals(), "roundtrip.engine.interruptions")

T = TypeVar("T")

SKEW: Final = 60.0
"""How many seconds the clocks of two instances may differ."""
_MAX_CLIENT_NAME_CHARS: Final = 60
_REJECTION_MESSAGE: Final = "Invalid or expired requestState"
_REJECTION_DATA: Final = {"reason": "invalid_request_state"}

ContextMaker = Callable[[], Any]
"""Returns the request's context. The first call makes the context."""


class StoredLeg(Protocol):
    """A stored call's leg. No client request started it."""

    tool: str
    principal: str | None
    user: str | None
    """The principal, if it identifies a user and not only a client."""
    expires: float
    clock: Callable[[], float]
    """Returns the store's time, which decides when the call expires."""
    takes_over: bool
    """True if this worker takes the call over because the previous worker stopped renewing its lease."""
    request: ServerRequestContext[Any, Any] | None
    """The client's request that runs the leg, if any."""
    responses: Mapping[str, InputResponse | None]
    by_model: Collection[str]
    """Names of the questions whose last answer came from a model."""
    pinner: Pinner
    written: Journal | None
    """The journal with which the leg ends."""
    end_mark: str | None
    """Says how the call has ended, if its end may not count for later calls: "declined" or "failed"."""
    kept_for: float
    """Seconds for which the end must be kept."""

    @property
    def claim(self) -> Claim:
        """Return the worker's lease on the call."""
        ...

    def begin_waits(self, caller: str, computed: ComputedValues) -> Waits:
        """Make the object that one run of the body uses to sleep and to wait for signals."""
        ...

    def limits(self, now: float) -> Limits:
        """Return the leg's time limits."""
        ...

    def call(self) -> Call:
        """Return the call in its stored state."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class RequestRecord:
    """One request's state: its journal, and evidence of why its token was rejected."""

    context: ServerRequestContext[Any, Any]
    may_ask: bool
    """True if the request's method may ask questions."""
    journal: Journal | None = None
    is_taken: bool = False
    """True once a leg serves the request. If this leg calls a tool, that tool begins its own call."""
    for_client: bool = False
    """True from the start of the SDK's handler until its first lookup. See `take_client_lookup`."""
    call_id: str | None = None
    """The id of the call that the request's leg belongs to."""
    report_size: Callable[[int | None], None] | None = None
    """Reports the size of the token that the client receives, once the request has been served."""
    token_in: int | None = None
    token_out: int | None = None
    """Length of the token that the client receives, in characters. `token_in` is the length of the token that the
    client sent.
    """
    minted: str | None = None
    """The placeholder that the request's leg returned for the token. Any other state comes from the author."""
    packed: bytes | None = None
    """The journal for the token that will replace `minted`."""
    brought: bytes | None = None
    """The journal in the received token. It is authentic, but may have been written for another request."""
    reason: RejectionReason | None = None
    """Why the token was rejected."""
    found: dict[object, dict[Hashable, Outcome]] = field(default_factory=dict[object, dict[Hashable, Outcome]])
    """Values that each server's visibility gates computed, kept until the request ends."""
    may_become_task: bool = False
    """True if the client can receive a task handle instead of a result."""
    channels: Channels | None = None
    """The channels for the request's questions; None if the client's own forms are the only channel."""
    journal_to_store: Journal | None = None
    """The journal of the request's leg. It is kept here until the server decides whether the call becomes a task or is
    stored.
    """
    stored: StoredLeg | None = None
    """The stored call's leg, if the request serves a stored call."""
    reply: dict[str, Any] | None = None
    """A result that the client receives instead of the handler's result. It is a task handle, which handlers cannot
    return.
    """
    ended: bool = False
    """True once the request has been served. An asyncio task that the request started may still be running."""


REQUEST: ContextVar[RequestRecord | None] = ContextVar("roundtrip_request", default=None)
"""The request being served, whatever its method."""

OFFERED: ContextVar[ContextMaker | None] = ContextVar("roundtrip_context", default=None)


@contextmanager
def holding(variable: ContextVar[T], value: T) -> Generator[None]:
    """Set a context variable, and restore it at the end of the block."""
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)


def asking_request() -> RequestRecord | None:
    """Return the request being served, if its method may ask questions."""
    request = REQUEST.get()
    return request if request is not None and request.may_ask else None


class Incoming(NamedTuple):
    """The request that a leg serves, its answers, and the author's state. All fields are None outside a request."""

    request: ServerRequestContext[Any, Any] | None
    record: RequestRecord | None
    """The record of the request being served. Another function may serve that request and call this leg's function."""
    responses: InputResponses | None = None
    state: str | None = None

    @classmethod
    def of(cls, request: ServerRequestContext[Any, Any], responses: InputResponses | None = None) -> Incoming:
        """Read a request whose parameters are valid for its revision. If the answers have already been read, pass them
        as `responses`.
        """
        params = request.params or {}
        if responses is None and params.get("inputResponses") is not None:
            responses = InputResponseRequestParams.model_validate(params, by_name=False).input_responses
        return cls(request, asking_request(), responses, params.get("requestState"))

    @classmethod
    def by(cls, context: SdkContext[Any, Any] | None) -> Incoming:
        """Return the request that a context belongs to. Code outside requests passes None."""
        if context is None:
            return cls(None, asking_request())
        request = context.request_context if context.protocol_version is not None else None
        return cls(request, asking_request(), context.input_responses, context.request_state)

    def params(self) -> InputResponseRequestParams | None:
        """Return the request's answers and state as parameters for a new context."""
        if self.responses is None and self.state is None:
            return None
        # The answers and the state are already valid, and validating many answers again would be slow.
        return InputResponseRequestParams.model_construct(input_responses=self.responses, request_state=self.state)


@contextmanager
def serving_client() -> Generator[None]:
    """Wrap the SDK's handler for a request.

    The client causes the first lookup in the `with` block, and the author's code causes all later lookups.
    """
    request = REQUEST.get()
    if request is not None:
        request.for_client = True
    try:
        yield
    finally:
        if request is not None:
            request.for_client = False


def take_client_lookup() -> bool:
    """Return True for the first lookup during a request, because the client causes that lookup.

    The author's code causes all later lookups.
    """
    request = REQUEST.get()
    if request is None or not request.for_client:
        return False
    request.for_client = False
    return True


def token_rejection() -> MCPError:
    """Return the error that clients receive for any bad token. The SDK's boundary sends the same error."""
    # If the error gave a reason, it would tell attackers which checks their token passed (S4).
    return MCPError(code=INVALID_PARAMS, message=_REJECTION_MESSAGE, data=dict(_REJECTION_DATA))


def is_token_rejection(error: MCPError) -> bool:
    """Return True if `token_rejection` made this error."""
    return error.code == INVALID_PARAMS and error.message == _REJECTION_MESSAGE and error.data == _REJECTION_DATA


# Giving the context to functions that have no parameter for it.


# These are bound methods, because a wrapper would cost each leg six function calls.
offer = OFFERED.set
"""Sets the context maker for the code that runs from now on, and returns the token that `take_back` needs."""
take_back = OFFERED.reset
"""Restores the previous context maker."""


# Asking the client.


class ClientlessRequest(ServerRequestContext[Any, Any]):
    """A request object for a leg that no client started. A page's answer or the end of a wait started the leg."""

    @property
    def request(self) -> Any:
        """Raise an error. Returning None would suggest that a client is connected over stdio."""
        raise BodyMistake(
            "ctx.request_context.request must be read while a client waits, but no client waits for this leg; call "
            "get_request(), which waits for the client's next request, or read the request before the first question"
        )

    @request.setter
    def request(self, value: Any) -> None:
        del value


def require_request(context: ServerRequestContext[Any, Any]) -> Any:
    """Return the transport's request; None on stdio.

    Raises:
        Suspension: No client started this leg. The call waits for the client's next request, and that request runs the
            leg.
    """
    if isinstance(context, ClientlessRequest):
        raise interruptions.Suspension
    return context.request


def announced_name(request: ServerRequestContext[Any, Any] | None) -> str | None:
    """Return the name that a client announced at its handshake or, on 2026-07-28, in a request's `_meta`."""
    params = request.session.client_params if request is not None else None
    return params.client_info.name if params is not None else None


def client_name(request: ServerRequestContext[Any, Any]) -> str:
    """Return the client's name for the log: the announced name or, if there is none, the `User-Agent`."""
    name = announced_name(request)
    asked: object = None if name or isinstance(request, ClientlessRequest) else request.request
    if isinstance(asked, Request):
        name = cast("Request[Any]", asked).headers.get("user-agent")
    return repr(printable(name[:_MAX_CLIENT_NAME_CHARS])) if name else "a client"


class RequestClient:
    """The client that sent one request. It is asked through the request's session. Without a request, the client cannot
    be asked.
    """

    __slots__ = ("_request", "protocol_version")

    def __init__(self, request: ServerRequestContext[Any, Any] | None) -> None:
        self._request = request
        self.protocol_version = request.protocol_version if request is not None else None

    @property
    def capabilities(self) -> ClientCapabilities | None:
        """Return the capabilities that the client declared in this request or at its handshake."""
        return self._request.session.client_capabilities if self._request is not None else None

    @property
    def can_be_asked_live(self) -> bool:
        """Return True if the session can carry a request to the client."""
        return self._request is not None and self._request.session.can_send_request

    @property
    def in_session(self) -> bool:
        """Return True if the request belongs to a streamable HTTP session."""
        return self._request is not None and session_id_of(self._request.session) is not None

    async def send(self, request: InputRequest, result_type: type[BaseModel]) -> InputResponse:
        """Send one question over the request's connection, and return the client's answer."""
        asked = self._request
        if asked is None:
            raise RuntimeError("there is no client to ask")
        metadata = ServerMessageMetadata(related_request_id=asked.request_id)
        answer = await while_answerable(
            asked.request, lambda: asked.session.send_request(request, result_type, metadata=metadata)
        )
        return cast("InputResponse", answer)

    async def tell_done(self, elicitation_id: str) -> None:
        """Notify a live client that its user has completed a page."""
        if self._request is not None and self._request.session.can_send_request:
            await self._request.session.send_elicit_complete(elicitation_id, self._request.request_id)
