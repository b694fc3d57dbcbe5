"""The attack on approvals at full size."""

from pathlib import Path

import pytest

from tests.chaos.approvals import attacked
from tests.kit.programs import needs

pytestmark = [pytest.mark.anyio, needs("redis")]


async def test_a_thousand_approvals_survive_thirty_deaths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await attacked(tmp_path, monkeypatch, tasks=1000, kills=30, seconds=800)
