"""The audit survives many broken servers, and waits for states to expire."""

import time

import anyio
import pytest

from roundtrip.audit.findings import ClauseVerdict
from roundtrip.audit.sessions import AuditLimits
from tests.interaction.audit.audits import audited
from tests.interaction.audit.mumbling import survives
from tests.interaction.audit.wrong_servers import RightServer
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("seeds", [range(start, start + 6) for start in range(4, 40, 6)], ids=str)
async def test_any_response_is_survived(seeds: range) -> None:
    for seed in seeds:
        await survives(seed)


async def test_waiting_for_a_state_to_expire_uses_up_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = 0.0
    current_time, true_time = anyio.current_time, time.time

    async def leap(seconds: float) -> None:
        nonlocal passed
        passed += seconds

    monkeypatch.setattr(anyio, "sleep", leap)
    monkeypatch.setattr(anyio, "current_time", lambda: current_time() + passed)
    monkeypatch.setattr(time, "time", lambda: true_time() + passed)
    server = RightServer(ttl=WAIT)
    report = await audited(server, "cancel", stale=WAIT + 1, limits=AuditLimits(seconds=WAIT, body_bytes=2**18))
    assert passed > WAIT / 2
    verdicts = [one.verdict for one in report.findings if one.clause.id == "S5.expiry" and one.tool == "cancel"]
    assert verdicts == [ClauseVerdict.PASSED]
