"""Token protection: a server's keys, its codecs, and its policy for `request_state`."""

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

load_on_use(globals(), "roundtrip.tokens.tickets")


class Protection(NamedTuple):
    """A server's token policy, with the codecs that implement it."""

    policy: RequestStateSecurity
    journals: JournalCodec
    tokens: TokenCodec | None
    """The token codec. It is None if the SDK's policy provides the codec."""
    ring: KeyRing | None
    """The key ring. It is None if there is no key for signing and sealing."""
    trace_key: bytes | None
    """The key for the digests in transcripts."""
    hints: tuple[str, ...] = ()
    """The keys' public names. The first name belongs to the key that signs."""
    ledger_sealer: Sealer | None = None
    """Seals results that are stored in a ledger outside this process."""
    guess_key: bytes | None = None
    """The key for digests of counted answers. Ledgers store these digests instead of the answers, so no answer can be
    read there.
    """
    own_key: bool = False
    """True if this process generated the key. Then no other process has the key."""

    def principal(self, request: ServerRequestContext[Any, Any] | None) -> str | None:
        """Return the principal to which a request's token is bound."""
        bind = self.policy.bind_principal
        return bind(request) if bind is not None and request is not None else None

    def user(self, request: ServerRequestContext[Any, Any] | None) -> str | None:
        """Return a request's principal. Return None if the principal identifies a client and not a user."""
        return None if self.knows_client_alone else self.principal(request) or None

    @property
    def knows_client_alone(self) -> bool:
        """Return True if this request's access token names a client but not a user (it has no subject)."""
        if self.policy.bind_principal is not authenticated_principal:
            return False
        token = get_access_token()
        return token is not None and not token.subject

    def ticket_office(self) -> tickets.TicketOffice:
        """Return the office that issues and verifies tickets.

        Raises:
            KeysMissing: The server has no key that can sign tickets.
        """
        if self.ring is None:
            raise KeysMissing("tickets need a signing key, but request_state_security= has none; add seal_keys=")
        return tickets.TicketOffice(self.ring)

    def write(self, journal: Journal) -> bytes:
        """Return a journal's bytes. The policy's `ttl` limits the journal's deadline.

        Raises:
            TokenTooLarge: The call remembers more than a token may hold.
        """
        latest = max(journal.written, journal.born) + self.policy.ttl
        if journal.deadline > latest:
            journal = replace(journal, deadline=latest)
        # If a codec may encrypt the bytes, do not deflate them, because the length of deflated text reveals some of its
        # content. An author's codec may encrypt.
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
        """Derive all keys from one key ring. Without a ring, nothing can be sealed, pinned or signed."""
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
