"""Legs that need an approval, with the settler of its kind, and without."""

import math
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from roundtrip import Approve
from roundtrip.approvals.markers import ApprovalSettler, ApprovalState
from roundtrip.engine.leg import Finished, Leg, LegEnd, Suspended
from roundtrip.engine.leg_run import serve
from roundtrip.engine.ports import Ports
from roundtrip.errors import BodyMistake, CallerUnknown, Decision
from roundtrip.machine.call import Call
from roundtrip.machine.journal import Journal, Limits
from roundtrip.revisions import FIRST_OF_RETRY_ERA
from roundtrip.threads.any_threads import AnyThreads
from tests.unit.engine.rounds import alone

pytestmark = pytest.mark.anyio

ASKED = Approve("Refund 5?", by="finance", within=60.0, fallback="none").question()


async def served(settler: ApprovalSettler | None) -> LegEnd:
    """Return the end of a leg whose only parameter is the approval, and whose body returns it."""

    def refund() -> Approve:
        return Approve("Refund 5?", by="finance", within=60.0, fallback="none")

    async def execute(values: dict[str, Any], context: Any) -> Any:
        return values["value"]

    def write(journal: Journal) -> str:
        return f"asked: {list(journal.asked)}"

    client: Any = SimpleNamespace(protocol_version=FIRST_OF_RETRY_ERA, capabilities=None)
    unused: Any = None
    leg = Leg(
        Call("1"),
        alone(refund),
        client,
        0.0,
        3600.0,
        lambda: 0.0,
        Limits(600.0, 3600.0),
        write,
        plan_for=unused,
        threads=AnyThreads(),
        ports=Ports(),
    )
    leg.ports.settlers = {} if settler is None else {settler.kind: settler}
    return await serve(leg, arguments={}, make_context=unused, body_takes_no_context=True, execute=execute)


async def test_open_approval_ends_the_leg_and_is_not_asked() -> None:
    end = await served(ApprovalSettler({}, 60.0))
    assert isinstance(end, Suspended)
    assert (list(end.external), end.questions, end.state) == (["refund"], {}, "asked: []")


async def test_expired_approval_is_replaced() -> None:
    expired = Decision("expired", datetime.now(UTC), None)
    assert await served(ApprovalSettler({"refund": ApprovalState("1", ASKED.pin, expired)}, 60.0)) == Finished("none")


@pytest.mark.parametrize(
    ("settler", "error", "text"),
    [
        (None, BodyMistake, "'refund' needs an inbox"),
        (ApprovalSettler({}, 59.0), BodyMistake, "within= must not exceed its call's lifetime"),
        (ApprovalSettler({}, math.inf, knows_caller=False), CallerUnknown, "refund"),
    ],
)
async def test_call_that_must_not_wait_fails(
    settler: ApprovalSettler | None, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        await served(settler)
