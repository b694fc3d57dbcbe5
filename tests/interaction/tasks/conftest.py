"""Fixtures of ledgers and of the servers that they need, and the folder of the workshops."""

from pathlib import Path

import pytest

from tests.interaction.tasks import workshops
from tests.kit.hosts import ROOT
from tests.kit.stores import ledger, redis, started

__all__ = ["ledger", "redis", "started"]


@pytest.fixture
def workshop_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands run in the folder of the checkout, with workshops in the test's own folder and short leases."""
    monkeypatch.setenv(workshops.FOLDER, str(tmp_path))
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("roundtrip.ledger.lease.LEASE_SECONDS", 1.0)
