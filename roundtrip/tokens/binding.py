"""Token binding: the first bytes in a token's payload, before the journal.

A token resumes only the request that it was written for: the same method, tool and arguments, at the same service, from
the same caller. Each part gets a separate digest, so that a rejection can say which part differs. Digests of names that
authors choose have four bytes. Digests of the caller, and of values that clients choose (arguments, resource URIs),
have 12 bytes, and include the call id. No client knows this id before the call begins, so no client can search for a
collision. The digests reveal neither the caller nor whether two calls have the same caller.
"""

import hashlib
import hmac
import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from roundtrip.errors import RejectionReason, TokenRejected

FORMAT: Final = 3
"""Binding version. A payload with another version is rejected."""

DEFAULT_AUDIENCE: Final = "mcp-server"
"""The SDK's default name for a server."""
MAX_BINDING_BYTES: Final = 33

_BINDING: Final = struct.Struct(">B4s12s4s")
_FORMAT_SHIFT: Final = 4
_HAS_PRINCIPAL: Final = 4
_RESERVED_BIT: Final = 8
_METHOD_BITS: Final = 3
_NAME_BYTES: Final = 4
_CHOSEN_BYTES: Final = 12
_METHODS: Final = ("tools/call", "prompts/get", "resources/read")
_RESOURCE: Final = "resources/read"

# The keys are sorted, because a client may send the same arguments in another order.
_canonical: Final[Callable[[Any], str]] = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


class TokenBinding(NamedTuple):
    """A token's binding. The principal's digest is empty if the token is not bound to a caller."""

    method: str
    target: bytes
    arguments: bytes
    audience: bytes
    principal: bytes


def pack_binding(method: str, params: Mapping[str, Any] | None, *, audience: bytes, call: bytes, bound: bool) -> bytes:
    """Return the first bytes of a request's token payload. If `bound` is true, the caller of this function must append
    the principal's digest.
    """
    sent: Mapping[str, Any] = params or {}
    if method == _RESOURCE:
        name, chosen = "", str(sent.get("uri", ""))
    else:
        name, chosen = str(sent.get("name", "")), _canonical(sent.get("arguments") or {})
    kind = FORMAT << _FORMAT_SHIFT | (_HAS_PRINCIPAL if bound else 0) | _METHODS.index(method)
    return _BINDING.pack(kind, _digest(name)[:_NAME_BYTES], _digest(chosen, call)[:_CHOSEN_BYTES], audience)


def read_binding(payload: bytes) -> tuple[TokenBinding, int]:
    """Read the binding from a payload. Return the binding and its size.

    Raises:
        TokenRejected: The bytes are not a binding, or have another version.
    """
    if len(payload) < _BINDING.size or payload[0] >> _FORMAT_SHIFT != FORMAT:
        raise TokenRejected(RejectionReason.FORMAT)
    kind, target, arguments, audience = _BINDING.unpack_from(payload)
    method = kind & _METHOD_BITS
    size = MAX_BINDING_BYTES if kind & _HAS_PRINCIPAL else _BINDING.size
    if kind & _RESERVED_BIT or method >= len(_METHODS) or len(payload) < size:
        raise TokenRejected(RejectionReason.FORMAT)
    return TokenBinding(_METHODS[method], target, arguments, audience, payload[_BINDING.size : size]), size


def rejection_of(binding: TokenBinding, wanted: bytes) -> RejectionReason:
    """Return the reason why a token's binding does not match a request's binding. The caller is not compared here."""
    other, _ = read_binding(wanted + binding.principal)
    if binding.method != other.method:
        return RejectionReason.OTHER_METHOD
    if binding.target != other.target:
        return RejectionReason.OTHER_TARGET
    if binding.audience != other.audience:
        return RejectionReason.OTHER_AUDIENCE
    return RejectionReason.OTHER_TARGET if binding.method == _RESOURCE else RejectionReason.OTHER_ARGUMENTS


def audience_digest(audience: str | None) -> bytes:
    """Return the digest of a service name, even if the name is None."""
    return _digest("" if audience is None else f"audience:{audience}")[:_NAME_BYTES]


def principal_digest(principal: str, call: bytes) -> bytes:
    """Return a caller's digest."""
    return _digest(principal, b"principal:" + call)[:_CHOSEN_BYTES]


def is_principal(digest: bytes, principal: str, call: bytes) -> bool:
    """Return True if the digest belongs to this caller."""
    return hmac.compare_digest(digest, principal_digest(principal, call))


def _digest(text: str, salt: bytes = b"") -> bytes:
    return hashlib.sha256(salt + text.encode("utf-8", "surrogatepass")).digest()
