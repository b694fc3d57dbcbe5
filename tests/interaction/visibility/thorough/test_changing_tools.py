"""Tools that come, go, hide and show in threads while clients list and call them."""

import itertools
import sys
import threading
from collections.abc import Generator

import anyio
import pytest

from roundtrip import Server
from roundtrip.testing import Era
from roundtrip.visibility.rules import Rules, Visibility
from tests.interaction.visibility.gates import said, saying
from tests.kit.players import connect

pytestmark = pytest.mark.anyio

ROUNDS = 100
PAIRS = 10
TURN = 0.0001
"""Seconds after which a thread lets another go on: the shorter, the more of them are in the midst of something."""


@pytest.fixture(autouse=True)
def _threads_alternate_often() -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(TURN)
    yield
    sys.setswitchinterval(usual)


def change(server: Server, stop: threading.Event, thread: int, failures: list[Exception]) -> None:
    """Change everything that may change, in a thread, until told to stop."""
    try:
        for turn in itertools.count(thread):
            if stop.is_set():
                return
            server.disable(tags={f"pair-{turn % PAIRS}"})
            server.add_tool(saying("passing"), f"passing-{thread}-{turn % 3}")
            server.enable(tags={f"pair-{turn % PAIRS}"})
            server.remove_tool(f"passing-{thread}-{turn % 3}")
    except Exception as error:  # noqa: BLE001 - any at all is what is looked for
        failures.append(error)


def consistent(names: list[str]) -> bool:
    """Return True if a list was taken at one moment: no tool twice, and never half of a pair."""
    seen = set(names)
    halves = [{name.partition("-")[2] for name in seen if name.startswith(half)} for half in ("left-", "right-")]
    return len(seen) == len(names) and "stays" in seen and halves[0] == halves[1]


async def test_list_follows_the_rules_of_one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = Visibility()
    hidden.disable(tags="pair")
    # Another thread may replace the rules between any two readings.
    changing = itertools.cycle([Rules(), hidden.rules])
    restless = property(lambda _: next(changing), lambda _, rules: None)
    monkeypatch.setattr("roundtrip.server.server.Visibility", type("Restless", (Visibility,), {"rules": restless}))
    server = Server("shop")
    server.add_tool(saying("here"), "stays")
    for half in ("left-0", "right-0"):
        server.add_tool(saying(half), half, tags={"pair"})
    async with connect(server, Era.RETRY) as client:
        listed = await client.list_tools()
    assert consistent([tool.name for tool in listed.tools])


async def test_lists_and_calls_go_on_while_everything_changes(era: Era) -> None:
    server = Server("shop")
    server.add_tool(saying("here"), "stays")
    for half, number in itertools.product(("left", "right"), range(PAIRS)):
        server.add_tool(saying(half), f"{half}-{number}", tags={f"pair-{number}"})
    stop, failures = threading.Event(), list[Exception]()
    threads = [threading.Thread(target=change, args=(server, stop, number, failures)) for number in range(3)]
    lists, texts = list[list[str]](), list[str]()

    async with connect(server, era) as client:

        async def lists_it() -> None:
            # On a busy machine the threads may not run at all meanwhile.
            while len(lists) < ROUNDS or len({tuple(names) for names in lists}) < 2:
                listed = await client.list_tools(cache_mode="bypass")
                lists.append([tool.name for tool in listed.tools])

        async def calls(name: str) -> None:
            texts.extend([await said(client, name) for _ in range(ROUNDS // 2)])

        for thread in threads:
            thread.start()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lists_it)
                tasks.start_soon(calls, "stays")
                tasks.start_soon(calls, "left-3")
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    assert failures == []
    assert [names for names in lists if not consistent(names)] == []
    assert set(texts) <= {"here", "left", "Unknown tool: left-3"}
    assert texts.count("here") == ROUNDS // 2
