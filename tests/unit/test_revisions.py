"""Revisions are compared by order."""

import pytest
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS

from roundtrip.revisions import is_live_era, is_retry_era


def test_each_known_revision_has_exactly_one_era() -> None:
    eras = {revision: (is_retry_era(revision), is_live_era(revision)) for revision in KNOWN_PROTOCOL_VERSIONS}
    assert [revision for revision, (retry, live) in eras.items() if retry is live] == []


def test_unknown_revisions_have_no_era() -> None:
    assert [one for one in (None, "zzz", "2025-01-01") if is_retry_era(one) or is_live_era(one)] == []


def test_later_revision_keeps_the_retry_era(monkeypatch: pytest.MonkeyPatch) -> None:
    later = "2027-03-01"
    monkeypatch.setattr("mcp_types.version.KNOWN_PROTOCOL_VERSIONS", (*KNOWN_PROTOCOL_VERSIONS, later))
    is_retry_era.cache_clear()
    try:
        assert is_retry_era(later)
    finally:
        is_retry_era.cache_clear()
