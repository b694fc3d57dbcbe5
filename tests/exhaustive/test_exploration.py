"""No order of two workers, a death and an ended lease breaks a promise, and faults are found."""

from collections.abc import Awaitable, Callable

import pytest

from roundtrip.engine import outcomes
from roundtrip.errors import CallTakenOver
from roundtrip.once.exactly_once import LedgerClaim
from roundtrip.stored.book import CallBook, StoredView
from tests.exhaustive.explorer import Bounds
from tests.exhaustive.scenes import (
    CANCELLED,
    IN_STEPS,
    ONCE,
    SMALL,
    TWICE,
    Fault,
    Make,
    PayingOnce,
    SharingAnIntent,
    explored,
)
from tests.kit.forks import run_in_process
from tests.simulation import faults


@pytest.mark.parametrize(
    ("make", "bounds"),
    [
        (PayingOnce, SMALL),
        (SharingAnIntent, Bounds(workers=2, deaths=1, lapses=0)),
        (ONCE, Bounds(workers=2, deaths=0, lapses=1)),
        (IN_STEPS, Bounds(workers=3, deaths=1, lapses=0)),
        (CANCELLED, SMALL),
    ],
)
def test_no_order_breaks_a_promise(make: Make, bounds: Bounds) -> None:
    exploration = run_in_process(explored, make, bounds)
    print(exploration)
    assert exploration.broken is None, exploration.broken
    assert exploration.states > 100


def loss_is_told_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    """Show a task as lost whose worker may still store its result."""

    async def view(book: CallBook, call_id: str) -> StoredView | None:
        entry, now = await book.store.load(call_id)
        if entry is None:
            return None
        entry.advance(now)
        return StoredView(entry, book.seal.read(entry.content, call_id))

    patch.setattr(CallBook, "view", view)


def stopped_body_frees_its_call(patch: pytest.MonkeyPatch) -> None:
    """Release the claim of a body that was stopped in its middle."""
    patch.setattr(outcomes, "_ENDS_NO_CALL", (CallTakenOver,))

    async def written(held: LedgerClaim, write: Callable[[], Awaitable[bool]]) -> bool:
        return await write()

    patch.setattr(LedgerClaim, "_write_at_epoch", written)


@pytest.mark.parametrize(
    ("fault", "make", "bounds"),
    [
        (faults.stale_worker_writes, IN_STEPS, SMALL),
        (faults.body_of_a_dead_worker_runs_again, ONCE, SMALL),
        (faults.lease_of_a_body_frees_its_entry, PayingOnce, SMALL),
        (faults.any_leg_releases_an_entry, PayingOnce, SMALL),
        (faults.cancellation_changes_an_end, CANCELLED, SMALL),
        (faults.stored_steps_run_again, IN_STEPS, SMALL),
        (loss_is_told_before_it_is_stored, ONCE, SMALL),
        (stopped_body_frees_its_call, PayingOnce, TWICE),
        (faults.claim_is_released_without_its_journal, SharingAnIntent, Bounds(workers=2, deaths=0, lapses=0)),
        (faults.start_of_an_intents_body_is_not_told, SharingAnIntent, SMALL),
        (faults.any_leg_releases_an_entry, SharingAnIntent, SMALL),
    ],
)
def test_fault_is_found(fault: Fault, make: Make, bounds: Bounds) -> None:
    exploration = run_in_process(explored, make, bounds, fault)
    print(exploration.broken)
    assert exploration.broken is not None
