"""`roundtrip tasks rekey` in a process that is killed."""

import time
from pathlib import Path

import anyio
import pytest

from roundtrip.cli import main
from roundtrip.server.tasks.operations import TaskOperations
from tests.interaction.serving.services import environment
from tests.interaction.tasks import workshops
from tests.kit.forks import start
from tests.kit.peer import peers
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio
SHOPS = "tests.interaction.tasks.workshops"


def _rekey_with_deaths(folder: Path) -> None:
    command = ["tasks", "rekey", f"{SHOPS}:shop"]
    given = environment(**{workshops.FOLDER: str(folder)})
    for seconds in (0.2, 0.3, 0.4, None):
        process = start(main, command, cwd=folder, env=given)
        if seconds is None:
            assert process.wait(WAIT) == 0
        else:
            time.sleep(seconds)
            process.kill()
            process.wait(WAIT)


async def test_rekeying_may_be_killed_and_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workshops.FOLDER, str(tmp_path))
    monkeypatch.setenv("ROUNDTRIP_RUN_TASKS", "0")
    number = 150
    async with peers(workshops.old_shop()) as (peer,):
        for _ in range(number):
            await peer.call("build", secret="this")
    await anyio.to_thread.run_sync(_rekey_with_deaths, tmp_path)
    book = workshops.new_shop().task_service
    assert book is not None
    operations = TaskOperations(book.book)
    entries = [entry async for entry in operations.scan()]
    assert len(entries) == number
    for entry in entries:
        # It raises if no key of the server opens the task.
        book.book.seal.read(entry.content, entry.call_id)
