"""The codec between a journal and the `request_state` token: signing, sealing, packing, key rotation.

A token is ASCII text of three or four parts between dots:

    r1<kind><hint> . body [ . sealed ] . signature

`hint` is four characters that say which key signed; tokens older than hints have none. `body` is base64url of the
packed envelope (`p` plain, `z` deflated, `e` encrypted, `x` any other payload). `sealed` is the journal's sealed part,
which is kept apart because encrypted bytes neither compress nor should be encoded twice. `signature` is itsdangerous'
HMAC-SHA-256 over all before it. Everything is verified before anything is decoded, and a token has exactly one
spelling.

`specs/token.md` has the bytes, the claims and the threats; `specs/vectors/` tokens that must decode for ever.
"""

import hmac
import json
import re
import zlib
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
from roundtrip.machine.journal import Journal, from_text, split_sealed, to_text

__all__ = [
    "MAX_JOURNAL_BYTES",
    "MAX_TOKEN_BYTES",
    "JournalCodec",
    "KeyRing",
    "Sealer",
    "SpeltToken",
    "TokenCodec",
    "read_unverified",
    "take_apart",
]

MAX_TOKEN_BYTES: Final = 64 * 1024
MAX_JOURNAL_BYTES: Final = 256 * 1024
MIN_KEY_BYTES: Final = 32

_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_PADDING_STEP: Final = 64
_LENGTH_BYTES: Final = 4
_HINT_BYTES: Final = 3
# What the envelope around the journal (names, digests, times) may take besides.
_ENVELOPE_ROOM: Final = 64 * 1024
# Below this, deflating costs more time than the bytes it saves are worth.
_DEFLATE_FROM: Final = 256
# itsdangerous decodes leniently: it ignores two bits of a signature's last character. Ours never sets them.
_SPELLING: Final = re.compile(
    r"r1(?P<kind>[pzex])(?P<hint>[A-Za-z0-9_-]{4})?\.(?P<body>[A-Za-z0-9_-]*)(?:\.(?P<sealed>[A-Za-z0-9_-]+))?"
    r"\.[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]",
    re.ASCII,
)
_SEALED: Final = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_NUMBER: Final = r"[0-9.e+-]+"
_TEXT: Final = r'"[ !#-\[\]-~]*(?:\\[ -~][ !#-\[\]-~]*)*"'
# The envelope as the SDK's boundary writes it, with its JSON left as it stands.
_ENVELOPE: Final = re.compile(
    rf'\{{"v":1,"iat":(?P<iat>{_NUMBER}),"exp":(?P<exp>{_NUMBER}),"m":(?P<m>{_TEXT}),"t":(?P<t>{_TEXT}),'
    rf'"a":(?P<a>{_TEXT}),"s":(?P<s>{_TEXT})(?:,"aud":(?P<aud>{_TEXT}))?(?:,"p":(?P<p>{_TEXT}))?\}}',
    re.ASCII,
)
_HEAD: Final = ("iat", "exp", "m", "t", "a", "aud", "p")

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


class OneShotHmac(SigningAlgorithm):
    """itsdangerous' HMAC-SHA-256 without an object for each signature, which takes three times as long."""

    def get_signature(self, key: bytes, value: bytes) -> bytes:
        """The signature of a value."""
        return hmac.digest(key, value, "sha256")


class JournalCodec:
    """Writes journals as the text the SDK's boundary wraps, and reads them back, within a size limit."""

    def __init__(self, sealer: Sealer | None, *, max_bytes: int = MAX_JOURNAL_BYTES) -> None:
        self._sealer = sealer
        self._max_bytes = max_bytes

    @property
    def can_seal(self) -> bool:
        """Whether there is a key for what the client must not read."""
        return self._sealer is not None

    def write(self, journal: Journal) -> str:
        """The journal's text.

        Raises:
            TokenTooLarge: It is over the limit.
            InvalidSignature: It holds what must be sealed, and there is no key to do that with.
        """
        if self._sealer is None and journal.has_secrets:
            raise InvalidSignature(
                "a call has to keep something from the client's eyes (a step, a fallback, or a request_state of its "
                "author), and request_state_security= gives no key for that; add seal_keys="
            )
        text = journal.encode(self._sealer.seal if self._sealer is not None else None)
        if len(text) > self._max_bytes:
            raise TokenTooLarge("memory", size=len(text), limit=self._max_bytes, largest=journal.sizes()[:3])
        return text

    def read(self, text: str) -> Journal:
        """The journal of a text whose token has been verified.

        Raises:
            TokenRejected: It is not a journal this version can read.
        """
        try:
            return Journal.decode(text, self._sealer.open if self._sealer is not None else None)
        except ValueError as error:
            raise TokenRejected(RejectionReason.FORMAT) from error


class TokenCodec:
    """Signs and verifies tokens: the codec to give to the SDK's `RequestStateSecurity`.

    Args:
        ring: The server's keys.
        entropy: Where nonces come from, as `os.urandom`.
        encrypt: Encrypt the whole token, not only what the server computed.
        max_token_bytes: A longer token is neither minted nor looked at.
        max_payload_bytes: What a token may inflate to.
    """

    def __init__(
        self,
        ring: KeyRing,
        *,
        entropy: Entropy,
        encrypt: bool = False,
        max_token_bytes: int = MAX_TOKEN_BYTES,
        max_payload_bytes: int = MAX_JOURNAL_BYTES,
    ) -> None:
        subkeys, hints = ring.derive(b"sign"), ring.hints()
        self._hint = hints[0]
        self._signer = _signer(subkeys)
        # Two keys may share a hint, if very rarely.
        self._signers = {
            hint: _signer([subkey for subkey, own in zip(subkeys, hints, strict=True) if own == hint]) for hint in hints
        }
        self._sealer = Sealer(ring, purpose=b"encrypt", entropy=entropy)
        self._encrypt = encrypt
        self._max_token_bytes = max_token_bytes
        self._max_payload_bytes = max_payload_bytes + _ENVELOPE_ROOM

    def seal(self, payload: bytes) -> str:
        """The token of a payload.

        Raises:
            TokenTooLarge: It is over the limit. Inside the boundary that would become an internal error, so check
                with `fits` before.
        """
        token = self._sign(payload)
        if len(token) > self._max_token_bytes:
            raise TokenTooLarge("token", size=len(token), limit=self._max_token_bytes, largest=())
        return token

    def check(self, journal: Journal, text: str, *, margin: int) -> None:
        """Raise before the boundary does if a journal's token would be too large.

        `margin` is what the envelope will add to the text (names, digests, times).

        Raises:
            TokenTooLarge: With the journal's largest entries.
        """
        # Two thirds: base64 adds a third, and what is shorter fits without a closer look.
        if (len(text) + margin) * 3 < self._max_token_bytes * 2:
            return
        stand_in = f'{{"v":1,"iat":0,"exp":0,"m":"","t":"","a":"","s":{_escape(text)}}}'
        size = len(self._sign(stand_in.encode())) + margin * 4 // 3
        if size > self._max_token_bytes:
            raise TokenTooLarge("token", size=size, limit=self._max_token_bytes, largest=journal.sizes()[:3])

    def unseal(self, token: str) -> bytes:
        """The payload of a token.

        Raises:
            TokenRejected: The token is not, to the letter, one that a key of the ring has signed.
        """
        spelt = _spelt(token, limit=self._max_token_bytes)
        hint = spelt["hint"]
        signer = self._signer if hint is None else self._signers.get(hint)
        if signer is None:
            raise TokenRejected(RejectionReason.UNKNOWN_KEY)
        try:
            signer.unsign(token.encode())
        except BadSignature:
            raise TokenRejected(RejectionReason.TAMPERED) from None
        try:
            return self._unpack(spelt)
        except (ValueError, zlib.error) as error:
            raise TokenRejected(RejectionReason.FORMAT) from error

    def _sign(self, payload: bytes) -> str:
        return self._signer.sign(self._pack(payload)).decode()

    def _pack(self, payload: bytes) -> str:
        if self._encrypt:
            return f"r1e{self._hint}.{to_text(self._sealer.seal(payload, b'r1e'))}"
        packed = _pack_envelope(payload)
        if packed is None:
            return f"r1x{self._hint}.{to_text(payload)}"
        body, sealed = packed
        if len(body) >= _DEFLATE_FROM:
            deflated = _deflate(body)
            if len(deflated) < len(body):
                return f"r1z{self._hint}.{to_text(deflated)}{sealed}"
        return f"r1p{self._hint}.{to_text(body)}{sealed}"

    def _unpack(self, spelt: re.Match[str]) -> bytes:
        if spelt["kind"] == "e":
            return self._sealer.open(from_text(spelt["body"]), b"r1e")
        return _read_open(spelt, limit=self._max_payload_bytes)


@dataclass(frozen=True, slots=True)
class SpeltToken:
    """The parts of a token as they stand there, none of them verified. `hint` is empty on tokens older than hints."""

    kind: str
    hint: str
    sealed: str


def take_apart(token: str) -> SpeltToken:
    """What the spelling of a token says, whoever wrote it.

    Raises:
        TokenRejected: It is too long, or not spelt as a token.
    """
    spelt = _spelt(token, limit=MAX_TOKEN_BYTES)
    return SpeltToken(spelt["kind"], spelt["hint"] or "", spelt["sealed"] or "")


def read_unverified(token: str) -> bytes | None:
    """The payload of a token whose signature nobody has checked, to be shown and never acted on; None if encrypted.

    Raises:
        TokenRejected: It is not spelt as a token, or holds or inflates to what no token holds.
    """
    spelt = _spelt(token, limit=MAX_TOKEN_BYTES)
    if spelt["kind"] == "e":
        return None
    try:
        return _read_open(spelt, limit=MAX_JOURNAL_BYTES + _ENVELOPE_ROOM)
    except (ValueError, zlib.error) as error:
        raise TokenRejected(RejectionReason.FORMAT) from error


def _spelt(token: str, *, limit: int) -> re.Match[str]:
    if len(token) > limit:
        raise TokenRejected(RejectionReason.OVERSIZED)
    spelt = _SPELLING.fullmatch(token)
    if spelt is None:
        raise TokenRejected(RejectionReason.MALFORMED)
    return spelt


def _read_open(spelt: re.Match[str], *, limit: int) -> bytes:
    raw = from_text(spelt["body"])
    if spelt["kind"] == "x":
        return raw
    if spelt["kind"] == "z":
        raw = _inflate(raw, limit=limit)
    return _unpack_envelope(raw, spelt["sealed"] or "")


def _signer(subkeys: Sequence[bytes]) -> Signer:
    # itsdangerous signs with the last key of its list; ours has the newest first.
    return Signer(list(reversed(subkeys)), key_derivation="none", algorithm=OneShotHmac(), sep=".")


def _pack_envelope(payload: bytes) -> tuple[bytes, str] | None:
    """The boundary's envelope by position with the journal beside it, or None if the payload is anything else.

    The claims stay in the JSON spelling they have: only the journal, which is JSON within JSON, is unescaped.
    """
    envelope = _ENVELOPE.fullmatch(payload.decode("ascii", "replace"))
    if envelope is None:
        return None
    state = envelope["s"]
    try:
        text = cast("str", json.loads(state))
    except ValueError:
        return None
    # Unpacking must give the very bytes back, and it escapes as the boundary does.
    if not text.isascii() or _escape(text) != state:
        return None
    head = [envelope[name] or "" for name in _HEAD]
    open_part, _, sealed = split_sealed(text)
    if _SEALED.fullmatch(sealed) is None or text != f"{open_part}~{sealed}":
        open_part, sealed = text, ""
    return "\n".join([*head, open_part]).encode(), "." + sealed if sealed else ""


def _unpack_envelope(body: bytes, sealed: str) -> bytes:
    iat, exp, method, target, arguments, audience, principal, text = body.decode("ascii").split("\n", len(_HEAD))
    state = _escape(f"{text}~{sealed}" if sealed else text)
    claims = f'{{"v":1,"iat":{iat},"exp":{exp},"m":{method},"t":{target},"a":{arguments},"s":{state}'
    claims += f',"aud":{audience}' if audience else ""
    claims += f',"p":{principal}' if principal else ""
    return (claims + "}").encode()


_escape: Final[Callable[[str], str]] = json.JSONEncoder().encode


def _deflate(raw: bytes) -> bytes:
    packer = zlib.compressobj(level=6, wbits=-zlib.MAX_WBITS)
    return packer.compress(raw) + packer.flush()


def _inflate(raw: bytes, *, limit: int) -> bytes:
    unpacker = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    plain = unpacker.decompress(raw, limit)
    if not unpacker.eof or unpacker.unconsumed_tail or unpacker.unused_data:
        raise TokenRejected(RejectionReason.OVERSIZED)
    return plain
