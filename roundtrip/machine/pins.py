"""Provide pins, which tie an answer to the exact question that it was given to.

A pin is a keyed digest of the call, the message and the form, and one plain byte each of message and form. The keyed
part decides if an answer counts. The plain bytes only show which of the two changed, and the kind of question. Without
a key the digest is longer, and salted with the call's id alone.

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
    """Return the SHA-256 of a wording or a schema, from which `Pinner` makes a pin."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def label_of(digested: bytes) -> str:
    """Return the beginning of a digest as text, for use as a name. It authenticates nothing."""
    return to_text(digested[:_LABEL_BYTES])


# The schemas of questions that show no form.
PAGE: Final = digest("url")
LIST_ROOTS: Final = digest("ListRootsResult")
SAMPLE: Final = digest("CreateMessageResult")
SAMPLE_WITH_TOOLS: Final = digest("CreateMessageResultWithTools")

_FORMLESS: Final = {PAGE: 0, LIST_ROOTS: 1, SAMPLE: 2, SAMPLE_WITH_TOOLS: 3}
"""Their marks. A form's mark is the first byte of its digest, and at least 4."""
_LEAST_OF_FORMS: Final = len(_FORMLESS)


class _Mac:
    """HMAC-SHA-256 under one key, truncated to a pin's length.

    Both blocks of the key are hashed once. `hmac.digest` hashes them each time, for each question of each leg.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, key: bytes) -> None:
        block = (key if len(key) <= _BLOCK_BYTES else hashlib.sha256(key).digest()).ljust(_BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha256(block.translate(_INNER))
        self._outer = hashlib.sha256(block.translate(_OUTER))

    def of(self, told: bytes) -> bytes:
        """Return the beginning of the HMAC of some bytes."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(told)
        outer.update(inner.digest())
        return outer.digest()[:MAC_BYTES]


class Pinner:
    """Makes pins with the newest of some keys, and checks them with all."""

    __slots__ = ("_macs",)

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._macs = tuple(_Mac(key) for key in keys)

    @property
    def rotates(self) -> bool:
        """Return True if pins of other keys than the newest are accepted."""
        return len(self._macs) > 1

    def pin(self, call: str, message: bytes, schema: bytes) -> bytes:
        """Return the pin of a question, given the digests of its message and its schema."""
        told = _told(call, message, schema)
        # Without a key, only the salt prevents a search made in advance, so the pin has twice the length.
        digested = self._macs[0].of(told) if self._macs else _salted(told)
        return digested + bytes((message[0], _mark_of(schema)))

    def changes(self, pin: bytes, call: str, message: bytes, schema: bytes) -> tuple[str, ...]:
        """Return the differences between a question and the pinned one; none if they are the same.

        They are `message`, `schema`, or `key` alone: no key makes this pin, and it shows no other difference.
        """
        told = _told(call, message, schema)
        if not self._macs:
            if pin.startswith(_salted(told)):
                return ()
        elif any(pin.startswith(mac.of(told)) for mac in self._macs):
            return ()
        changed = ("message",) if pin[-2] != message[0] else ()
        if pin[-1] != _mark_of(schema):
            return (*changed, "schema")
        return changed or ("key",)


def is_page(pin: bytes) -> bool:
    """Return True for the pin of a page."""
    return pin[-1] == _FORMLESS[PAGE]


def is_by_software(pin: bytes) -> bool:
    """Return True for the pin of a question that the client's software answers: a sample, or roots."""
    return _FORMLESS[PAGE] < pin[-1] < _LEAST_OF_FORMS


def may_use_tools(pin: bytes) -> bool:
    """Return True for the pin of a sample whose answer may use tools."""
    return pin[-1] == _FORMLESS[SAMPLE_WITH_TOOLS]


def _mark_of(schema: bytes) -> int:
    mark = _FORMLESS.get(schema)
    return mark if mark is not None else max(schema[0], _LEAST_OF_FORMS)


def _told(call: str, message: bytes, schema: bytes) -> bytes:
    # Both digests are 32 bytes, so no two triples give the same bytes.
    return message + schema + call.encode("utf-8", "surrogatepass")


def _salted(told: bytes) -> bytes:
    return hashlib.sha256(told).digest()[:SALTED_BYTES]
