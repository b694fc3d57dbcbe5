"""Legs of a stored call: one that needs a request of its client, and what it waits for afterwards."""

from typing import Any, cast

import pytest

from roundtrip.engine.leg import Suspended
from roundtrip.ledger.machines import StoredState
from roundtrip.ledger.tasks import MAX_TRIES, CallEntry
from roundtrip.machine.journal import Journal
from roundtrip.stored.content import CallContent, CallOrigin
from roundtrip.stored.lease import CallLease
from roundtrip.stored.legs import WorkerLeg
from roundtrip.stored.worker import leave_to_client

UNUSED = cast(Any, None)


@pytest.mark.anyio
@pytest.mark.parametrize(("retry", "until", "attempt"), [(None, None, 1), (5.0, 15.0, 2)])
async def test_leg_without_a_page_waits_for_its_next_try_alone(
    retry: float | None, until: float | None, attempt: int
) -> None:
    content = CallContent(CallOrigin({}, {}, "2026-07-28", None, "secret", None), "")
    entry = CallEntry("a", "ship", created=0, expires=1000, due=0, updated=0)
    leg = WorkerLeg(content, Journal("a", 0, 9, 9, 1, 0), CallLease(UNUSED, entry, 0.0), UNUSED)
    leg.retry_seconds = retry
    pause = leg.pause(Suspended({}, ""), "journal", 10.0)
    assert (pause.until, pause.looks, pause.attempt) == (until, 0, attempt)


def test_waiting_for_the_client_counts_as_no_death() -> None:
    content = CallContent(CallOrigin({}, {}, "2026-07-28", None, "secret", None), "")
    entry = CallEntry("a", "ship", created=0, expires=1000, due=0, updated=0)
    for now in range(2 * MAX_TRIES):
        leave_to_client(content, entry, now, holder=str(now))
        assert entry.state is StoredState.WAITING
        assert content.needs_client
        entry.due = now
        assert entry.advance(now)
    # A worker that dies with it then is the first one.
    assert entry.claim("worker", 1.0, lease=30)
    assert entry.advance(100.0)
    assert entry.state is StoredState.DUE
