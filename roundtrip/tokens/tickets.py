"""Tickets in question URLs. With the ticket, a page finds the call and checks the user.

A ticket names a call and a purpose, and expires at the same time as the call. It is bound to the principal who was
asked (S12), so another user cannot use the link. Every leg makes the same ticket, so the URL of a question does not
change from leg to leg.
"""

import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any, Final

from itsdangerous import BadSignature, Signer
from mcp.server.auth.provider import AccessToken, principal_components
from mcp.server.request_state import compact_json

from roundtrip.errors import TicketReason, TicketRejected
from roundtrip.machine.journal import from_text, to_text
from roundtrip.questions.wire import TICKET
from roundtrip.tokens.token import KeyRing

_SIGNATURE_CHARS: Final = 43
_PRINCIPAL_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Ticket:
    """The content of a verified ticket."""

    call_id: str
    purpose: str


class TicketOffice:
    """Office that issues and verifies tickets."""

    def __init__(self, ring: KeyRing) -> None:
        self._signer = Signer(
            list(reversed(ring.derive(b"ticket"))), key_derivation="none", digest_method=hashlib.sha256, sep="."
        )

    def issue(self, call_id: str, purpose: str, *, expires: float, principal: str | None) -> str:
        """Return a ticket for a call and a purpose."""
        bound = None if principal is None else _bind(call_id, principal)
        claims = json.dumps([call_id, purpose, int(expires), bound], separators=(",", ":"))
        return self._signer.sign("rt1." + to_text(claims.encode())).decode()

    def verify(
        self, ticket: str, *, principal: str | AccessToken | None, now: float, purpose: str | None = None
    ) -> Ticket:
        """Verify the ticket in a URL, and return its content.

        Args:
            ticket: The text in the URL.
            principal: The browser's user; None for a ticket that is not bound to a user.
            now: Seconds since the epoch.
            purpose: The page's purpose. A ticket for another page is rejected.

        Raises:
            TicketRejected: The ticket is forged, has expired, or belongs to another user.
        """
        if isinstance(principal, AccessToken):
            principal = compact_json(principal_components(principal))
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
        call_id, named, expires, bound = claims
        if now >= expires:
            raise TicketRejected(TicketReason.EXPIRED)
        wanted = None if principal is None else _bind(call_id, principal)
        if (bound is None) != (wanted is None) or not hmac.compare_digest(str(bound), str(wanted)):
            raise TicketRejected(TicketReason.PRINCIPAL)
        if purpose is not None and named != purpose:
            raise TicketRejected(TicketReason.PURPOSE)
        return Ticket(call_id, named)


def _bind(call_id: str, principal: str) -> str:
    text = f"roundtrip/ticket/1/{call_id}/{principal}"
    return to_text(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:_PRINCIPAL_BYTES])
