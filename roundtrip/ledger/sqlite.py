"""`SqliteLedger`, for all processes on one machine."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, replace
from itertools import chain, repeat
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from roundtrip.ledger.contract import ClaimAnswer, LedgerDown, ListedEntry, Reach
from roundtrip.ledger.entry import EntryLedger, LedgerEntry
from roundtrip.ledger.listeners import Announce
from roundtrip.ledger.machines import EntryState
from roundtrip.ledger.sqlite_tasks import SqliteCallStore
from roundtrip.ledger.waiting import Waiting
from roundtrip.system import SYSTEM, System

T = TypeVar("T")

_BUSY_SECONDS: Final = 5.0
_RETRY_PAUSES: Final = (0.001, 0.002, 0.005)
"""Seconds to pause between attempts to use a file that another process has locked. Later attempts use the last value.

A busy writer unlocks the file only briefly, and longer pauses would miss that moment.
"""
_CHANGE_SECONDS: Final = 0.02
"""Seconds between two reads of the file's version while a leg waits."""
_MAX_THREADS: Final = 8
"""Maximum number of threads that use the file for one event loop."""
_FORGET_EVERY: Final = 256
_FORMAT: Final = 1
"""Table format, stored in `PRAGMA user_version`. Early versions stored 0 for the same format."""

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS entries (
    key TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    holder TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    answers_digest TEXT NOT NULL,
    lapses REAL NOT NULL,
    expires REAL NOT NULL,
    result TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS entries_expires ON entries (expires);
CREATE TABLE IF NOT EXISTS notes (
    key TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (key, name)
) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS entries_forgotten AFTER DELETE ON entries
BEGIN DELETE FROM notes WHERE key = OLD.key; END;
"""
_LOAD: Final = (
    "SELECT state, holder, epoch, answers_digest, lapses, expires, result FROM entries WHERE key = ? AND expires > ?"
)
_STORE: Final = """
INSERT INTO entries (key, state, holder, epoch, answers_digest, lapses, expires, result) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET state = excluded.state, holder = excluded.holder, epoch = excluded.epoch,
    answers_digest = excluded.answers_digest, lapses = excluded.lapses, expires = excluded.expires,
    result = excluded.result
"""
_DROP: Final = "DELETE FROM entries WHERE key = ?"
_NOTE: Final = "INSERT OR REPLACE INTO notes (key, name, value) VALUES (?, ?, ?)"
_NOTES: Final = "SELECT name, value FROM notes WHERE key = ?"
_KEYS: Final = "SELECT key FROM entries WHERE key > ? AND key < ? ORDER BY key LIMIT ?"
_LAST: Final = "\x7f"
# Claims wait for this deletion, so it removes at most four rows for each write since the previous deletion.
_FORGET: Final = (
    "DELETE FROM entries WHERE key IN (SELECT key FROM entries WHERE expires <= ? ORDER BY expires LIMIT ?)"
)


class _FileLocked(Exception):
    """Another process has locked the file, so the operation had no effect."""


class _LoopUse(NamedTuple):
    """Limits on how one event loop uses the file."""

    limiter: anyio.CapacityLimiter
    retry_lock: anyio.Lock
    """The operation that has this lock retries until the file is unlocked. Other operations wait for the lock in order.
    """


class SqliteLedger(EntryLedger):
    """Ledger in a file that all processes on one machine share.

    Args:
        path: The file. It is created if needed, and only its owner can read it. It must not be on a network file
            system, where locks are unreliable.
        durable: Flush every write to the disk, so that it survives a power failure. If False, writes survive a process
            crash but not a power failure.
        system: The clocks. All processes that share the file must use the same clock.

    Raises:
        ValueError: The path names an in-memory database, which other processes cannot open.
    """

    reach = Reach.MACHINE
    """Implement `Ledger.reach`."""

    def __init__(self, path: str | os.PathLike[str], *, durable: bool = True, system: System = SYSTEM) -> None:
        self._path = Path(path)
        if str(path) in ("", ":memory:"):
            raise ValueError(f"path= must name a file, got {str(path)!r}; for a single process, use MemoryLedger")
        self._synchronous: Literal["FULL", "NORMAL"] = "FULL" if durable else "NORMAL"
        self._system = system
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._pid = os.getpid()
        self._inherited_connections: list[object] = []
        self._writes = 0
        self._waiting = Waiting(self._announce_changes)
        # The ledger uses a separate thread limit. So leases are renewed even while bodies occupy all shared threads,
        # and threads that wait for the file do not block bodies.
        self._use: RunVar[_LoopUse] = RunVar(f"roundtrip_sqlite_{id(self)}")
        self.tasks: Final = SqliteCallStore(self._run, system)
        """The task store, in the same file."""

    async def aclose(self) -> None:
        """Close the file. The next operation opens it again."""

        def close() -> None:
            with self._process_lock():
                self._close()

        await anyio.to_thread.run_sync(close)

    async def _announce_changes(self, announce: Announce) -> None:
        """Wake the waiting legs after each change that another process makes to the file.

        SQLite does not tell a process about another process's changes, so this method polls the file's version. One
        poll takes a few microseconds.
        """
        version: object = None
        while True:
            before = version
            with suppress(LedgerDown):
                version = await self._run(lambda db: db.execute("PRAGMA data_version").fetchone())
            if version != before:
                announce(None)
            await self._system.sleep(_CHANGE_SECONDS)

    async def _change(self, key: str, work: Callable[[LedgerEntry, float], T], *, with_notes: bool = False) -> T:
        def change(db: sqlite3.Connection) -> T:
            # Lock the file before reading. If only the write were locked, two processes could claim the same entry.
            db.execute("BEGIN IMMEDIATE")
            with db:
                now = self._system.time()
                self._writes += 1
                if self._writes % _FORGET_EVERY == 0:
                    db.execute(_FORGET, [now, _FORGET_EVERY * 4])
                existing = _load(db, key, now)
                if existing is not None and with_notes:
                    existing.notes.update(db.execute(_NOTES, [key]).fetchall())
                entry = existing or LedgerEntry()
                before = replace(entry, notes=entry.notes.copy())
                result = work(entry, now)
                if entry != before:
                    if existing is None:
                        # The key may still have an expired row. Delete that row and its notes.
                        db.execute(_DROP, [key])
                    _store(db, key, entry, before)
                return result

        return await self._run(change)

    async def list_entries(self, prefix: str, *, after: str = "", limit: int) -> tuple[Sequence[ListedEntry], str]:
        """Implement `ListsEntries.list_entries`."""

        def read(db: sqlite3.Connection) -> tuple[Sequence[ListedEntry], str]:
            # Read the entries and their notes at one moment.
            db.execute("BEGIN")
            with db:
                now, found = self._system.time(), list[ListedEntry]()
                keys = [key for (key,) in db.execute(_KEYS, [after or prefix, prefix + _LAST, limit])]
                for key in keys:
                    if (entry := _load(db, key, now)) is not None:
                        entry.notes.update(db.execute(_NOTES, [key]).fetchall())
                        found.append(entry.listed(key))
                return found, keys[-1] if len(keys) == limit else ""

        return await self._run(read)

    async def _look(self, key: str) -> ClaimAnswer | None:
        def look(db: sqlite3.Connection) -> ClaimAnswer | None:
            now = self._system.time()
            entry = _load(db, key, now)
            return entry.seen(now) if entry is not None else None

        return await self._run(look)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        ends = self._system.monotonic() + _BUSY_SECONDS
        if (use := self._use.get(None)) is None:
            use = _LoopUse(anyio.CapacityLimiter(_MAX_THREADS), anyio.Lock())
            self._use.set(use)
        with suppress(_FileLocked):
            return await self._attempt(work, use.limiter)
        # While an operation waits here, it occupies neither a thread nor the connection. Other operations can still
        # read the file, even though it is locked for writing. All operations have the same timeout and wait in order,
        # so an earlier operation never times out after a later one.
        async with use.retry_lock:
            pauses = chain(_RETRY_PAUSES, repeat(_RETRY_PAUSES[-1]))
            while True:
                try:
                    return await self._attempt(work, use.limiter)
                except _FileLocked as error:
                    if self._system.monotonic() >= ends:
                        raise LedgerDown(
                            f"the ledger {self._path} cannot be used: another process has kept the file locked for "
                            f"{_BUSY_SECONDS:g} seconds"
                        ) from error
                await self._system.sleep(next(pauses))

    async def _attempt(self, work: Callable[[sqlite3.Connection], T], limiter: anyio.CapacityLimiter) -> T:
        """Run a function with the connection, in a thread.

        Raises:
            _FileLocked: Another process has locked the file. The function's changes were rolled back.
            LedgerDown: The file cannot be used.
        """

        def locked() -> T:
            lock = self._process_lock()
            if not lock.acquire(timeout=_BUSY_SECONDS):
                raise LedgerDown(f"the ledger {self._path} cannot be used: too many operations are waiting")
            try:
                return work(self._open())
            except (sqlite3.Error, OSError) as error:
                # The lowest byte of an extended error code is the primary error code.
                if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                    raise _FileLocked from error
                # The operator may repair the file; the next operation opens it again.
                self._close()
                raise LedgerDown(f"the ledger {self._path} cannot be used: {error}") from error
            finally:
                lock.release()

        try:
            # The timeout ends only the wait for a free thread. Work that already runs in a thread is not cancelled.
            with anyio.fail_after(_BUSY_SECONDS * 2):
                return await anyio.to_thread.run_sync(locked, limiter=limiter)
        except TimeoutError as error:
            raise LedgerDown(f"the ledger {self._path} cannot be used: too many operations are waiting") from error

    def _process_lock(self) -> threading.Lock:
        if self._pid != os.getpid():
            # Neither a connection nor a lock survives a fork. Keep a reference to the parent's connection, because
            # garbage collection would close it.
            self._inherited_connections.append(self._connection)
            self._connection, self._lock, self._pid = None, threading.Lock(), os.getpid()
        return self._lock

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None:
            return self._connection
        if not self._path.exists():
            self._path.touch(mode=0o600)
        # SQLite's own timeout is off, because SQLite would occupy the connection while it waits.
        connection = sqlite3.connect(self._path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={self._synchronous}")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > _FORMAT:
            raise LedgerDown(
                f"the ledger {self._path} has format {version}, which a later version of roundtrip wrote; this version "
                f"supports only format {_FORMAT}; upgrade roundtrip, or use another file"
            )
        if version < _FORMAT:
            connection.executescript(f"{_SCHEMA}PRAGMA user_version={_FORMAT};")


def _load(db: sqlite3.Connection, key: str, now: float) -> LedgerEntry | None:
    """Return an entry in its current state, without notes. Return None if it does not exist or has expired."""
    row = db.execute(_LOAD, [key, now]).fetchone()
    if row is None:
        return None
    entry = LedgerEntry(EntryState(row[0]), *row[1:])
    entry.advance(now)
    return entry


def _store(db: sqlite3.Connection, key: str, entry: LedgerEntry, before: LedgerEntry) -> None:
    *row, notes, _account = astuple(entry)
    db.execute(_STORE, [key, *row])
    db.executemany(_NOTE, [(key, name, text) for name, text in notes.items() if before.notes.get(name) != text])
