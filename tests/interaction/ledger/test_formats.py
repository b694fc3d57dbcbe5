"""What older builds have stored is continued, and what later ones have stored is rejected in words."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from roundtrip.ledger import ClaimStatus, LedgerDown, PostgresLedger, SqliteLedger
from tests.interaction.ledger.older_stores import NOW, STORED, AtWork, restored
from tests.interaction.ledger.shops import text_of
from tests.kit.peer import peers
from tests.kit.peer import text_of as text_of_task
from tests.kit.postgres_server import PostgresServer
from tests.kit.programs import needs

pytestmark = pytest.mark.anyio
AnyLedger = SqliteLedger | PostgresLedger


async def claimed(ledger: AnyLedger, holder: str) -> ClaimStatus:
    try:
        return (await ledger.claim("call", "digest", holder=holder, lease=60, keep=60)).status
    finally:
        await ledger.aclose()


def run(path: Path, statement: str) -> int:
    with closing(sqlite3.connect(path)) as database, database:
        (found,) = database.execute(statement).fetchone() or (0,)
        return found


async def test_sqlite_file_of_another_format(tmp_path: Path) -> None:
    path = tmp_path / "calls.db"
    assert await claimed(SqliteLedger(path), "a") is ClaimStatus.GRANTED
    assert run(path, "PRAGMA user_version") == 1
    # A build that did not note the format.
    run(path, "PRAGMA user_version = 0")
    assert await claimed(SqliteLedger(path), "b") is ClaimStatus.RUNNING
    assert run(path, "PRAGMA user_version") == 1
    run(path, "PRAGMA user_version = 2")
    with pytest.raises(
        LedgerDown, match=r"has format 2, which a later version .* only format 1; upgrade roundtrip, or use anot"
    ):
        await claimed(SqliteLedger(path), "c")
    assert run(path, "SELECT count(*) FROM entries") == 1


@needs("postgres")
async def test_postgres_schema_of_another_format(postgres: PostgresServer) -> None:
    def ledger() -> PostgresLedger:
        return PostgresLedger(postgres.url, schema="formats")

    assert await claimed(ledger(), "a") is ClaimStatus.GRANTED
    assert postgres.command("SELECT version FROM formats.format") == "1"
    postgres.command("DROP TABLE formats.format")
    assert await claimed(ledger(), "b") is ClaimStatus.RUNNING
    postgres.command("UPDATE formats.format SET version = 2")
    with pytest.raises(
        LedgerDown, match=r"have format 2, which a later version .* only format 1; upgrade roundtrip, or use"
    ):
        await claimed(ledger(), "c")
    assert postgres.command("SELECT count(*) FROM formats.entries") == "1"


LATER = NOW + 60


@pytest.mark.parametrize("stored", sorted(STORED.glob("*.sql")), ids=lambda path: path.stem)
async def test_what_a_version_has_stored_goes_on(stored: Path, tmp_path: Path) -> None:
    clients = restored(stored, tmp_path / "calls.db")
    work = AtWork(tmp_path / "calls.db", LATER)
    assert text_of(await work.pay(clients["done"])) == "tea no. 1, paid"
    assert work.shop.ran == [], "the call had run, and its result was stored"
    assert text_of(await work.pay(clients["open"])) == "tea no. 1, paid"
    assert work.shop.ran == ["tea"]
    if "shipped" in clients:
        assert text_of(await work.legs.leg("ship", {"order": "A7"})) == clients["shipped"]
        assert work.shipped == [], "the intent had run"
    async with peers(work.instance()) as (peer,):
        task = clients["task"]
        assert set(await peer.asked(task, "word")) == {"word"}
        await peer.answer(task, word="Dear")
        assert text_of_task(await peer.until(task, "completed")) == "packed, Dear"
    assert work.steps == [], "the step had run"
    await work.ledger.aclose()
