"""The request being served: its record, its client, and how author code gets access to it.

`RequestBoundary` makes the record, and the context variable `REQUEST` holds it for the whole request. A second variable
holds the author's context, which each leg and each visibility gate offers.
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
else:
    load_on_use(globals(), "roundtrip.engine.interruptions")

T = TypeVar("T")

SKEW: Final = 60.0
"""Seconds by which two instances' clocks may differ."""
_MAX_CLIENT_NAME_CHARS: Final = 60
_REJECTION_MESSAGE: Final = "Invalid or expired requestState"
_REJECTION_DATA: Final = {"reason": "invalid_request_state"}

ContextMaker = Callable[[], Any]
"""Returns the request's context, and makes it at the first call."""


class StoredLeg(Protocol):
    """Stored call's leg, which no client sent."""

    tool: str
    principal: str | None
    user: str | None
    """The principal, if it names a user and not only a client."""
    expires: float
    clock: Callable[[], float]
    """Returns the store's time, by which the call expires."""
    takes_over: bool
    """True if the call's previous worker stopped renewing its lease."""
    request: ServerRequestContext[Any, Any] | None
    """The client request that runs the leg, if there is one."""
    responses: Mapping[str, InputResponse | None]
    by_model: Collection[str]
    """Names of the questions that a model answered last."""
    pinner: Pinner
    written: Journal | None
    """The journal with which the leg ends."""

    @property
    def claim(self) -> Claim:
        """Return the worker's lease on the call."""
        ...

    def begin_waits(self, caller: str, computed: ComputedValues) -> Waits:
        """Begin the waits in a run of its body."""
        ...

    def limits(self, now: float) -> Limits:
        """Return the leg's time limits."""
        ...

    def call(self) -> Call:
        """Return the call as it was stored."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class RequestRecord:
    """One request's state: its journal, and the evidence that explains why its token was rejected."""

    context: ServerRequestContext[Any, Any]
    may_ask: bool
    """True if its method may ask."""
    journal: Journal | None = None
    is_taken: bool = False
    """True once a leg serves the request. A tool that this leg calls begins its own call."""
    for_client: bool = False
    """True from the start of the SDK's handler to its first lookup; see `take_client_lookup`."""
    call_id: str | None = None
    """The leg's call."""
    report_size: Callable[[int | None], None] | None = None
    """Reports the sent token's size to tracers when the request has been served."""
    token_in: int | None = None
    token_out: int | None = None
    """Length of the received token and the sent token, in characters."""
    minted: str | None = None
    """The placeholder that the request's leg returned for the token. An author wrote any other state."""
    packed: bytes | None = None
    """The journal to put into the token that replaces `minted`."""
    brought: bytes | None = None
    """The received token's journal. It is authentic, but may have been written for another request."""
    reason: RejectionReason | None = None
    """Why the token was rejected."""
    found: dict[object, dict[Hashable, Outcome]] = field(default_factory=dict[object, dict[Hashable, Outcome]])
    """Values from each server's visibility gates, kept until the request ends."""
    may_become_task: bool = False
    """True if its client can be given a task handle instead of a result."""
    channels: Channels | None = None
    """The channels for its questions, if there are more than its client's forms."""
    journal_to_store: Journal | None = None
    """Its leg's journal, if the call may become a task or be stored. That is decided later."""
    stored: StoredLeg | None = None
    """The stored call's leg, if the request serves one."""
    reply: dict[str, Any] | None = None
    """The result that its client receives instead of the handler's: a task handle, which no handler returns."""
    ended: bool = False
    """True once the request has been served. An asyncio task that it started may still run."""


REQUEST: ContextVar[RequestRecord | None] = ContextVar("roundtrip_request", default=None)
"""The request being served, for any method."""

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
    """Return the request being served if its method may ask."""
    request = REQUEST.get()
    return request if request is not None and request.may_ask else None


class Incoming(NamedTuple):
    """Request that a leg serves, with its answers and the author's state; None outside a request."""

    request: ServerRequestContext[Any, Any] | None
    record: RequestRecord | None
    """The record of the request being served. That request's leg may have called this leg."""
    responses: InputResponses | None = None
    state: str | None = None

    @classmethod
    def of(cls, request: ServerRequestContext[Any, Any], responses: InputResponses | None = None) -> Incoming:
        """Read a request whose parameters are valid for its revision; its answers may have been read before."""
        params = request.params or {}
        if responses is None and params.get("inputResponses") is not None:
            responses = InputResponseRequestParams.model_validate(params, by_name=False).input_responses
        return cls(request, asking_request(), responses, params.get("requestState"))

    @classmethod
    def by(cls, context: SdkContext[Any, Any] | None) -> Incoming:
        """Return a context's request; code outside requests passes None."""
        if context is None:
            return cls(None, asking_request())
        request = context.request_context if context.protocol_version is not None else None
        return cls(request, asking_request(), context.input_responses, context.request_state)

    def params(self) -> InputResponseRequestParams | None:
        """Return its parameters for a new context."""
        if self.responses is None and self.state is None:
            return None
        # Both are already valid, and validating many answers again is slow.
        return InputResponseRequestParams.model_construct(input_responses=self.responses, request_state=self.state)


@contextmanager
def serving_client() -> Generator[None]:
    """Surround the SDK's handler for a request: its first lookup is the client's, later ones are the author's."""
    request = REQUEST.get()
    if request is not None:
        request.for_client = True
    try:
        yield
    finally:
        if request is not None:
            request.for_client = False


def take_client_lookup() -> bool:
    """Return True for a request's first lookup, which is the client's. Author code makes later ones."""
    request = REQUEST.get()
    if request is None or not request.for_client:
        return False
    request.for_client = False
    return True


def token_rejection() -> MCPError:
    """Return the one error that clients receive for a bad token; the SDK's boundary sends the same error."""
    # A reason on the wire would tell attackers which checks their token passed (S4).
    return MCPError(code=INVALID_PARAMS, message=_REJECTION_MESSAGE, data=dict(_REJECTION_DATA))


def is_token_rejection(error: MCPError) -> bool:
    """Return True for an error that `token_rejection` made."""
    return error.code == INVALID_PARAMS and error.message == _REJECTION_MESSAGE and error.data == _REJECTION_DATA


# The context, for functions without a parameter for it.


# Bound methods, because a wrapper would cost each leg six function calls.
offer = OFFERED.set
"""Sets the context maker for code that runs from now on, and returns the token for `take_back`."""
take_back = OFFERED.reset
"""Restores the previous maker."""


# The client.


class ClientlessRequest(ServerRequestContext[Any, Any]):
    """Request for a leg that no client sent: a page's answer or the end of a wait started it."""

    @property
    def request(self) -> Any:
        """Raise an error: None would look like a client on stdio."""
        raise BodyMistake(
            "ctx.request_context.request must be read while a client waits, and no client has sent this leg; call "
            "get_request(), which waits for the client's next request, or read it before the first question"
        )

    @request.setter
    def request(self, value: Any) -> None:
        del value


def require_request(context: ServerRequestContext[Any, Any]) -> Any:
    """Return the transport's request; None on stdio.

    Raises:
        Suspension: No client has sent this leg. The call waits for the client's next request, which runs it.
    """
    if isinstance(context, ClientlessRequest):
        raise interruptions.Suspension
    return context.request


def announced_name(request: ServerRequestContext[Any, Any] | None) -> str | None:
    """Return the name that a client gives itself: at its handshake, or on 2026-07-28 in a request's `_meta`."""
    params = request.session.client_params if request is not None else None
    return params.client_info.name if params is not None else None


def client_name(request: ServerRequestContext[Any, Any]) -> str:
    """Return the client's name for the log: its announced name, or else its `User-Agent`."""
    name = announced_name(request)
    asked: object = None if name or isinstance(request, ClientlessRequest) else request.request
    if isinstance(asked, Request):
        name = cast("Request[Any]", asked).headers.get("user-agent")
    return repr(printable(name[:_MAX_CLIENT_NAME_CHARS])) if name else "a client"


class RequestClient:
    """One request's client, asked through its session. Without a request, nothing can be asked."""

    __slots__ = ("_request", "protocol_version")

    def __init__(self, request: ServerRequestContext[Any, Any] | None) -> None:
        self._request = request
        self.protocol_version = request.protocol_version if request is not None else None

    @property
    def capabilities(self) -> ClientCapabilities | None:
        """Return the capabilities that the client declared, for this request or at its handshake."""
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
        """Notify a live client that its user has finished on a page."""
        if self._request is not None and self._request.session.can_send_request:
            await self._request.session.send_elicit_complete(elicitation_id, self._request.request_id)
