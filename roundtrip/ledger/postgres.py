"""`PostgresLedger` and its task store, for a fleet that shares a PostgreSQL database."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from functools import cached_property
from typing import Any, Final, TypeVar

from roundtrip.connections.postgres import PostgresConnections, PostgresDown
from roundtrip.ledger.contract import LedgerDown, ListedEntry, Reach
from roundtrip.ledger.entry import EntryLedger, LedgerEntry
from roundtrip.ledger.listeners import Announce, ChangeListeners
from roundtrip.ledger.machines import TASK_MACHINE, EntryState, StoredState
from roundtrip.ledger.tasks import TASK_FIELDS, CallEntry, EntrySummary, entry_of, stored_summary, values_of
from roundtrip.ledger.waiting import Waiting
from roundtrip.system import SYSTEM, System

T = TypeVar("T")

_CHANNEL: Final = "entries"
_TASKS_CHANNEL: Final = "tasks"
_MAX_WRITES: Final = 64
_FORGET_EVERY: Final = 256

_CLOCK: Final = """
CREATE OR REPLACE FUNCTION {s}.clock() RETURNS double precision LANGUAGE sql VOLATILE AS
    'SELECT extract(epoch FROM clock_timestamp())::double precision';
"""
"""The database clock, which all instances share, in seconds since the epoch."""
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS {s}.format (version integer NOT NULL);
INSERT INTO {s}.format SELECT 1 WHERE NOT EXISTS (SELECT * FROM {s}.format);
DO $$ BEGIN
    IF (SELECT max(version) FROM {s}.format) > 1 THEN
        RAISE EXCEPTION USING MESSAGE = format(
            'the tables have format %s, which a later version of roundtrip wrote; this version supports only format 1; '
            'upgrade roundtrip, or use another schema', (SELECT max(version) FROM {s}.format));
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
# Other collations may order keys with the same prefix apart from each other.
_LISTED: Final = """
SELECT e.key, e.state, e.holder, e.epoch, e.answers_digest, e.lapses, e.expires, e.result,
    (SELECT array_agg(ARRAY[name, value]) FROM {s}.notes AS n WHERE n.key = e.key) AS notes, {s}.clock() AS now
FROM (
    SELECT key FROM {s}.entries WHERE key COLLATE "C" > $1 AND starts_with(key, $2) ORDER BY key COLLATE "C" LIMIT $3
) AS page JOIN {s}.entries AS e ON e.key = page.key ORDER BY e.key COLLATE "C"
"""
_DROP: Final = "DELETE FROM {s}.entries WHERE key = $1 AND version = $2"
# Version 0 means that the entry does not exist yet.
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
# Claims wait for this deletion, so it removes at most four rows for each write since the previous deletion.
_FORGET: Final = """
DELETE FROM {s}.entries WHERE key IN (
    SELECT key FROM {s}.entries WHERE expires <= {s}.clock() ORDER BY expires LIMIT $1 FOR UPDATE SKIP LOCKED
)
"""


_TASK_TABLES: Final = """
CREATE TABLE IF NOT EXISTS {s}.tasks (
    call_id text COLLATE "C" PRIMARY KEY,
    tool text NOT NULL,
    created double precision NOT NULL,
    expires double precision NOT NULL,
    state text NOT NULL,
    due double precision NOT NULL,
    updated double precision NOT NULL,
    holder text NOT NULL,
    epoch bigint NOT NULL,
    runs_once boolean NOT NULL,
    has_begun boolean NOT NULL,
    tries integer NOT NULL,
    version bigint NOT NULL,
    content text NOT NULL,
    labels text[] NOT NULL,
    notes text[] NOT NULL
);
DO $$ BEGIN
    -- Even IF NOT EXISTS would lock the table, and need its owner.
    IF NOT EXISTS (
        SELECT FROM pg_attribute WHERE attrelid = '{s}.tasks'::regclass AND attname = 'deaths' AND NOT attisdropped
    ) THEN
        ALTER TABLE {s}.tasks ADD COLUMN deaths integer NOT NULL DEFAULT 0;
    END IF;
END $$;
CREATE INDEX IF NOT EXISTS tasks_due ON {s}.tasks (due);
CREATE INDEX IF NOT EXISTS tasks_updated ON {s}.tasks (updated);
CREATE INDEX IF NOT EXISTS tasks_state ON {s}.tasks (state, updated);
CREATE TABLE IF NOT EXISTS {s}.task_labels (
    label text NOT NULL,
    created double precision NOT NULL,
    call_id text COLLATE "C" NOT NULL REFERENCES {s}.tasks ON DELETE CASCADE,
    PRIMARY KEY (label, created, call_id)
);
CREATE INDEX IF NOT EXISTS task_labels_call ON {s}.task_labels (call_id);
"""
_FIELDS: Final = ", ".join([*TASK_FIELDS, "labels", "notes"])
_SUMMARY: Final = ", ".join(f"t.{name}" for name in EntrySummary._fields)
_FINAL: Final = ", ".join(f"'{state.value}'" for state in sorted(TASK_MACHINE.final))
# $1 to $17 are the task's fields.
_CHANGES: Final = ", ".join(f"{name} = ${number}" for number, name in enumerate([*TASK_FIELDS[1:], "labels"], 2))
_ADD: Final = f"""
WITH added AS (
    INSERT INTO {{s}}.tasks ({_FIELDS}) VALUES ({", ".join(f"${number}" for number in range(1, 18))})
    ON CONFLICT (call_id) DO NOTHING RETURNING call_id, created, labels
), labelled AS (
    INSERT INTO {{s}}.task_labels (label, created, call_id)
    SELECT DISTINCT label, created, call_id FROM added, unnest(labels) AS label
)
SELECT pg_notify('{{s}}.tasks', call_id) FROM added
"""  # noqa: S608 - no input
# A task that has ended and expired is deleted. Parameter $17 contains the notes that are not stored yet. If $19 is
# true, $17 contains all notes, and they replace the stored notes.
_SAVE: Final = f"""
WITH dropped AS (
    DELETE FROM {{s}}.tasks
    WHERE call_id = $1 AND version = $18 AND $5 IN ({_FINAL}) AND $4 <= {{s}}.clock() RETURNING call_id
), saved AS (
    UPDATE {{s}}.tasks
    SET {_CHANGES}, notes = CASE WHEN $19 THEN $17::text[] ELSE notes || $17::text[] END
    WHERE call_id = $1 AND version = $18 AND NOT ($5 IN ({_FINAL}) AND $4 <= {{s}}.clock())
    RETURNING call_id, created, labels
), unlabelled AS (
    DELETE FROM {{s}}.task_labels AS l USING saved WHERE l.call_id = saved.call_id AND NOT l.label = ANY (saved.labels)
), labelled AS (
    INSERT INTO {{s}}.task_labels (label, created, call_id)
    SELECT DISTINCT label, created, call_id FROM saved, unnest(labels) AS label ON CONFLICT DO NOTHING
)
SELECT pg_notify('{{s}}.tasks', call_id) FROM (SELECT call_id FROM saved UNION ALL SELECT call_id FROM dropped) AS c
"""  # noqa: S608 - no input
_LOAD_TASK: Final = f"""
SELECT clock.now, {_FIELDS} FROM (SELECT {{s}}.clock() AS now) AS clock LEFT JOIN {{s}}.tasks AS t ON t.call_id = $1
"""  # noqa: S608 - no input
_DUE: Final = """
SELECT clock.now, t.call_id, t.due FROM (SELECT {s}.clock() AS now) AS clock
LEFT JOIN LATERAL (SELECT call_id, due FROM {s}.tasks ORDER BY due LIMIT $1) AS t ON true
"""
_LIST: Final = f"""
SELECT {_SUMMARY} FROM {{s}}.tasks AS t WHERE $2 OR t.state = ANY ($3::text[]) ORDER BY t.updated DESC LIMIT $1
"""  # noqa: S608 - no input
_LABELLED: Final = f"""
SELECT {_SUMMARY} FROM (
    SELECT call_id, created FROM {{s}}.task_labels
    WHERE label = $1 AND (created, call_id) > ($3::double precision, $4)
    ORDER BY created, call_id LIMIT $2
) AS l JOIN {{s}}.tasks AS t ON t.call_id = l.call_id ORDER BY l.created, l.call_id
"""  # noqa: S608 - no input
_SCAN: Final = f"""
SELECT {_FIELDS} FROM {{s}}.tasks WHERE call_id > $1 ORDER BY call_id LIMIT $2
"""  # noqa: S608 - no input


class PostgresLedger(EntryLedger):
    """Ledger in a PostgreSQL database that all instances share.

    Args:
        dsn: A connection URL, for example `postgresql://user@db.internal/calls`.
        schema: The schema for the ledger's tables. It is created at first use.
        timeout: Maximum seconds for one request, including connecting.
        durable: Wait until each write is on the server's disk (`synchronous_commit`). If False, a crash of the database
            server may lose the last writes, and a body may then run again.
        system: The clock for pauses after failures.
        **options: Connection options for `asyncpg.create_pool`.

    Raises:
        ImportError: asyncpg is not installed.
        ValueError: The schema name has characters other than lowercase letters, digits and underscores.
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
        self._connections.add_tables(_CLOCK + _TABLES)
        self._system = system
        self._writes = 0
        self._waiting = Waiting(self._announce_changes)

    @cached_property
    def tasks(self) -> PostgresCallStore:
        """Return the task store, which uses the same schema."""
        return PostgresCallStore(self._connections, self._system)

    async def aclose(self) -> None:
        """Close this event loop's connections; the next operation opens new ones."""
        await self._connections.aclose()

    async def _announce_changes(self, announce: Announce) -> None:
        def on_message(key: str | None) -> None:
            announce(None if key is None else _text(key))

        await self._connections.hear(_CHANNEL, on_message, self._system.sleep)

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
        raise LedgerDown("the ledger on PostgreSQL cannot be used: other processes changed an entry at every attempt")

    async def list_entries(self, prefix: str, *, after: str = "", limit: int) -> tuple[Sequence[ListedEntry], str]:
        """Implement `ListsEntries.list_entries`."""
        rows = await self._fetch(_LISTED, _ascii(after or prefix), _ascii(prefix), limit)
        found = [(_text(key), _entry_of(columns, notes, now)) for key, *columns, notes, now in rows if columns[5] > now]
        return [entry.listed(key) for key, entry in found], _text(rows[-1][0]) if len(rows) == limit else ""

    async def _load(self, key: str, *, with_notes: bool) -> tuple[LedgerEntry, int, float]:
        """Return an entry, its version and the current time. A new entry has version 0."""
        now, version, *columns, notes = (await self._fetch(_LOAD, _ascii(key), with_notes))[0]
        if version is None:
            return LedgerEntry(), 0, now
        entry = _entry_of(columns, notes, now)
        if entry.expires <= now:
            await self._fetch(_DROP, _ascii(key), version)
            return LedgerEntry(), 0, now
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


class PostgresCallStore:
    """Task store in a PostgreSQL database that all instances share."""

    def __init__(self, connections: PostgresConnections, system: System) -> None:
        self._connections = connections
        self._listeners = ChangeListeners(lambda announce: connections.hear(_TASKS_CHANNEL, announce, system.sleep))
        connections.add_tables(_TASK_TABLES)

    async def add(self, entry: CallEntry) -> bool:
        """Implement `CallStore.add`."""
        return bool(await self._fetch(_ADD, *_row(entry), entry.notes))

    async def load(self, call_id: str) -> tuple[CallEntry | None, float]:
        """Implement `CallStore.load`."""
        now, *row = (await self._fetch(_LOAD_TASK, call_id))[0]
        return (_entry(row) if row[0] is not None else None), now

    async def save(self, entry: CallEntry, *, version: int) -> bool:
        """Implement `CallStore.save`."""
        return bool(await self._fetch(_SAVE, *_row(entry), entry.new_notes, version, entry.drops_notes))

    async def due(self, limit: int) -> tuple[list[str], float | None]:
        """Implement `CallStore.due`."""
        rows = await self._fetch(_DUE, limit)
        due_calls = [call_id for now, call_id, due in rows if call_id is not None and due <= now]
        now, first, due = rows[0]
        return due_calls, due - now if first is not None and not due_calls else None

    async def list(self, *, limit: int, states: Sequence[StoredState] = ()) -> list[EntrySummary]:
        """Implement `CallStore.list`."""
        return [stored_summary(row) for row in await self._fetch(_LIST, limit, not states, [*states])]

    async def labelled(
        self, label: str, *, limit: int, after: tuple[float, str] | None = None
    ) -> Sequence[EntrySummary]:
        """Implement `CallStore.labelled`."""
        created, call_id = after or (-math.inf, "")
        return [stored_summary(row) for row in await self._fetch(_LABELLED, label, limit, created, call_id)]

    async def scan(self, *, after: str, limit: int) -> Sequence[CallEntry]:
        """Implement `CallStore.scan`."""
        return [_entry(row) for row in await self._fetch(_SCAN, after, limit)]

    def listen(self, changed: Callable[[str | None], None]) -> Callable[[], None]:
        """Implement `CallStore.listen`. Each event loop listens for announcements on one connection."""
        return self._listeners.listen(changed)

    async def _fetch(self, statement: str, *values: Any) -> Any:
        try:
            return await self._connections.fetch(statement, *values)
        except PostgresDown as error:
            raise LedgerDown(f"the task store on PostgreSQL cannot be used: {error}") from error


def _entry_of(columns: Sequence[Any], notes: Any, now: float) -> LedgerEntry:
    """Return a ledger entry in its current state."""
    values: list[Any] = [_text(column) if isinstance(column, str) else column for column in columns]
    entry = LedgerEntry(EntryState(values[0]), *values[1:])
    entry.notes = {_text(name): _text(value) for name, value in notes or ()}
    entry.advance(now)
    return entry


def _row(entry: CallEntry) -> list[Any]:
    """Return a task's fields without its notes."""
    return [*values_of(entry), entry.labels]


def _entry(row: Sequence[Any]) -> CallEntry:
    *values, labels, notes = row
    return entry_of(values, labels, notes)


def _ascii(text: str) -> str:
    """Escape text as ASCII, because PostgreSQL stores neither NUL nor lone surrogates."""
    return text.encode("unicode_escape").decode("ascii")


def _text(stored: str) -> str:
    return stored.encode("ascii").decode("unicode_escape")
