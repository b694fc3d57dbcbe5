"""Tokens, which are signed `request_state` values, and their keys.

A token is ASCII text in three parts, separated by dots:

    r3<kind><hint> . body . signature

`kind` is `s` if the token is signed, and `e` if it is also encrypted. `hint` is four characters that name the key.
`body` is the payload in base64url: the binding, then the journal. `signature` is the first half of an HMAC-SHA-256 over
everything before it. A token is verified before it is decoded, and has exactly one valid spelling.

`specs/token.md` describes the bytes and the threats. `specs/vectors/` contains tokens that every version can decode.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from roundtrip.errors import KeysMissing, RejectionReason, TokenRejected, TokenTooLarge
from roundtrip.machine.journal import Journal, from_text, to_text
from roundtrip.machine.journal_bytes import MAX_JOURNAL_BYTES, pack, unpack
from roundtrip.machine.pins import Pinner
from roundtrip.on_demand import load_on_use

if TYPE_CHECKING:
    from itsdangerous import Signer

    from roundtrip.tokens import signing

load_on_use(globals(), "roundtrip.tokens.signing")

MAX_TOKEN_BYTES: Final = 64 * 1024
SEALED_PREFIX: Final = "s1."
"""Prefix that marks sealed text in a ledger. JSON cannot begin with this prefix."""
_MIN_KEY_BYTES: Final = 32

_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_PADDING_BYTES: Final = 64
_LENGTH_BYTES: Final = 4
_HINT_BYTES: Final = 3
_SIGNATURE_CHARS: Final = 22
_OVERHEAD_CHARS: Final = len("r3s0000..") + _SIGNATURE_CHARS
_ENCRYPTED: Final = b"r3e"
# The last character of a signature carries only two bits. itsdangerous ignores the other four bits; this pattern
# requires them to be 0.
_TOKEN: Final = re.compile(
    r"r3(?P<kind>[se])(?P<hint>[A-Za-z0-9_-]{4})\.(?P<body>[A-Za-z0-9_-]+)\.[A-Za-z0-9_-]{21}[AQgw]", re.ASCII
)

Entropy = Callable[[int], bytes]


class KeyRing:
    """A server's secrets, newest first. The first secret signs and seals. Every secret can verify and open.

    Raises:
        ValueError: There is no key, or a key is repeated or shorter than 32 bytes.
        TypeError: A key is neither bytes nor text.
    """

    def __init__(self, keys: Sequence[bytes | bytearray | str]) -> None:
        if isinstance(cast("object", keys), bytes | bytearray | str):
            raise TypeError("keys= must be a list of keys, newest first; write keys=[key], not keys=key")
        secrets: list[bytes] = []
        for position, key in enumerate(cast("Sequence[object]", keys)):
            if not isinstance(key, bytes | bytearray | str):
                raise TypeError(f"keys[{position}] must be bytes or str, got {type(key).__name__}")
            secret = key.encode() if isinstance(key, str) else bytes(key)
            if len(secret) < _MIN_KEY_BYTES:
                raise ValueError(
                    f"keys[{position}] must have at least {_MIN_KEY_BYTES} random secret bytes, got {len(secret)}; "
                    'make a key with: python -c "import secrets; print(secrets.token_hex(32))"'
                )
            if secret in secrets:
                raise ValueError(f"keys[{position}] repeats an earlier key; list each key once, newest first")
            secrets.append(secret)
        if not secrets:
            raise ValueError("keys= must list at least one key; if the process may make its own key, leave out keys=")
        self._secrets = tuple(secrets)

    def derive(self, purpose: bytes) -> list[bytes]:
        """Derive one subkey from each secret for one purpose (HKDF-SHA-256). The newest subkey comes first."""
        info = b"roundtrip/1/" + purpose
        return [HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(secret) for secret in self._secrets]

    def hints(self) -> list[str]:
        """Return each key's hint, newest first. A hint identifies a key without revealing it."""
        return [to_text(subkey[:_HINT_BYTES]) for subkey in self.derive(b"hint")]


class Sealer:
    """Cipher for values that the client carries but must not read: AES-256-GCM over padded text."""

    def __init__(self, ring: KeyRing, *, purpose: bytes, entropy: Entropy) -> None:
        self._ciphers = [AESGCM(key) for key in ring.derive(purpose)]
        self._entropy = entropy

    def seal(self, plain: bytes, bound_to: bytes) -> bytes:
        """Encrypt with the newest key. To decrypt, pass the same `bound_to` to `open`."""
        nonce = self._entropy(_NONCE_BYTES)
        return nonce + self._ciphers[0].encrypt(nonce, _framed(plain), bound_to)

    @staticmethod
    def size_of(size: int) -> int:
        """Return the sealed size of a plain text with this many bytes."""
        return size + _LENGTH_BYTES + -(size + _LENGTH_BYTES) % _PADDING_BYTES + _NONCE_BYTES + _TAG_BYTES

    def open(self, sealed: bytes, bound_to: bytes) -> bytes:
        """Decrypt with the key that sealed the value.

        Raises:
            TokenRejected: No key fits, or the value was sealed for another use.
        """
        if len(sealed) < _NONCE_BYTES + _TAG_BYTES + _PADDING_BYTES:
            raise TokenRejected(RejectionReason.SEAL)
        nonce, secret = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        for cipher in self._ciphers:
            try:
                framed = cipher.decrypt(nonce, secret, bound_to)
            except InvalidTag:
                continue
            return _unframed(framed)
        raise TokenRejected(RejectionReason.SEAL)


def seal_text(sealer: Sealer | None, text: str, *bound_to: str, hint: str = "") -> str:
    """Return a text in the form that the ledger stores: sealed, or unchanged if there is no sealer.

    Args:
        sealer: Seals texts that leave this process's memory.
        text: The text, which is JSON.
        bound_to: Values that `open_text` must also receive.
        hint: Text to put before the sealed text.
    """
    if sealer is None:
        return text
    sealed = sealer.seal(text.encode("utf-8", "surrogatepass"), json.dumps(bound_to).encode())
    return f"{SEALED_PREFIX}{hint}{to_text(sealed)}"


def open_text(sealer: Sealer | None, stored: str, *bound_to: str) -> str:
    """Open a text that a ledger has stored.

    Raises:
        TokenRejected: No key fits, or the text was sealed for another use.
        ValueError: The text is malformed, is sealed although there is no sealer, or is plain although there is one.
    """
    is_sealed = stored.startswith(SEALED_PREFIX)
    if sealer is None and not is_sealed:
        return stored
    if sealer is None or not is_sealed:
        raise ValueError("a text must be sealed if this process has keys, and plain otherwise")
    sealed = from_text(stored.rpartition(".")[2])
    return sealer.open(sealed, json.dumps(bound_to).encode()).decode("utf-8", "surrogatepass")


def hint_of(stored: str) -> str:
    """Return the text before a sealed text; empty if the stored text is not sealed."""
    return stored.removeprefix(SEALED_PREFIX).rpartition(".")[0] if stored.startswith(SEALED_PREFIX) else ""


def _framed(plain: bytes) -> bytes:
    framed = len(plain).to_bytes(_LENGTH_BYTES, "big") + plain
    return framed + b"\0" * (-len(framed) % _PADDING_BYTES)


def _unframed(framed: bytes) -> bytes:
    return framed[_LENGTH_BYTES : _LENGTH_BYTES + int.from_bytes(framed[:_LENGTH_BYTES], "big")]


def _frame_unsealed(plain: bytes, bound_to: bytes) -> bytes:
    """Give an author's `request_state` the layout of a sealed part, without sealing it. As in the SDK, the author's
    codec protects the value.
    """
    return b"\0" * _NONCE_BYTES + _framed(plain) + b"\0" * _TAG_BYTES


def _read_unsealed(sealed: bytes, bound_to: bytes) -> bytes:
    """Read bytes that `_frame_unsealed` wrote. Reject bytes that were really sealed."""
    if sealed[:_NONCE_BYTES].strip(b"\0") or sealed[-_TAG_BYTES:].strip(b"\0"):
        raise ValueError("the journal has a sealed part, but there is no key to open it with")
    return _unframed(sealed[_NONCE_BYTES:-_TAG_BYTES])


class JournalCodec:
    """Codec for journals, with a size limit. Its `pinner` makes pins."""

    def __init__(
        self, sealer: Sealer | None, *, pinner: Pinner | None = None, max_bytes: int = MAX_JOURNAL_BYTES
    ) -> None:
        self.pinner = pinner if pinner is not None else Pinner()
        self._sealer = sealer
        self._max_bytes = max_bytes

    @property
    def can_seal(self) -> bool:
        """Return True if there is a key with which to seal values that the client must not read."""
        return self._sealer is not None

    def write(self, journal: Journal, *, deflate: bool = False) -> bytes:
        """Return a journal's bytes. Pass `deflate=True` only if the bytes are not encrypted afterwards.

        Raises:
            TokenTooLarge: The journal exceeds the limit.
            KeysMissing: The journal has values to seal, but there is no key.
        """
        if self._sealer is None and journal.computed:
            raise KeysMissing(
                "a step's result or a fallback must be hidden from the client, but request_state_security= "
                "has no key for sealing; add seal_keys="
            )
        seal = self._sealer.seal if self._sealer is not None else _frame_unsealed
        return pack(journal, seal, deflate=deflate, limit=self._max_bytes)

    def read(self, packed: bytes) -> Journal:
        """Read the journal from a verified token.

        Raises:
            TokenRejected: This version cannot read the journal.
        """
        try:
            opened = self._sealer.open if self._sealer is not None else _read_unsealed
            return unpack(packed, opened, limit=self._max_bytes)
        except ValueError as error:
            raise TokenRejected(RejectionReason.FORMAT) from error


class TokenCodec:
    """Codec that signs and verifies tokens, for the SDK's `RequestStateSecurity`.

    Args:
        ring: The server's keys.
        entropy: A function that makes nonces, like `os.urandom`.
        encrypt: Encrypt the whole token, and not only the values that the client must not read.
        max_token_bytes: The size limit for a token. It applies both to new tokens and to tokens that the codec reads.
    """

    def __init__(
        self, ring: KeyRing, *, entropy: Entropy, encrypt: bool = False, max_token_bytes: int = MAX_TOKEN_BYTES
    ) -> None:
        self._subkeys, self._hints = ring.derive(b"sign"), ring.hints()
        self._head = f"r3{'e' if encrypt else 's'}{self._hints[0]}."
        self._sealer = Sealer(ring, purpose=b"encrypt", entropy=entropy)
        self.encrypts = encrypt
        """True if whole tokens are encrypted."""
        self._max_token_bytes = max_token_bytes

    @cached_property
    def _signers(self) -> "Mapping[str, Signer]":
        """Return the signers by key hint. In rare cases, several keys have the same hint, and this hint then has
        several signers.
        """
        keys: dict[str, list[bytes]] = {}
        for hint, subkey in zip(self._hints, self._subkeys, strict=True):
            keys.setdefault(hint, []).append(subkey)
        return {hint: signing.signer_of(subkeys) for hint, subkeys in keys.items()}

    def seal(self, payload: bytes) -> str:
        """Return the token for a payload.

        Raises:
            TokenTooLarge: The token exceeds the limit. `check` reports this earlier.
        """
        body = self._sealer.seal(payload, _ENCRYPTED) if self.encrypts else payload
        token = self._signers[self._hints[0]].sign(self._head + to_text(body)).decode()
        if len(token) > self._max_token_bytes:
            raise TokenTooLarge("token", size=len(token), limit=self._max_token_bytes, largest=())
        return token

    def check(self, journal: Journal, size: int) -> None:
        """Check that a token would not be too large if its payload has this size.

        Raises:
            TokenTooLarge: The token would exceed the limit; the error lists the journal's largest entries.
        """
        if self.encrypts:
            size = self._sealer.size_of(size)
        size = _OVERHEAD_CHARS + (size * 4 + 2) // 3
        if size > self._max_token_bytes:
            raise TokenTooLarge("token", size=size, limit=self._max_token_bytes, largest=journal.sizes()[:3])

    def unseal(self, token: str) -> bytes:
        """Verify a token, and return its payload.

        Raises:
            TokenRejected: No key in the ring has signed this exact text.
        """
        match = _match(token, limit=self._max_token_bytes)
        signer = self._signers.get(match["hint"])
        if signer is None:
            raise TokenRejected(RejectionReason.UNKNOWN_KEY)
        if not signer.validate(token):
            raise TokenRejected(RejectionReason.TAMPERED)
        body = _body(match)
        return self._sealer.open(body, _ENCRYPTED) if match["kind"] == "e" else body


class ParsedToken(NamedTuple):
    """The parts of an unverified token. The payload is None if it is encrypted."""

    kind: str
    hint: str
    payload: bytes | None


def read_unverified(token: str) -> ParsedToken:
    """Parse a token without verifying it. Use the result only for display.

    Raises:
        TokenRejected: The text is too long, or is not a token.
    """
    match = _match(token, limit=MAX_TOKEN_BYTES)
    return ParsedToken(match["kind"], match["hint"], None if match["kind"] == "e" else _body(match))


def _match(token: str, *, limit: int) -> re.Match[str]:
    if len(token) > limit:
        raise TokenRejected(RejectionReason.OVERSIZED)
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise TokenRejected(RejectionReason.MALFORMED)
    return match


def _body(match: re.Match[str]) -> bytes:
    try:
        return from_text(match["body"])
    except ValueError as error:
        raise TokenRejected(RejectionReason.FORMAT) from error
