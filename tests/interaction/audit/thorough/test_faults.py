"""The audit finds the faults of the wrong servers that the first tier leaves out."""

import pytest

from tests.interaction.audit.audits import clauses_failed_by
from tests.interaction.audit.wrong_servers import FAULTS, WrongServer

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "fault", [fault for place, fault in enumerate(FAULTS) if place % 4], ids=lambda fault: fault.__name__
)
async def test_audit_finds_the_fault_of_a_wrong_server(fault: type[WrongServer]) -> None:
    assert await clauses_failed_by(fault) == set(fault.fails)
