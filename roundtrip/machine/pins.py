"""Pins, which tie an answer to the exact question that the user saw.

A pin begins with a keyed digest of the call, the message and the form. Two plain bytes follow: one for the message and
one for the form. The keyed part decides whether an answer counts. The plain bytes only show whether the message or the
form changed, and what kind of question the pin belongs to. Without a key, the digest is longer, and only the call id
salts it.

`specs/token.md` shows that these lengths suffice.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

from roundtrip.machine.journal import to_text

MAC_BYTES: Final = 8
SALTED_BYTES: Final = 16
MARKS_BYTES: Final = 2
_LABEL_BYTES: Final = 6
_BLOCK_BYTES: Final = 64
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))


def digest(text: str) -> bytes:
    """Return the SHA-256 digest of a wording or a schema; `Pinner` makes pins from these digests."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def label_of(digested: bytes) -> str:
    """Return the first part of a digest as text, for use as a name. The name authenticates nothing."""
    return to_text(digested[:_LABEL_BYTES])


# Schema digests for questions that show no form.
PAGE: Final = digest("url")
LIST_ROOTS: Final = digest("ListRootsResult")
SAMPLE: Final = digest("CreateMessageResult")
SAMPLE_WITH_TOOLS: Final = digest("CreateMessageResultWithTools")

_FORMLESS: Final = {PAGE: 0, LIST_ROOTS: 1, SAMPLE: 2, SAMPLE_WITH_TOOLS: 3}
"""Schema marks for questions without a form."""
_LEAST_OF_FORMS: Final = 4
"""A form's mark is its digest's first byte, but at least this. Pins in flight have such marks, so one more question
without a form needs a new token format.
"""


class _Mac:
    """HMAC-SHA-256 with one key, truncated to a pin's length.

    Both key blocks are hashed once. `hmac.digest` would hash them again for each question on each leg.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        block = (key if len(key) <= _BLOCK_BYTES else hashlib.sha256(key).digest()).ljust(_BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha256(block.translate(_INNER))
        self._outer = hashlib.sha256(block.translate(_OUTER))

    def of(self, hashed: bytes) -> bytes:
        """Return the first bytes of an HMAC."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(hashed)
        outer.update(inner.digest())
        return outer.digest()[:MAC_BYTES]


class Pinner:
    """Makes pins with the newest key, and checks them with all keys."""

    __slots__ = ("_macs",)

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._macs = tuple(_Mac(key) for key in keys)

    @property
    def rotates(self) -> bool:
        """Return True if pins made with older keys are accepted."""
        return len(self._macs) > 1

    def pin(self, call: str, message: bytes, schema: bytes) -> bytes:
        """Return a question's pin, given the digests of its message and its schema."""
        hashed = _told(call, message, schema)
        # Without a key, the call id is the only protection against digests that were computed in advance, so the pin is
        # twice as long.
        digested = self._macs[0].of(hashed) if self._macs else _salted(hashed)
        return digested + bytes((message[0], _mark_of(schema)))

    def changes(self, pin: bytes, call: str, message: bytes, schema: bytes) -> tuple[str, ...]:
        """Return how a question differs from the pinned question; empty if they are the same.

        The result contains `message`, `schema` or both. It contains only `key` if the plain bytes show no difference
        and no current key makes this pin.
        """
        hashed = _told(call, message, schema)
        if not self._macs:
            if pin.startswith(_salted(hashed)):
                return ()
        elif any(pin.startswith(mac.of(hashed)) for mac in self._macs):
            return ()
        changed = ("message",) if pin[-2] != message[0] else ()
        if pin[-1] != _mark_of(schema):
            return (*changed, "schema")
        return changed or ("key",)


def is_page(pin: bytes) -> bool:
    """Return True if the pin belongs to a page."""
    return pin[-1] == _FORMLESS[PAGE]


def is_by_software(pin: bytes) -> bool:
    """Return True if the client's software answers the pinned question: a sample, or roots."""
    return _FORMLESS[PAGE] < pin[-1] < _LEAST_OF_FORMS


def may_use_tools(pin: bytes) -> bool:
    """Return True if the pin belongs to a sample whose answer may use tools."""
    return pin[-1] == _FORMLESS[SAMPLE_WITH_TOOLS]


def _mark_of(schema: bytes) -> int:
    mark = _FORMLESS.get(schema)
    return mark if mark is not None else max(schema[0], _LEAST_OF_FORMS)


def _told(call: str, message: bytes, schema: bytes) -> bytes:
    # Both digests have 32 bytes, so different arguments always give different bytes.
    return message + schema + call.encode("utf-8", "surrogatepass")


def _salted(hashed: bytes) -> bytes:
    return hashlib.sha256(hashed).digest()[:SALTED_BYTES]
