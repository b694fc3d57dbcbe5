"""Foreign text on a terminal: control characters are spelled out, and readable text stays as it is."""

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st

from roundtrip.text import build_text, printable
from tests.kit.tiers import examples

ANY_TEXT = st.text(st.characters(exclude_categories=())) | st.text(
    "\x1b[31m\n\r\t\x00\x9b\u202e\u2066\ud800", max_size=20
)


def controls_in(text: str) -> list[str]:
    return [char for char in text if unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"}]


@settings(deadline=None, max_examples=examples(200))
@given(ANY_TEXT)
def test_safe_text_is_writable_and_stable_and_controls_nothing(text: str) -> None:
    shown = printable(text)
    assert controls_in(shown) == []
    assert set(controls_in(printable(text, keep_newlines=True))) <= {"\n"}
    shown.encode("utf-8")
    assert printable(shown) == shown


CONTROLS = {
    "a\u3164b\u2800\u034f": r"a\u3164b\u2800\u034f",
    "\x1b[2J": r"\x1b[2J",
    "\x9b31m": r"\x9b31m",
    "\x1b]8;;http://evil\x07here\x1b]8;;\x07": r"\x1b]8;;http://evil\x07here\x1b]8;;\x07",
    "a\rb": r"a\rb",
    "one\ntwo": r"one\ntwo",
    "\u202etxt.exe": r"\u202etxt.exe",
    "\u2066x\u2069": r"\u2066x\u2069",
    "half \ud83d": r"half \ud83d",
    "a\u200bb\ufeff": r"a\u200bb\ufeff",
    "\u2028": r"\u2028",
    "\U000e0041": r"\U000e0041",
}


def test_terminal_controls_are_spelled_out() -> None:
    assert {text: printable(text) for text in CONTROLS} == CONTROLS


ORDINARY = [
    "",
    "Straße 5, naïve\u00a0café",
    "日本語",
    "\u0645\u06cc\u200c\u062e\u0648",
    "👩\u200d🚀",
    "[bold]not markup[/bold]",
]


def test_ordinary_text_is_unchanged() -> None:
    assert [printable(text) for text in ORDINARY] == ORDINARY


def test_a_windows_line_end_is_one_line_end() -> None:
    assert printable("one\r\ntwo\rthree", keep_newlines=True) == "one\ntwo\\rthree"


BUILDS = {
    "a1b2c3": "a1b2c3",
    "2026.11-rc1": "2026.11-rc1",
    "0123456789abcdef0123456789abcdef01234567": "0123456789ab",
    "release " * 9: "release " * 5 + "…",
    "\x1b[31m": "\\x1b[31m",
    "": "-",
    None: "-",
}


def test_a_build_has_one_spelling() -> None:
    assert {build: build_text(build) for build in BUILDS} == BUILDS


HIDING = ["\ufe00", "\ufe0f", "\U000e0100", "\U000e01ef", "\u180b", "\U000e0080", "\u2065", "\ufff0"]


def test_selectors_and_unassigned_ignorable_characters_are_spelled_out() -> None:
    shown = [printable(f"pay{char}") for char in HIDING]
    assert shown == [f"pay{char.encode('unicode_escape').decode()}" for char in HIDING]


def test_emoji_keep_one_selector_and_hide_no_text_behind_it() -> None:
    emoji = ["\u2764\ufe0f", "1\ufe0f\u20e3", "\U0001f3f3\ufe0f\u200d\U0001f308", "\u2602\ufe0e"]
    assert [printable(text) for text in emoji] == emoji
    assert printable("\u2764\ufe0f\ufe01\ufe02") == "\u2764\\ufe0f\\ufe01\\ufe02"
