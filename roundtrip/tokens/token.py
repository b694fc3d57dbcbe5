"""The token: `request_state` as it travels, what it is good for, and the keys behind it.

A token is ASCII text of three parts between dots:

    r3<kind><hint> . body . signature

`hint` is four characters that say which key signed. `body` is base64url of the payload (`s` signed, `e` encrypted as
well): what the token is bound to, and the journal. `signature` is the half of an HMAC-SHA-256 over all before it.
Everything is verified before anything is decoded, and a token has exactly one spelling.

`specs/token.md` has the bytes and the threats; `specs/vectors/` tokens that must decode as long as the format lives.
"""

import hmac
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, cast

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from itsdangerous import BadSignature, Signer
from itsdangerous.signer import SigningAlgorithm

from roundtrip.errors import InvalidSignature, RejectionReason, TokenRejected, TokenTooLarge
from roundtrip.machine.journal import Journal, from_text, to_text
from roundtrip.machine.journal_bytes import MAX_JOURNAL_BYTES, pack, unpack
from roundtrip.machine.pins import Pinner

__all__ = [
    "MAX_TOKEN_BYTES",
    "JournalCodec",
    "KeyRing",
    "ParsedToken",
    "Sealer",
    "TokenCodec",
    "read_unverified",
]

MAX_TOKEN_BYTES: Final = 64 * 1024
MIN_KEY_BYTES: Final = 32

_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_PADDING_STEP: Final = 64
_LENGTH_BYTES: Final = 4
_HINT_BYTES: Final = 3
# 128 bits, as RFC 2104 allows and AES-GCM has.
_SIGNATURE_BYTES: Final = 16
_SIGNATURE_CHARS: Final = 22
_AROUND_BODY: Final = len("r3s0000..") + _SIGNATURE_CHARS
_ENCRYPTED: Final = b"r3e"
# The last character of a signature stands for two bits, and itsdangerous would not look at its other four.
_SPELLING: Final = re.compile(
    r"r3(?P<kind>[se])(?P<hint>[A-Za-z0-9_-]{4})\.(?P<body>[A-Za-z0-9_-]+)\.[A-Za-z0-9_-]{21}[AQgw]", re.ASCII
)

Entropy = Callable[[int], bytes]


class KeyRing:
    """The secrets of a server, newest first: the first signs and seals, all verify and open.

    Raises:
        ValueError: No key, one under 32 bytes, or one twice.
        TypeError: A key that is neither bytes nor text.
    """

    def __init__(self, keys: Sequence[bytes | bytearray | str]) -> None:
        if isinstance(cast("object", keys), bytes | bytearray | str):
            raise TypeError("keys= takes a list of keys, newest first: keys=[key], not keys=key")
        secrets: list[bytes] = []
        for position, key in enumerate(cast("Sequence[object]", keys)):
            if not isinstance(key, bytes | bytearray | str):
                raise TypeError(f"keys[{position}] must be bytes or str, not {type(key).__name__}")
            secret = key.encode() if isinstance(key, str) else bytes(key)
            if len(secret) < MIN_KEY_BYTES:
                raise ValueError(
                    f"keys[{position}] has {len(secret)} bytes; a key needs at least {MIN_KEY_BYTES} of secret "
                    'randomness. Make one with: python -c "import secrets; print(secrets.token_hex(32))"'
                )
            if secret in secrets:
                raise ValueError(f"keys[{position}] repeats an earlier key; list each key once, newest first")
            secrets.append(secret)
        if not secrets:
            raise ValueError("keys= is empty; leave it out for a key of this process alone, or list at least one")
        self._secrets = tuple(secrets)

    def derive(self, purpose: bytes) -> list[bytes]:
        """One subkey per secret for one purpose, newest first (HKDF-SHA-256)."""
        info = b"roundtrip/1/" + purpose
        return [HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(secret) for secret in self._secrets]

    def hints(self) -> list[str]:
        """What tokens say of the key that signed them, newest first: enough to know a key by, and nothing to use it."""
        return [to_text(subkey[:_HINT_BYTES]) for subkey in self.derive(b"hint")]


class Sealer:
    """Encrypts what the client may carry but not read (AES-256-GCM), padded so that its length tells little."""

    def __init__(self, ring: KeyRing, *, purpose: bytes, entropy: Entropy) -> None:
        self._ciphers = [AESGCM(key) for key in ring.derive(purpose)]
        self._entropy = entropy

    def seal(self, plain: bytes, bound_to: bytes) -> bytes:
        """Encrypt under the newest key; `bound_to` must be given again to open."""
        framed = len(plain).to_bytes(_LENGTH_BYTES, "big") + plain
        framed += b"\0" * (-len(framed) % _PADDING_STEP)
        nonce = self._entropy(_NONCE_BYTES)
        return nonce + self._ciphers[0].encrypt(nonce, framed, bound_to)

    @staticmethod
    def size_of(size: int) -> int:
        """How many bytes come of sealing that many."""
        return size + _LENGTH_BYTES + -(size + _LENGTH_BYTES) % _PADDING_STEP + _NONCE_BYTES + _TAG_BYTES

    def open(self, sealed: bytes, bound_to: bytes) -> bytes:
        """Decrypt with whichever key fits.

        Raises:
            TokenRejected: None does, or it was sealed for something else.
        """
        if len(sealed) < _NONCE_BYTES + _TAG_BYTES + _PADDING_STEP:
            raise TokenRejected(RejectionReason.SEAL)
        nonce, secret = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        for cipher in self._ciphers:
            try:
                framed = cipher.decrypt(nonce, secret, bound_to)
            except InvalidTag:
                continue
            length = int.from_bytes(framed[:_LENGTH_BYTES], "big")
            return framed[_LENGTH_BYTES : _LENGTH_BYTES + length]
        raise TokenRejected(RejectionReason.SEAL)


class ShortHmac(SigningAlgorithm):
    """The first half of HMAC-SHA-256, and without an object for each signature, which takes three times as long."""

    def get_signature(self, key: bytes, value: bytes) -> bytes:
        """The signature of a value."""
        return hmac.digest(key, value, "sha256")[:_SIGNATURE_BYTES]


def _left_to_the_codec(plain: bytes, bound_to: bytes) -> bytes:
    """Frame as a sealed part what the author's own codec protects, as on the SDK: a `request_state` of its author."""
    framed = len(plain).to_bytes(_LENGTH_BYTES, "big") + plain
    framed += b"\0" * (-len(framed) % _PADDING_STEP)
    return b"\0" * _NONCE_BYTES + framed + b"\0" * _TAG_BYTES


def _from_the_codec(sealed: bytes, bound_to: bytes) -> bytes:
    """Read what `_left_to_the_codec` has framed.

    Raises:
        ValueError: It was sealed with a key that is not here.
    """
    if sealed[:_NONCE_BYTES].strip(b"\0") or sealed[-_TAG_BYTES:].strip(b"\0"):
        raise ValueError("the journal has a sealed part, and there is no key to open it with")
    framed = sealed[_NONCE_BYTES:-_TAG_BYTES]
    length = int.from_bytes(framed[:_LENGTH_BYTES], "big")
    return framed[_LENGTH_BYTES : _LENGTH_BYTES + length]


class JournalCodec:
    """Writes journals as bytes, and reads them back, within a size limit. `pinner` makes the pins in them."""

    def __init__(
        self, sealer: Sealer | None, *, pinner: Pinner | None = None, max_bytes: int = MAX_JOURNAL_BYTES
    ) -> None:
        self.pinner = pinner if pinner is not None else Pinner()
        self._sealer = sealer
        self._max_bytes = max_bytes

    @property
    def can_seal(self) -> bool:
        """Whether there is a key for what the client must not read."""
        return self._sealer is not None

    def write(self, journal: Journal, *, deflate: bool = False) -> bytes:
        """The journal's bytes; deflated only where nothing will encrypt them.

        Raises:
            TokenTooLarge: It is over the limit.
            InvalidSignature: It holds what must be sealed, and there is no key to do that with.
        """
        if self._sealer is None and journal.computed:
            raise InvalidSignature(
                "a call has to keep something from the client's eyes (a step or a fallback), and "
                "request_state_security= gives no key for that; add seal_keys="
            )
        seal = self._sealer.seal if self._sealer is not None else _left_to_the_codec
        return pack(journal, seal, deflate=deflate, limit=self._max_bytes)

    def read(self, packed: bytes) -> Journal:
        """The journal of bytes whose token has been verified.

        Raises:
            TokenRejected: It is not a journal this version can read.
        """
        try:
            opened = self._sealer.open if self._sealer is not None else _from_the_codec
            return unpack(packed, opened, limit=self._max_bytes)
        except ValueError as error:
            raise TokenRejected(RejectionReason.FORMAT) from error


class TokenCodec:
    """Signs and verifies tokens: a codec as the SDK's `RequestStateSecurity` takes one.

    Args:
        ring: The server's keys.
        entropy: Where nonces come from, as `os.urandom`.
        encrypt: Encrypt the whole token, not only what the server computed.
        max_token_bytes: A longer token is neither minted nor looked at.
    """

    def __init__(
        self, ring: KeyRing, *, entropy: Entropy, encrypt: bool = False, max_token_bytes: int = MAX_TOKEN_BYTES
    ) -> None:
        subkeys, hints = ring.derive(b"sign"), ring.hints()
        self._head = f"r3{'e' if encrypt else 's'}{hints[0]}."
        self._signer = _signer(subkeys[:1])
        # Two keys may share a hint, if very rarely.
        self._signers = {
            hint: _signer([subkey for subkey, own in zip(subkeys, hints, strict=True) if own == hint]) for hint in hints
        }
        self._sealer = Sealer(ring, purpose=b"encrypt", entropy=entropy)
        self._encrypt = encrypt
        self._max_token_bytes = max_token_bytes

    @property
    def encrypts(self) -> bool:
        """Whether tokens are encrypted as a whole."""
        return self._encrypt

    def seal(self, payload: bytes) -> str:
        """The token of a payload.

        Raises:
            TokenTooLarge: It is over the limit; `check` says so before.
        """
        body = self._sealer.seal(payload, _ENCRYPTED) if self._encrypt else payload
        token = self._signer.sign(self._head + to_text(body)).decode()
        if len(token) > self._max_token_bytes:
            raise TokenTooLarge("token", size=len(token), limit=self._max_token_bytes, largest=())
        return token

    def check(self, journal: Journal, size: int) -> None:
        """Raise if the token of a payload of that size would be too large.

        Raises:
            TokenTooLarge: With the journal's largest entries.
        """
        if self._encrypt:
            size = self._sealer.size_of(size)
        size = _AROUND_BODY + (size * 4 + 2) // 3
        if size > self._max_token_bytes:
            raise TokenTooLarge("token", size=size, limit=self._max_token_bytes, largest=journal.sizes()[:3])

    def unseal(self, token: str) -> bytes:
        """The payload of a token.

        Raises:
            TokenRejected: The token is not, to the letter, one that a key of the ring has signed.
        """
        spelt = _spelt(token, limit=self._max_token_bytes)
        signer = self._signers.get(spelt["hint"])
        if signer is None:
            raise TokenRejected(RejectionReason.UNKNOWN_KEY)
        try:
            signer.unsign(token)
        except BadSignature:
            raise TokenRejected(RejectionReason.TAMPERED) from None
        body = _body(spelt)
        return self._sealer.open(body, _ENCRYPTED) if spelt["kind"] == "e" else body


@dataclass(frozen=True, slots=True)
class ParsedToken:
    """What the spelling of a token says, whoever wrote it. The payload is None where it is encrypted."""

    kind: str
    hint: str
    payload: bytes | None


def read_unverified(token: str) -> ParsedToken:
    """Take apart a token whose signature nobody has checked, to be shown and never acted on.

    Raises:
        TokenRejected: It is too long, or not spelt as a token.
    """
    spelt = _spelt(token, limit=MAX_TOKEN_BYTES)
    return ParsedToken(spelt["kind"], spelt["hint"], None if spelt["kind"] == "e" else _body(spelt))


def _spelt(token: str, *, limit: int) -> re.Match[str]:
    if len(token) > limit:
        raise TokenRejected(RejectionReason.OVERSIZED)
    spelt = _SPELLING.fullmatch(token)
    if spelt is None:
        raise TokenRejected(RejectionReason.MALFORMED)
    return spelt


def _body(spelt: re.Match[str]) -> bytes:
    try:
        return from_text(spelt["body"])
    except ValueError as error:
        raise TokenRejected(RejectionReason.FORMAT) from error


def _signer(subkeys: Sequence[bytes]) -> Signer:
    # itsdangerous signs with the last key of its list; ours has the newest first.
    return Signer(list(reversed(subkeys)), key_derivation="none", algorithm=ShortHmac(), sep=".")
