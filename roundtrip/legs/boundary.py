"""The middleware that replaces the SDK's boundary: it reads journals from the tokens that clients carry, and writes
tokens.

For a request, the middleware opens the record, verifies the token, checks its times and reads its journal. For a
response, it makes the token. Like the SDK's boundary, it enforces the whole policy (`RequestStateSecurity`), and
rejects a token if a check fails. Unlike the SDK's boundary, it writes no envelope around the journal.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.request_state import InvalidRequestState, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR
from mcp_types.methods import INPUT_REQUIRED_METHODS, is_input_required

from roundtrip.errors import RejectionReason, RoundtripError, TokenRejected
from roundtrip.legs.parts import Parts
from roundtrip.legs.requests import (
    REQUEST,
    SKEW,
    RequestRecord,
    is_token_rejection,
    offer,
    take_back,
    token_rejection,
)
from roundtrip.machine.call import Call
from roundtrip.machine.journal import Journal
from roundtrip.machine.journal_bytes import call_of
from roundtrip.on_demand import load_on_use
from roundtrip.tokens.binding import (
    TokenBinding,
    audience_digest,
    is_principal,
    pack_binding,
    principal_digest,
    read_binding,
    rejection_of,
)

if TYPE_CHECKING:
    from roundtrip import tracing

load_on_use(globals(), "roundtrip.tracing")

logger = logging.getLogger("roundtrip")

Request = ServerRequestContext[Any, Any]


SubjectOf = Callable[[Request], tuple[str | None, bool]]
"""Returns the registered name of the item that a request calls, and True if the call is traced."""


class _PrincipalUnknown(Exception):
    """The request's principal could not be determined."""


class RequestBoundary:
    """Middleware that gives each request a record and a journal, and gives a token to each result with questions."""

    def __init__(
        self,
        parts: Parts,
        *,
        service: str,
        make_context: Callable[[Request], Any],
        subject_of: SubjectOf | None = None,
    ) -> None:
        policy = parts.protection.policy
        self._parts = parts
        self._security: RequestStateSecurity = policy
        self._journals = parts.protection.journals
        self._audience = audience_digest(policy.audience if policy.audience is not None else service)
        self._clock = parts.system.time
        self._make_context = make_context
        self._subject_of = subject_of
        self._has_warned = False

    async def __call__(self, ctx: Request, call_next: CallNext) -> HandlerResult:
        """Serve one message, with the interface of the SDK's middlewares."""
        request = RequestRecord(ctx, ctx.method in INPUT_REQUIRED_METHODS)
        # Restore the previous request afterwards, because one server's request may call another server.
        served = REQUEST.set(request)
        offered = offer(lambda: self._make_context(ctx))
        try:
            if not request.may_ask:
                return await call_next(ctx)
            claims, inner = None, ctx
            # Treat an explicit null as a missing token. This is safe, because any client could also leave the token
            # out.
            if ctx.params is not None and ctx.params.get("requestState") is not None:
                claims, inner = self._let_in(ctx, ctx.params, request)
            result = await call_next(inner)
            return self._let_out(ctx, request, result if request.reply is None else request.reply, claims)
        except MCPError as error:
            if request.reason is not None and is_token_rejection(error):
                self._explain(ctx, request, request.reason, _reason_of_codec(error))
            raise
        finally:
            request.ended = True
            # Break the reference cycle through `report_size`, so that its objects are freed at once.
            report_size, request.report_size = request.report_size, None
            if report_size is not None:
                report_size(request.token_out)
            take_back(offered)
            REQUEST.reset(served)

    def _let_in(self, ctx: Request, params: Mapping[str, Any], request: RequestRecord) -> tuple[bytes, Request]:
        """Verify a token. Return its claims, which the next token repeats, and the request with the author's state."""
        try:
            payload = self._unseal(ctx, params["requestState"], request)
            claims, size = read_binding(payload)
            request.brought = payload[size:]
            self._check(ctx, claims, payload, call_of(request.brought))
            journal = self._journals.read(request.brought)
            now = self._clock()
            if max(journal.born, journal.written) > now + SKEW:
                raise TokenRejected(RejectionReason.FUTURE)
            if now >= journal.deadline:
                raise TokenRejected(RejectionReason.EXPIRED)
        except TokenRejected as error:
            request.reason = error.reason
            raise token_rejection() from error
        request.journal = journal
        return payload[:size], replace(ctx, params={**params, "requestState": journal.authored or None})

    def _unseal(self, ctx: Request, token: object, request: RequestRecord) -> bytes:
        if not isinstance(token, str):
            raise TokenRejected(RejectionReason.MALFORMED)
        request.token_in = len(token)
        try:
            payload: Any = self._security.codec.unseal(token)
        except TokenRejected:
            raise
        except InvalidRequestState as error:
            raise TokenRejected(_REASONS_OF_CODECS.get(str(error), RejectionReason.MALFORMED)) from error
        except Exception as error:  # the author's codec failed, so it has not verified the token
            logger.exception("the request state codec failed to read a token on %s", ctx.method)
            raise TokenRejected(RejectionReason.MALFORMED) from error
        if not isinstance(payload, bytes):
            raise TokenRejected(RejectionReason.MALFORMED)
        return payload

    def _check(self, ctx: Request, claims: TokenBinding, payload: bytes, call: bytes) -> None:
        """Compare an authentic token with the request that brought it.

        Raises:
            TokenRejected: The token was written for another request.
        """
        bound = bool(claims.principal)
        wanted = pack_binding(ctx.method, ctx.params, audience=self._audience, call=call, bound=bound)
        if not payload.startswith(wanted):
            raise TokenRejected(rejection_of(claims, wanted))
        try:
            principal = self._principal(ctx)
        except _PrincipalUnknown as error:
            raise TokenRejected(RejectionReason.OTHER_PRINCIPAL) from error
        if bound != (principal is not None):
            raise TokenRejected(RejectionReason.OTHER_PRINCIPAL)
        if principal is not None and not is_principal(claims.principal, principal, call):
            raise TokenRejected(RejectionReason.OTHER_PRINCIPAL)

    def _principal(self, ctx: Request) -> str | None:
        """Return the request's principal.

        Raises:
            _PrincipalUnknown: The author's function failed, or its result was neither text nor None.
        """
        bind = self._security.bind_principal
        if bind is None:
            return None
        try:
            principal: Any = bind(ctx)
        except Exception as error:
            logger.exception("principal= failed on %s, so request state is neither accepted nor sent", ctx.method)
            raise _PrincipalUnknown from error
        if principal is not None and not isinstance(principal, str):
            logger.error("principal= must return text or None, got %s on %s", type(principal).__name__, ctx.method)
            raise _PrincipalUnknown
        if not self._has_warned and self._parts.protection.knows_client_alone:
            self._has_warned = True
            logger.warning(
                "access tokens have no subject, so the server cannot distinguish users with the same client id: each "
                "may resume the others' calls; return AccessToken(subject=...) from the token verifier, or identify "
                "users with principal="
            )
        return principal

    def _let_out(
        self, ctx: Request, request: RequestRecord, result: HandlerResult, claims: bytes | None
    ) -> HandlerResult:
        """If a result asks questions, replace its state with the token."""
        if not is_input_required(result):
            return result
        # Most results are mappings, but an author's middleware may return a model.
        state: Any = result.get("requestState") if isinstance(result, Mapping) else result.request_state
        if not isinstance(state, str):
            return result
        packed = request.packed if state == request.minted else None
        token = self._seal(ctx, request, packed or self._authored_journal(ctx, request, state), claims)
        if isinstance(result, Mapping):
            return {**result, "requestState": token}
        return result.model_copy(update={"request_state": token})

    def _authored_journal(self, ctx: Request, request: RequestRecord, state: str) -> bytes:
        """Return a journal for the state that an author wrote by hand. The journal has no roundtrip questions.

        Raises:
            MCPError: No token can carry the state. The log has the reason.
        """
        journal, limits = request.journal, self._parts.limits
        call = Call(self._parts.system.new_id()) if journal is None else Call.resumed(journal)
        now = self._clock()
        born = journal.born if journal is not None else now
        end = journal.end if journal is not None else born + limits.max_age
        deadline = min(now + limits.ttl, end)
        note = Journal(call.id, born, deadline, end, leg=call.leg, round=call.round, authored=state, written=now)
        try:
            return self._parts.protection.write(note)
        except RoundtripError as error:
            logger.error("no token can carry the request state of %s: %s", ctx.method, error)
            raise MCPError(code=INTERNAL_ERROR, message="Internal error") from error

    def _seal(self, ctx: Request, request: RequestRecord, packed: bytes, claims: bytes | None) -> str:
        """Return a journal's token. A call's later tokens have the same claims as its first token."""
        try:
            if claims is None or request.brought is None or call_of(packed) != call_of(request.brought):
                claims = self._claims(ctx, call_of(packed))
            token = self._security.codec.seal(claims + packed)
            request.token_out = len(token)
        except _PrincipalUnknown:
            raise MCPError(code=INTERNAL_ERROR, message="Internal error") from None
        except Exception:  # the client must not see a codec's error message
            logger.exception("the request state codec failed to make a token on %s", ctx.method)
            raise MCPError(code=INTERNAL_ERROR, message="Internal error") from None
        return token

    def _claims(self, ctx: Request, call: bytes) -> bytes:
        principal = self._principal(ctx)
        claims = pack_binding(ctx.method, ctx.params, audience=self._audience, call=call, bound=principal is not None)
        return claims if principal is None else claims + principal_digest(principal, call)

    def _explain(self, ctx: Request, request: RequestRecord, reason: RejectionReason, said: str) -> None:
        """Report to the log and the tracers why a token was rejected. The client does not see the reason."""
        # Do not log an unregistered name, because a client could put any text into the log this way.
        subject, traced = self._subject_of(ctx) if self._subject_of is not None else (None, True)
        logger.warning("request state rejected on %s %r: %s%s", ctx.method, subject or "(unknown)", reason.value, said)
        if not self._parts.effects.tracers or not traced:
            return
        try:
            principal = self._principal(ctx)
        except _PrincipalUnknown:
            principal = None
        self._parts.effects.tracers.reject(
            tracing.TokenRejection(
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
        """Return the journal of a token that is authentic but was rejected. The journal identifies the call."""
        try:
            return self._journals.read(brought) if brought is not None else None
        except TokenRejected:
            return None


def _reason_of_codec(error: MCPError) -> str:
    """Return the reason that an author's codec gave for a rejection, for the log; "" if the codec gave no reason."""
    rejected = error.__cause__
    told = rejected.__cause__ if isinstance(rejected, TokenRejected) else None
    if isinstance(told, TokenRejected) or not isinstance(told, InvalidRequestState) or str(told) in _REASONS_OF_CODECS:
        return ""
    return f" ({told})" if str(told) else ""


_REASONS_OF_CODECS: Final = {"unknown key": RejectionReason.UNKNOWN_KEY, "seal": RejectionReason.TAMPERED}
"""Maps the reasons in the SDK codec's errors to rejection reasons."""
