"""Store tasks in the schema of a `PostgresLedger`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from roundtrip.connections.postgres import PostgresConnections, PostgresDown
from roundtrip.ledger.contract import LedgerDown
from roundtrip.ledger.listeners import ChangeListeners
from roundtrip.ledger.machines import TASK_MACHINE, StoredState
from roundtrip.ledger.tasks import TASK_FIELDS, CallEntry, EntrySummary, entry_of, stored_summary, values_of
from roundtrip.system import System

_CHANNEL: Final = "tasks"

_TABLES: Final = """
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
# $1 to $17 are the fields.
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
# A task that has ended and is past its life is deleted. Of the notes, those that are not stored yet are given.
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
_LOAD: Final = f"""
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


class PostgresCallStore:
    """Task store of all instances that reach a database."""

    def __init__(self, connections: PostgresConnections, system: System) -> None:
        self._connections = connections
        self._listeners = ChangeListeners(lambda announce: connections.hear(_CHANNEL, announce, system.sleep))
        connections.need(_TABLES)

    async def add(self, entry: CallEntry) -> bool:
        """Implement `CallStore.add`."""
        return bool(await self._fetch(_ADD, *_row(entry), entry.notes))

    async def load(self, call_id: str) -> tuple[CallEntry | None, float]:
        """Implement `CallStore.load`."""
        now, *row = (await self._fetch(_LOAD, call_id))[0]
        return (_entry(row) if row[0] is not None else None), now

    async def save(self, entry: CallEntry, *, version: int) -> bool:
        """Implement `CallStore.save`."""
        return bool(await self._fetch(_SAVE, *_row(entry), entry.new_notes, version, entry.drops_notes))

    async def due(self, limit: int) -> tuple[list[str], float | None]:
        """Implement `CallStore.due`."""
        rows = await self._fetch(_DUE, limit)
        found = [call_id for now, call_id, due in rows if call_id is not None and due <= now]
        now, first, due = rows[0]
        return found, due - now if first is not None and not found else None

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
        """Implement `CallStore.listen`. One connection of each event loop listens to the announcements."""
        return self._listeners.listen(changed)

    async def _fetch(self, statement: str, *values: Any) -> Any:
        try:
            return await self._connections.fetch(statement, *values)
        except PostgresDown as error:
            raise LedgerDown(f"the tasks on PostgreSQL cannot be used: {error}") from error


def _row(entry: CallEntry) -> list[Any]:
    """Return the fields of a task, but its notes."""
    return [*values_of(entry), entry.labels]


def _entry(row: Sequence[Any]) -> CallEntry:
    *values, labels, notes = row
    return entry_of(values, labels, notes)
