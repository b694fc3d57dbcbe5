"""Reading a token, with or without its keys.

Reading has no side effects. A token's readable part is parsed within a server's limits, even if no key verifies the
token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from roundtrip.errors import RejectionReason, TokenRejected
from roundtrip.machine.journal import Asked, Entry, Journal
from roundtrip.machine.journal_bytes import unpack_open
from roundtrip.machine.pins import MARKS_BYTES
from roundtrip.tokens.binding import TokenBinding, read_binding
from roundtrip.tokens.token import JournalCodec, KeyRing, Sealer, TokenCodec, read_unverified

_TOKEN_KINDS: Final = {"s": "signed", "e": "encrypted"}


class SignatureCheck(StrEnum):
    """Signature check result."""

    UNCHECKED = "not checked"
    VALID = "valid"
    INVALID = "not valid"


class Sealed(StrEnum):
    """State of a token's sealed part."""

    NONE = "nothing is sealed"
    CLOSED = "sealed"
    OPENED = "opened"
    BROKEN = "cannot be opened"


@dataclass(frozen=True, slots=True)
class TokenView:
    """A token's readable content.

    `key` is the signing key's number; the newest key has number 1. `reason` says why a server with these keys would
    reject the token, regardless of the time, the caller and the request.
    """

    kind: str
    size: int
    hint: str
    signature: SignatureCheck
    reason: RejectionReason | None
    key: int | None
    keys: int
    claims: TokenBinding | None
    journal: Journal | None
    sealed: Sealed


def foreign_kind(token: str) -> str | None:
    """Describe a text that is not a roundtrip token but has a known form, such as a ticket. Return None for any other
    text.
    """
    if token.startswith("v1."):
        return "an SDK token (from a server with request_state_security=)"
    if token.startswith("rt1."):
        return "a ticket (from a page URL)"
    return None


def view_token(token: str, keys: Sequence[bytes] = ()) -> TokenView:
    """Read a token. The keys are optional. If there are several, the newest must come first.

    Raises:
        TokenRejected: The text is not a roundtrip token, or no server would parse it.
        ValueError: The keys are invalid.
    """
    parsed = read_unverified(token)
    payload, signature, reason, key = parsed.payload, SignatureCheck.UNCHECKED, None, None
    ring = KeyRing(keys) if keys else None
    if ring is not None:
        try:
            payload = TokenCodec(ring, entropy=_reject_entropy).unseal(token)
        except TokenRejected as error:
            reason = error.reason
        key = _signing_key_number(token, keys)
        signature = SignatureCheck.INVALID if key is None else SignatureCheck.VALID
    claims, journal, sealed = None, None, Sealed.CLOSED
    if payload is not None:
        try:
            claims, size = read_binding(payload)
            journal, sealed, defect = _journal(payload[size:], ring if signature is SignatureCheck.VALID else None)
        except TokenRejected as error:
            sealed, defect = Sealed.NONE, error.reason
        if signature is SignatureCheck.VALID:
            reason = reason or defect
    return TokenView(
        kind=_TOKEN_KINDS[parsed.kind],
        size=len(token),
        hint=parsed.hint,
        signature=signature,
        reason=reason,
        key=key,
        keys=len(keys),
        claims=claims,
        journal=journal,
        sealed=sealed,
    )


def token_data(view: TokenView) -> dict[str, Any]:
    """Return a token view as JSON values."""
    return {
        "kind": view.kind,
        "bytes": view.size,
        "hint": view.hint,
        "signature": view.signature,
        "reason": view.reason,
        "key": view.key,
        "claims": _claims_data(view.claims) if view.claims is not None else None,
        "journal": _journal_data(view.journal) if view.journal is not None else None,
        "sealed": _sealed_data(view),
    }


def _signing_key_number(token: str, keys: Sequence[bytes]) -> int | None:
    for place, key in enumerate(keys, start=1):
        try:
            TokenCodec(KeyRing([key]), entropy=_reject_entropy).unseal(token)
        except TokenRejected as error:
            if error.reason in (RejectionReason.UNKNOWN_KEY, RejectionReason.TAMPERED):
                continue
        return place
    return None


def _reject_entropy(size: int) -> bytes:
    raise AssertionError(f"reading a token must not use randomness, got a request for {size} bytes")


def _journal(packed: bytes, ring: KeyRing | None) -> tuple[Journal | None, Sealed, RejectionReason | None]:
    """Read the journal in a payload. Include the sealed part if a key opens it."""
    try:
        journal, sealed = unpack_open(packed)
    except TokenRejected as error:
        return None, Sealed.NONE, error.reason
    except ValueError:
        return None, Sealed.NONE, RejectionReason.FORMAT
    if sealed is None:
        return journal, Sealed.NONE, None
    if ring is None:
        return journal, Sealed.CLOSED, None
    try:
        opened = JournalCodec(Sealer(ring, purpose=b"seal", entropy=_reject_entropy)).read(packed)
    except TokenRejected as error:
        return journal, Sealed.BROKEN, error.reason
    return opened, Sealed.OPENED, None


def _claims_data(claims: TokenBinding) -> dict[str, Any]:
    return {
        "method": claims.method,
        "target": claims.target.hex(),
        "arguments": claims.arguments.hex(),
        "audience": claims.audience.hex(),
        "principal": claims.principal.hex() or None,
    }


def _journal_data(journal: Journal) -> dict[str, Any]:
    return {
        "call": journal.call_id,
        "leg": journal.leg,
        "round": journal.round,
        "born": journal.born,
        "written": journal.written,
        "deadline": journal.deadline,
        "end": journal.end,
        "plan": journal.fingerprint,
        "build": journal.build,
        "version": journal.version,
        **({"intent": journal.chain.name.lower()} if journal.chain else {}),
        "answers": [
            {"key": key, "action": entry.action.name.lower(), "data": entry.data, **_pins(entry)}
            for key, entry in journal.entries.items()
        ],
        "asked": [
            {"key": key, "attempts": asked.attempts, "discards": asked.discards, **_pins(asked)}
            for key, asked in journal.asked.items()
        ],
    }


def _pins(pinned: Entry | Asked) -> dict[str, str]:
    """Return a pin's parts: the keyed part, and the bytes that show whether the message or schema has changed."""
    marks = len(pinned.pin) - MARKS_BYTES
    return {
        "pin": pinned.pin[:marks].hex(),
        "message": pinned.pin[marks : marks + 1].hex(),
        "schema": pinned.pin[marks + 1 :].hex(),
    }


def _sealed_data(view: TokenView) -> dict[str, Any]:
    journal = view.journal if view.sealed in (Sealed.OPENED, Sealed.NONE) else None
    return {
        "state": view.sealed,
        "computed": {key: kept.value for key, kept in journal.computed.items()} if journal is not None else None,
        "author_state": journal.authored is not None if journal is not None else None,
    }
