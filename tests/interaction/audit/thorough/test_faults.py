"""The audit finds the faults that the first tier leaves out, and waits for states to expire."""

import time

import anyio
import pytest

from roundtrip.audit.findings import ClauseVerdict
from roundtrip.audit.sessions import AuditLimits
from tests.interaction.audit.audits import audited, clauses_failed_by
from tests.interaction.audit.wrong_servers import FAULTS, RightServer, WrongServer
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "fault", [fault for place, fault in enumerate(FAULTS) if place % 4], ids=lambda fault: fault.__name__
)
async def test_audit_finds_the_fault_of_a_wrong_server(fault: type[WrongServer]) -> None:
    assert await clauses_failed_by(fault) == set(fault.fails)


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
