"""Functions that read tokens without a key, through several layers of encoding."""

import base64
import binascii
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from roundtrip.errors import TokenRejected
from roundtrip.machine.journal import to_json
from roundtrip.machine.journal_bytes import unpack_open
from roundtrip.tokens.binding import read_binding
from roundtrip.tokens.token import read_unverified
from roundtrip.untrusted import leaves_of

_MAX_LAYERS: Final = 4
_MAX_READINGS: Final = 2000
_MAX_INFLATED_BYTES: Final = 1_000_000
_MAX_HEADER_BYTES: Final = 5
_ZLIB_OR_GZIP_WBITS: Final = 32
_BASE64: Final = re.compile(rb"[A-Za-z0-9+/_-]{8,}")
_HEXADECIMAL: Final = re.compile(rb"[0-9A-Fa-f]{8,}")


def readable_in(token: str, secrets: Iterable[str]) -> list[str]:
    """Return the secrets that can be read in a token without its key."""
    readable = list(readings(token))
    return [
        secret
        for secret in secrets
        if any(spelling in reading for reading in readable for spelling in _spellings(secret))
    ]


def _spellings(text: str) -> tuple[bytes, ...]:
    return text.encode(), json.dumps(text)[1:-1].encode()


def texts_in(values: object) -> Iterator[str]:
    """Yield the texts and numbers in JSON data, as text."""
    leaves = (leaf for _, leaf in leaves_of(values))
    return (str(leaf) for leaf in leaves if isinstance(leaf, str | int | float) and not isinstance(leaf, bool))


def readings(token: str) -> Iterator[bytes]:
    """Decode a token without a key, through several layers, and yield every byte string that is found."""
    yield from _open_text(token)
    read, layer = {token.encode()}, {token.encode()}
    for _ in range(_MAX_LAYERS):
        layer = {inner for outer in layer for inner in _unpack(outer)} - read
        read |= layer
        if len(read) > _MAX_READINGS:
            break
    yield from read


def _open_text(token: str) -> Iterator[bytes]:
    """Yield a roundtrip token's unsealed text. The token's middle part may be compressed."""
    try:
        payload = read_unverified(token).payload
        if payload is None:
            return
        _, size = read_binding(payload)
        journal, _ = unpack_open(payload[size:])
    except (TokenRejected, ValueError):
        return
    answers = {key: entry.data for key, entry in journal.entries.items()}
    yield to_json([answers, *journal.asked, journal.version, journal.build, journal.call_id])


def _unpack(packed: bytes) -> Iterator[bytes]:
    for run in _BASE64.findall(packed):
        # Other characters may precede the base64 text.
        for start in range(4):
            text = run[start:]
            try:
                # Python ignores excess padding. If the last group of four has only one character, drop the character,
                # because it encodes nothing.
                yield base64.urlsafe_b64decode((text[:-1] if len(text) % 4 == 1 else text) + b"===")
            except binascii.Error:
                continue
    for run in _HEXADECIMAL.findall(packed):
        yield bytes.fromhex(run[: len(run) // 2 * 2].decode())
    for start in range(_MAX_HEADER_BYTES):
        for bits in (zlib.MAX_WBITS | _ZLIB_OR_GZIP_WBITS, -zlib.MAX_WBITS):
            try:
                yield zlib.decompressobj(bits).decompress(packed[start:], _MAX_INFLATED_BYTES)
            except zlib.error:
                continue
