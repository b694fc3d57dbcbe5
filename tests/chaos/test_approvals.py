"""Approvals of many tasks on three instances with Redis, which are killed: none is lost, and none decided twice."""

from pathlib import Path

import pytest

from tests.chaos.approvals import attacked
from tests.kit.programs import needs

pytestmark = [pytest.mark.anyio, needs("redis")]


async def test_approvals_survive_killed_instances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await attacked(tmp_path, monkeypatch, tasks=60, kills=6, seconds=110)
