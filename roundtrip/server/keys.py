"""What protects a server's tokens: its keys and codecs, and the policy that the boundary enforces with them."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import (
    AESGCMRequestStateCodec,
    RequestStateCodec,
    RequestStateSecurity,
    authenticated_principal,
)

from roundtrip.engine.leg import Limits
from roundtrip.errors import InvalidSignature, RejectionReason, TokenRejected
from roundtrip.machine.journal import Journal
from roundtrip.machine.pins import Pinner
from roundtrip.server.key_files import EnvironmentKeys, keys_of
from roundtrip.tokens.binding import MOST_CLAIMS_BYTES
from roundtrip.tokens.tickets import TicketOffice
from roundtrip.tokens.token import JournalCodec, KeyRing, Sealer, TokenCodec, from_text, to_text

__all__ = ["Keys", "Principal", "Protection", "limits_of", "protect"]

Principal = Callable[[ServerRequestContext[Any, Any]], str | None]
Keys = Sequence[bytes | bytearray | str]

_UNNAMED = "mcp-server"
"""What the SDK calls a server without a name."""

_TTL = 600.0
_MAX_AGE = 3600.0

_HINT_CHARACTERS = 5
"""Of the four bytes by which a token of the SDK's names its key: those of base64 that hold nothing else."""


class Protection(NamedTuple):
    """A server's policy, and the codecs behind it. `tokens` is None where the SDK's policy brought its own codec."""

    policy: RequestStateSecurity
    journals: JournalCodec
    tokens: TokenCodec | None
    tickets: TicketOffice | None
    trace_key: bytes | None
    """What transcripts make digests with."""
    hints: tuple[str, ...] = ()
    """What the keys are known by, the one that signs first."""
    ledger_sealer: Sealer | None = None
    """Seals what is kept in ledgers outside this process."""
    guess_key: bytes | None = None
    """What answers that are counted are told apart by in ledgers, so that nobody reads them there."""
    own_key: bool = False
    """Whether the key was made here, and is known to no other process."""

    def principal(self, request: ServerRequestContext[Any, Any] | None) -> str | None:
        """Whom a request comes from, as tokens are bound to them."""
        bind = self.policy.bind_principal
        return bind(request) if bind is not None and request is not None else None

    def user(self, request: ServerRequestContext[Any, Any] | None) -> str | None:
        """Return the principal of a request if it is one user's, and not all those of one client."""
        return None if self.knows_client_alone else self.principal(request)

    @property
    def knows_client_alone(self) -> bool:
        """Return True if the access token of this request names its client and no subject."""
        if self.policy.bind_principal is not authenticated_principal:
            return False
        token = get_access_token()
        return token is not None and not token.subject

    def ticket_office(self) -> TicketOffice:
        """Issues and verifies tickets.

        Raises:
            InvalidSignature: The server has no key of its own to sign them with.
        """
        if self.tickets is None:
            raise InvalidSignature(
                "tickets are signed, and request_state_security= gives no key for that; add seal_keys="
            )
        return self.tickets

    def write(self, journal: Journal) -> bytes:
        """The bytes of a journal, for a token that is good for as long as the policy has it.

        Raises:
            TokenTooLarge: The call remembers more than a token may hold.
        """
        latest = max(journal.written, journal.born) + self.policy.ttl
        if journal.deadline > latest:
            journal = replace(journal, deadline=latest)
        # A codec of somebody else's may encrypt.
        packed = self.journals.write(journal, deflate=self.tokens is not None and not self.tokens.encrypts)
        if self.tokens is not None:
            self.tokens.check(journal, MOST_CLAIMS_BYTES + len(packed))
        return packed


class _TextCodec:
    """An author's own codec, which is given text as bytes: the payload of the SDK is JSON, so codecs may decode it."""

    def __init__(self, codec: RequestStateCodec) -> None:
        self._codec = codec

    def seal(self, payload: bytes) -> str:
        """Return the codec's token for the payload as base64url."""
        return self._codec.seal(to_text(payload).encode())

    def unseal(self, token: str) -> bytes:
        """Return the payload of a token.

        Raises:
            TokenRejected: The codec vouches for something that is not a payload of this server.
        """
        text: Any = self._codec.unseal(token)
        try:
            return from_text(text.decode("ascii"))
        except (ValueError, AttributeError) as error:
            raise TokenRejected(RejectionReason.MALFORMED) from error


def limits_of(given: RequestStateSecurity | None, *, ttl: float | None, max_age: float | None) -> Limits:
    """Return the clocks of a server's calls, of which the SDK's policy may bring one.

    Raises:
        ValueError: A time is not usable, or two of them contradict each other.
    """
    if given is None:
        return Limits(ttl=_TTL if ttl is None else ttl, max_age=_MAX_AGE if max_age is None else max_age)
    if ttl is not None and ttl != given.ttl:
        raise ValueError(
            f"ttl= must be left out beside request_state_security=, which has its own, got ttl={ttl} and {given.ttl}; "
            "say it there: RequestStateSecurity(..., ttl=...)"
        )
    return Limits(ttl=given.ttl, max_age=max(_MAX_AGE, given.ttl) if max_age is None else max_age)


def protect(
    given: RequestStateSecurity | None,
    *,
    name: str | None,
    keys: Keys | None,
    ttl: float,
    encrypt: bool,
    principal: Principal | Literal[False] | None,
    audience: str | None,
    seal_keys: Keys | None,
    max_token_bytes: int,
    max_journal_bytes: int,
    environment: Mapping[str, str],
) -> Protection:
    """The protection that a server's arguments ask for, with keys of the environment where they give none.

    Raises:
        ValueError: A key is too short, or the arguments contradict each other.
    """
    if given is not None:
        if keys is not None or encrypt or principal is not None or audience is not None:
            raise ValueError(
                "request_state_security= brings its own keys, principal and audience; give it alone (with "
                "seal_keys= for what the server computes), or leave it out and use keys="
            )
        ring = KeyRing(seal_keys) if seal_keys is not None else None
        policy = RequestStateSecurity(
            # The SDK's own encrypts whatever bytes it gets.
            codec=given.codec if isinstance(given.codec, AESGCMRequestStateCodec) else _TextCodec(given.codec),
            ttl=given.ttl,
            bind_principal=given.bind_principal,
            audience=given.audience,
        )
        journals = JournalCodec(_sealer(ring), pinner=_pinner(ring), max_bytes=max_journal_bytes)
        tickets = TicketOffice(ring) if ring is not None else None
        return Protection(
            policy,
            journals,
            None,
            tickets,
            _derived(ring, b"trace"),
            (*_codec_hint(given.codec), *_hints(ring)),
            _sealer(ring, b"ledger"),
            _derived(ring, b"guess"),
        )
    if seal_keys is not None:
        raise ValueError("seal_keys= goes with request_state_security=; keys= seals by itself")
    found = keys_of(environment) if keys is None else None
    if not name and audience is None:
        if keys is not None or found is not None:
            given_as = "keys=" if found is None else f"keys, as those of the environment's {found.variable},"
            raise ValueError(
                f"{given_as} are shared between instances and perhaps services, so a token says which service it is "
                'for: name the server, Server("bookshop", ...), or give audience='
            )
        # The SDK wants a service stated with any policy; this one's key never leaves the process.
        audience = _UNNAMED
    ring = _ring_of(found) if found is not None else KeyRing(keys if keys is not None else [os.urandom(32)])
    tokens = TokenCodec(ring, entropy=os.urandom, encrypt=encrypt, max_token_bytes=max_token_bytes)
    if principal is not None and principal is not False and not callable(principal):
        raise TypeError(f"principal= takes a function of the request's context, or False, not {principal!r}")
    bind = None if principal is False else (principal or authenticated_principal)
    policy = RequestStateSecurity(codec=tokens, ttl=ttl, bind_principal=bind, audience=audience)
    journals = JournalCodec(_sealer(ring), pinner=_pinner(ring), max_bytes=max_journal_bytes)
    return Protection(
        policy,
        journals,
        tokens,
        TicketOffice(ring),
        _derived(ring, b"trace"),
        _hints(ring),
        _sealer(ring, b"ledger"),
        _derived(ring, b"guess"),
        own_key=keys is None and found is None,
    )


def _derived(ring: KeyRing | None, purpose: bytes) -> bytes | None:
    return ring.derive(purpose)[0] if ring is not None else None


def _ring_of(found: EnvironmentKeys) -> KeyRing:
    try:
        return KeyRing(found.keys)
    except ValueError as error:
        raise ValueError(f"{found.variable}: {error}") from error


def _codec_hint(codec: RequestStateCodec) -> tuple[str, ...]:
    """What the SDK's own tokens say of the key that sealed them, so that keys made by each process are told apart."""
    if not isinstance(codec, AESGCMRequestStateCodec):
        return ()
    return (codec.seal(b"").partition(".")[2][:_HINT_CHARACTERS],)


def _hints(ring: KeyRing | None) -> tuple[str, ...]:
    return tuple(ring.hints()) if ring is not None else ()


def _sealer(ring: KeyRing | None, purpose: bytes = b"seal") -> Sealer | None:
    return Sealer(ring, purpose=purpose, entropy=os.urandom) if ring is not None else None


def _pinner(ring: KeyRing | None) -> Pinner:
    return Pinner(ring.derive(b"pin") if ring is not None else ())
