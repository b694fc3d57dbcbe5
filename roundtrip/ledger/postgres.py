"""Provide `PostgresLedger`, for a fleet, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar

from roundtrip.connections.postgres import PostgresConnections, PostgresDown
from roundtrip.ledger.contract import ClaimAnswer, LedgerDown, Reach
from roundtrip.ledger.entry import EntryLedger, LedgerEntry
from roundtrip.ledger.listeners import Announce
from roundtrip.ledger.machines import EntryState
from roundtrip.ledger.waiting import Waiting
from roundtrip.on_demand import load_on_use
from roundtrip.system import SYSTEM, System

if TYPE_CHECKING:
    from roundtrip.ledger import postgres_tasks
else:
    load_on_use(globals(), "roundtrip.ledger.postgres_tasks")

T = TypeVar("T")

_CHANNEL: Final = "entries"
_MAX_WRITES: Final = 64
_FORGET_EVERY: Final = 256

CLOCK: Final = """
CREATE OR REPLACE FUNCTION {s}.clock() RETURNS double precision LANGUAGE sql VOLATILE AS
    'SELECT extract(epoch FROM clock_timestamp())::double precision';
"""
"""The clock that all instances share, in seconds since the epoch."""
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS {s}.format (version integer NOT NULL);
INSERT INTO {s}.format SELECT 1 WHERE NOT EXISTS (SELECT * FROM {s}.format);
DO $$ BEGIN
    IF (SELECT max(version) FROM {s}.format) > 1 THEN
        RAISE EXCEPTION USING MESSAGE = format(
            'the tables have format %s, of a later version of roundtrip, and this one knows 1; '
            'upgrade, or use another schema', (SELECT max(version) FROM {s}.format));
    END IF;
END $$;
CREATE TABLE IF NOT EXISTS {s}.entries (
    key text PRIMARY KEY,
    version bigint NOT NULL,
    state text NOT NULL,
    holder text NOT NULL,
    epoch bigint NOT NULL,
    answers_digest text NOT NULL,
    lapses double precision NOT NULL,
    expires double precision NOT NULL,
    result text
);
CREATE INDEX IF NOT EXISTS entries_expires ON {s}.entries (expires);
CREATE TABLE IF NOT EXISTS {s}.notes (
    key text NOT NULL REFERENCES {s}.entries ON DELETE CASCADE,
    name text NOT NULL,
    value text NOT NULL,
    PRIMARY KEY (key, name)
);
"""
_LOAD: Final = """
SELECT clock.now, e.version, e.state, e.holder, e.epoch, e.answers_digest, e.lapses, e.expires, e.result,
    CASE WHEN $2 THEN (SELECT array_agg(ARRAY[name, value]) FROM {s}.notes WHERE key = $1) END AS notes
FROM (SELECT {s}.clock() AS now) AS clock LEFT JOIN {s}.entries AS e ON e.key = $1
"""
_DROP: Final = "DELETE FROM {s}.entries WHERE key = $1 AND version = $2"
# Version 0 is an entry that does not exist.
_STORE: Final = """
WITH stored AS (
    INSERT INTO {s}.entries (key, version, state, holder, epoch, answers_digest, lapses, expires, result)
    SELECT $1, 1, $3, $4, $5, $6, $7, $8, $9 WHERE $2 = 0
    ON CONFLICT (key) DO NOTHING RETURNING key
), changed AS (
    UPDATE {s}.entries SET version = version + 1, state = $3, holder = $4, epoch = $5, answers_digest = $6,
        lapses = $7, expires = $8, result = $9
    WHERE key = $1 AND version = $2 RETURNING key
), written AS (
    SELECT key FROM stored UNION ALL SELECT key FROM changed
), noted AS (
    INSERT INTO {s}.notes (key, name, value)
    SELECT key, name, value FROM written, unnest($10::text[], $11::text[]) AS note (name, value)
    ON CONFLICT (key, name) DO UPDATE SET value = excluded.value
)
SELECT CASE WHEN $12 THEN pg_notify('{s}.entries', key) END FROM written
"""
# A claim waits for it, so it is limited: to four times the rows that were added since the last time.
_FORGET: Final = """
DELETE FROM {s}.entries WHERE key IN (
    SELECT key FROM {s}.entries WHERE expires <= {s}.clock() ORDER BY expires LIMIT $1 FOR UPDATE SKIP LOCKED
)
"""


class PostgresLedger(EntryLedger):
    """Ledger in a PostgreSQL database, for all instances that reach it.

    Args:
        dsn: Such as `postgresql://user@db.internal/calls`.
        schema: The schema of its tables, which it creates at the first use.
        timeout: Seconds that one request may take, including connecting.
        durable: Wait until each write is on the disk of the server (`synchronous_commit`). If False, the last
            writes may be lost with the server, and a body can run again.
        system: Provides the sleep between two attempts to listen to announcements.
        **options: Options of asyncpg's connections, as `asyncpg.create_pool` takes them.

    Raises:
        ImportError: asyncpg is not installed.
        ValueError: The name of the schema has other characters than small letters, digits and underscores.
    """

    reach = Reach.FLEET
    """Implement `Ledger.reach`."""

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = "roundtrip",
        timeout: float = 2.0,
        durable: bool = True,
        system: System = SYSTEM,
        **options: Any,
    ) -> None:
        settings = {**options.pop("server_settings", {}), **({} if durable else {"synchronous_commit": "off"})}
        self._connections = PostgresConnections(
            dsn, schema=schema, timeout=timeout, options={**options, "server_settings": settings}
        )
        self._connections.need(CLOCK + _TABLES)
        self._system = system
        self._writes = 0
        self._waiting = Waiting(self._announce_changes)

    @cached_property
    def tasks(self) -> postgres_tasks.PostgresCallStore:
        """Return the store of tasks, which is in the same schema."""
        return postgres_tasks.PostgresCallStore(self._connections, self._system)

    async def aclose(self) -> None:
        """Close the connections of this event loop. The next operation opens them again."""
        await self._connections.aclose()

    async def _announce_changes(self, announce: Announce) -> None:
        def heard(key: str | None) -> None:
            announce(None if key is None else _text(key))

        await self._connections.hear(_CHANNEL, heard, self._system.sleep)

    async def _change(self, key: str, work: Callable[[LedgerEntry, float], T], *, with_notes: bool = False) -> T:
        self._writes += 1
        if self._writes % _FORGET_EVERY == 0:
            await self._fetch(_FORGET, _FORGET_EVERY * 4)
        for _ in range(_MAX_WRITES):
            entry, version, now = await self._load(key, with_notes=with_notes)
            before = replace(entry, notes=entry.notes.copy())
            result = work(entry, now)
            if entry == before or await self._store(key, entry, before, version):
                return result
        raise LedgerDown("the ledger on PostgreSQL cannot be used: an entry changes too often")

    async def _look(self, key: str) -> ClaimAnswer | None:
        entry, _, now = await self._load(key, with_notes=False)
        return entry.seen(now)

    async def _load(self, key: str, *, with_notes: bool) -> tuple[LedgerEntry, int, float]:
        """Return an entry with its version, 0 for a new one, and the time."""
        now, version, *columns, notes = (await self._fetch(_LOAD, _ascii(key), with_notes))[0]
        if version is None:
            return LedgerEntry(), 0, now
        values: list[Any] = [_text(column) if isinstance(column, str) else column for column in columns]
        entry = LedgerEntry(EntryState(values[0]), *values[1:])
        if entry.expires <= now:
            await self._fetch(_DROP, _ascii(key), version)
            return LedgerEntry(), 0, now
        entry.notes = {_text(name): _text(value) for name, value in notes or ()}
        entry.advance(now)
        return entry, version, now

    async def _store(self, key: str, entry: LedgerEntry, before: LedgerEntry, version: int) -> bool:
        *columns, all_notes, _account = astuple(entry)
        row = (_ascii(value) if isinstance(value, str) else value for value in columns)
        notes = {_ascii(name): _ascii(text) for name, text in all_notes.items() if before.notes.get(name) != text}
        is_announced = entry.state is not before.state
        values = [_ascii(key), version, *row, [*notes], [*notes.values()], is_announced]
        return bool(await self._fetch(_STORE, *values))

    async def _fetch(self, statement: str, *values: Any) -> Any:
        try:
            return await self._connections.fetch(statement, *values)
        except PostgresDown as error:
            raise LedgerDown(f"the ledger on PostgreSQL cannot be used: {error}") from error


def _ascii(text: str) -> str:
    """Return a text as ASCII: PostgreSQL stores neither NUL nor lone surrogates."""
    return text.encode("unicode_escape").decode("ascii")


def _text(stored: str) -> str:
    return stored.encode("ascii").decode("unicode_escape")
