"""Every promise holds where features meet.

Each row is played once, and every third one once more for one of the `LATER` promises in turn. With `--nightly` each
row is played again for all of them.

A row that fails says its id; `pytest tests/combinations -k 0-17` runs the row of that number alone. With `--nightly`
there are more arrays of rows.
"""

import json
from collections.abc import Generator
from pathlib import Path
from typing import Final

import anyio
import pytest

from tests.combinations.environment import Environment, Played, play
from tests.combinations.invariants import INVARIANTS, LATER, Later
from tests.combinations.rows import STORED, Row, made_from, rows
from tests.kit.postgres_server import PostgresServer, postgres_server
from tests.kit.redis_server import RedisServer, redis_server

NIGHTLY: Final = 8
"""How many arrays run at night."""
_EVERY: Final = 3
"""Which rows are played again by day: one of so many."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each row."""
    if "row" not in metafunc.fixturenames:
        return
    is_night = metafunc.config.getoption("--nightly")
    metafunc.parametrize(
        ("row", "later"),
        [
            pytest.param(row, LATER if is_night else _by_day(number), id=f"{array}-{number:02}-{row.id}")
            for array in range(NIGHTLY if is_night else 1)
            for number, row in enumerate(rows(array))
        ],
    )


def _by_day(number: int) -> tuple[Later, ...]:
    """Return the promises for which a row is played again by day: one in turn, or none."""
    turn, rest = divmod(number, _EVERY)
    return () if rest else (LATER[turn % len(LATER)],)


@pytest.fixture(scope="module")
def redis() -> Generator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture(scope="module")
def postgres() -> Generator[PostgresServer]:
    with postgres_server() as server:
        yield server


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
