"""Fixtures of ledgers and of the servers that they need, and the folder of the workshops."""

from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from tests.interaction.tasks import workshops
from tests.interaction.tasks.server_classes import class_named
from tests.kit.hosts import ROOT
from tests.kit.programs import needs
from tests.kit.stores import ledger, redis, started

__all__ = ["ledger", "redis", "started"]


@pytest.fixture
def workshop_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands run in the folder of the checkout, with workshops in the test's own folder and short leases."""
    monkeypatch.setenv(workshops.FOLDER, str(tmp_path))
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("roundtrip.ledger.lease.LEASE_SECONDS", 1.0)


@pytest.fixture(params=["Server", *(pytest.param(name, marks=needs("fastmcp")) for name in ("MCPServer", "FastMCP"))])
def each_class(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a module's tests with servers of each class: replace `Server` in the module."""
    module = cast("ModuleType", getattr(request, "module"))  # noqa: B009 - pytest does not type it
    monkeypatch.setattr(module, "Server", class_named(request.param))
    return str(request.param)
