"""The one answer every bad token gets, and the true reason for the log and the trace."""

import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, cast

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from roundtrip.errors import RejectionReason
from roundtrip.machine.journal import to_text

__all__ = ["deduce_reason", "is_refusal", "refusal"]

_MESSAGE = "Invalid or expired requestState"
_DATA = {"reason": "invalid_request_state"}


def refusal() -> MCPError:
    """What a client is told of a bad token, whatever was wrong with it; the same as the SDK's boundary says."""
    # A reason on the wire would tell an attacker which check they had passed (S4).
    return MCPError(code=INVALID_PARAMS, message=_MESSAGE, data=dict(_DATA))


def is_refusal(error: MCPError) -> bool:
    """Whether an error is that answer."""
    return error.code == INVALID_PARAMS and error.message == _MESSAGE and error.data == _DATA


def deduce_reason(
    claims: Mapping[str, Any],
    ctx: ServerRequestContext[Any, Any],
    *,
    audience: str | None,
    principal: Callable[[ServerRequestContext[Any, Any]], str | None] | None,
) -> RejectionReason:
    """Why the boundary refused an authentic token. It only logs that, so it is worked out again by elimination."""
    if not claims:
        return RejectionReason.MALFORMED
    now = time.time()
    params = ctx.params or {}
    target = str(params.get("uri" if ctx.method == "resources/read" else "name", ""))
    if not claims.get("iat", 0) <= now + 60:
        return RejectionReason.FUTURE
    if not now < claims.get("exp", 0):
        return RejectionReason.EXPIRED
    if claims.get("m") != ctx.method:
        return RejectionReason.OTHER_METHOD
    if claims.get("t") != target:
        return RejectionReason.OTHER_TARGET
    if claims.get("aud") != audience:
        return RejectionReason.OTHER_AUDIENCE
    if not _same_arguments(claims.get("a"), {} if ctx.method == "resources/read" else params):
        return RejectionReason.OTHER_ARGUMENTS
    return RejectionReason.OTHER_PRINCIPAL if principal is not None else RejectionReason.UNKNOWN


def _same_arguments(digest: Any, params: Mapping[str, Any]) -> bool:
    arguments = cast("dict[str, Any]", params.get("arguments") or {})
    text = json.dumps(arguments, sort_keys=True, separators=(",", ":"))
    expected = to_text(hashlib.sha256(text.encode()).digest()[:16])
    return isinstance(digest, str) and hmac.compare_digest(digest, expected)
