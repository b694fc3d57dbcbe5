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
from tests.combinations.invariants import INVARIANTS, LATER
from tests.combinations.rows import STORED, Row, made_from, rows
from tests.postgres_server import PostgresServer, postgres_server
from tests.redis_server import RedisServer, redis_server

_EVERY: Final = 3
NIGHTLY: Final = 8
"""How many arrays run at night."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each row."""
    if "row" not in metafunc.fixturenames:
        return
    arrays = NIGHTLY if metafunc.config.getoption("--nightly") else 1
    metafunc.parametrize(
        ("row", "turn"),
        [
            pytest.param(row, _turn(number), id=f"{array}-{number:02}-{row.id}")
            for array in range(arrays)
            for number, row in enumerate(rows(array))
        ],
    )


def _turn(number: int) -> int:
    """Return the place of the promise for which a row is played again; behind all of them for two rows of three."""
    turn, rest = divmod(number, _EVERY)
    return len(LATER) if rest else turn % len(LATER)


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


def test_every_promise_holds(row: Row, turn: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
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

    async def later() -> None:
        for invariant in LATER if request.config.getoption("--nightly") else LATER[turn : turn + 1]:
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
    anyio.run(later)
    assert not broken, "\n\n".join([f"{len(broken)} promises do not hold of {row}", *broken])
