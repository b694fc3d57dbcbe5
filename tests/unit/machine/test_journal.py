"""The journal of a call: its text, and its large entries."""

from dataclasses import replace
from typing import Final

from roundtrip.machine.journal import Action, Computed, Entry, Journal, from_text, to_json, to_text
from tests.kit.raised import raised

P1: Final = bytes(10)
BARE: Final = Journal("call-1", born=1_700_000_000.0, deadline=1_700_000_600.0, end=1_700_003_600.0, leg=1, round=1)


def test_sizes_list_the_largest_entry_first_and_keys_once() -> None:
    journal = replace(
        BARE,
        entries={"small": Entry(Action.DECLINE, P1), "big": Entry(Action.ACCEPT, P1, "x" * 500)},
        computed={"small": Computed("y" * 200)},
        authored="z" * 300,
        seeds={"seed": Entry(Action.ACCEPT, P1, "s" * 100)},
    )
    sizes = journal.sizes()
    assert [key for key, _ in sizes] == ["big", "request_state", "small", "seed"]
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
