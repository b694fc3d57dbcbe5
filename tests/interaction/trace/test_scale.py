"""Finding calls among many costs no more than among few, counted in steps of SQLite."""

from collections.abc import Callable, Generator
from itertools import islice

import pytest

from benchmarks.operating import record_many
from roundtrip.trace.index.filters import CallFilter
from roundtrip.trace.index.index import CallIndex, index_path
from tests.kit.tables import check_each

FEW, MANY = 200, 3_000


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Generator[list[CallIndex]]:
    folder = tmp_path_factory.mktemp("scale")
    found: list[CallIndex] = []
    for number in (FEW, MANY):
        name = folder / str(number)
        record_many(name, number)
        index = CallIndex([name], index_path([name]))
        index.refresh()
        assert index.count() == number
        found.append(index)
    yield found
    for index in found:
        index.close()


def steps(index: CallIndex, work: Callable[[CallIndex], object]) -> int:
    """Return the steps of SQLite's machine, in tens."""
    counted: list[None] = []
    index.watch(lambda: counted.append(None), 10)
    work(index)
    index.watch(None, 10)
    return len(counted)


def newest(index: CallIndex) -> str:
    return index.page(CallFilter(), limit=1).rows[0]["call"]


SEARCHES: dict[str, Callable[[CallIndex], object]] = {
    "first page": lambda index: index.page(CallFilter(), limit=100),
    "facet": lambda index: index.page(CallFilter({"state": ["failed"]}), limit=20),
    "rare": lambda index: index.page(CallFilter({"state": ["failed"], "principal": ["caller-7"]}), limit=100),
    "since": lambda index: index.page(CallFilter(since=4_000_000_000.0), limit=100),
    "start": lambda index: index.page(CallFilter(start=newest(index)[:12]), limit=100),
    "find": lambda index: index.find(newest(index)),
    "unknown": lambda index: index.find("unknown"),
    "prefix": lambda index: [*islice(index.rows(CallFilter(start=newest(index)[:12])), 10)],
    "choices": lambda index: index.choices("state", 100),
    "count": lambda index: index.count(),
    "rejected": lambda index: index.listed_lines("rejected", limit=100),
}


def test_search_among_many_takes_the_steps_of_few(indexes: list[CallIndex]) -> None:
    def check(name: str) -> None:
        few, many = (steps(index, SEARCHES[name]) for index in indexes)
        assert many <= 3 * few + 20

    check_each(SEARCHES, check)
