"""The boundary between what clients carry and what the server works with: one middleware, in the place of the SDK's.

On the way in it opens the record of the request, verifies the token that came and reads the journal in it. On the way
out it makes the token. It keeps to the SDK's policy (`RequestStateSecurity`) in every point in which the SDK's own
boundary does, and fails closed as that does; what it saves is to write each journal into an envelope and to take that
apart again.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.request_state import InvalidRequestState, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR
from mcp_types.methods import INPUT_REQUIRED_METHODS, is_input_required

from roundtrip.errors import RejectionReason, TokenRejected
from roundtrip.machine.journal import Entry, Journal
from roundtrip.machine.journal_bytes import call_of
from roundtrip.server.effects import Effects
from roundtrip.server.requests import (
    REQUEST,
    SKEW,
    RequestRecord,
    is_token_rejection,
    offer,
    take_back,
    token_rejection,
)
from roundtrip.tokens.binding import (
    Claims,
    audience_digest,
    claims_of,
    difference,
    is_principal,
    principal_claim,
    read_claims,
)
from roundtrip.tokens.token import JournalCodec
from roundtrip.tracing import Closed, TokenRejection

__all__ = ["RequestBoundary"]

logger = logging.getLogger("roundtrip")

Request = ServerRequestContext[Any, Any]

Wrap = Callable[[Request, RequestRecord, str], bytes]
"""Puts a state that an author wrote by hand into a journal, under the seal."""

Recover = Callable[[Request, Journal, float], Awaitable[Mapping[str, Entry] | None]]
"""What was answered in an expired call, if it may be begun again at the given time."""


class _PrincipalUnknown(Exception):
    """Nobody can say whom a request comes from."""


class RequestBoundary:
    """Gives each request its record, turns its token into a journal, and the journal of its questions into a token."""

    def __init__(
        self,
        security: RequestStateSecurity,
        *,
        journals: JournalCodec,
        audience: str | None,
        clock: Callable[[], float],
        wrap: Wrap,
        recover: Recover,
        effects: Effects,
        subject_of: Callable[[Request], str | None],
        knows_client_alone: Callable[[], bool],
        is_probe: Callable[[str | None], bool],
        make_context: Callable[[Request], Any],
    ) -> None:
        self._security = security
        self._journals = journals
        self._audience = audience_digest(audience)
        self._clock = clock
        self._wrap = wrap
        self._recover = recover
        self._effects = effects
        self._subject_of = subject_of
        self._knows_client_alone = knows_client_alone
        self._warned = False
        self._is_probe = is_probe
        self._make_context = make_context

    async def __call__(self, ctx: Request, call_next: CallNext) -> HandlerResult:
        """Serve one message, as the SDK's middlewares do."""
        request = RequestRecord(ctx, ctx.method in INPUT_REQUIRED_METHODS)
        # A server may be called from within a request of another's, which is none of this one's.
        served = REQUEST.set(request)
        offered = offer(lambda: self._make_context(ctx))
        try:
            if not request.may_ask:
                return await call_next(ctx)
            claims, inner = None, ctx
            # An explicit null is no token: to leave it out is in any client's power.
            if ctx.params is not None and ctx.params.get("requestState") is not None:
                claims, inner = await self._let_in(ctx, ctx.params, request)
            return self._let_out(ctx, request, await call_next(inner), claims)
        except MCPError as error:
            if request.reason is not None and is_token_rejection(error):
                self._explain(ctx, request, request.reason, _words_of_codec(error))
            raise
        finally:
            request.ended = True
            # They know of each other: left so, only the garbage collector would find them.
            watch, request.watch = request.watch, None
            if watch is not None:
                watch(Closed(request.token_out))
            take_back(offered)
            REQUEST.reset(served)

    async def _let_in(self, ctx: Request, params: Mapping[str, Any], request: RequestRecord) -> tuple[bytes, Request]:
        """Verify a token: what the next one is good for, and the request with what its author may see of the state."""
        try:
            payload = self._unseal(ctx, params["requestState"], request)
            claims, size = read_claims(payload)
            request.brought = payload[size:]
            self._check(ctx, claims, payload, call_of(request.brought))
            journal = self._journals.read(request.brought)
            now = self._clock()
            if max(journal.born, journal.written) > now + SKEW:
                raise TokenRejected(RejectionReason.FUTURE)
            if now < journal.deadline:
                request.journal = journal
                return payload[:size], replace(ctx, params={**params, "requestState": journal.authored or None})
            request.seeds = await self._recover(ctx, journal, now)
            if request.seeds is None:
                raise TokenRejected(RejectionReason.EXPIRED)
        except TokenRejected as error:
            request.reason = error.reason
            raise token_rejection() from error
        request.replaces, request.origin = journal.call_id, journal.pinned_for
        return payload[:size], replace(ctx, params={**params, "requestState": None, "inputResponses": None})

    def _unseal(self, ctx: Request, token: object, request: RequestRecord) -> bytes:
        if not isinstance(token, str):
            raise TokenRejected(RejectionReason.MALFORMED)
        request.token_in = len(token)
        try:
            payload: Any = self._security.codec.unseal(token)
        except TokenRejected:
            raise
        except InvalidRequestState as error:
            raise TokenRejected(_TOLD_BY_CODECS.get(str(error), RejectionReason.MALFORMED)) from error
        except Exception as error:  # whatever failed in somebody else's codec, it has not verified the token
            logger.exception("the request state codec failed to read a token on %s", ctx.method)
            raise TokenRejected(RejectionReason.MALFORMED) from error
        if not isinstance(payload, bytes):
            raise TokenRejected(RejectionReason.MALFORMED)
        return payload

    def _check(self, ctx: Request, claims: Claims, payload: bytes, call: bytes) -> None:
        """Hold an authentic token against the request that brought it.

        Raises:
            TokenRejected: It was written for another.
        """
        bound = bool(claims.principal)
        wanted = claims_of(ctx.method, ctx.params, audience=self._audience, call=call, bound=bound)
        if not payload.startswith(wanted):
            raise TokenRejected(difference(claims, wanted))
        try:
            principal = self._principal(ctx)
        except _PrincipalUnknown as error:
            raise TokenRejected(RejectionReason.OTHER_PRINCIPAL) from error
        if bound != (principal is not None):
            raise TokenRejected(RejectionReason.OTHER_PRINCIPAL)
        if principal is not None and not is_principal(claims.principal, principal, call):
            raise TokenRejected(RejectionReason.OTHER_PRINCIPAL)

    def _principal(self, ctx: Request) -> str | None:
        """Whom a request comes from.

        Raises:
            _PrincipalUnknown: The author's function failed, or gave no text.
        """
        bind = self._security.bind_principal
        if bind is None:
            return None
        try:
            principal: Any = bind(ctx)
        except Exception as error:
            logger.exception("principal= failed on %s; no request state is taken or given", ctx.method)
            raise _PrincipalUnknown from error
        if principal is not None and not isinstance(principal, str):
            logger.error("principal= gave %s on %s, and not text or None", type(principal).__name__, ctx.method)
            raise _PrincipalUnknown
        if not self._warned and self._knows_client_alone():
            self._warned = True
            logger.warning(
                "access tokens have no subject, so the users of one client id cannot be told apart: each of them may "
                "resume the calls of the others; have the token verifier give AccessToken(subject=...), or say who "
                "calls with principal="
            )
        return principal

    def _let_out(
        self, ctx: Request, request: RequestRecord, result: HandlerResult, claims: bytes | None
    ) -> HandlerResult:
        """Put the token in the place of the state in a result that asks."""
        if not is_input_required(result):
            return result
        # Most results are mappings; a middleware of somebody else's may give a model.
        state: Any = result.get("requestState") if isinstance(result, Mapping) else result.request_state
        if not isinstance(state, str):
            return result
        packed = request.packed if state == request.minted else None
        token = self._seal(ctx, request, packed or self._wrap(ctx, request, state), claims)
        if isinstance(result, Mapping):
            return {**result, "requestState": token}
        return result.model_copy(update={"request_state": token})

    def _seal(self, ctx: Request, request: RequestRecord, packed: bytes, claims: bytes | None) -> str:
        """The token of a journal. In one call it is good for the same as the one that came, for which that was."""
        try:
            if claims is None or request.brought is None or call_of(packed) != call_of(request.brought):
                claims = self._claims(ctx, call_of(packed))
            token = self._security.codec.seal(claims + packed)
            request.token_out = len(token)
        except _PrincipalUnknown:
            raise MCPError(code=INTERNAL_ERROR, message="Internal error") from None
        except Exception:  # what a codec says of its failure is not for the client
            logger.exception("the request state codec failed to make a token on %s", ctx.method)
            raise MCPError(code=INTERNAL_ERROR, message="Internal error") from None
        return token

    def _claims(self, ctx: Request, call: bytes) -> bytes:
        principal = self._principal(ctx)
        claims = claims_of(ctx.method, ctx.params, audience=self._audience, call=call, bound=principal is not None)
        return claims if principal is None else claims + principal_claim(principal, call)

    def _explain(self, ctx: Request, request: RequestRecord, reason: RejectionReason, said: str) -> None:
        """Tell the log and the tracers of a refused token what its client is not told."""
        # A name that nothing here has may be anything that a client wants to see in a log.
        subject = self._subject_of(ctx)
        logger.warning("request state refused on %s %r: %s%s", ctx.method, subject or "(unknown)", reason.value, said)
        if not self._effects.tracers or self._is_probe(subject):
            return
        try:
            principal = self._principal(ctx)
        except _PrincipalUnknown:
            principal = None
        self._effects.tracers.reject(
            TokenRejection(
                reason,
                method=ctx.method,
                tool=subject,
                protocol=ctx.protocol_version,
                principal=principal,
                journal=request.journal or self._journal_of(request.brought),
                token_bytes=request.token_in,
            )
        )

    def _journal_of(self, brought: bytes | None) -> Journal | None:
        """The journal in an authentic token that was refused all the same, to say whose call it was."""
        try:
            return self._journals.read(brought) if brought is not None else None
        except TokenRejected:
            return None


def _words_of_codec(error: MCPError) -> str:
    """Return what an author's own codec said of a token that it refused, for the log; empty where it said nothing."""
    rejected = error.__cause__
    told = rejected.__cause__ if isinstance(rejected, TokenRejected) else None
    if isinstance(told, TokenRejected) or not isinstance(told, InvalidRequestState) or str(told) in _TOLD_BY_CODECS:
        return ""
    return f" ({told})" if str(told) else ""


_TOLD_BY_CODECS: Final = {"unknown key": RejectionReason.UNKNOWN_KEY, "seal": RejectionReason.TAMPERED}
"""What the SDK's own codec calls what it refuses."""
