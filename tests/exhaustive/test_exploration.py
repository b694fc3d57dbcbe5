"""No order of two workers, a death and an ended lease breaks a promise, and faults are found; more of each at night."""

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import pytest

from roundtrip.engine import claim
from roundtrip.errors import CallTakenOver
from roundtrip.server.exactly_once import LedgerClaim
from roundtrip.server.tasks.book import TaskBook, TaskView
from tests.exhaustive.explorer import Bounds, Exploration, Operations, Scene, explore
from tests.exhaustive.ledgers import PayingOnce, patient
from tests.exhaustive.stored import StoredCall
from tests.kit.forks import alone
from tests.kit.tiers import at_night
from tests.simulation import faults

Make = Callable[[Operations], Scene]
Fault = Callable[[pytest.MonkeyPatch], None]

ONCE: Final[Make] = partial(StoredCall, runs_once=True)
IN_STEPS: Final[Make] = partial(StoredCall, runs_once=False)
CANCELLED: Final[Make] = partial(StoredCall, runs_once=False, cancels=True)

SMALL: Final = Bounds(workers=2, deaths=1, lapses=1)
LARGE: Final = Bounds(workers=3, deaths=2, lapses=1)
TWICE: Final = Bounds(workers=2, deaths=1, lapses=2)
LOSSY: Final = Bounds(workers=2, deaths=1, lapses=1, losses=1)


def explored(make: Make, bounds: Bounds, fault: Fault | None = None) -> Exploration:
    """Explore all orders, perhaps with a fault. It leaves many tasks behind: call it by `alone`."""
    logging.disable(logging.CRITICAL)
    with pytest.MonkeyPatch.context() as patch:
        patient(patch)
        if fault is not None:
            fault(patch)
        return explore(make, bounds)


@pytest.mark.parametrize(
    ("make", "bounds"),
    [
        (PayingOnce, SMALL),
        (ONCE, Bounds(workers=2, deaths=0, lapses=1)),
        (IN_STEPS, Bounds(workers=3, deaths=1, lapses=0)),
        (CANCELLED, SMALL),
        *at_night(
            (PayingOnce, LARGE),
            (PayingOnce, TWICE),
            (PayingOnce, LOSSY),
            (ONCE, LARGE),
            (IN_STEPS, LARGE),
            (CANCELLED, LARGE),
        ),
    ],
)
def test_no_order_breaks_a_promise(make: Make, bounds: Bounds) -> None:
    exploration = alone(explored, make, bounds)
    print(exploration)
    assert exploration.broken is None, exploration.broken
    assert exploration.states > 100


def loss_is_told_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    """Show a task as lost whose worker may still store its result."""

    async def view(book: TaskBook, call_id: str) -> TaskView | None:
        entry, now = await book.store.load(call_id)
        if entry is None:
            return None
        entry.advance(now)
        return TaskView(entry, book.seal.read(entry.content, call_id))

    patch.setattr(TaskBook, "view", view)


def stopped_body_frees_its_call(patch: pytest.MonkeyPatch) -> None:
    """Release the claim of a body that was stopped in its middle."""
    patch.setattr(claim, "_ENDS_NO_CALL", (CallTakenOver,))

    async def written(held: LedgerClaim, write: Callable[[], Awaitable[bool]]) -> bool:
        return await write()

    patch.setattr(LedgerClaim, "_written", written)


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
    ],
)
def test_fault_is_found(fault: Fault, make: Make, bounds: Bounds) -> None:
    exploration = alone(explored, make, bounds, fault)
    print(exploration.broken)
    assert exploration.broken is not None
