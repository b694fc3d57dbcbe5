"""What roundtrip knows of the request being served, and the two middlewares that keep it.

`Restorer` stands just inside the SDK's request-state boundary: it turns a verified state into a journal on the way in,
and on the way out wraps any state that an author returned by hand, so that it travels sealed.
`Explainer` stands just outside: it sees every refusal, works out the reason, and tells the log and the tracers.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, cast

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.request_state import RequestStateCodec, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types.methods import INPUT_REQUIRED_METHODS

from roundtrip.asks.outcomes import Outcome
from roundtrip.errors import RejectionReason, TokenRejected
from roundtrip.machine.facts import Watch
from roundtrip.machine.journal import Entry, Journal
from roundtrip.recording.tracing import Closed, Refusal, Tracers
from roundtrip.server.current import offer, take_back
from roundtrip.server.refusals import deduce_reason, is_refusal, refusal
from roundtrip.tokens import JournalCodec

__all__ = ["CURRENT", "REQUEST", "SKEW", "Explainer", "InFlight", "Restorer", "WatchedCodec"]

logger = logging.getLogger("roundtrip")

SKEW: Final = 60.0
"""How far, in seconds, the clocks of two instances may differ."""


@dataclass(slots=True)
class InFlight:
    """One request on its way through: its journal, and what is needed to explain a refusal."""

    context: ServerRequestContext[Any, Any]
    journal: Journal | None = None
    claimed: bool = False
    """Whether a leg has taken the journal; a tool called from within a tool is a call of its own."""
    call_id: str | None = None
    """The call that the leg belongs to."""
    watch: Watch | None = None
    """To be told, when the request has been served, how large a token went out."""
    token_in: int | None = None
    token_out: int | None = None
    """The sizes of the tokens that came and go."""
    seeds: Mapping[str, Entry] | None = None
    """What was answered in the expired call that this request begins again."""
    replaces: str | None = None
    """That call."""
    minted: str | None = None
    """The state that the request's own leg wrote, as opposed to one an author wrote by hand."""
    payload: bytes | None = None
    """The envelope of an authentic token, to be read if somebody wants to know more of it."""
    reason: RejectionReason | None = None
    found: dict[object, dict[Hashable, Outcome]] = field(default_factory=dict[object, dict[Hashable, Outcome]])
    """What the gates of each server found out, which holds until the request ends."""
    ended: bool = False
    """Whether it has been served; a task that it started may go on."""

    def written_at(self) -> float | None:
        """When the token that came was written, in seconds since the epoch."""
        written = _claims(self.payload).get("iat") if self.payload is not None else None
        return written if isinstance(written, int | float) else None


Wrap = Callable[[ServerRequestContext[Any, Any], InFlight, str], str]
"""Puts a state that an author wrote by hand under the seal."""

REQUEST: ContextVar[InFlight | None] = ContextVar("roundtrip_request", default=None)
"""The request being served, whatever its method."""

CURRENT: ContextVar[InFlight | None] = ContextVar("roundtrip_asking_request", default=None)
"""The same, where its method is one that may ask."""


Recover = Callable[[ServerRequestContext[Any, Any], Journal, float], Awaitable[Mapping[str, Entry] | None]]
"""What was answered in an expired call, if it may be begun again at the given time."""


class WatchedCodec:
    """The server's codec, noting for the current request what it made of the token."""

    def __init__(self, codec: RequestStateCodec) -> None:
        self._codec = codec

    def seal(self, payload: bytes) -> str:
        """As the codec does, with a note of the token's size."""
        token = self._codec.seal(payload)
        request = CURRENT.get()
        if request is not None:
            request.token_out = len(token)
        return token

    def unseal(self, token: str) -> bytes:
        """As the codec does, with a note of the outcome."""
        request = CURRENT.get()
        if request is not None:
            request.token_in = len(token)
        try:
            payload = self._codec.unseal(token)
        except TokenRejected as error:
            if request is not None:
                request.reason = error.reason
            raise
        if request is not None:
            request.payload = payload
        return payload


class Restorer:
    """The inner middleware: states become journals, and authors' states are wrapped in one."""

    def __init__(self, codec: JournalCodec, clock: Callable[[], float], *, wrap: Wrap, recover: Recover) -> None:
        self._codec = codec
        self._clock = clock
        self._wrap = wrap
        self._recover = recover

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve one message, as the SDK's middlewares do."""
        if ctx.method not in INPUT_REQUIRED_METHODS:
            return await call_next(ctx)
        request = CURRENT.get()
        if request is None:
            raise RuntimeError("roundtrip's outer middleware was removed; Server.middleware must keep its own entries")
        params = ctx.params
        if params is not None and params.get("requestState") is not None:
            journal = await self._restore(params["requestState"], request)
            # The boundary has made this context for us: it may be changed in place.
            if journal is None:
                ctx.params = {**params, "requestState": None, "inputResponses": None}
            else:
                request.journal = journal
                ctx.params = {**params, "requestState": journal.authored or None}
        result = await call_next(ctx)
        return self._wrap_authored(ctx, request, result)

    async def _restore(self, text: str, request: InFlight) -> Journal | None:
        """The journal of a call that goes on; None where it has expired and is begun again."""
        try:
            journal = self._codec.read(text)
            now = self._clock()
            if journal.born > now + SKEW:
                raise TokenRejected(RejectionReason.FUTURE)
            if now >= journal.deadline:
                request.seeds = await self._recover(request.context, journal, now)
                if request.seeds is None:
                    raise TokenRejected(RejectionReason.EXPIRED)
                request.replaces = journal.call_id
                return None
        except TokenRejected as error:
            request.reason = error.reason
            raise refusal() from error
        return journal

    def _wrap_authored(
        self, ctx: ServerRequestContext[Any, Any], request: InFlight, result: HandlerResult
    ) -> HandlerResult:
        state = result.get("requestState") if isinstance(result, dict) else getattr(result, "request_state", None)
        if not isinstance(state, str) or state == request.minted:
            return result
        wrapped = self._wrap(ctx, request, state)
        if isinstance(result, dict):
            return {**result, "requestState": wrapped}
        return result.model_copy(update={"request_state": wrapped}) if result is not None else result


class Explainer:
    """The outer middleware: opens the request's record, and explains a refused token where it may be read."""

    def __init__(
        self,
        security: RequestStateSecurity,
        *,
        journals: JournalCodec,
        audience: str | None,
        tracers: Tracers,
        subject_of: Callable[[ServerRequestContext[Any, Any]], str | None],
        make_context: Callable[[ServerRequestContext[Any, Any]], Any],
    ) -> None:
        self._make_context = make_context
        self._journals = journals
        self._security = security
        self._audience = audience
        self._tracers = tracers
        self._subject_of = subject_of

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Serve one message, as the SDK's middlewares do."""
        request = InFlight(ctx)
        # A server may be called from within a request of another's, which is none of this one's.
        served = REQUEST.set(request)
        offered = offer(lambda: self._make_context(ctx))
        reset = CURRENT.set(request if ctx.method in INPUT_REQUIRED_METHODS else None)
        try:
            return await call_next(ctx)
        except MCPError as error:
            if is_refusal(error) and ctx.method in INPUT_REQUIRED_METHODS:
                self._explain(ctx, request)
            raise
        finally:
            request.ended = True
            # They know of each other: left so, only the garbage collector would find them.
            watch, request.watch = request.watch, None
            if watch is not None:
                watch(Closed(request.token_out))
            take_back(offered)
            CURRENT.reset(reset)
            REQUEST.reset(served)

    def _journal_of(self, payload: bytes | None) -> Journal | None:
        """The journal in an authentic token that was refused all the same, to say whose call it was."""
        state = _claims(payload).get("s") if payload is not None else None
        try:
            return self._journals.read(state) if isinstance(state, str) else None
        except TokenRejected:
            return None

    def _explain(self, ctx: ServerRequestContext[Any, Any], request: InFlight) -> None:
        reason = request.reason
        if reason is None and request.payload is not None:
            reason = deduce_reason(
                _claims(request.payload),
                ctx,
                audience=self._audience,
                principal=self._security.bind_principal,
            )
        reason = reason or RejectionReason.MALFORMED
        # A name that nothing here has may be anything that a client wants to see in a log.
        subject = self._subject_of(ctx)
        logger.warning("request state refused on %s %r: %s", ctx.method, subject or "(unknown)", reason.value)
        if self._tracers:
            principal = self._security.bind_principal
            self._tracers.refuse(
                Refusal(
                    reason,
                    method=ctx.method,
                    tool=subject,
                    protocol=ctx.protocol_version,
                    principal=principal(ctx) if principal is not None else None,
                    journal=request.journal or self._journal_of(request.payload),
                    token_bytes=request.token_in,
                )
            )


def _claims(payload: bytes) -> dict[str, Any]:
    try:
        claims: object = json.loads(payload)
    except ValueError:
        return {}
    return cast("dict[str, Any]", claims) if isinstance(claims, dict) else {}
