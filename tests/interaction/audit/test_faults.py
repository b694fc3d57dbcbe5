"""The audit finds each fault of a wrong server, and no fault that the server does not have."""

from typing import Final

import pytest

from roundtrip.audit.clauses import CLAUSES
from roundtrip.audit.findings import ClauseVerdict
from tests.interaction.audit.audits import audited, clauses_failed_by, failed
from tests.interaction.audit.wrong_servers import FAULTS, SECRET, TTL, RightServer, WrongServer

pytestmark = pytest.mark.anyio

_NEVER_FAIL: Final = {
    "S5.replay": "the specification leaves it to the server",
    "S8.stateless": "the specification leaves it to the server",
    "S12": "it takes a browser",
    "A4": "it is a fact",
}


@pytest.mark.parametrize("fault", FAULTS[::4], ids=lambda fault: fault.__name__)
async def test_audit_finds_the_fault_of_a_wrong_server(fault: type[WrongServer]) -> None:
    """`thorough/test_faults.py` has the other ones."""
    assert await clauses_failed_by(fault) == set(fault.fails)


async def test_audit_finds_no_fault_in_a_right_server() -> None:
    report = await audited(
        RightServer(ttl=TTL), "book", "cancel", "plan", stale=TTL + 0.1, once=frozenset({"book"}), secrets=(SECRET,)
    )
    assert failed(report) == set()
    untried = {one.clause.id for one in report.findings if one.verdict is ClauseVerdict.UNTRIED}
    tried = {one.clause.id for one in report.findings if one.verdict is not ClauseVerdict.UNTRIED}
    # An encrypted state cannot be rewritten, and no page was asked.
    assert untried - tried == {"S4.forged", "S12"}


def test_each_clause_is_failed_by_some_wrong_server() -> None:
    failing = {clause for fault in FAULTS for clause in fault.fails}
    assert len(FAULTS) >= 20
    assert failing | _NEVER_FAIL.keys() == CLAUSES.keys()
    assert not failing & _NEVER_FAIL.keys()
