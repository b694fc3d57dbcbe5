"""Every clause of the protocol is shown by a test through a real client."""

from pathlib import Path
from typing import Final

from specs.generate import shown
from specs.requirements import REQUIREMENTS

TESTS: Final = Path(__file__).resolve().parents[2]


def test_every_clause_is_shown_through_a_real_client() -> None:
    through_a_client = {
        id_ for id_, names in shown(TESTS).items() if any(name.startswith(("interaction/", "chaos/")) for name in names)
    }
    assert {requirement.id for requirement in REQUIREMENTS if requirement.later is None} - through_a_client == set()
