"""Lists of stored calls say which part of the store they show."""

import sqlite3
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from roundtrip.ui.stored import OperatedCalls
from tests.interaction.tasks import workshops
from tests.kit.peer import WAIT_SECONDS, peers

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("most", "counted"), [(2, 2), (3, 3), (4, None)])
async def test_counts_of_a_large_store_say_how_much_they_count(
    most: int, counted: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(workshops.FOLDER, str(tmp_path))
    monkeypatch.setattr("roundtrip.ui.stored._MAX_COUNTED", most)
    async with peers(workshops.shop()) as (peer,):
        for _ in range(3):
            await peer.asked((await peer.call("ask_twice"))["taskId"], "a")
    stored = OperatedCalls(workshops.shop().internals, answers=False)
    tasks, fleet = await stored.tasks(()), await stored.keys()
    assert (tasks["states"], tasks["counted"]) == ([("asking", min(most, 3))], counted)
    assert (sum(key["tasks"] for key in fleet["keys"]), fleet["counted"]) == (min(most, 3), counted)


async def test_store_that_does_not_answer_is_told_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workshops.FOLDER, str(tmp_path))
    monkeypatch.setattr("roundtrip.ui.stored._STORE_SECONDS", 0.1)
    server = workshops.shop()
    async with peers(server) as (peer,):
        call = (await peer.call("ask_twice"))["taskId"].partition(".")[0]
    await server.ledger.aclose()
    with closing(sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        stored = OperatedCalls(workshops.shop().internals, answers=False)
        with anyio.fail_after(WAIT_SECONDS):
            tasks = await stored.tasks(())
            shown = await stored.call(call)
        assert tasks["error"] == "the store did not answer within 0.1 seconds"
        assert shown is not None
        assert shown["facts"] == [["Store", "the store did not answer within 0.1 seconds"]]
        other.execute("ROLLBACK")
