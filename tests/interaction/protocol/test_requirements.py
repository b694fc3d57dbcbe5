"""Every clause of the protocol is shown by a test through a real client, but for those that come later, by name."""

from pathlib import Path
from typing import Final

from specs.generate import shown
from specs.requirements import REQUIREMENTS

TESTS: Final = Path(__file__).resolve().parents[2]
IDS: Final = {f"S{number}" for number in range(1, 13)} | {f"F{number}" for number in range(1, 5)}
LATER: Final[dict[str, str]] = {}
"""What no test shows yet, with what it waits for."""


def test_every_clause_is_shown_through_a_real_client() -> None:
    tests = shown(TESTS)
    assert tests.keys() <= IDS
    through_a_client = {
        id_ for id_, names in tests.items() if any(name.startswith(("interaction/", "chaos/")) for name in names)
    }
    assert IDS - LATER.keys() - through_a_client == set()
    assert not LATER.keys() & tests.keys(), "it has come: take it out of the list"


def test_specification_lists_the_same_clauses() -> None:
    assert all(LATER.values())
    assert {requirement.id for requirement in REQUIREMENTS} == IDS
    assert {requirement.id for requirement in REQUIREMENTS if requirement.later is not None} == LATER.keys()
