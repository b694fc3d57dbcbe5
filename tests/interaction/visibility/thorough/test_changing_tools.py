"""Tools that come, go, hide and show while clients list and call them, from the event loop and from threads."""

import itertools
import random
import sys
import threading
from collections.abc import Generator

import anyio
import pytest
from mcp_types import CallToolResult

from roundtrip import Server
from roundtrip.testing import Era
from tests.kit.players import connect, text_of

pytestmark = pytest.mark.anyio

ROUNDS = 200
PAIRS = 10
TURN = 0.0001
"""Seconds after which a thread lets another go on: the shorter, the more of them are in the midst of something."""


@pytest.fixture(autouse=True)
def _threads_alternate_often() -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
    usual = sys.getswitchinterval()
    sys.setswitchinterval(TURN)
    yield
    sys.setswitchinterval(usual)


def shop() -> Server:
    """Make a shop with a tool that stays, and pairs of tools that are shown and hidden together."""
    server = Server("shop")

    @server.tool
    async def stays() -> str:
        return "here"

    for number in range(PAIRS):
        for half in ("left", "right"):

            @server.tool(name=f"{half}-{number}", tags={f"pair-{number}"})
            async def paired(name: str = f"{half}-{number}") -> str:
                return name

    return server


def comes_and_goes(server: Server, name: str) -> None:
    @server.tool(name=name)
    async def passing() -> str:
        return name


def change(server: Server, stop: threading.Event, seed: int, failures: list[Exception]) -> None:
    """Change everything that may change, in a thread, until told to stop."""
    random_ = random.Random(seed)
    try:
        for turn in itertools.count():
            if stop.is_set():
                return
            number = random_.randrange(PAIRS)
            server.disable(tags={f"pair-{number}"})
            comes_and_goes(server, f"passing-{seed}-{turn % 3}")
            server.enable(tags={f"pair-{number}"})
            server.remove_tool(f"passing-{seed}-{turn % 3}")
    except Exception as error:  # noqa: BLE001 - any at all is what is looked for
        failures.append(error)


def consistent(names: list[str]) -> bool:
    """Return True if a list was taken at one moment: no tool twice, and never half of a pair."""
    seen = set(names)
    halves = [{name.partition("-")[2] for name in seen if name.startswith(half)} for half in ("left-", "right-")]
    return len(seen) == len(names) and "stays" in seen and halves[0] == halves[1]


async def test_lists_and_calls_go_on_while_everything_changes(era: Era) -> None:
    server = shop()
    stop, failures = threading.Event(), list[Exception]()
    threads = [threading.Thread(target=change, args=(server, stop, seed, failures)) for seed in range(3)]
    lists: list[list[str]] = []
    texts: list[str] = []

    async with connect(server, era) as client:

        async def lists_it(rounds: int) -> None:
            # On a busy machine the threads may not run at all meanwhile.
            while len(lists) < rounds or len({tuple(names) for names in lists}) < 2:
                listed = await client.list_tools(cache_mode="bypass")
                lists.append([tool.name for tool in listed.tools])

        async def calls(rounds: int, name: str) -> None:
            for _ in range(rounds):
                result = await client.call_tool(name)
                assert isinstance(result, CallToolResult)
                texts.append(text_of(result))

        for thread in threads:
            thread.start()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lists_it, ROUNDS // 2)
                tasks.start_soon(calls, ROUNDS // 4, "stays")
                tasks.start_soon(calls, ROUNDS // 4, "left-3")
        finally:
            stop.set()
            for thread in threads:
                thread.join()

    assert failures == []
    assert all(map(consistent, lists))
    assert set(texts) <= {"here", "left-3", "Unknown tool: left-3"}
    assert texts.count("here") == ROUNDS // 4
