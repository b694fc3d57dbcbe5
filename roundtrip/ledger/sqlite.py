"""Provide `SqliteLedger`, for the processes of one machine."""

# sqlite3 is imported at first use: a server without such a ledger does not pay for it.
from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from roundtrip.ledger.contract import ClaimAnswer, ClaimStatus, LedgerDown, Reach
from roundtrip.ledger.entry import LedgerEntry
from roundtrip.ledger.waiting import Waiting
from roundtrip.machine.table import EntryEvent, EntryState
from roundtrip.system import SYSTEM, System

if TYPE_CHECKING:
    import sqlite3

__all__ = ["SqliteLedger"]

T = TypeVar("T")

_BUSY_SECONDS: Final = 5.0
_OPEN_PAUSE_SECONDS: Final = 0.01
_CHANGE_SECONDS: Final = 0.02
"""Time between two looks at the version of the file, while a leg waits."""
_MAX_THREADS: Final = 8
"""Threads of one event loop that use the file or wait for it."""
_FORGET_EVERY: Final = 256

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
CREATE TABLE IF NOT EXISTS counted (
    key TEXT NOT NULL,
    item TEXT NOT NULL,
    expires REAL NOT NULL,
    PRIMARY KEY (key, item)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS counted_expires ON counted (expires);
"""
_LOAD: Final = "SELECT state, holder, epoch, answers_digest, lapses, expires, result FROM entries WHERE key = ?"
_STORE: Final = """
INSERT INTO entries (key, state, holder, epoch, answers_digest, lapses, expires, result) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET state = excluded.state, holder = excluded.holder, epoch = excluded.epoch,
    answers_digest = excluded.answers_digest, lapses = excluded.lapses, expires = excluded.expires,
    result = excluded.result
"""
_DROP: Final = "DELETE FROM entries WHERE key = ?"
_NOTE: Final = "INSERT OR REPLACE INTO notes (key, name, value) VALUES (?, ?, ?)"
_NOTES: Final = "SELECT name, value FROM notes WHERE key = ?"
# Bounded, as a claim waits for it: four times the rows that can have been added since the last time.
_FORGET: Final = (
    "DELETE FROM entries WHERE key IN (SELECT key FROM entries WHERE expires <= :now ORDER BY expires LIMIT :most)",
    """DELETE FROM counted WHERE (key, item) IN
    (SELECT key, item FROM counted WHERE expires <= :now ORDER BY expires LIMIT :most)""",
)
_COUNT: Final = """
INSERT INTO counted (key, item, expires) SELECT :key, :item, :expires
WHERE (SELECT count(*) FROM counted WHERE key = :key AND expires > :now) < :most
ON CONFLICT (key, item) DO UPDATE SET expires = :expires WHERE counted.expires <= :now
"""
_COUNTED: Final = "SELECT 1 FROM counted WHERE key = :key AND item = :item AND expires > :now"


class SqliteLedger:
    """Ledger in a file, for all processes of one machine that open it.

    Args:
        path: The file, created if needed, readable by its owner alone. It must not be on a network file system, whose
            locks are not reliable.
        durable: Write every result through to the disk, so that it survives a power cut. Without, it survives the end
            of a process.
        system: The clock, which all processes of the file share, and the sleep.

    Raises:
        ValueError: The path is a database in memory, which no other process sees.
    """

    def __init__(self, path: str | os.PathLike[str], *, durable: bool = True, system: System = SYSTEM) -> None:
        self._path = Path(path)
        if str(path) in ("", ":memory:"):
            raise ValueError("SqliteLedger takes the path of a file; for one process there is MemoryLedger")
        self._synchronous: Literal["FULL", "NORMAL"] = "FULL" if durable else "NORMAL"
        self._system = system
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._pid = os.getpid()
        self._inherited: list[object] = []
        self._writes = 0
        self._waiting = Waiting(self._announce_changes)
        # Bodies may hold all shared threads, so the ledger has its own: it must hear that they are alive. Threads that
        # wait for the file must not keep bodies from running.
        self._limiter: RunVar[anyio.CapacityLimiter] = RunVar(f"roundtrip_sqlite_{id(self)}")

    @property
    def reach(self) -> Reach:
        """Implement `Ledger.reach`."""
        return Reach.MACHINE

    async def claim(
        self,
        key: str,
        answers_digest: str,
        *,
        holder: str,
        lease: float,
        keep: float,
        rerun: bool = False,
        tentative: bool = False,
        account: str | None = None,
    ) -> ClaimAnswer:
        """Implement `Ledger.claim`. Accounts need no shares: the disk bounds the ledger."""
        del account

        def claim(db: sqlite3.Connection, entry: LedgerEntry, now: float) -> ClaimAnswer | None:
            granted = entry.claim(
                answers_digest,
                holder=holder,
                lapses=now + lease,
                expires=now + keep,
                rerun=rerun,
                tentative=tentative,
                next_epoch=int(now * 1_000_000),
            )
            if not granted:
                return entry.seen(now)
            _store(db, key, entry)
            notes = dict(db.execute(_NOTES, [key]).fetchall())
            return ClaimAnswer(ClaimStatus.GRANTED, answers_digest, notes=notes, epoch=entry.epoch)

        return await self._change(key, claim) or ClaimAnswer(ClaimStatus.UNKNOWN)

    async def renew(self, key: str, *, holder: str, epoch: int, lease: float) -> bool:
        """Implement `Ledger.renew`."""

        def renew(db: sqlite3.Connection, entry: LedgerEntry, now: float) -> bool:
            if not entry.write(EntryEvent.RENEW, holder=holder, epoch=epoch):
                return False
            entry.lapses = now + lease
            _store(db, key, entry)
            return True

        return await self._change(key, renew)

    async def settle(self, key: str, *, holder: str, epoch: int, result: str | None, keep: float) -> bool:
        """Implement `Ledger.settle`."""

        def settle(db: sqlite3.Connection, entry: LedgerEntry, now: float) -> bool:
            if not entry.settle(result, holder=holder, epoch=epoch, expires=now + keep):
                return False
            _store(db, key, entry)
            return True

        settled = await self._change(key, settle)
        self._waiting.wake(key)
        return settled

    async def note(self, key: str, name: str, value: str, *, holder: str, epoch: int) -> bool:
        """Implement `Ledger.note`."""

        def note(db: sqlite3.Connection, entry: LedgerEntry, now: float) -> bool:
            del now
            if not entry.write(EntryEvent.NOTE, holder=holder, epoch=epoch):
                return False
            db.execute(_NOTE, [key, name, value])
            return True

        return await self._change(key, note)

    async def count(self, key: str, item: str, *, most: int, keep: float, account: str | None = None) -> bool:
        """Implement `Ledger.count`."""
        del account

        def count(db: sqlite3.Connection) -> bool:
            now = self._system.time()
            given = {"key": key, "item": item, "now": now}
            self._forget_now_and_then(db, now)
            db.execute(_COUNT, {**given, "most": most, "expires": now + keep})
            return db.execute(_COUNTED, given).fetchone() is not None

        return await self._run(count)

    async def release(self, key: str, *, holder: str, epoch: int | None = None) -> None:
        """Implement `Ledger.release`."""

        def release(db: sqlite3.Connection, entry: LedgerEntry, now: float) -> None:
            del now
            if entry.write(EntryEvent.RELEASE, holder=holder, epoch=epoch):
                _store(db, key, entry)

        await self._change(key, release)
        self._waiting.wake(key)

    async def wait(self, key: str, *, patience: float) -> ClaimAnswer | None:
        """Implement `Ledger.wait`.

        SQLite has no announcements between processes. While a leg waits, the process reads the version of the file
        every 20 ms, which takes some microseconds, and reads the entry only after a change of the file.
        """

        def look(db: sqlite3.Connection) -> ClaimAnswer | None:
            now = self._system.time()
            return _load(db, key, now).seen(now)

        return await self._waiting.wait(key, lambda: self._run(look), patience=patience)

    async def aclose(self) -> None:
        """Close the file. The next operation opens it again."""

        def close() -> None:
            with self._own_lock():
                self._close()

        await anyio.to_thread.run_sync(close)

    async def _announce_changes(self, wake_all: Callable[[], None]) -> None:
        """Tell the waiting legs of each change that another process makes to the file."""
        version: object = None
        while True:
            before = version
            with suppress(LedgerDown):
                version = await self._run(lambda db: db.execute("PRAGMA data_version").fetchone())
            if version != before:
                wake_all()
            await self._system.sleep(_CHANGE_SECONDS)

    async def _change(self, key: str, work: Callable[[sqlite3.Connection, LedgerEntry, float], T]) -> T:
        """Read and write an entry in one transaction."""

        def change(db: sqlite3.Connection) -> T:
            # Before the read: a lock that is only taken for the write would let two processes claim.
            db.execute("BEGIN IMMEDIATE")
            with db:
                now = self._system.time()
                self._forget_now_and_then(db, now)
                entry = _load(db, key, now)
                if not entry.epoch:
                    # It has expired: its notes go, too.
                    db.execute(_DROP, [key])
                return work(db, entry, now)

        return await self._run(change)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        import sqlite3

        def locked() -> T:
            lock = self._own_lock()
            if not lock.acquire(timeout=_BUSY_SECONDS):
                raise LedgerDown(f"the ledger {self._path} cannot be used: too many wait for it")
            try:
                return work(self._open())
            except (sqlite3.Error, OSError) as error:
                # The file may be repaired; the next operation opens it again.
                self._close()
                raise LedgerDown(f"the ledger {self._path} cannot be used: {error}") from error
            finally:
                lock.release()

        try:
            limiter = self._limiter.get()
        except LookupError:
            limiter = anyio.CapacityLimiter(_MAX_THREADS)
            self._limiter.set(limiter)
        try:
            # This ends the wait for a thread. Work that runs in one is not cancelled.
            with anyio.fail_after(_BUSY_SECONDS * 2):
                return await anyio.to_thread.run_sync(locked, limiter=limiter)
        except TimeoutError as error:
            raise LedgerDown(f"the ledger {self._path} cannot be used: too many wait for it") from error

    def _forget_now_and_then(self, db: sqlite3.Connection, now: float) -> None:
        self._writes += 1
        if self._writes % _FORGET_EVERY == 0:
            for statement in _FORGET:
                db.execute(statement, {"now": now, "most": _FORGET_EVERY * 4})

    def _own_lock(self) -> threading.Lock:
        if self._pid != os.getpid():
            # Neither a connection nor a lock survives a fork. What the parent has open must not be closed here.
            self._inherited.append(self._connection)
            self._connection, self._lock, self._pid = None, threading.Lock(), os.getpid()
        return self._lock

    def _close(self) -> None:
        import sqlite3

        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _open(self) -> sqlite3.Connection:
        import sqlite3

        if self._connection is not None:
            return self._connection
        if not self._path.exists():
            self._path.touch(mode=0o600)
        connection = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        self._connection = connection
        ends = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                break
            except sqlite3.OperationalError:
                # When several processes create the file at once, SQLite does not wait for the first.
                if time.monotonic() > ends:
                    raise
                time.sleep(_OPEN_PAUSE_SECONDS)
        connection.execute(f"PRAGMA synchronous={self._synchronous}")
        connection.executescript(_SCHEMA)
        return connection


def _load(db: sqlite3.Connection, key: str, now: float) -> LedgerEntry:
    """Return an entry as it is now; a new one, with epoch 0, where there is none that has not expired."""
    row = db.execute(_LOAD, [key]).fetchone()
    if row is None or row[5] <= now:
        return LedgerEntry()
    entry = LedgerEntry(EntryState(row[0]), *row[1:])
    entry.advance(now)
    return entry


def _store(db: sqlite3.Connection, key: str, entry: LedgerEntry) -> None:
    row = [
        entry.state.value,
        entry.holder,
        entry.epoch,
        entry.answers_digest,
        entry.lapses,
        entry.expires,
        entry.result,
    ]
    db.execute(_STORE, [key, *row])
