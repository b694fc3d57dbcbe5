"""What a call remembers, in its compact text and back."""

import json
from dataclasses import replace
from typing import Any, Final

import pytest

from roundtrip.machine.journal import (
    FORMAT,
    Action,
    Asked,
    Computed,
    Entry,
    Journal,
    digest,
    from_text,
    split_sealed,
    to_text,
)

D1: Final = digest("one")
D2: Final = digest("two")

BARE: Final = Journal("call-1", born=1_700_000_000.0, deadline=1_700_000_600.0, leg=1, round=1)
FULL: Final = replace(
    BARE,
    leg=3,
    round=2,
    fingerprint="f1",
    build="b1",
    version="2.0",
    entries={
        "confirm": Entry(Action.ACCEPT, D1, D2, {"ok": True}),
        "address": Entry(Action.DECLINE, D1, D2),
        "name": Entry(Action.CANCEL, D2, D1),
    },
    asked={"size": Asked(D1, D2), "color": Asked(D2, D1, attempts=2, discards=1)},
)
LINKED: Final = replace(FULL, traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
SEEDED: Final = replace(FULL, seeds={"city": Entry(Action.ACCEPT, D1, D2, {"name": "Oslo"})})
SECRET: Final = replace(FULL, computed={"quote": Computed({"price": 9.5})}, authored="step-2")


def seal(plain: bytes, bound_to: bytes) -> bytes:
    """A seal that hides nothing, but is bound."""
    return len(bound_to).to_bytes(2, "big") + bound_to + plain


def unseal(sealed: bytes, bound_to: bytes) -> bytes:
    length = int.from_bytes(sealed[:2], "big")
    if sealed[2 : 2 + length] != bound_to:
        raise ValueError("sealed for something else")
    return sealed[2 + length :]


def changed(position: int, value: Any) -> str:
    """The text of a journal with one field replaced."""
    head: list[Any] = json.loads(FULL.encode())
    head[position] = value
    return json.dumps(head)


@pytest.mark.parametrize("journal", [BARE, FULL, LINKED], ids=["bare", "full", "linked"])
def test_a_journal_without_secrets_comes_back_from_its_text_without_a_key(journal: Journal) -> None:
    assert Journal.decode(journal.encode()) == journal


def test_a_journal_with_secrets_comes_back_through_its_seal() -> None:
    assert Journal.decode(SECRET.encode(seal), unseal) == SECRET


def test_the_text_is_pure_ascii_whatever_the_client_wrote() -> None:
    journal = replace(BARE, entries={"größe": Entry(Action.ACCEPT, D1, D2, {"x": "日本 \ud800 \x00"})})
    text = journal.encode()
    assert text.isascii()
    assert Journal.decode(text) == journal


@pytest.mark.parametrize("value", ["~", "a~b~c", "]~AAAA", '"]~', "\ud83d", "\udc00 alone", "\n"])
def test_an_answer_may_hold_the_mark_of_the_sealed_part_or_half_a_character(value: str) -> None:
    entries = {f"k{value}": Entry(Action.ACCEPT, D1, D2, {value: [value]})}
    assert Journal.decode(replace(BARE, entries=entries).encode()).entries == entries
    sealed = replace(BARE, entries=entries, authored=value)
    assert Journal.decode(sealed.encode(seal), unseal) == sealed


def test_times_are_kept_to_the_millisecond() -> None:
    back = Journal.decode(replace(BARE, born=1_700_000_000.123456, deadline=1_700_000_600.5).encode())
    assert back.born == 1_700_000_000.123
    assert back.deadline == pytest.approx(1_700_000_600.5, abs=0.002)


def test_nothing_that_must_be_sealed_is_in_the_open_part() -> None:
    text = SECRET.encode(lambda plain, bound_to: b"\xff" * 64)
    assert "quote" not in text
    assert "9.5" not in text
    assert "step-2" not in text


def test_values_that_must_be_sealed_are_not_written_without_a_seal() -> None:
    with pytest.raises(ValueError, match="no key to seal with"):
        SECRET.encode()


def test_a_sealed_part_is_not_skipped_where_there_is_no_key() -> None:
    with pytest.raises(ValueError, match="no key to open it with"):
        Journal.decode(SECRET.encode(seal))


def test_a_sealed_part_opens_in_no_other_call() -> None:
    """Shows S4."""
    other = replace(SECRET, call_id="call-2").encode(seal)
    with pytest.raises(ValueError, match="something else"):
        Journal.decode(split_sealed(SECRET.encode(seal))[0] + "~" + split_sealed(other)[2], unseal)


def test_an_unknown_format_is_refused_by_its_number() -> None:
    with pytest.raises(ValueError, match=f"unknown journal format {FORMAT + 1}"):
        Journal.decode(changed(0, FORMAT + 1))


def test_the_span_of_a_leg_is_written_only_where_there_is_one() -> None:
    assert len(json.loads(FULL.encode())) == 11
    assert json.loads(LINKED.encode()) == [*json.loads(FULL.encode()), LINKED.traceparent]


@pytest.mark.parametrize("span", [None, LINKED.traceparent])
def test_answers_of_an_expired_call_stand_apart_from_those_of_this_one(span: str | None) -> None:
    journal = replace(SEEDED, traceparent=span)
    row = ["city", 0, D1 + D2, {"name": "Oslo"}]
    assert json.loads(journal.encode()) == [*json.loads(FULL.encode()), span, [row]]
    assert Journal.decode(journal.encode()) == journal
    assert "city" not in Journal.decode(journal.encode()).entries
    assert ("city", 51) in journal.sizes()


@pytest.mark.parametrize("rows", [[], {}, None, "city", [["city"]], [["city", 9, D1 + D2]], [[7, 0, D1 + D2]]])
def test_what_are_no_answers_in_their_place_is_refused(rows: Any) -> None:
    """Shows S4."""
    with pytest.raises(ValueError, match=r".+"):
        Journal.decode(json.dumps([*json.loads(LINKED.encode()), rows]))


def test_a_span_is_carried_beside_what_is_sealed() -> None:
    journal = replace(SECRET, traceparent=LINKED.traceparent)
    assert Journal.decode(journal.encode(seal), unseal) == journal


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("more", id="another text"),
        pytest.param(None, id="null"),
        pytest.param(7, id="a number"),
        pytest.param([], id="a list"),
        pytest.param("", id="nothing"),
        pytest.param("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", id="another version"),
        pytest.param("00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", id="capitals"),
        pytest.param("00-00000000000000000000000000000000-b7ad6b7169203331-01", id="no trace"),
        pytest.param("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", id="no span"),
        pytest.param("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n", id="a newline more"),
        pytest.param("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", id="a field more"),
    ],
)
def test_what_names_no_span_in_the_place_of_one_is_refused(value: Any) -> None:
    """Shows S4."""
    with pytest.raises(ValueError, match=r".+"):
        Journal.decode(json.dumps([*json.loads(FULL.encode()), value]))


def test_a_text_with_more_fields_than_this_format_has_is_refused() -> None:
    with pytest.raises(ValueError, match=r".+"):
        Journal.decode(json.dumps([*json.loads(LINKED.encode()), "more"]))


@pytest.mark.parametrize(
    ("position", "value"),
    [
        pytest.param(1, 5, id="an id that is no text"),
        pytest.param(2, 1.5, id="a birth in fractions"),
        pytest.param(2, True, id="a birth that is a truth value"),
        pytest.param(2, 10**400, id="a birth beyond all floats"),
        pytest.param(3, "600", id="a deadline as text"),
        pytest.param(4, None, id="no leg"),
        pytest.param(5, [], id="a round that is a list"),
        pytest.param(6, 1, id="a fingerprint that is no text"),
        pytest.param(7, None, id="no build"),
        pytest.param(8, 2, id="a version that is a number"),
        pytest.param(9, None, id="no entries"),
        pytest.param(9, [["k", 0]], id="an entry without digests"),
        pytest.param(9, [["k", 3, D1 + D2]], id="an entry with a fourth action"),
        pytest.param(9, [["k", 0, D1]], id="an entry with one digest"),
        pytest.param(9, [["k", 0, D1 + D2 + "="]], id="an entry with a padded digest"),
        pytest.param(9, [["k", 0, D1 + D2, "x", "y"]], id="an entry too long"),
        pytest.param(9, [[7, 0, D1 + D2]], id="an entry under a number"),
        pytest.param(9, {"k": 1}, id="entries as an object"),
        pytest.param(10, [["k"]], id="a question without digests"),
        pytest.param(10, [["k", 5]], id="a question with a number for its digests"),
        pytest.param(10, [["k", D1 + D2, 1]], id="a question with one count"),
        pytest.param(10, [["k", D1 + D2, "1", 0]], id="a question with a count as text"),
        pytest.param(10, [["k", D1 + D2, True, 0]], id="a question with a truth value for a count"),
        pytest.param(10, 7, id="questions that are a number"),
    ],
)
def test_a_text_of_another_shape_is_refused(position: int, value: Any) -> None:
    """Shows S4."""
    with pytest.raises(ValueError, match=r".+"):
        Journal.decode(changed(position, value))


@pytest.mark.parametrize("text", ["", "~", "[]", "{}", "null", "1", "[1]", "~AAAA", "[1]~", "[" * 100_000, "\ud800"])
def test_what_is_no_journal_at_all_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Journal.decode(text, unseal)


@pytest.mark.parametrize("secret", [b"", b"[]", b"[[],7]", b"[[[1,2]],null]", b"[[[]],null]", b'[[["k"]],null]', b"7"])
def test_a_sealed_part_of_another_shape_is_refused(secret: bytes) -> None:
    text = replace(SECRET, authored="x").encode(lambda _, bound_to: seal(secret, bound_to))
    with pytest.raises(ValueError, match=r".+"):
        Journal.decode(text, unseal)


def test_sizes_name_the_largest_entry_first_and_count_a_key_once() -> None:
    journal = replace(
        BARE,
        entries={"small": Entry(Action.DECLINE, D1, D2), "big": Entry(Action.ACCEPT, D1, D2, "x" * 500)},
        computed={"small": Computed("y" * 200)},
        authored="z" * 300,
    )
    sizes = journal.sizes()
    assert [key for key, _ in sizes] == ["big", "request_state", "small"]
    assert sizes[0][1] > 500
    assert sizes[1][1] == 300


def test_what_one_key_takes_is_the_sum_of_its_answer_its_value_and_what_an_expired_call_left() -> None:
    entry = Entry(Action.ACCEPT, D1, D2, "x" * 500)
    parts: list[Journal] = [
        replace(BARE, entries={"k": entry}),
        replace(BARE, computed={"k": Computed("y" * 200)}),
        replace(BARE, seeds={"k": entry}),
    ]
    sizes = [size for part in parts for _, size in part.sizes()]
    assert sizes[0] == sizes[2] > 500 > sizes[1] > 200
    whole = replace(BARE, entries={"k": entry}, computed=parts[1].computed, seeds={"k": entry})
    assert whole.sizes() == [("k", sum(sizes))]


def test_of_entries_of_one_size_the_alphabetically_first_comes_first() -> None:
    entries = {key: Entry(Action.DECLINE, D1, D2) for key in ("b", "a", "c")}
    assert [key for key, _ in replace(BARE, entries=entries).sizes()] == ["a", "b", "c"]


def test_a_text_without_a_sealed_part_is_its_open_part() -> None:
    text = FULL.encode()
    assert split_sealed(text) == (text, "", "")
    assert split_sealed(f"{text}~AAAA") == (text, "~", "AAAA")


def test_a_wording_with_half_a_character_has_a_digest_of_its_own() -> None:
    assert len({digest(text) for text in ("", "\ud800", "\udc00", "?")}) == 4


@pytest.mark.parametrize("raw", [b"", b"\x00", b"\xff\xfe", bytes(range(256))])
def test_base64url_text_is_unpadded_and_comes_back(raw: bytes) -> None:
    assert "=" not in to_text(raw)
    assert from_text(to_text(raw)) == raw


@pytest.mark.parametrize("text", ["AB", "AA==", "AA=", "A", "A+", "A/", "AA\n", "AA AA", "ÄÄ"])
def test_any_other_spelling_of_base64url_is_refused(text: str) -> None:
    """Shows S4."""
    with pytest.raises(ValueError, match=r".+"):
        from_text(text)
