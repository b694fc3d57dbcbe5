"""Every promise holds where features meet.

The first tier plays a sample of the rows that one process can play. `--full` plays all rows of one array, and
every third one once more for one of the `LATER` promises in turn. `--nightly` plays several arrays, and each row for
all promises.

A row that fails says its id; `pytest tests/combinations -k 0-17` runs the row of that number alone.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from tests.combinations.environment import Environment, Played, play
from tests.combinations.invariants import INVARIANTS, LATER, Later
from tests.combinations.rows import STORED, Row, made_from, rows
from tests.kit.programs import needs
from tests.kit.tiers import Tier, current_tier

_ARRAYS: Final = 8
"""How many arrays run at night."""
_LATER_EVERY: Final = 3
"""Which rows are played again for another promise, in the full tier: one of so many."""
_SAMPLED_EVERY: Final = 3
"""Which rows that one process can play are in the first tier: one of so many."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each row."""
    if "row" in metafunc.fixturenames:
        metafunc.parametrize(("row", "later"), list(_chosen(current_tier())))


def _chosen(tier: Tier) -> Iterator[Any]:
    """Yield the rows of a tier, each with the promises for which it is played again."""
    alone = 0
    for array in range(_ARRAYS if tier is Tier.NIGHTLY else 1):
        for number, row in enumerate(rows(array)):
            later = LATER if tier is Tier.NIGHTLY else _later(number)
            if tier is Tier.FIRST:
                alone += row.fits_one_process
                if not row.fits_one_process or alone % _SAMPLED_EVERY != 1:
                    continue
                later = ()
            servers = [needs(row.ledger)] if row.ledger in ("redis", "postgres") else []
            yield pytest.param(row, later, id=f"{array}-{number:02}-{row.id}", marks=servers)


def _later(number: int) -> tuple[Later, ...]:
    """Return the promises for which a row is played again in the full tier: one in turn, or none."""
    turn, rest = divmod(number, _LATER_EVERY)
    return () if rest else (LATER[turn % len(LATER)],)


def test_stored_array_is_of_these_factors() -> None:
    stale = "run: python -m tests.combinations.rows"
    assert json.loads(STORED.read_text())["made_from"] == made_from(), stale


def test_every_promise_holds(
    row: Row, later: tuple[Later, ...], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    broken: list[str] = []

    def environment(name: str) -> Environment:
        folder = tmp_path / name
        folder.mkdir()
        return Environment(row, folder, lambda name: request.getfixturevalue(name).url)

    async def playing() -> Played:
        made = environment("played")
        try:
            return await play(made)
        finally:
            await made.aclose()

    async def play_again() -> None:
        for invariant in later:
            made = environment(invariant.__name__)
            try:
                await invariant(made)
            except AssertionError as error:
                broken.append(f"{invariant.__name__}: {error}")
            finally:
                await made.aclose()

    played = anyio.run(playing)
    for invariant in INVARIANTS:
        try:
            invariant(played)
        except AssertionError as error:
            broken.append(f"{invariant.__name__}: {error}")
    anyio.run(play_again)
    assert not broken, "\n\n".join([f"{len(broken)} promises do not hold of {row}", *broken])
