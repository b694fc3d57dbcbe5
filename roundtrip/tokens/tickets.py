"""Tickets: what the URL of a question carries, so that the page behind it finds the call and knows whose it is.

A ticket names a call and a purpose, ends with the call, and is bound to the principal who was asked (S12): a link that
is mailed to somebody else is worthless to them. It is made of nothing but what every leg of the call knows, so each leg
makes the same one, and a question whose URL carries it stays the same question.
"""

import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any, Final

from itsdangerous import BadSignature, Signer

from roundtrip.errors import TicketReason, TicketRejected
from roundtrip.machine.journal import from_text, to_text
from roundtrip.questions.wire import TICKET
from roundtrip.tokens.token import KeyRing

__all__ = ["Ticket", "TicketOffice"]

_SIGNATURE_CHARS: Final = 43
_PRINCIPAL_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a verified ticket says: which call it belongs to, and what it is for."""

    call_id: str
    purpose: str


class TicketOffice:
    """Issues tickets and verifies them."""

    def __init__(self, ring: KeyRing) -> None:
        self._signer = Signer(
            list(reversed(ring.derive(b"ticket"))), key_derivation="none", digest_method=hashlib.sha256, sep="."
        )

    def issue(self, call_id: str, purpose: str, *, expires: float, principal: str | None) -> str:
        """The ticket of a call for one purpose."""
        bound = None if principal is None else _bind(call_id, principal)
        claims = json.dumps([call_id, purpose, int(expires), bound], separators=(",", ":"))
        return self._signer.sign("rt1." + to_text(claims.encode())).decode()

    def verify(self, ticket: str, *, principal: str | None, now: float) -> Ticket:
        """Read a ticket that a browser brought.

        Args:
            ticket: What the URL carried.
            principal: Who the browser belongs to; None for a ticket that was issued unbound.
            now: Seconds since the epoch.

        Raises:
            TicketRejected: It is forged, expired, or somebody else's.
        """
        if TICKET.fullmatch(ticket) is None:
            raise TicketRejected(TicketReason.MALFORMED)
        try:
            from_text(ticket[-_SIGNATURE_CHARS:])
            _, body = self._signer.unsign(ticket.encode()).decode().split(".")
        except ValueError:
            raise TicketRejected(TicketReason.MALFORMED) from None
        except BadSignature:
            raise TicketRejected(TicketReason.SIGNATURE) from None
        claims: Any = json.loads(from_text(body))
        call_id, purpose, expires, bound = claims
        if now >= expires:
            raise TicketRejected(TicketReason.EXPIRED)
        if (bound is None) != (principal is None):
            raise TicketRejected(TicketReason.PRINCIPAL)
        if principal is not None and not hmac.compare_digest(str(bound), _bind(call_id, principal)):
            raise TicketRejected(TicketReason.PRINCIPAL)
        return Ticket(call_id, purpose)


def _bind(call_id: str, principal: str) -> str:
    text = f"roundtrip/ticket/1/{call_id}/{principal}"
    return to_text(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:_PRINCIPAL_BYTES])
