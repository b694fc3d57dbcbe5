"""Keys, entropy and envelopes of fixed content, so that tokens in tests are always the same."""

import base64
import json
from itertools import count
from typing import Any, Final

from roundtrip.machine.journal import Action, Asked, Computed, Entry, Journal, digest
from roundtrip.tokens import JournalCodec, KeyRing, Sealer, TokenCodec

OLD: Final = b"old key, thirty-two bytes long.."
NEW: Final = b"new key, thirty-two bytes long.."
OTHER: Final = b"a key that no server here knows."

BORN: Final = 1_700_000_000.0


class CountedEntropy:
    """Bytes that count up, and how many were drawn."""

    def __init__(self) -> None:
        self._numbers = count()
        self.drawn: list[int] = []

    def __call__(self, size: int) -> bytes:
        self.drawn.append(size)
        return next(self._numbers).to_bytes(size, "big")


def codec(*keys: bytes, encrypt: bool = False, **limits: int) -> TokenCodec:
    return TokenCodec(KeyRing(keys or (NEW,)), entropy=CountedEntropy(), encrypt=encrypt, **limits)


def journals(*keys: bytes, **limits: int) -> JournalCodec:
    return JournalCodec(sealer(*keys), **limits)


def sealer(*keys: bytes) -> Sealer:
    return Sealer(KeyRing(keys or (NEW,)), purpose=b"seal", entropy=CountedEntropy())


def journal(*, answers: int = 1, chars: int = 10, computed: str | None = None, authored: str | None = None) -> Journal:
    """A journal with some answers, an open question, and optionally something to seal."""
    entries = {
        f"question_{number}": Entry(Action.ACCEPT, digest(str(number)), digest("schema"), {"text": "a" * chars})
        for number in range(answers)
    }
    return Journal(
        "call-1",
        born=BORN,
        deadline=BORN + 600,
        leg=2,
        round=2,
        fingerprint="f00d",
        build="b001",
        entries=entries,
        asked={"confirm": Asked(digest("message"), digest("schema"), attempts=1)},
        computed={"quote": Computed(computed)} if computed is not None else {},
        authored=authored,
    )


def envelope(state: str, **extra: Any) -> bytes:
    """What the SDK's boundary hands to a codec."""
    claims = {"v": 1, "iat": BORN, "exp": BORN + 600, "m": "tools/call", "t": "order", "a": "digest", "s": state}
    return json.dumps({**claims, **extra}, separators=(",", ":")).encode()


def decoded(part: str) -> bytes:
    """A part of a token, as anybody can read it."""
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
