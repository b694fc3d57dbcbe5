"""What a token is good for: the first bytes of its payload, in front of the journal.

A token resumes the request that it was written for: the same method, tool and arguments, at the same service, by the
same caller. Each has a digest of its own, so that a refusal can be explained. Names that only authors choose get four
bytes. What a client may choose (the arguments, the URI of a resource) gets 12, and so does who calls. Both are digested
with the id of the call, which nobody knows before it has begun: so nobody can search for two that are digested alike,
nor tell by the digest who calls, or that two calls are of one caller.
"""

import hashlib
import hmac
import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from roundtrip.errors import RejectionReason, TokenRejected

__all__ = [
    "MOST_CLAIMS_BYTES",
    "Claims",
    "audience_digest",
    "claims_of",
    "difference",
    "is_principal",
    "principal_claim",
    "read_claims",
]

FORMAT: Final = 3
"""Version of the claims. A payload of another version is refused, not guessed at."""

MOST_CLAIMS_BYTES: Final = 33

_CLAIMS: Final = struct.Struct(">B4s12s4s")
_FORMAT_SHIFT: Final = 4
_BOUND: Final = 4
_UNUSED: Final = 8
_METHOD_BITS: Final = 3
_NAME_BYTES: Final = 4
_CHOSEN_BYTES: Final = 12
_METHODS: Final = ("tools/call", "prompts/get", "resources/read")
_RESOURCE: Final = "resources/read"

# As the arguments may come in another order and stay the same.
_canonical: Final[Callable[[Any], str]] = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


class Claims(NamedTuple):
    """The claims of a payload. The principal's is empty on a token that is bound to nobody."""

    method: str
    target: bytes
    arguments: bytes
    audience: bytes
    principal: bytes


def claims_of(method: str, params: Mapping[str, Any] | None, *, audience: bytes, call: bytes, bound: bool) -> bytes:
    """What the payload of a request's token begins with; the principal's claim follows where it is bound to one."""
    sent: Mapping[str, Any] = params or {}
    if method == _RESOURCE:
        name, chosen = "", str(sent.get("uri", ""))
    else:
        name, chosen = str(sent.get("name", "")), _canonical(sent.get("arguments") or {})
    kind = FORMAT << _FORMAT_SHIFT | (_BOUND if bound else 0) | _METHODS.index(method)
    return _CLAIMS.pack(kind, _digest(name)[:_NAME_BYTES], _digest(chosen, call)[:_CHOSEN_BYTES], audience)


def read_claims(payload: bytes) -> tuple[Claims, int]:
    """The claims of a payload, and how many bytes they are.

    Raises:
        TokenRejected: They are none, or of another version.
    """
    if len(payload) < _CLAIMS.size or payload[0] >> _FORMAT_SHIFT != FORMAT:
        raise TokenRejected(RejectionReason.FORMAT)
    kind, target, arguments, audience = _CLAIMS.unpack_from(payload)
    method = kind & _METHOD_BITS
    size = MOST_CLAIMS_BYTES if kind & _BOUND else _CLAIMS.size
    if kind & _UNUSED or method >= len(_METHODS) or len(payload) < size:
        raise TokenRejected(RejectionReason.FORMAT)
    return Claims(_METHODS[method], target, arguments, audience, payload[_CLAIMS.size : size]), size


def difference(claims: Claims, wanted: bytes) -> RejectionReason:
    """In what a token is not good for a request whose tokens have other claims; of the caller, nothing is said here."""
    other, _ = read_claims(wanted + claims.principal)
    if claims.method != other.method:
        return RejectionReason.OTHER_METHOD
    if claims.target != other.target:
        return RejectionReason.OTHER_TARGET
    if claims.audience != other.audience:
        return RejectionReason.OTHER_AUDIENCE
    return RejectionReason.OTHER_TARGET if claims.method == _RESOURCE else RejectionReason.OTHER_ARGUMENTS


def audience_digest(audience: str | None) -> bytes:
    """The claim of a service's name; one without a name has one, too."""
    return _digest("" if audience is None else f"audience:{audience}")[:_NAME_BYTES]


def principal_claim(principal: str, call: bytes) -> bytes:
    """The claim of a caller."""
    return _digest(principal, b"principal:" + call)[:_CHOSEN_BYTES]


def is_principal(claim: bytes, principal: str, call: bytes) -> bool:
    """Whether the claim is that of this caller."""
    return hmac.compare_digest(claim, principal_claim(principal, call))


def _digest(text: str, salt: bytes = b"") -> bytes:
    return hashlib.sha256(salt + text.encode("utf-8", "surrogatepass")).digest()
