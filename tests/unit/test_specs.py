"""The generated pages of specs/ are current, and every clause of the protocol has a test."""

import pytest

from roundtrip.audit.clauses import CLAUSES
from specs.generate import SPECS, TESTS, render, shown
from specs.requirements import REQUIREMENTS


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """Return the pages as they should be. Reading all tests for them takes seconds."""
    return render()


@pytest.fixture(scope="module")
def tests() -> dict[str, list[str]]:
    """Return the tests that show each clause."""
    return shown(TESTS)


def test_generated_pages_are_current(pages: dict[str, str]) -> None:
    stale = [name for name, page in pages.items() if (SPECS / name).read_text(encoding="utf-8") != page]
    assert not stale, "run: python -m specs.generate"
    assert pages.keys() >= {"machine.json", "machine.md", "protocol.md", "../docs/architecture.md", "vectors/v3.json"}


def test_every_clause_has_a_test_that_shows_it(tests: dict[str, list[str]]) -> None:
    now = [requirement.id for requirement in REQUIREMENTS if requirement.later is None]
    assert [id_ for id_ in now if not tests.get(id_)] == []


def test_tests_show_only_clauses_that_exist(tests: dict[str, list[str]]) -> None:
    assert tests.keys() <= {requirement.id for requirement in REQUIREMENTS}


def test_the_modules_of_every_clause_exist() -> None:
    package = SPECS.parent / "roundtrip"
    for requirement in REQUIREMENTS:
        assert requirement.modules or requirement.later is not None
        for module in requirement.modules:
            assert (package / module).is_file(), requirement.id


def test_the_audit_tries_every_clause_at_its_level() -> None:
    levels: dict[str, set[str]] = {}
    for clause in CLAUSES.values():
        levels.setdefault(clause.id.partition(".")[0], set()).add(clause.level.value)
    requirements = {requirement.id: requirement.level for requirement in REQUIREMENTS}
    assert requirements.keys() == {id_ for id_ in levels if id_[0] in "SF"}
    assert [id_ for id_, level in requirements.items() if level not in levels[id_]] == []
