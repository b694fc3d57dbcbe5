"""Task store in the file of a `SqliteLedger`."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from roundtrip.ledger.contract import LedgerDown
from roundtrip.ledger.listeners import Announce, ChangeListeners
from roundtrip.ledger.machines import StoredState
from roundtrip.ledger.tasks import TASK_FIELDS, CallEntry, EntrySummary, entry_of, stored_summary, values_of
from roundtrip.system import System

T = TypeVar("T")

_LOOK_SECONDS: Final = 0.05
"""Seconds between two polls for changes from other processes."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS tasks (
    call_id TEXT PRIMARY KEY,
    tool TEXT NOT NULL,
    created REAL NOT NULL,
    expires REAL NOT NULL,
    state TEXT NOT NULL,
    due REAL NOT NULL,
    updated REAL NOT NULL,
    holder TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    runs_once INTEGER NOT NULL,
    has_begun INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    version INTEGER NOT NULL,
    content TEXT NOT NULL,
    labels TEXT NOT NULL,
    change INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS tasks_due ON tasks (due);
CREATE INDEX IF NOT EXISTS tasks_updated ON tasks (updated);
CREATE INDEX IF NOT EXISTS tasks_change ON tasks (change);
CREATE TABLE IF NOT EXISTS task_changes (newest INTEGER NOT NULL);
INSERT INTO task_changes SELECT 0 WHERE NOT EXISTS (SELECT * FROM task_changes);
CREATE TABLE IF NOT EXISTS task_notes (
    call_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (call_id, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS task_labels (
    label TEXT NOT NULL,
    created REAL NOT NULL,
    call_id TEXT NOT NULL,
    PRIMARY KEY (label, created, call_id)
) WITHOUT ROWID;
"""
_FIELDS: Final = ", ".join([*TASK_FIELDS, "labels"])
_CHANGES: Final = ", ".join(f"{name} = ?" for name in [*TASK_FIELDS[1:], "labels"])
_SUMMARY: Final = ", ".join(EntrySummary._fields)
# The counter is separate from the tasks, because the change numbers of deleted tasks must not be reused.
_COUNT_CHANGE: Final = "UPDATE task_changes SET newest = newest + 1"
_NEXT_CHANGE: Final = "(SELECT newest FROM task_changes)"
_ADD: Final = (
    f"INSERT INTO tasks ({_FIELDS}, change) VALUES ({', '.join('?' * 16)}, {_NEXT_CHANGE}) "  # noqa: S608 - no input
    "ON CONFLICT (call_id) DO NOTHING"
)
_SAVE: Final = f"UPDATE tasks SET {_CHANGES}, change = {_NEXT_CHANGE} WHERE call_id = ? AND version = ?"  # noqa: S608 - no input


def _create_tables(db: sqlite3.Connection) -> None:
    """Create the task tables. If an earlier version created the tables, add the missing columns."""
    db.executescript(_SCHEMA)
    db.execute("BEGIN IMMEDIATE")
    with db:
        if all(name != "deaths" for _, name, *_ in db.execute("PRAGMA table_info(tasks)")):
            db.execute("ALTER TABLE tasks ADD COLUMN deaths INTEGER NOT NULL DEFAULT 0")


class RunSql(Protocol):
    """Callable that runs a function in a thread, and passes it the file's connection. It raises `LedgerDown` if that
    fails.
    """

    def __call__(self, work: Callable[[sqlite3.Connection], T], /) -> Awaitable[T]:
        """Run the function."""
        ...


class SqliteCallStore:
    """Task store in a file that all processes on one machine share."""

    def __init__(self, run: RunSql, system: System) -> None:
        self._run_in_file = run
        self._system = system
        self._prepared: sqlite3.Connection | None = None
        """The connection on which the task tables are known to exist. The tables are created at first use, because few
        files need them.
        """
        self._listeners = ChangeListeners(self._watch)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def work_with_tables(db: sqlite3.Connection) -> T:
            if self._prepared is not db:
                _create_tables(db)
                self._prepared = db
            return work(db)

        return await self._run_in_file(work_with_tables)

    async def add(self, entry: CallEntry) -> bool:
        """Implement `CallStore.add`."""

        def add(db: sqlite3.Connection) -> bool:
            db.execute("BEGIN IMMEDIATE")
            with db:
                db.execute(_COUNT_CHANGE)
                if not db.execute(_ADD, _row(entry)).rowcount:
                    return False
                _label(db, entry, ())
                _note(db, entry)
                return True

        return self._announced(entry.call_id, await self._run(add))

    async def load(self, call_id: str) -> tuple[CallEntry | None, float]:
        """Implement `CallStore.load`."""

        def load(db: sqlite3.Connection) -> tuple[CallEntry | None, float]:
            db.execute("BEGIN")
            with db:
                row = db.execute(f"SELECT {_FIELDS} FROM tasks WHERE call_id = ?", [call_id]).fetchone()  # noqa: S608 - no input
                return None if row is None else _entry(row, _notes(db, call_id)), self._system.time()

        return await self._run(load)

    async def save(self, entry: CallEntry, *, version: int) -> bool:
        """Implement `CallStore.save`."""

        def save(db: sqlite3.Connection) -> bool:
            db.execute("BEGIN IMMEDIATE")
            with db:
                call_id, *rest = _row(entry)
                db.execute(_COUNT_CHANGE)
                before = db.execute("SELECT labels FROM tasks WHERE call_id = ?", [call_id]).fetchone()
                if not db.execute(_SAVE, [*rest, call_id, version]).rowcount:
                    return False
                _label(db, entry, before[0].split())
                if entry.drops_notes:
                    db.execute("DELETE FROM task_notes WHERE call_id = ?", [call_id])
                _note(db, entry)
                if entry.is_over(self._system.time()):
                    db.execute("DELETE FROM tasks WHERE call_id = ?", [call_id])
                    db.execute("DELETE FROM task_notes WHERE call_id = ?", [call_id])
                return True

        return self._announced(entry.call_id, await self._run(save))

    async def due(self, limit: int) -> tuple[list[str], float | None]:
        """Implement `CallStore.due`."""

        def due(db: sqlite3.Connection) -> tuple[list[str], float | None]:
            now = self._system.time()
            rows = db.execute("SELECT call_id, due FROM tasks ORDER BY due LIMIT ?", [limit]).fetchall()
            due_calls = [call_id for call_id, at in rows if at <= now]
            return due_calls, rows[0][1] - now if rows and not due_calls else None

        return await self._run(due)

    async def list(self, *, limit: int, states: Sequence[StoredState] = ()) -> list[EntrySummary]:
        """Implement `CallStore.list`."""
        chosen = f"WHERE state IN ({', '.join('?' * len(states))})" if states else ""

        return await self._summaries(f"{chosen} ORDER BY updated DESC LIMIT ?", *states, limit)

    async def labelled(
        self, label: str, *, limit: int, after: tuple[float, str] | None = None
    ) -> Sequence[EntrySummary]:
        """Implement `CallStore.labelled`."""
        created, call_id = after or (-math.inf, "")

        chosen = (
            "JOIN (SELECT call_id, created FROM task_labels WHERE label = ? AND (created, call_id) > (?, ?) "
            "ORDER BY created, call_id LIMIT ?) USING (call_id, created) ORDER BY created, call_id"
        )
        return await self._summaries(chosen, label, created, call_id, limit)

    async def _summaries(self, chosen: str, *values: str | float) -> list[EntrySummary]:
        statement = f"SELECT {_SUMMARY} FROM tasks {chosen}"  # noqa: S608 - no input
        return await self._run(lambda db: [stored_summary(row) for row in db.execute(statement, values)])

    async def scan(self, *, after: str, limit: int) -> Sequence[CallEntry]:
        """Implement `CallStore.scan`."""

        def select(db: sqlite3.Connection) -> list[CallEntry]:
            db.execute("BEGIN")
            with db:
                rows = db.execute(
                    f"SELECT {_FIELDS} FROM tasks WHERE call_id > ? ORDER BY call_id LIMIT ?",  # noqa: S608 - no input
                    [after, limit],
                ).fetchall()
                return [_entry(row, _notes(db, row[0])) for row in rows]

        return await self._run(select)

    def listen(self, changed: Callable[[str | None], None]) -> Callable[[], None]:
        """Implement `CallStore.listen`.

        Changes from this event loop are announced at once. To find changes from other event loops and processes, the
        store polls the file frequently.
        """
        return self._listeners.listen(changed)

    def _announced(self, call_id: str, is_changed: bool) -> bool:
        """Announce a change to this event loop. `_watch` finds the changes of other threads and processes."""
        if is_changed:
            self._listeners.announce_here(call_id)
        return is_changed

    async def _watch(self, announce: Announce) -> None:
        last: int | None = None

        def look(db: sqlite3.Connection) -> tuple[list[str], int]:
            (newest,) = db.execute("SELECT newest FROM task_changes").fetchone()
            if last is None or newest <= last:
                return [], newest
            rows = db.execute("SELECT call_id FROM tasks WHERE change > ? ORDER BY change", [last]).fetchall()
            return [call_id for (call_id,) in rows], newest

        while True:
            with suppress(LedgerDown):
                changes, last = await self._run(look)
                for call_id in changes:
                    announce(call_id)
            await self._system.sleep(_LOOK_SECONDS)


def _label(db: sqlite3.Connection, entry: CallEntry, before: Sequence[str]) -> None:
    """Replace the task's labels in the index."""
    if set(before) != set(entry.labels):
        index_rows = [(label, entry.created, entry.call_id) for label in before]
        db.executemany("DELETE FROM task_labels WHERE label = ? AND created = ? AND call_id = ?", index_rows)
        index_rows = [(label, entry.created, entry.call_id) for label in entry.labels]
        db.executemany("INSERT INTO task_labels (label, created, call_id) VALUES (?, ?, ?)", index_rows)


def _note(db: sqlite3.Connection, entry: CallEntry) -> None:
    """Store the task's new notes."""
    new = entry.new_notes
    first = len(entry.notes) - len(new)
    notes = [(entry.call_id, number, value) for number, value in enumerate(new, first)]
    db.executemany("INSERT INTO task_notes (call_id, number, value) VALUES (?, ?, ?)", notes)


def _notes(db: sqlite3.Connection, call_id: str) -> list[str]:
    rows = db.execute("SELECT value FROM task_notes WHERE call_id = ? ORDER BY number", [call_id])
    return [value for (value,) in rows]


def _row(entry: CallEntry) -> list[Any]:
    return [*values_of(entry), " ".join(entry.labels)]


def _entry(row: tuple[Any, ...], notes: list[str]) -> CallEntry:
    *values, labels = row
    return entry_of(values, labels.split(), notes)
