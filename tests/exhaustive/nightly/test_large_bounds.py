"""No order of three workers and two deaths breaks a promise, nor two ended leases, nor a lost response."""

import pytest

from tests.exhaustive.explorer import Bounds
from tests.exhaustive.scenes import (
    CANCELLED,
    DISAGREEING,
    IN_STEPS,
    LARGE,
    LOSSY,
    ONCE,
    SMALL,
    TWICE,
    Make,
    PayingOnce,
    SharingAnIntent,
    explored,
)
from tests.kit.forks import run_in_process


@pytest.mark.parametrize(
    ("make", "bounds"),
    [
        (PayingOnce, LARGE),
        (PayingOnce, TWICE),
        (PayingOnce, LOSSY),
        (SharingAnIntent, SMALL),
        (SharingAnIntent, Bounds(workers=3, deaths=0, lapses=0)),
        (DISAGREEING, SMALL),
        (ONCE, LARGE),
        (IN_STEPS, LARGE),
        (CANCELLED, LARGE),
    ],
)
def test_no_order_breaks_a_promise(make: Make, bounds: Bounds) -> None:
    exploration = run_in_process(explored, make, bounds)
    print(exploration)
    assert exploration.broken is None, exploration.broken
