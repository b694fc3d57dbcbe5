"""People are compared by what a reader of their names sees."""

import json
from collections.abc import Callable

import pytest

from roundtrip.approvals.persons import is_another, name_of

SPELLINGS = (
    "cfo",
    "CFO",
    " cfo ",
    "\uff23\uff26\uff2f",  # full width
    "c\u200bfo",  # zero-width space
    "c\u200cfo",
    "c\u200dfo",
    "c\u2060fo",  # word joiner
    "c\u00adfo",  # soft hyphen
    "\ufeffcfo",  # byte order mark
    "cfo\x00",
    "c\x08fo",
    "c\u034ffo",  # combining grapheme joiner
    "cfo\ufe0f",  # variation selectors
    "cfo\U000e0101",
    "c\U000e0061fo",  # a tag character
    "c\u180bfo",
    "\u202ecfo",  # right-to-left override
    "c\u2066fo\u2069",
    "cfo\u3164",  # a filler
    "c\u2028fo",
)


def by_token(name: str) -> str:
    return json.dumps(["web", "https://login", name])


@pytest.mark.parametrize("form", [str, by_token])
def test_spellings_of_one_name_are_one_person(form: Callable[[str], str]) -> None:
    assert [name for name in SPELLINGS if is_another(form(name), form("cfo"))] == []


def test_other_names_are_other_people() -> None:
    others = ["cto", "cf", "cfo2", "c fo", "сfo"]  # noqa: RUF001 - a Cyrillic letter, which is another account
    assert [name for name in others if not is_another(name, "cfo")] == []
    assert not is_another("a\t b", "A B")


def test_text_of_an_author_is_the_name_however_it_reads() -> None:
    forged = json.dumps([None, None, "cfo"])
    assert name_of(forged, by_token=False) == forged
    assert name_of(json.dumps(["app", "https://login", "cfo"]), by_token=True) == "cfo"
