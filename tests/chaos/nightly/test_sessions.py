"""A large attack on the sessions of older clients."""

from pathlib import Path

import anyio
import pytest

from tests.chaos.sessions import SessionAttack, attack_sessions
from tests.kit.waiting import WAIT


@pytest.mark.anyio
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="workers are found in /proc")
@pytest.mark.timeout(900)
async def test_thousand_calls_survive_reloads_and_kills(tmp_path: Path) -> None:
    with anyio.fail_after(12 * WAIT):
        report = await attack_sessions(SessionAttack(calls=1000, kills=20, reloads=4), tmp_path)
    print(report.text())
    assert not report.wrong, report.text()
    assert (report.kills, report.reloads) == (20, 4)
    assert report.right >= 500, report.text()
