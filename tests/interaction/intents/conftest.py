"""Fixtures of the server classes, and of ledgers of every kind."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from roundtrip.ledger import RedisLedger
from tests.interaction.intents import offices, stores
from tests.interaction.tasks.server_classes import class_named
from tests.kit.programs import needs
from tests.kit.stores import KINDS, AnyLedger, Servers, cluster, ledger_of, started

__all__ = ["cluster", "each_class", "ledger", "started"]


@pytest.fixture(params=["Server", *(pytest.param(name, marks=needs("fastmcp")) for name in ("MCPServer", "FastMCP"))])
def each_class(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with servers of each class."""
    for module in (offices, stores):
        monkeypatch.setattr(module, "Server", class_named(request.param))


@pytest.fixture(params=[*KINDS, pytest.param("cluster", marks=needs("redis"))])
async def ledger(request: pytest.FixtureRequest, started: Servers, tmp_path: Path) -> AsyncGenerator[AnyLedger]:
    """Yield a new ledger for each kind. A prefix in Redis may have characters that patterns know."""
    if request.param == "cluster":
        made: AnyLedger = RedisLedger(request.getfixturevalue("cluster"), prefix=request.node.name, cluster=True)
    else:
        made = ledger_of(request.param, started, tmp_path)
    yield made
    await made.aclose()
