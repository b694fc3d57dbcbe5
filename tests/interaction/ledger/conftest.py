"""Fixtures of ledgers, of the servers that they need, and of bodies that end soon after their clients left."""

import pytest

from roundtrip.engine import interruptions
from tests.interaction.ledger.holders import ledger
from tests.kit.stores import cluster, postgres, redis, started

__all__ = ["cluster", "ledger", "postgres", "redis", "started"]


@pytest.fixture
def brief_shield(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let bodies outlive their clients for a moment only."""
    monkeypatch.setattr(interruptions, "SHIELD_SECONDS", 0.01)
