"""Pack and unpack journals: a fixed head, question pins, names and answers, and a sealed part.

The bytes travel inside the signed token. Only the sealed part needs a key, so callers pass a function that seals it and
a function that opens it. `specs/token.md` describes every byte. The reader keeps answers to questions that this build
does not know, because a rolling deploy needs these answers. Otherwise the reader is strict: bytes in any other shape
raise `ValueError`.
"""

import base64
import json
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, Final, cast

from roundtrip.errors import RejectionReason, TokenRejected, TokenTooLarge
from roundtrip.machine.journal import Action, Asked, Chain, Computed, Entry, Journal, to_json, to_text
from roundtrip.machine.pins import MAC_BYTES, MARKS_BYTES, SALTED_BYTES

FORMAT: Final = 3
"""Binary format version of a journal without an intent."""

INTENT_FORMAT: Final = 4
"""Binary format version of a journal with an intent. Release 0.2.0 rejects this version, because 0.2.0 would run the
body under the call's own claim.
"""

_FORMATS: Final = (FORMAT, INTENT_FORMAT)
"""Bytes in any other version are rejected."""

MAX_JOURNAL_BYTES: Final = 256 * 1024
"""Default size limit for a journal before deflating."""

_HEAD: Final = struct.Struct(">B6sIIIBB9s3s3sH")
"""Format and flags, born, written, deadline, end, leg, round, call, plan, build, number of pins."""
_FORMAT_SHIFT: Final = 4
_DEFLATED: Final = 1
_SEALED: Final = 2
_LINKED: Final = 4
_ALIKE: Final = 8
"""Flag: all pins share one schema mark."""
_FLAG_BITS: Final = 0x0F

_MOST_MILLISECONDS: Final = 0xFFFF_FFFF
_MOST_COUNTED: Final = 0xFF
_MOST_PINS: Final = 0x7FFF
_SALTED: Final = 0x8000
"""Flag in the pin count: the pins were made without a key, so they are longer."""
_BORN_BYTES: Final = 6
_CALL_AT: Final = 21
_CALL_BYTES: Final = 9
_SHORT_BYTES: Final = 3
_LINK_BYTES: Final = 25
_BLOCKS_BYTES: Final = 2
_BLOCK: Final = 64
_AROUND_BLOCKS: Final = 28
"""Size of the sealed part's nonce and tag."""

# Deflating a shorter text saves nothing.
_DEFLATE_FROM: Final = 64
# Up to this size, use a small compressor. A full-size compressor first clears 256 KiB, which takes longer than
# deflating a short text.
_SHORT: Final = 4096

_CALL: Final = re.compile(r"[A-Za-z0-9_-]{12}", re.ASCII)
_HEX: Final = re.compile(r"[0-9a-f]{6}", re.ASCII)
_TRACEPARENT: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)
"""W3C Trace Context header, version 0."""

Seal = Callable[[bytes, bytes], bytes]
"""A function that seals or opens bytes and pads them to whole blocks. Opening needs the same second argument as
sealing.
"""


def pack(journal: Journal, seal: Seal | None = None, *, deflate: bool = False, limit: int = MAX_JOURNAL_BYTES) -> bytes:
    """Return a journal's binary form.

    Args:
        journal: The journal.
        seal: Seals the values that the client must not read.
        deflate: Deflate names and answers. Pass False if they are encrypted later, because a deflated text's length
            reveals some of its content.
        limit: The largest size before deflating.

    Raises:
        ValueError: There are values to seal, but there is no `seal`.
        TokenTooLarge: The journal exceeds the limit.
    """
    odd: dict[str, Any] = {}
    # Times are whole milliseconds. The birth time is rounded to the nearest millisecond, because each leg writes it
    # again and it must not drift. Deadlines are rounded down.
    born = round(journal.born * 1000)
    # The write time is also rounded down. If it were rounded up, another server might reject it as a future time.
    written, span = max(0, int(journal.written * 1000) - born), max(0, int(journal.deadline * 1000) - born)
    # The end time must not drift either, because each leg writes it again.
    whole = max(0, round(journal.end * 1000) - born)
    if max(written, span, whole) > _MOST_MILLISECONDS:
        odd["spans"], written, span, whole = [written, span, whole], 0, 0, 0
    leg, round_ = journal.leg, journal.round
    if leg > _MOST_COUNTED or round_ > _MOST_COUNTED:
        odd["counts"], leg, round_ = [leg, round_], 0, 0
    call = bytes(_CALL_BYTES)
    if _CALL.fullmatch(journal.call_id) is not None:
        call = base64.urlsafe_b64decode(journal.call_id)
    else:
        odd["call"] = journal.call_id
    plan, build = _pack_hex("plan", journal.fingerprint, odd), _pack_hex("build", journal.build, odd)

    pinned = [*journal.entries.values(), *journal.asked.values()]
    pins, count, alike = _pack_pins([one.pin for one in pinned])
    text = _pack_text(journal, odd)
    version = INTENT_FORMAT if journal.chain else FORMAT
    flags, link, blocks, sealed = version << _FORMAT_SHIFT | (_ALIKE if alike else 0), b"", b"", b""
    if journal.traceparent is not None:
        flags |= _LINKED
        link = bytes.fromhex(journal.traceparent.replace("-", ""))[1:]
    if journal.computed or journal.authored is not None:
        flags |= _SEALED
        sealed = _pack_sealed(journal, seal)
        blocks = ((len(sealed) - _AROUND_BLOCKS) // _BLOCK).to_bytes(_BLOCKS_BYTES, "big")
    size = _HEAD.size + len(link) + len(blocks) + len(pins) + len(text) + len(sealed)
    if size > limit or len(pinned) > _MOST_PINS:
        raise TokenTooLarge("memory", size=size, limit=limit, largest=journal.sizes()[:3])
    if deflate and len(text) >= _DEFLATE_FROM:
        deflated = _deflate(text)
        if len(deflated) < len(text):
            flags, text = flags | _DEFLATED, deflated
    head = _HEAD.pack(
        flags, born.to_bytes(_BORN_BYTES, "big"), written, span, whole, leg, round_, call, plan, build, count
    )
    return b"".join((head, link, blocks, pins, text, sealed))


def _pack_hex(name: str, text: str, odd: dict[str, Any]) -> bytes:
    """Return a short hexadecimal text as bytes. For any other text, return zeros, and put the text into `odd`, the
    rarely used fields.
    """
    if _HEX.fullmatch(text) is not None:
        return bytes.fromhex(text)
    odd[name] = text
    return bytes(_SHORT_BYTES)


def _pack_pins(pins: Sequence[bytes]) -> tuple[bytes, int, bool]:
    """Return the packed pins: all keyed parts, then the message marks, then the schema marks.

    If all schema marks are the same, only one is written.
    """
    count, size = len(pins), MAC_BYTES
    if not pins:
        return b"", 0, False
    if any(len(pin) > MAC_BYTES + MARKS_BYTES for pin in pins):
        # If some pins were made without a key, pad the pins that were made with one. This happens only when a server
        # gets its first key or loses its last.
        count, size = count | _SALTED, SALTED_BYTES
    macs = b"".join([pin[:-MARKS_BYTES].ljust(size, b"\0") for pin in pins])
    schemas = bytes([pin[-1] for pin in pins])
    alike = schemas.count(schemas[0]) == len(schemas)
    return b"".join((macs, bytes([pin[-2] for pin in pins]), schemas[:1] if alike else schemas)), count, alike


def _pack_text(journal: Journal, odd: dict[str, Any]) -> bytes:
    """Return the answers by name, the question names, and the rarely used fields."""
    content: list[Any] = [{key: entry.data for key, entry in journal.entries.items()}, *journal.asked]
    if journal.version is not None:
        odd["version"] = journal.version
    if actions := {key: int(entry.action) for key, entry in journal.entries.items() if entry.action}:
        odd["actions"] = actions
    tries = {key: [one.attempts, one.discards] for key, one in journal.asked.items() if one.attempts or one.discards}
    if tries:
        odd["tries"] = tries
    if journal.chain:
        odd["intent"] = int(journal.chain)
        if journal.skipped:
            odd["skipped"] = journal.skipped
    if odd:
        content.append(odd)
    return to_json(content)


def _pack_sealed(journal: Journal, seal: Seal | None) -> bytes:
    if seal is None:
        raise ValueError("this journal holds values that must be sealed, but there is no key to seal them with")
    secret = to_json([{key: kept.value for key, kept in journal.computed.items()}, journal.authored])
    return seal(secret, _bound_to(journal.call_id))


def _bound_to(call_id: str) -> bytes:
    # A sealed part must not open inside another call's journal.
    return b"roundtrip/journal/3/" + call_id.encode("utf-8", "surrogatepass")


def _deflate(raw: bytes) -> bytes:
    if len(raw) > _SHORT:
        packer = zlib.compressobj(level=6, wbits=-zlib.MAX_WBITS)
    else:
        packer = zlib.compressobj(level=6, wbits=-12, memLevel=5)
    return packer.compress(raw) + packer.flush()


def _inflate(raw: bytes, *, limit: int) -> bytes:
    unpacker = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    plain = unpacker.decompress(raw, limit)
    if not unpacker.eof and (unpacker.unconsumed_tail or len(plain) == limit):
        raise TokenRejected(RejectionReason.OVERSIZED)
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("the text is not deflated data, or more data follows it")
    return plain


def call_of(packed: bytes) -> bytes:
    """Return the call id from a journal's head: random bytes, unique to the call and the same on each leg.

    Raises:
        TokenRejected: The bytes are not a journal in a known format version.
    """
    if len(packed) < _HEAD.size or packed[0] >> _FORMAT_SHIFT not in _FORMATS:
        raise TokenRejected(RejectionReason.FORMAT)
    return packed[_CALL_AT : _CALL_AT + _CALL_BYTES]


def unpack(packed: bytes, unseal: Seal | None = None, *, limit: int = MAX_JOURNAL_BYTES) -> Journal:
    """Read the journal that `pack` wrote.

    Args:
        packed: The binary form.
        unseal: Opens the sealed part.
        limit: The largest size, before and after inflating.

    Raises:
        ValueError: The bytes are not a journal, have an unknown format version, or have a sealed part that cannot be
            opened. (`unseal` may raise its own errors.)
        TokenRejected: The journal exceeds the limit.
    """
    journal, sealed = unpack_open(packed, limit=limit)
    if sealed is None:
        return journal
    if unseal is None:
        raise ValueError("the journal has a sealed part, but there is no key to open it with")
    try:
        computed, authored = _parse(unseal(sealed, _bound_to(journal.call_id)))
    except (TypeError, RecursionError) as error:
        raise ValueError("malformed sealed part") from error
    if type(computed) is not dict or not (authored is None or type(authored) is str):
        raise ValueError("malformed sealed part")
    values = cast("dict[str, Any]", computed)
    journal.computed = MappingProxyType({key: Computed(value) for key, value in values.items()})
    journal.authored = authored
    return journal


def unpack_open(packed: bytes, *, limit: int = MAX_JOURNAL_BYTES) -> tuple[Journal, bytes | None]:
    """Read a journal without a key, and return it with its sealed bytes. Without a sealed part, the second value is
    None.

    Raises:
        ValueError: The bytes are not a journal in a known format version.
        TokenRejected: The journal exceeds the limit.
    """
    if len(packed) > limit:
        raise TokenRejected(RejectionReason.OVERSIZED)
    try:
        return _unpack(packed, limit)
    except (TypeError, KeyError, IndexError, OverflowError, RecursionError, struct.error, zlib.error) as error:
        raise ValueError("not a journal") from error


def _unpack(packed: bytes, limit: int) -> tuple[Journal, bytes | None]:
    version = packed[0] >> _FORMAT_SHIFT
    if version not in _FORMATS:
        raise ValueError(f"unknown journal format {version}")
    tag, born_at, written, span, whole, leg, round_, call, plan, build, many = _HEAD.unpack_from(packed)
    flags = tag & _FLAG_BITS
    at, end = _HEAD.size, len(packed)
    traceparent = sealed = None
    if flags & _LINKED:
        traceparent = _unpack_link(packed[at : at + _LINK_BYTES])
        at += _LINK_BYTES
    if flags & _SEALED:
        blocks = int.from_bytes(packed[at : at + _BLOCKS_BYTES], "big")
        at += _BLOCKS_BYTES
        end -= blocks * _BLOCK + _AROUND_BLOCKS
        sealed = packed[max(end, 0) :]
    count, size = many & _MOST_PINS, SALTED_BYTES if many & _SALTED else MAC_BYTES
    pins, at = _unpack_pins(packed, at, count, alike=bool(flags & _ALIKE), size=size)
    if at > end:
        raise ValueError("the journal is cut short")
    text = packed[at:end]
    content = _parse(_inflate(text, limit=limit) if flags & _DEFLATED else text)
    if not isinstance(content, list):
        raise ValueError("not a journal")
    answers, *asked = cast("list[Any]", content)
    odd = _fields(asked.pop()) if asked and type(asked[-1]) is not str else {}
    # Version 0.2 could restart an expired call with its earlier answers as defaults. The pins for these defaults follow
    # the question pins.
    defaults = _fields(odd.pop("seeds", {}))
    odd.pop("origin", None)
    odd.pop("recover", None)
    answers, actions, tries = _fields(answers), _fields(odd.pop("actions", {})), _fields(odd.pop("tries", {}))
    if len(answers) + len(asked) + len(defaults) != count or any(type(key) is not str for key in asked):
        raise ValueError("the journal's names and pins do not match")
    if "spans" in odd:
        written, span, whole = _numbers(odd.pop("spans"), 3)
    if "counts" in odd:
        leg, round_ = _numbers(odd.pop("counts"), 2)
    born = int.from_bytes(born_at, "big")
    each = iter(pins)
    journal = Journal(
        call_id=_text(odd.pop("call", to_text(call))),
        born=born / 1000,
        deadline=(born + span) / 1000,
        end=(born + whole) / 1000,
        leg=leg,
        round=round_,
        fingerprint=_text(odd.pop("plan", plan.hex())),
        build=_text(odd.pop("build", build.hex())),
        version=_text(odd.pop("version")) if "version" in odd else None,
        entries=MappingProxyType(
            {key: Entry(Action(actions.pop(key, 0)), next(each), data) for key, data in answers.items()}
        ),
        asked=MappingProxyType(
            {key: Asked(next(each), *(_numbers(tries.pop(key), 2) if key in tries else ())) for key in asked}
        ),
        traceparent=traceparent,
        written=(born + written) / 1000,
        # In the other format, an intent is an unknown field.
        chain=_intent(odd.pop("intent", None)) if version == INTENT_FORMAT else Chain.NONE,
        skipped=_count(odd.pop("skipped")) if version == INTENT_FORMAT and "skipped" in odd else 0,
    )
    if odd or actions or tries:
        raise ValueError("the journal has unknown fields")
    return journal, sealed


def _unpack_link(raw: bytes) -> str:
    digits = raw.hex()
    traceparent = f"00-{digits[:32]}-{digits[32:48]}-{digits[48:]}"
    if _TRACEPARENT.fullmatch(traceparent) is None:
        raise ValueError("the journal's span is not valid")
    return traceparent


def _unpack_pins(packed: bytes, at: int, count: int, *, alike: bool, size: int) -> tuple[list[bytes], int]:
    """Return the pins (the answers' pins, then the questions' pins), and the offset where they end."""
    if not count:
        if alike:
            raise ValueError("the journal has a common schema mark, but no pins")
        return [], at
    messages = at + count * size
    schemas = messages + count
    end = schemas + (1 if alike else count)
    if end > len(packed):
        raise ValueError("the journal is cut short")
    marks = packed[schemas:end] * (count if alike else 1)
    if not alike and marks.count(marks[0]) == count:
        raise ValueError("the schema marks are all alike, but are repeated")
    return [
        packed[at + n * size : at + (n + 1) * size] + bytes((packed[messages + n], marks[n])) for n in range(count)
    ], end


def _parse(raw: bytes) -> Any:
    # Check the brackets here, because `json` would accept surrounding spaces.
    if raw[:1] != b"[" or raw[-1:] != b"]":
        raise ValueError("the text is not a JSON array, or has spaces around it")
    return _decode(raw.decode("utf-8", "surrogatepass"))


def _fields(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("a JSON value must be an object")
    return cast("dict[str, Any]", value)


def _numbers(row: Any, many: int) -> list[int]:
    numbers = cast("list[Any]", row)
    if type(row) is not list or len(numbers) != many or any(type(number) is not int for number in numbers):
        raise ValueError("a JSON value must be a list of numbers")
    return numbers


def _intent(value: Any) -> Chain:
    if type(value) is not int or value == Chain.NONE:
        raise ValueError("a journal in the format for intents must have an intent")
    return Chain(value)


def _count(value: Any) -> int:
    if type(value) is not int or value <= 0:
        raise ValueError("a number of skipped rounds must be positive")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError("a JSON value must be a string")
    return value


_decode: Final[Callable[[str], Any]] = json.JSONDecoder().decode
