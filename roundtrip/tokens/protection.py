"""Make the protection of a server's tokens: its keys and codecs, the default lifetimes, and the boundary's policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import ServerRequestContext
from mcp.server.request_state import (
    AESGCMRequestStateCodec,
    RequestStateCodec,
    RequestStateSecurity,
    authenticated_principal,
)

from roundtrip.errors import KeysMissing, RejectionReason, TokenRejected
from roundtrip.machine.journal import Journal, Limits
from roundtrip.machine.journal_bytes import MAX_JOURNAL_BYTES
from roundtrip.machine.pins import Pinner
from roundtrip.on_demand import load_on_use
from roundtrip.system import System
from roundtrip.tokens.binding import MAX_BINDING_BYTES
from roundtrip.tokens.token import MAX_TOKEN_BYTES, JournalCodec, KeyRing, Sealer, TokenCodec, from_text, to_text

if TYPE_CHECKING:
    from roundtrip.tokens import key_files, tickets
else:
    load_on_use(globals(), "roundtrip.tokens.key_files", "roundtrip.tokens.tickets")

Principal = Callable[[ServerRequestContext[Any, Any]], str | None]
Keys = Sequence[bytes | bytearray | str]

_UNNAMED: Final = "mcp-server"
"""The SDK's name for a server without a name."""

_TTL_SECONDS: Final = 600.0
_MAX_AGE_SECONDS: Final = 3600.0

_OWN_KEY_BYTES: Final = 32
_HINT_CHARS: Final = 5
"""The characters of base64 that hold only the four bytes by which a token of the SDK names its key."""


class Protection(NamedTuple):
    """Policy of a server's tokens, with the codecs behind it."""

    policy: RequestStateSecurity
    journals: JournalCodec
    tokens: TokenCodec | None
    """None if the SDK's policy brought its own codec."""
    ring: KeyRing | None
    """None if nothing can be signed or sealed."""
    trace_key: bytes | None
    """The key of digests in transcripts."""
    hints: tuple[str, ...] = ()
    """Public names of the keys, the one that signs first."""
    ledger_sealer: Sealer | None = None
    """Seals results that are kept in ledgers outside this process."""
    guess_key: bytes | None = None
    """The key of digests of counted answers in ledgers, so that the answers cannot be read there."""
    own_key: bool = False
    """True if this process generated the key, so that no other process has it."""

    def principal(self, request: ServerRequestContext[Any, Any] | None) -> str | None:
        """Return the principal of a request, to which its token is bound."""
        bind = self.policy.bind_principal
        return bind(request) if bind is not None and request is not None else None

    def user(self, request: ServerRequestContext[Any, Any] | None) -> str | None:
        """Return the principal of a request; None if it names a client and not one of its users."""
        return None if self.knows_client_alone else self.principal(request) or None

    @property
    def knows_client_alone(self) -> bool:
        """Return True if the access token of this request names its client and no subject."""
        if self.policy.bind_principal is not authenticated_principal:
            return False
        token = get_access_token()
        return token is not None and not token.subject

    def ticket_office(self) -> tickets.TicketOffice:
        """Return the office that issues and verifies tickets.

        Raises:
            KeysMissing: The server has no key to sign them with.
        """
        if self.ring is None:
            raise KeysMissing("tickets need a key to sign them, and request_state_security= gives none; add seal_keys=")
        return tickets.TicketOffice(self.ring)

    def write(self, journal: Journal) -> bytes:
        """Return the bytes of a journal, whose deadline is no later than the policy's `ttl` allows.

        Raises:
            TokenTooLarge: The call remembers more than a token may hold.
        """
        latest = max(journal.written, journal.born) + self.policy.ttl
        if journal.deadline > latest:
            journal = replace(journal, deadline=latest)
        # An author's codec may encrypt, and then the length of deflated text would reveal a part of its content.
        packed = self.journals.write(journal, deflate=self.tokens is not None and not self.tokens.encrypts)
        if self.tokens is not None:
            self.tokens.check(journal, MAX_BINDING_BYTES + len(packed))
        return packed


class _TextCodec:
    """Adapter for an author's codec, which may expect text, as the SDK's payload is JSON: it gets base64url."""

    def __init__(self, codec: RequestStateCodec) -> None:
        self._codec = codec

    def seal(self, payload: bytes) -> str:
        """Return the codec's token for a payload."""
        return self._codec.seal(to_text(payload).encode())

    def unseal(self, token: str) -> bytes:
        """Return the payload of a token.

        Raises:
            TokenRejected: The codec accepts a token whose payload this server did not write.
        """
        text: Any = self._codec.unseal(token)
        try:
            return from_text(text.decode("ascii"))
        except (ValueError, AttributeError) as error:
            raise TokenRejected(RejectionReason.MALFORMED) from error


def limits_of(given: RequestStateSecurity | None, *, ttl: float | None, max_age: float | None) -> Limits:
    """Return the time limits of a server's calls; the SDK's policy may bring one.

    Raises:
        ValueError: A time is invalid, or two of them contradict each other.
    """
    if given is None:
        return Limits(
            ttl=_TTL_SECONDS if ttl is None else ttl, max_age=_MAX_AGE_SECONDS if max_age is None else max_age
        )
    if ttl is not None and ttl != given.ttl:
        raise ValueError(
            f"ttl= must be left out with request_state_security=, which has its own, got ttl={ttl} and {given.ttl}; "
            "set it there: RequestStateSecurity(..., ttl=...)"
        )
    return Limits(ttl=given.ttl, max_age=max(_MAX_AGE_SECONDS, given.ttl) if max_age is None else max_age)


def protect(
    name: str | None,
    *,
    ttl: float,
    environment: Mapping[str, str],
    system: System,
    given: RequestStateSecurity | None = None,
    keys: Keys | None = None,
    encrypt: bool = False,
    principal: Principal | Literal[False] | None = None,
    audience: str | None = None,
    seal_keys: Keys | None = None,
    max_token_bytes: int = MAX_TOKEN_BYTES,
    max_journal_bytes: int = MAX_JOURNAL_BYTES,
) -> Protection:
    """Build the protection from a server's arguments. Keys come from them, else from the environment, else are random.

    Raises:
        ValueError: A key is too short, or the arguments contradict each other.
    """
    if given is not None:
        if keys is not None or encrypt or principal is not None or audience is not None:
            raise ValueError(
                "request_state_security= brings its own keys, principal and audience; give it alone (with "
                "seal_keys= for values that the server computes), or leave it out and use keys="
            )
        ring = KeyRing(seal_keys) if seal_keys is not None else None
        policy = RequestStateSecurity(
            # The SDK's own codec takes any bytes.
            codec=given.codec if isinstance(given.codec, AESGCMRequestStateCodec) else _TextCodec(given.codec),
            ttl=given.ttl,
            bind_principal=given.bind_principal,
            audience=given.audience,
        )
        protection = _with_ring(ring, policy, None, max_journal_bytes, system)
        return protection._replace(hints=(*_codec_hint(given.codec), *protection.hints))
    if seal_keys is not None:
        raise ValueError("seal_keys= must be left out without request_state_security=; keys= are used for sealing too")
    found = _keys_of(environment) if keys is None else None
    if not name and audience is None:
        if keys is not None or found is not None:
            given_as = "keys=" if found is None else f"keys from {found.variable}"
            raise ValueError(
                f"a server with {given_as} must have a name, because each token names its service; write "
                'Server("bookshop", ...), or give audience='
            )
        # The SDK requires an audience in every policy. Any text will do: this server's key never leaves the process.
        audience = _UNNAMED
    ring = (
        _ring_of(found)
        if found is not None
        else KeyRing(keys if keys is not None else [system.entropy(_OWN_KEY_BYTES)])
    )
    tokens = TokenCodec(ring, entropy=system.entropy, encrypt=encrypt, max_token_bytes=max_token_bytes)
    if principal is not None and principal is not False and not callable(principal):
        raise TypeError(f"principal= must be a function of the request's context, or False, got {principal!r}")
    bind = None if principal is False else (principal or authenticated_principal)
    policy = RequestStateSecurity(codec=tokens, ttl=ttl, bind_principal=bind, audience=audience)
    return _with_ring(ring, policy, tokens, max_journal_bytes, system)._replace(own_key=keys is None and found is None)


def _with_ring(
    ring: KeyRing | None,
    policy: RequestStateSecurity,
    tokens: TokenCodec | None,
    max_journal_bytes: int,
    system: System,
) -> Protection:
    """Derive all keys from one ring; without a ring nothing can be sealed, pinned or signed."""
    if ring is None:
        journals = JournalCodec(None, pinner=Pinner(()), max_bytes=max_journal_bytes)
        return Protection(policy, journals, tokens, None, None)
    return Protection(
        policy,
        JournalCodec(
            Sealer(ring, purpose=b"seal", entropy=system.entropy),
            pinner=Pinner(ring.derive(b"pin")),
            max_bytes=max_journal_bytes,
        ),
        tokens,
        ring,
        trace_key=ring.derive(b"trace")[0],
        hints=tuple(ring.hints()),
        ledger_sealer=Sealer(ring, purpose=b"ledger", entropy=system.entropy),
        guess_key=ring.derive(b"guess")[0],
    )


def _keys_of(environment: Mapping[str, str]) -> key_files.EnvironmentKeys | None:
    if "ROUNDTRIP_KEYS" not in environment and "ROUNDTRIP_KEY_FILE" not in environment:
        return None
    return key_files.keys_of(environment)


def _ring_of(found: key_files.EnvironmentKeys) -> KeyRing:
    try:
        return KeyRing(found.keys)
    except ValueError as error:
        raise ValueError(f"{found.variable}: {error}") from error


def _codec_hint(codec: RequestStateCodec) -> tuple[str, ...]:
    """Return the name of the key in tokens of the SDK's codec. Random keys of two processes have different names."""
    if not isinstance(codec, AESGCMRequestStateCodec):
        return ()
    return (codec.seal(b"").partition(".")[2][:_HINT_CHARS],)
