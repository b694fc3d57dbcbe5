"""Graphs deeper than Python's stack, wider than there are threads, and with more ways through than can be walked."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import pytest

from roundtrip import Depends
from roundtrip.testing import Era, User
from tests.interaction.teardown.held import server_of
from tests.kit.hosts import WAIT

pytestmark = pytest.mark.anyio

RUNS: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def no_runs() -> None:
    RUNS.clear()


LARGE = 1000
ENTERED = 500


def chain(length: int, *, link: Callable[[int], Callable[..., Any]]) -> Any:
    """Make a chain of functions, each of which needs the next."""
    marker: Any = Depends(lambda: 0)
    for number in range(length):
        fn: Any = link(number)
        fn.__defaults__ = (marker,)
        marker = Depends(fn)
    return marker


def plain_link(number: int) -> Callable[..., Any]:
    async def link(below: int) -> int:
        if number % 7 == 0:
            await anyio.lowlevel.checkpoint()
        return below + 1

    return link


def entered_link(number: int) -> Callable[..., Any]:
    async def link(below: int) -> AsyncGenerator[int]:
        RUNS["open"] += 1
        yield below + 1
        RUNS["open"] -= 1

    def plain(below: int) -> Generator[int]:
        RUNS["open"] += 1
        yield below + 1
        RUNS["open"] -= 1

    return link if number % 2 else plain


def next_link() -> Callable[[int], int]:
    return lambda below: below + 1


def next_sum() -> Callable[[int, int], int]:
    return lambda one, other: one + other


def nested_link(length: int) -> Any:
    """Make a chain as `chain` does, of positional values."""
    marker: Any = Depends(lambda: 0)
    for _ in range(length):
        marker = Depends(next_link(), marker)
    return marker


DEEP: dict[str, tuple[Callable[[], Any], int]] = {
    "nested defaults": (lambda: chain(LARGE, link=plain_link), LARGE),
    "values put in": (lambda: nested_link(LARGE), LARGE),
    "generators": (lambda: chain(ENTERED, link=entered_link), ENTERED),
}


@pytest.mark.parametrize(("make", "expected"), DEEP.values(), ids=list(DEEP))
async def test_a_deep_graph_plans_and_runs(make: Callable[[], Any], expected: int) -> None:
    marker = make()

    async def order(number: Annotated[int, marker]) -> str:
        return f"{number} {RUNS['open']}"

    server = server_of(order)
    with anyio.fail_after(WAIT):
        result = await User(server, era=Era.RETRY).call("order")
    assert result.text == f"{expected} {ENTERED if expected == ENTERED else 0}"
    assert RUNS["open"] == 0


async def test_a_wide_graph_plans_and_runs() -> None:
    def leaf(number: int) -> Callable[..., Any]:
        async def waits() -> int:
            await anyio.lowlevel.checkpoint()
            return number

        def in_a_thread() -> int:
            return number

        return waits if number % 10 else in_a_thread

    def total(*numbers: int) -> int:
        return sum(numbers)

    marker = Depends(total, *(leaf(number) for number in range(LARGE)))

    async def order(number: Annotated[int, marker]) -> str:
        return str(number)

    server = server_of(order)
    with anyio.fail_after(WAIT):
        assert (await User(server, era=Era.RETRY).call("order")).text == str(sum(range(LARGE)))


async def test_shared_markers_are_read_once_each() -> None:
    """Written out, the positional value would have two to the power of sixty functions."""
    marker: Any = Depends(lambda: 1)
    for _ in range(60):
        marker = Depends(next_sum(), marker, marker)

    async def order(number: Annotated[int, marker]) -> str:
        return str(number)

    with anyio.fail_after(WAIT):
        assert (await User(server_of(order), era=Era.RETRY).call("order")).text == str(2**60)
