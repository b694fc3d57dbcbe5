"""Token protection: a server's keys, codecs and boundary policy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import RequestStateSecurity, authenticated_principal

from roundtrip.errors import KeysMissing
from roundtrip.machine.journal import Journal
from roundtrip.machine.pins import Pinner
from roundtrip.on_demand import load_on_use
from roundtrip.tokens.binding import MAX_BINDING_BYTES
from roundtrip.tokens.token import Entropy, JournalCodec, KeyRing, Sealer, TokenCodec

if TYPE_CHECKING:
    from roundtrip.tokens import tickets
else:
    load_on_use(globals(), "roundtrip.tokens.tickets")


class Protection(NamedTuple):
    """A server's token policy, with the codecs behind it."""

    policy: RequestStateSecurity
    journals: JournalCodec
    tokens: TokenCodec | None
    """None if the SDK's policy brought its own codec."""
    ring: KeyRing | None
    """None if nothing can be signed or sealed."""
    trace_key: bytes | None
    """Key for digests in transcripts."""
    hints: tuple[str, ...] = ()
    """Public key names; the first key signs."""
    ledger_sealer: Sealer | None = None
    """Seals results in ledgers outside this process."""
    guess_key: bytes | None = None
    """Key for digests of counted answers, which must not be readable in ledgers."""
    own_key: bool = False
    """True if this process generated the key, so that no other process has it."""

    def principal(self, request: ServerRequestContext[Any, Any] | None) -> str | None:
        """Return the principal that a request's token is bound to."""
        bind = self.policy.bind_principal
        return bind(request) if bind is not None and request is not None else None

    def user(self, request: ServerRequestContext[Any, Any] | None) -> str | None:
        """Return a request's principal; None if it identifies a client rather than a user."""
        return None if self.knows_client_alone else self.principal(request) or None

    @property
    def knows_client_alone(self) -> bool:
        """Return True if this request's access token names its client and no subject."""
        if self.policy.bind_principal is not authenticated_principal:
            return False
        token = get_access_token()
        return token is not None and not token.subject

    def ticket_office(self) -> tickets.TicketOffice:
        """Return the office that issues and verifies tickets.

        Raises:
            KeysMissing: The server has no key to sign tickets with.
        """
        if self.ring is None:
            raise KeysMissing("tickets need a key to sign them, and request_state_security= gives none; add seal_keys=")
        return tickets.TicketOffice(self.ring)

    def write(self, journal: Journal) -> bytes:
        """Return a journal's bytes, with its deadline limited by the policy's `ttl`.

        Raises:
            TokenTooLarge: The call remembers more than a token may hold.
        """
        latest = max(journal.written, journal.born) + self.policy.ttl
        if journal.deadline > latest:
            journal = replace(journal, deadline=latest)
        # An author's codec may encrypt. Then the length of deflated text would reveal some of its content.
        packed = self.journals.write(journal, deflate=self.tokens is not None and not self.tokens.encrypts)
        if self.tokens is not None:
            self.tokens.check(journal, MAX_BINDING_BYTES + len(packed))
        return packed

    @classmethod
    def of(
        cls,
        ring: KeyRing | None,
        policy: RequestStateSecurity,
        tokens: TokenCodec | None,
        *,
        max_bytes: int,
        entropy: Entropy,
    ) -> Protection:
        """Derive all keys from one ring. Without a ring, nothing can be sealed, pinned or signed."""
        if ring is None:
            journals = JournalCodec(None, pinner=Pinner(()), max_bytes=max_bytes)
            return cls(policy, journals, tokens, None, None)
        sealer, pinner = Sealer(ring, purpose=b"seal", entropy=entropy), Pinner(ring.derive(b"pin"))
        return cls(
            policy,
            JournalCodec(sealer, pinner=pinner, max_bytes=max_bytes),
            tokens,
            ring,
            trace_key=ring.derive(b"trace")[0],
            hints=tuple(ring.hints()),
            ledger_sealer=Sealer(ring, purpose=b"ledger", entropy=entropy),
            guess_key=ring.derive(b"guess")[0],
        )
