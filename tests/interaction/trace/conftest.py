"""Provide a recorder and a project for generated tests, each with its own folder."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.interaction.trace.deploys import Recording, forgetting
from tests.interaction.trace.projects import Project
from tests.kit.time_limits import limits

__all__ = ["limits", "path", "project", "recording"]


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Recording]:
    """Return a recorder with its own folder."""
    monkeypatch.delenv("ROUNDTRIP_TRACE", raising=False)
    monkeypatch.chdir(tmp_path)
    with forgetting():
        yield Recording(tmp_path, monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the place of a transcript."""
    return tmp_path / "calls.jsonl"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")
