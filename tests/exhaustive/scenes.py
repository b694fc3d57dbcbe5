"""Scenes of the exploration: what two or three workers do with one call, and how often they die or lose a lease."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import pytest

from tests.exhaustive.explorer import Bounds, Exploration, Operations, Scene, explore
from tests.exhaustive.intents import SharingAnIntent
from tests.exhaustive.ledgers import PayingOnce, patient
from tests.exhaustive.stored import StoredCall

__all__ = [
    "CANCELLED",
    "DISAGREEING",
    "IN_STEPS",
    "LARGE",
    "LOSSY",
    "ONCE",
    "SMALL",
    "TWICE",
    "Fault",
    "Make",
    "PayingOnce",
    "SharingAnIntent",
    "explored",
]

Make = Callable[[Operations], Scene]
Fault = Callable[[pytest.MonkeyPatch], None]

ONCE: Final[Make] = partial(StoredCall, runs_once=True)
IN_STEPS: Final[Make] = partial(StoredCall, runs_once=False)
CANCELLED: Final[Make] = partial(StoredCall, runs_once=False, cancels=True)
DISAGREEING: Final[Make] = partial(SharingAnIntent, differs=True)

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
