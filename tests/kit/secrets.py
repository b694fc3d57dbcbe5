"""Keys, entropy and payloads with fixed content, so that tests always get the same tokens."""

import base64
from itertools import count
from typing import Any, Final

from roundtrip.machine.journal import Action, Asked, Computed, Entry, Journal
from roundtrip.machine.journal_bytes import MAX_JOURNAL_BYTES
from roundtrip.machine.pins import Pinner, digest
from roundtrip.tokens.binding import audience_digest, pack_binding, principal_digest
from roundtrip.tokens.token import JournalCodec, KeyRing, Sealer, TokenCodec

OLD: Final = b"old key, thirty-two bytes long.."
NEW: Final = b"new key, thirty-two bytes long.."
OTHER: Final = b"a key that no server here knows."

BORN: Final = 1_700_000_000.0


def pin_of(message: str, schema: str = "schema", *, call: str = "call-1", key: bytes = NEW) -> bytes:
    """Return a question's pin as a server with this key makes it."""
    return Pinner(KeyRing([key]).derive(b"pin")).pin(call, digest(message), digest(schema))


class CountedEntropy:
    """Entropy that counts up, and records the sizes drawn."""

    def __init__(self) -> None:
        self._numbers = count()
        self.drawn: list[int] = []

    def __call__(self, size: int) -> bytes:
        self.drawn.append(size)
        return next(self._numbers).to_bytes(size, "big")


def codec(*keys: bytes, encrypt: bool = False, **limits: int) -> TokenCodec:
    return TokenCodec(KeyRing(keys or (NEW,)), entropy=CountedEntropy(), encrypt=encrypt, **limits)


def journals(*keys: bytes, max_bytes: int = MAX_JOURNAL_BYTES) -> JournalCodec:
    return JournalCodec(sealer(*keys), max_bytes=max_bytes)


def sealer(*keys: bytes) -> Sealer:
    return Sealer(KeyRing(keys or (NEW,)), purpose=b"seal", entropy=CountedEntropy())


def journal(*, answers: int = 1, chars: int = 10, computed: str | None = None, authored: str | None = None) -> Journal:
    """Return a journal with answers, an open question, and optionally a value to seal."""
    entries = {
        f"question_{number}": Entry(Action.ACCEPT, pin_of(str(number)), {"text": "a" * chars})
        for number in range(answers)
    }
    return Journal(
        "call-1",
        born=BORN,
        deadline=BORN + 600,
        end=BORN + 3600,
        leg=2,
        round=2,
        fingerprint="f00dab",
        build="b001",
        entries=entries,
        asked={"confirm": Asked(pin_of("message"), attempts=1)},
        computed={"quote": Computed(computed)} if computed is not None else {},
        authored=authored,
        written=BORN,
    )


def claims(
    *,
    method: str = "tools/call",
    tool: str = "order",
    arguments: Any = None,
    audience: str | None = None,
    principal: str | None = None,
    call: bytes = bytes(9),
) -> bytes:
    """Return the claims at the start of a payload."""
    named = {"uri": tool} if method == "resources/read" else {"name": tool, "arguments": arguments}
    bound = principal is not None
    claimed = pack_binding(method, named, audience=audience_digest(audience), call=call, bound=bound)
    return claimed if principal is None else claimed + principal_digest(principal, call)


def payload(what: Journal | bytes, *keys: bytes, deflate: bool = True, **claimed: Any) -> bytes:
    """Return a payload as the boundary passes it to a codec: the claims, and a journal or other bytes."""
    packed = what if isinstance(what, bytes) else journals(*keys).write(what, deflate=deflate)
    return claims(**claimed) + packed


def decode(part: str) -> bytes:
    """Decode part of a token, as any client can."""
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
