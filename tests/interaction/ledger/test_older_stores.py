"""Calls and tasks that each released version has stored go on."""

from pathlib import Path

import pytest

from tests.interaction.ledger.older_stores import NOW, STORED, AtWork, restored
from tests.interaction.ledger.shops import text_of
from tests.kit.peer import peers
from tests.kit.peer import text_of as text_of_task

pytestmark = pytest.mark.anyio
LATER = NOW + 60


@pytest.mark.parametrize("stored", sorted(STORED.glob("*.sql")), ids=lambda path: path.stem)
async def test_what_a_version_has_stored_goes_on(stored: Path, tmp_path: Path) -> None:
    clients = restored(stored, tmp_path / "calls.db")
    work = AtWork(tmp_path / "calls.db", LATER)
    assert text_of(await work.pay(clients["done"])) == "tea no. 1, paid"
    assert work.shop.ran == [], "the call had run, and its result was stored"
    assert text_of(await work.pay(clients["open"])) == "tea no. 1, paid"
    assert work.shop.ran == ["tea"]
    async with peers(work.instance()) as (peer,):
        task = clients["task"]
        assert set(await peer.asked(task, "word")) == {"word"}
        await peer.answer(task, word="Dear")
        assert text_of_task(await peer.until(task, "completed")) == "packed, Dear"
    assert work.steps == [], "the step had run"
    await work.ledger.aclose()
