"""The audit survives many broken servers, and waits for states to expire."""

import pytest

from roundtrip.audit.findings import ClauseVerdict
from roundtrip.audit.sessions import AuditLimits
from tests.interaction.audit.audits import audited
from tests.interaction.audit.mumbling import survives
from tests.interaction.audit.wrong_servers import RightServer

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("seeds", [range(start, start + 6) for start in range(4, 40, 6)], ids=str)
async def test_any_response_is_survived(seeds: range) -> None:
    for seed in seeds:
        await survives(seed)


async def test_waiting_for_a_state_to_expire_uses_up_no_time() -> None:
    server = RightServer(ttl=6.0)
    report = await audited(server, "cancel", stale=6.1, limits=AuditLimits(seconds=6.0, body_bytes=2**18))
    verdicts = [one.verdict for one in report.findings if one.clause.id == "S5.expiry" and one.tool == "cancel"]
    assert verdicts == [ClauseVerdict.PASSED]
