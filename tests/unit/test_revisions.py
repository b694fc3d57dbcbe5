"""Revisions are spelled in one module, and compared by order."""

import ast
from pathlib import Path
from typing import Final

import pytest
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS

import roundtrip
from roundtrip import revisions
from roundtrip.revisions import is_live_era, is_retry_era

_PACKAGE: Final = Path(roundtrip.__file__).parent
_SAMPLE_DATES: Final = "testing/forms.py"
"""Fills form fields with dates, one of which is also a revision."""


@pytest.mark.parametrize("revision", KNOWN_PROTOCOL_VERSIONS)
def test_each_known_revision_has_exactly_one_era(revision: str) -> None:
    assert is_retry_era(revision) is not is_live_era(revision)


@pytest.mark.parametrize("revision", [None, "zzz", "2025-01-01"])
def test_unknown_revisions_have_no_era(revision: str | None) -> None:
    assert not is_retry_era(revision)
    assert not is_live_era(revision)


def test_later_revision_keeps_the_retry_era(monkeypatch: pytest.MonkeyPatch) -> None:
    later = "2027-03-01"
    monkeypatch.setattr("mcp_types.version.KNOWN_PROTOCOL_VERSIONS", (*KNOWN_PROTOCOL_VERSIONS, later))
    is_retry_era.cache_clear()
    try:
        assert is_retry_era(later)
    finally:
        is_retry_era.cache_clear()


def test_no_other_module_spells_a_revision() -> None:
    own = {Path(revisions.__file__), _PACKAGE / _SAMPLE_DATES}
    spelled = [
        f"{path.relative_to(_PACKAGE)}:{node.lineno}"
        for path in sorted(_PACKAGE.rglob("*.py"))
        if path not in own
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in KNOWN_PROTOCOL_VERSIONS
    ]
    assert not spelled
