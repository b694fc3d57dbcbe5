"""`SqliteLedger`: for the processes of one machine."""

# sqlite3 is loaded where it is first needed: a server without such a ledger does not pay for it.
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

from roundtrip.ledger.contract import Claim, EntryState, LedgerDown, Reach
from roundtrip.ledger.waiting import Waiting

if TYPE_CHECKING:
    import sqlite3

__all__ = ["SqliteLedger"]

T = TypeVar("T")

_PATIENCE: Final = 5.0
_PAUSE: Final = 0.01
_THREADS: Final = 8
"""Threads of an event loop that may be at the file, or wait for it."""
_FORGET_EVERY: Final = 256

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS entries (
    key TEXT PRIMARY KEY,
    terms TEXT NOT NULL,
    holder TEXT NOT NULL,
    standing TEXT NOT NULL,
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

# One statement, so one atomic step: a SELECT before it would let two processes begin.
_CLAIM: Final = """
INSERT INTO entries (key, terms, holder, standing, lapses, expires)
VALUES (:key, :terms, :holder, :standing, :lapses, :expires)
ON CONFLICT (key) DO UPDATE SET terms = :terms, holder = :holder, lapses = :lapses, expires = :expires, result = NULL,
    standing = CASE WHEN standing = 'running' AND holder = :holder THEN standing ELSE :standing END
WHERE entries.expires <= :now
   OR entries.standing = 'free'
   OR (entries.standing = 'held' AND entries.lapses <= :now)
   OR (entries.holder = :holder AND entries.standing IN ('running', 'held') AND entries.lapses > :now)
   OR (:although AND (entries.standing = 'unknown' OR (entries.standing = 'running' AND entries.lapses <= :now)))
"""
_RENEW: Final = """
UPDATE entries SET lapses = :lapses WHERE key = :key AND holder = :holder AND standing IN ('running', 'held')
"""
_SETTLE: Final = """
UPDATE entries SET standing = :standing, result = :result, expires = :expires
WHERE key = :key AND holder = :holder AND (standing <> 'settled' OR result = :result)
"""
_NOTE: Final = """
INSERT OR REPLACE INTO notes (key, name, value)
SELECT key, :name, :value FROM entries WHERE key = :key AND holder = :holder AND standing IN ('running', 'held')
"""
_NOTES: Final = "SELECT name, value FROM notes WHERE key = :key"
_RELEASE: Final = """
UPDATE entries SET standing = 'free' WHERE key = :key AND holder = :holder AND standing IN ('running', 'held')
"""
_LOOK: Final = """
SELECT standing, terms, result, lapses FROM entries
WHERE key = :key AND expires > :now AND standing <> 'free' AND (standing <> 'held' OR lapses > :now)
"""
# Bounded, as whoever claims waits for it: four times what can have been added since the last time.
_FORGET: Final = (
    "DELETE FROM entries WHERE key IN (SELECT key FROM entries WHERE expires <= :now ORDER BY expires LIMIT :most)",
    """DELETE FROM counted WHERE (key, item) IN
    (SELECT key, item FROM counted WHERE expires <= :now ORDER BY expires LIMIT :most)""",
)
# One statement again: of those who count at once, each sees what the others have counted.
_COUNT: Final = """
INSERT INTO counted (key, item, expires) SELECT :key, :item, :expires
WHERE (SELECT count(*) FROM counted WHERE key = :key AND expires > :now) < :most
ON CONFLICT (key, item) DO UPDATE SET expires = :expires WHERE counted.expires <= :now
"""
_COUNTED: Final = "SELECT 1 FROM counted WHERE key = :key AND item = :item AND expires > :now"


class SqliteLedger:
    """Keeps what was done in a file, for all processes of one machine that open it.

    Args:
        path: The file, which is made if need be, readable by its owner alone. Not on a network's file system, whose
            locks cannot be relied on.
        durable: Whether what is settled survives a power cut, at the price of a write to the disk each time. Without,
            it survives the end of a process.

    Raises:
        ValueError: The path is a database in memory, which no other process sees.
    """

    def __init__(self, path: str | os.PathLike[str], *, durable: bool = True) -> None:
        self._path = Path(path)
        if str(path) in ("", ":memory:"):
            raise ValueError("SqliteLedger takes the path of a file; for one process there is MemoryLedger")
        self._synchronous: Literal["FULL", "NORMAL"] = "FULL" if durable else "NORMAL"
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._pid = os.getpid()
        self._inherited: list[object] = []
        self._claims = 0
        self._waiting = Waiting()
        # Bodies may hold all of the threads that everybody shares, and a ledger that waits for one would not hear that
        # they are alive. And those that wait for the file would keep bodies from running.
        self._limiter: RunVar[anyio.CapacityLimiter] = RunVar(f"roundtrip_sqlite_{id(self)}")

    @property
    def reach(self) -> Reach:
        """As the contract says."""
        return Reach.MACHINE

    async def claim(
        self,
        key: str,
        terms: str,
        *,
        holder: str,
        lease: float,
        keep: float,
        although_unknown: bool = False,
        tentative: bool = False,
        account: str | None = None,
    ) -> Claim:
        """As the contract says. Accounts need no shares: what it holds is bounded by the disk."""
        del account

        def claim(connection: sqlite3.Connection) -> Claim | None:
            now = time.time()
            self._claims += 1
            if self._claims % _FORGET_EVERY == 0:
                _forget(connection, now)
            given = {
                "key": key,
                "terms": terms,
                "holder": holder,
                "standing": "held" if tentative else EntryState.RUNNING.value,
                "lapses": now + lease,
                "expires": now + keep,
                "now": now,
                "although": although_unknown,
            }
            if connection.execute(_CLAIM, given).rowcount:
                return Claim(EntryState.GRANTED, terms, notes=dict(connection.execute(_NOTES, {"key": key}).fetchall()))
            return _look(connection, key)

        while (found := await self._run(claim)) is None:
            # It was released between the two statements: begin once more.
            pass
        return found

    async def renew(self, key: str, *, holder: str, lease: float) -> bool:
        """As the contract says."""
        given = {"key": key, "holder": holder}
        return await self._run(lambda db: db.execute(_RENEW, {**given, "lapses": time.time() + lease}).rowcount > 0)

    async def settle(self, key: str, *, holder: str, result: str | None, keep: float) -> bool:
        """As the contract says."""
        standing = EntryState.UNKNOWN if result is None else EntryState.SETTLED
        given = {"key": key, "holder": holder, "standing": standing.value, "result": result}
        return await self._run(lambda db: db.execute(_SETTLE, {**given, "expires": time.time() + keep}).rowcount > 0)

    async def note(self, key: str, name: str, value: str, *, holder: str) -> bool:
        """As the contract says."""
        given = {"key": key, "name": name, "value": value, "holder": holder}
        return await self._run(lambda db: db.execute(_NOTE, given).rowcount > 0)

    async def count(self, key: str, item: str, *, most: int, keep: float, account: str | None = None) -> bool:
        """As the contract says."""
        del account

        def count(connection: sqlite3.Connection) -> bool:
            now = time.time()
            given = {"key": key, "item": item, "now": now}
            self._claims += 1
            if self._claims % _FORGET_EVERY == 0:
                _forget(connection, now)
            connection.execute(_COUNT, {**given, "most": most, "expires": now + keep})
            return connection.execute(_COUNTED, given).fetchone() is not None

        return await self._run(count)

    async def release(self, key: str, *, holder: str) -> None:
        """As the contract says."""
        await self._run(lambda db: db.execute(_RELEASE, {"key": key, "holder": holder}))

    async def wait(self, key: str, *, patience: float) -> Claim | None:
        """As the contract says."""
        return await self._waiting.wait(key, lambda: self._run(lambda db: _look(db, key)), patience=patience)

    async def aclose(self) -> None:
        """Close the file. It is opened again when it is needed."""

        def close() -> None:
            with self._own_lock():
                self._close()

        await anyio.to_thread.run_sync(close)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        import sqlite3

        def locked() -> T:
            lock = self._own_lock()
            if not lock.acquire(timeout=_PATIENCE):
                raise LedgerDown(f"the ledger {self._path} cannot be used: too many wait for it")
            try:
                return work(self._open())
            except (sqlite3.Error, OSError) as error:
                # Whatever was wrong with the file may be mended; the next one opens it anew.
                self._close()
                raise LedgerDown(f"the ledger {self._path} cannot be used: {error}") from error
            finally:
                lock.release()

        try:
            limiter = self._limiter.get()
        except LookupError:
            limiter = anyio.CapacityLimiter(_THREADS)
            self._limiter.set(limiter)
        try:
            # Only who waits for a thread is cut short; what runs in one is not cancelled.
            with anyio.fail_after(_PATIENCE * 2):
                return await anyio.to_thread.run_sync(locked, limiter=limiter)
        except TimeoutError as error:
            raise LedgerDown(f"the ledger {self._path} cannot be used: too many wait for it") from error

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
        connection = sqlite3.connect(self._path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
        self._connection = connection
        ends = time.monotonic() + _PATIENCE
        while True:
            try:
                connection.execute("PRAGMA journal_mode=WAL")
                break
            except sqlite3.OperationalError:
                # Where several processes make the file at once, SQLite does not wait for the one that is first.
                if time.monotonic() > ends:
                    raise
                time.sleep(_PAUSE)
        connection.execute(f"PRAGMA synchronous={self._synchronous}")
        connection.executescript(_SCHEMA)
        return connection


def _forget(connection: sqlite3.Connection, now: float) -> None:
    for statement in _FORGET:
        connection.execute(statement, {"now": now, "most": _FORGET_EVERY * 4})


def _look(connection: sqlite3.Connection, key: str) -> Claim | None:
    now = time.time()
    found = connection.execute(_LOOK, {"key": key, "now": now}).fetchone()
    if found is None:
        return None
    standing, terms, result, lapses = found
    if standing == "held":
        standing = EntryState.RUNNING.value
    if standing == EntryState.RUNNING.value and lapses <= now:
        return Claim(EntryState.UNKNOWN, terms)
    return Claim(EntryState(standing), terms, result)
