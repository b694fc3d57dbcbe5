"""The journal of a call: its binary form and back, its text, and its large entries."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Any, Final

import pytest

from roundtrip.errors import RejectionReason, TokenRejected, TokenTooLarge
from roundtrip.machine.journal import Action, Asked, Chain, Computed, Entry, Journal, from_text, to_json, to_text
from roundtrip.machine.journal_bytes import call_of, pack, unpack, unpack_open
from roundtrip.machine.pins import Pinner, digest
from tests.kit.raised import raised
from tests.kit.secrets import sealer
from tests.kit.tables import check_each

CALL: Final = "AAECAwQFBgcI"
PINNER: Final = Pinner([b"a key of thirty-two bytes, or so"])
P1: Final = PINNER.pin(CALL, digest("one"), digest("two"))
P2: Final = PINNER.pin(CALL, digest("two"), digest("one"))
P3: Final = PINNER.pin(CALL, digest("two"), digest("two"))

BARE: Final = Journal(
    CALL,
    born=1_700_000_000.0,
    deadline=1_700_000_600.0,
    end=1_700_003_600.0,
    leg=1,
    round=1,
    written=1_700_000_000.0,
)
FULL: Final = replace(
    BARE,
    leg=3,
    round=2,
    fingerprint="0123ab",
    build="89cdef",
    version="2.0",
    entries={
        "confirm": Entry(Action.ACCEPT, P1, {"ok": True}),
        "address": Entry(Action.DECLINE, P1),
        "name": Entry(Action.CANCEL, P2),
    },
    asked={"size": Asked(P1), "color": Asked(P2, attempts=2, discards=1)},
    written=1_700_000_001.5,
)
LINKED: Final = replace(FULL, traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
SECRET: Final = replace(FULL, computed={"quote": Computed({"price": 9.5})}, authored="step-2")
ALIKE: Final = replace(
    BARE,
    entries={"a": Entry(Action.ACCEPT, P1, {"text": "x" * 100})},
    asked={"b": Asked(P3)},
)
SALTED: Final = replace(
    BARE,
    entries={"a": Entry(Action.CANCEL, Pinner().pin(CALL, digest("one"), digest("one")))},
    asked={"b": Asked(Pinner().pin(CALL, digest("two"), digest("two")))},
)
ODD: Final = replace(
    FULL, call_id="call 1", fingerprint="", build="2026-11", leg=300, round=256, deadline=BARE.born + 5e6
)
LONG: Final = replace(FULL, entries={f"key_{n}": Entry(Action.ACCEPT, P1, {"text": "a" * 90}) for n in range(9)})
JOURNALS: Final = {
    "bare": BARE,
    "full": FULL,
    "linked": LINKED,
    "secret": SECRET,
    "secret and linked": replace(SECRET, traceparent=LINKED.traceparent),
    "of one schema": ALIKE,
    "salted": SALTED,
    "odd": ODD,
    "long": LONG,
    "of an intent": replace(BARE, chain=Chain.FIRST),
    "of an intent, with all parts": replace(SECRET, traceparent=LINKED.traceparent, chain=Chain.AGAIN),
}
HEAD: Final = 38
PINS: Final = slice(HEAD, None)

DEFLATES: Final = (False, True)
EACH: Final = tuple(product(JOURNALS.values(), DEFLATES))


def seal(plain: bytes, bound_to: bytes) -> bytes:
    """Seal with the same nonce each time."""
    return sealer().seal(plain, bound_to)


unseal: Final = sealer().open


def readable(packed: Iterable[bytes]) -> list[bytes]:
    """Return those that are read, or fail with an unexpected error."""
    return [one for one in packed if not isinstance(raised(unpack, one, unseal), ValueError | TokenRejected)]


def packed_with(journal: Journal, text: Any) -> bytes:
    """Return the bytes of a journal without pins, with another JSON text at its end."""
    empty = pack(journal)
    return empty[: len(empty) - len(b"[{}]")] + (text if isinstance(text, bytes) else to_json(text))


def test_a_journal_comes_back_from_its_bytes() -> None:
    def check(journal: Journal, deflate: bool) -> None:
        packed = pack(journal, seal, deflate=deflate)
        assert unpack(packed, unseal) == journal
        assert pack(unpack(packed, unseal), seal, deflate=deflate) == packed

    check_each(EACH, check)


def test_changed_journal_byte_gives_a_journal_or_one_error() -> None:
    """Shows S4. Only what a key has signed is read at all; this guards against our own mistakes."""
    for journal in JOURNALS.values():
        packed = pack(journal, seal, deflate=True)
        spoilt = (
            packed[:place] + bytes([byte ^ (1 << bit)]) + packed[place + 1 :]
            for place, byte in enumerate(packed)
            for bit in range(8)
        )
        errors = {one: raised(unpack, one, unseal) for one in spoilt}
        assert [one for one, error in errors.items() if not isinstance(error, ValueError | TokenRejected | None)] == []
        assert {type(unpack(one, unseal)) for one, error in errors.items() if error is None} <= {Journal}


def test_a_sealed_part_opens_in_no_other_call() -> None:
    """Shows S4."""
    ours, theirs = pack(SECRET, seal), pack(replace(SECRET, call_id="BBECAwQFBgcI"), seal)
    sealed = unpack_open(theirs)[1] or b""
    assert unpack_open(ours)[1] != sealed
    with pytest.raises(TokenRejected):
        unpack(ours[: -len(sealed)] + sealed, unseal)


def test_a_flag_that_is_not_true_is_rejected() -> None:
    """Shows S4. The flags are: deflated, sealed, linked and alike."""
    packed = [pack(journal, seal, deflate=True) for journal in JOURNALS.values()]
    assert readable(bytes([one[0] ^ flag]) + one[1:] for one in packed for flag in (1, 2, 4, 8)) == []


def test_invalid_span_context_is_rejected() -> None:
    """Shows S4."""
    no_trace = f"00-{'0' * 32}-b7ad6b7169203331-01"
    no_span = f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01"
    for traceparent in (no_trace, no_span):
        with pytest.raises(ValueError, match="span is not valid"):
            unpack(pack(replace(FULL, traceparent=traceparent)))


def test_a_text_of_another_shape_is_rejected() -> None:
    """Shows S4."""
    texts: dict[str, Any] = {
        "nothing": b"",
        "no end": b"[{}",
        "more than an end": b"[{}]]",
        "no text": b'[{"\xff":1}]',
        "deep": b"[" * 100_000,
        "a long number": b"[{}," + b"1" * 5000 + b"]",
        "no answers": [],
        "an object": {},
        "a text": "text",
        "null": None,
        "answers as a list": b"[[]]",
        "a question without a pin": b'[{},"one more"]',
        "an answer without a pin": [{"k": 1}],
        "a question that is a number": b"[{},7]",
        "two objects": b"[{},{},{}]",
        "an unknown field": [{}, {"more": 1}],
        "an id that is no text": [{}, {"call": 7}],
        "no plan": [{}, {"plan": None}],
        "a build that is a number": [{}, {"build": 7}],
        "a version that is a number": [{}, {"version": 2}],
        "a version of null": [{}, {"version": None}],
        "one count": [{}, {"counts": [1]}],
        "counts as text": [{}, {"counts": ["1", 2]}],
        "counts as truth values": [{}, {"counts": [True, 2]}],
        "one span": [{}, {"spans": 7}],
        "spans in fractions": [{}, {"spans": [1.5, 2]}],
        "a deadline beyond all floats": [{}, {"spans": [1, 10**400]}],
        "an action of nothing": [{}, {"actions": {"k": 1}}],
        "actions as a list": [{}, {"actions": [1]}],
        "tries of nothing": [{}, {"tries": {"k": [1, 1]}}],
        "a seed without a pin": [{}, {"seeds": {"k": 1}}],
        "seeds as a list": b'[{},{"seeds":[]}]',
    }
    journal = replace(BARE, fingerprint="0123ab", build="89cdef")
    texts["an intent in format 3"] = [{}, {"intent": 1}]
    errors = {name: raised(unpack, packed_with(journal, text)) for name, text in texts.items()}
    assert [name for name, error in errors.items() if not isinstance(error, ValueError)] == []


def test_mismatched_answers_and_questions_are_rejected() -> None:
    """Shows S4."""
    odd: list[Any] = [
        {"actions": {"a": 3}},
        {"actions": {"a": "x"}},
        {"actions": {"a": None}},
        {"actions": {"b": 1}},
        {"tries": {"b": [1]}},
        {"tries": {"b": [1, None]}},
        {"tries": {"a": [1, 1]}},
    ]
    content: list[Any] = [{"a": {"text": "x" * 100}}, "b"]
    packed = pack(replace(ALIKE, fingerprint="0123ab", build="89cdef"))
    assert packed.endswith(to_json(content))
    assert readable(packed.removesuffix(to_json(content)) + to_json([*content, one]) for one in odd) == []


def test_marks_that_are_alike_are_written_once() -> None:
    """Shows S4: a journal has one spelling."""
    packed = bytearray(pack(FULL))
    marks = HEAD + 5 * 9
    assert bytes(packed[marks : marks + 5]) == bytes([P1[9], P1[9], P2[9], P1[9], P2[9]])
    packed[marks : marks + 5] = bytes(5)
    with pytest.raises(ValueError, match="alike"):
        unpack(bytes(packed))


def test_keyed_pin_beside_a_salted_one_is_padded() -> None:
    """After a server gets its first key, calls in flight have pins of both lengths."""
    salted = Pinner().pin(CALL, digest("one"), digest("two"))
    journal = unpack(pack(replace(BARE, entries={"a": Entry(Action.ACCEPT, salted)}, asked={"b": Asked(P1)})))
    assert journal.entries["a"].pin == salted
    assert PINNER.changes(journal.asked["b"].pin, CALL, digest("one"), digest("two")) == ()
    assert pack(journal) == pack(unpack(pack(journal)))


def test_a_sealed_part_of_another_shape_is_rejected() -> None:
    shapes = (b"", b"[]", b"[[],7]", b"[{},7]", b"[[],null]", b"[7,null]", b"7", b"[{},null,1]", b'"ab"', b"[" * 99_999)

    def packed(secret: bytes) -> bytes:
        return pack(replace(SECRET, authored="x"), lambda _, bound_to: seal(secret, bound_to))

    assert readable(packed(shape) for shape in shapes) == []


def test_a_journal_over_its_limit_is_neither_written_nor_read() -> None:
    size = len(pack(LONG))
    assert unpack(pack(LONG, deflate=True, limit=size), limit=size) == LONG
    with pytest.raises(TokenTooLarge) as refused:
        pack(LONG, deflate=True, limit=size - 1)
    assert refused.value.size == size
    for deflate in (False, True):
        with pytest.raises(TokenRejected) as caught:
            unpack(pack(LONG, deflate=deflate), limit=500)
        assert caught.value.reason is RejectionReason.OVERSIZED


def test_sealed_part_is_neither_written_nor_skipped_without_a_key() -> None:
    with pytest.raises(ValueError, match="no key to seal them with"):
        pack(SECRET)
    with pytest.raises(ValueError, match="no key to open it with"):
        unpack(pack(SECRET, seal))
    journal, sealed = unpack_open(pack(SECRET, seal))
    assert sealed
    assert journal == FULL


def test_another_format_is_rejected() -> None:
    packed = pack(FULL)
    others = {number: bytes([packed[0] & 0x0F | number << 4]) + packed[1:] for number in (0, 1, 2, 15)}
    errors = {number: str(raised(unpack, other)) for number, other in others.items()}
    assert [number for number, error in errors.items() if f"unknown journal format {number}" not in error] == []
    of_calls = [raised(call_of, part) for part in (packed[:11], packed[:1], b"", others[15])]
    assert [error.reason for error in of_calls if isinstance(error, TokenRejected)] == [RejectionReason.FORMAT] * 4


def test_only_a_journal_with_an_intent_has_format_4() -> None:
    """Release 0.2.0 reads format 3 only, and its bytes have not changed."""
    for journal in JOURNALS.values():
        plain = pack(replace(journal, chain=Chain.NONE), seal)
        packed = [pack(replace(journal, chain=intent), seal) for intent in (Chain.FIRST, Chain.AGAIN)]
        assert (plain[0] >> 4, {one[0] >> 4 for one in packed}) == (3, {4})
        assert b"intent" not in plain
        assert {call_of(one) for one in packed} == {call_of(plain)}


def test_format_that_does_not_fit_the_intent_is_rejected() -> None:
    """Shows S4. The formats 3 and 4 differ in all lower bits of the version."""
    packed = [pack(journal, seal, deflate=deflate) for journal, deflate in EACH]
    assert readable(bytes([one[0] ^ (3 ^ 4) << 4]) + one[1:] for one in packed) == []


def test_only_the_two_numbers_of_intents_are_read() -> None:
    """Shows S4."""
    packed = pack(replace(BARE, fingerprint="0123ab", build="89cdef", chain=Chain.FIRST))
    head = packed.removesuffix(b'[{},{"intent":1}]')
    assert len(head) == HEAD

    def text(intent: bytes) -> bytes:
        return head + b'[{},{"intent":' + intent + b"}]"

    assert [unpack(text(number)).chain for number in (b"1", b"2")] == [Chain.FIRST, Chain.AGAIN]
    wrong = (b"0", b"-1", b"3", b"1.0", b"true", b"null", b'"1"', b"[1]", b"{}", b"NaN", b"1e999", b"9" * 5000)
    assert readable(map(text, wrong)) == []
    assert readable([head + b"[{}]", head + b"[{},{}]", text(b'1,"more":1')]) == []


def test_cut_and_extended_journals_are_rejected() -> None:
    """Shows S4."""
    for journal, deflate in EACH:
        packed = pack(journal, seal, deflate=deflate)
        assert readable(packed[:length] for length in range(len(packed))) == []
        assert readable(packed[start:] for start in range(1, len(packed) + 1)) == []
        assert readable(packed + extra for extra in (b"\0", b" ", b"\n", b"]", bytes(64))) == []


def test_sizes_list_the_largest_entry_first_and_keys_once() -> None:
    journal = replace(
        BARE,
        entries={"small": Entry(Action.DECLINE, P1), "big": Entry(Action.ACCEPT, P1, "x" * 500)},
        computed={"small": Computed("y" * 200)},
        authored="z" * 300,
    )
    sizes = journal.sizes()
    assert [key for key, _ in sizes] == ["big", "request_state", "small"]
    assert sizes[0][1] > 500
    assert sizes[1][1] == 320


def test_json_is_compact_and_takes_half_characters() -> None:
    assert to_json({"größe": [1, "\ud800"]}) == '{"größe":[1,"'.encode() + b'\xed\xa0\x80"]}'


def test_base64url_text_is_unpadded_and_comes_back() -> None:
    raw = [b"", b"\x00", b"\xff\xfe", bytes(range(256))]
    assert [one for one in raw if "=" in to_text(one) or from_text(to_text(one)) != one] == []


def test_any_other_spelling_of_base64url_is_rejected() -> None:
    """Shows S4."""
    spellings = ["AB", "AA==", "AA=", "A", "A+", "A/", "AA\n", "AA AA", "ÄÄ"]
    assert [text for text in spellings if not isinstance(raised(from_text, text), ValueError)] == []
