"""Attacks on tokens: changed, truncated and forged request states and task ids."""

import base64
import binascii
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final, cast

from roundtrip.testing.attacks.requests import other_values

_MAX_FORGED: Final = 24
_MAX_INFLATED_BYTES: Final = 1_000_000

_Encode = Callable[[bytes], str]


def tampered(token: str) -> Iterator[tuple[str, str]]:
    """Yield changed tokens, each with a description."""
    middle = len(token) // 2
    yield "its first character changed", flip(token[0]) + token[1:]
    yield "a character in its middle changed", token[:middle] + flip(token[middle]) + token[middle + 1 :]
    yield "its last character changed", token[:-1] + flip(token[-1])
    yield from truncated(token)
    yield "padding at its end", f"{token}="
    yield "foreign characters at its end", f"{token}!!!!"
    yield "a line break at its end", f"{token}\n"
    yield "its letters in the other case", token.swapcase()
    yield "itself twice", token * 2
    yield "nothing but letters", "A" * len(token)
    yield "characters beyond ASCII", f"{token}\N{SNOWMAN}"


def truncated(token: str) -> Iterator[tuple[str, str]]:
    """Yield shortened tokens, each with a description."""
    yield "its last character missing", token[:-1]
    yield "its first character missing", token[1:]
    yield "its second half missing", token[: len(token) // 2]


def forged(token: str) -> Iterator[tuple[str, str]]:
    """Yield forged tokens. Each is a copy with one changed value, which is encoded like the original value.

    An encrypted token cannot be forged in this way. Signed parts keep their old signature, which does not match the
    changed value. Only a server that does not verify signatures accepts such a token.
    """
    yield from islice(_forge(token), _MAX_FORGED)


def _forge(token: str) -> Iterator[tuple[str, str]]:
    whole = _decode(token)
    segments = [token] if whole is not None else token.split(".")
    for index, segment in enumerate(segments):
        if (decoded := whole or _decode(segment)) is None:
            continue
        value, encode = decoded
        if isinstance(value, Mapping) and "alg" in value and len(segments) == 3:
            unsigned = encode(json.dumps({**cast("Mapping[str, Any]", value), "alg": "none"}).encode())
            yield "no signature, as its header says", ".".join([unsigned, segments[1], ""])
            continue
        for path, other in _change_values(value):
            forgery = encode(json.dumps(other, separators=(",", ":")).encode())
            yield f"{path or 'its value'} rewritten", ".".join([*segments[:index], forgery, *segments[index + 1 :]])


def _decode(segment: str) -> tuple[Any, _Encode] | None:
    """Return a segment's JSON data, and a function that encodes bytes as the segment is encoded. Return None if the
    segment has no JSON data.
    """
    for decode, encode in _ENCODINGS:
        try:
            raw = decode(segment)
        except (binascii.Error, ValueError):
            continue
        for inflate, deflate in _COMPRESSIONS:
            try:
                value: object = json.loads(inflate(raw))
            except (zlib.error, ValueError, RecursionError):
                continue
            # Accept only objects and arrays, because bare digits also parse as JSON.
            if isinstance(value, Mapping | list):
                return cast("Any", value), _compose(encode, deflate)
    return None


def _compose(encode: _Encode, deflate: Callable[[bytes], bytes]) -> _Encode:
    return lambda raw: encode(deflate(raw))


def _change_values(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield copies of JSON data in which one value is changed, each with the path of that value."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        for name, item in fields.items():
            yield from (
                (where, {**fields, name: other}) for where, other in _change_values(item, f"{path}.{name}".strip("."))
            )
    elif isinstance(value, list):
        items = cast("list[Any]", value)
        for index, item in enumerate(items):
            changed = _change_values(item, f"{path}[{index}]")
            yield from ((where, [*items[:index], other, *items[index + 1 :]]) for where, other in changed)
    elif value is not None:
        yield from ((path, other) for other in other_values(value)[:1])


def _from_base64(text: str, altchars: bytes = b"+/") -> bytes:
    return base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars, validate=True)


_ENCODINGS: Final[tuple[tuple[Callable[[str], bytes], _Encode], ...]] = (
    (str.encode, bytes.decode),
    (bytes.fromhex, bytes.hex),
    (partial(_from_base64, altchars=b"-_"), lambda raw: base64.urlsafe_b64encode(raw).decode().rstrip("=")),
    (_from_base64, lambda raw: base64.b64encode(raw).decode()),
)
_COMPRESSIONS: Final[tuple[tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]], ...]] = (
    (lambda raw: raw, lambda raw: raw),
    (lambda raw: zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(raw, _MAX_INFLATED_BYTES), zlib.compress),
)


def flip(character: str) -> str:
    """Replace a base64 character with a neighbor. In a token's last character, the changed bit may have no meaning."""
    return {"A": "B", "_": "-", "-": "_", "9": "8", "z": "y", "Z": "Y"}.get(character, chr(ord(character) ^ 1))
