"""Sessions of older clients, while workers are replaced and killed."""

from pathlib import Path

import anyio
import pytest

from tests.chaos.sessions import SessionAttack, attack_sessions
from tests.kit.waiting import WAIT

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="workers are found in /proc"),
    pytest.mark.timeout(300),
]


async def test_reloads_lose_no_call_that_ends_within_the_drain(tmp_path: Path) -> None:
    """A lost call was still waiting for its user when the drain ended, or it was not begun."""
    with anyio.fail_after(3 * WAIT):
        report = await attack_sessions(SessionAttack(calls=100, kills=0, reloads=1), tmp_path)
    assert not report.wrong, report.text()
    assert report.right >= 50, report.text()
    assert set(report.lost) <= {"call: stopping server", "call: unknown session"}, report.text()


async def test_killed_workers_give_no_session_anothers_answer(tmp_path: Path) -> None:
    with anyio.fail_after(4 * WAIT):
        report = await attack_sessions(SessionAttack(calls=100, kills=3, reloads=1), tmp_path)
    assert not report.wrong, report.text()
    assert report.right >= 50, report.text()
    assert report.kills == 3
