"""The index's SQLite file. It contains no call values and can be deleted at any time."""

import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from roundtrip.trace.writing.files import locked_folder_of

_APPLICATION: Final = 0x72745478
"""SQLite application id of an index."""
_VERSION: Final = 6
_BUSY_SECONDS: Final = 60.0
_CACHE_KIB: Final = 32 * 1024
_FILE_MODE: Final = 0o600
_COMPANIONS: Final = ("-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite creates beside a database."""

_SCHEMA: Final = """
CREATE TABLE files (
    number INTEGER PRIMARY KEY,
    device INTEGER NOT NULL,
    inode INTEGER NOT NULL,
    head INTEGER NOT NULL,
    digest BLOB NOT NULL,
    read INTEGER NOT NULL,
    reached REAL NOT NULL,
    unreadable INTEGER NOT NULL DEFAULT 0,
    newer INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE others (path TEXT PRIMARY KEY);
CREATE TABLE calls (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    started REAL,
    last REAL,
    row TEXT,
    facets TEXT,
    omitted TEXT
);
CREATE INDEX calls_started ON calls (started, number) WHERE row IS NOT NULL;
CREATE INDEX calls_last ON calls (last, started, number) WHERE row IS NOT NULL;
CREATE TABLE lines (
    call INTEGER NOT NULL,
    omitted INTEGER NOT NULL,
    file INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    length INTEGER NOT NULL,
    PRIMARY KEY (call, omitted, file, offset)
) WITHOUT ROWID;
CREATE TABLE facets (
    number INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    value TEXT NOT NULL,
    calls INTEGER NOT NULL DEFAULT 0,
    UNIQUE (kind, value)
);
CREATE INDEX facets_calls ON facets (kind, calls);
CREATE TABLE marks (
    facet INTEGER NOT NULL,
    started REAL NOT NULL,
    call INTEGER NOT NULL,
    PRIMARY KEY (facet, started, call)
) WITHOUT ROWID;
CREATE TABLE notices (
    event TEXT NOT NULL,
    at REAL NOT NULL,
    file INTEGER NOT NULL,
    offset INTEGER NOT NULL,
    length INTEGER NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (event, at, file, offset)
) WITHOUT ROWID;
CREATE INDEX notices_reason ON notices (event, reason, at, file, offset);
"""
"""`digest` is computed from a file's first `head` bytes, which may contain values. `marks` also contains each call's
start, so that calls with a facet can be read in list order. If a call has very many requests, some of its lines are not
read again: `lines.omitted` marks these lines, and `calls.omitted` has their figures. `row` is null for a call that only
operator actions mention. `others` lists further files, such as an operator log, so that a program that was started
without these files does not drop their lines.
"""


class IndexUnusable(Exception):
    """The index cannot be used; the message says why and what to do."""


def open_database(path: Path) -> sqlite3.Connection:
    """Open an index file, and create it if it does not exist.

    Raises:
        IndexUnusable: The file cannot be opened, or is not an index.
    """
    try:
        _make_file(path)
    except OSError as error:
        raise IndexUnusable(f"cannot use the index {str(path)!r}: {error.strerror}") from error
    with translated_errors(path):
        database = sqlite3.connect(path, timeout=_BUSY_SECONDS, check_same_thread=False)
        database.isolation_level = None
        _prepare(database, path)
    return database


def _make_file(path: Path) -> None:
    """Create the file, unless it exists.

    Do not open an existing file here: closing it would release the locks that SQLite holds in this process.
    """
    if path.exists():
        return
    with locked_folder_of(path, waits=True):
        # Another program may have created the file while this program waited for the lock.
        if not path.exists():
            # Remove the companion files of a deleted index. Programs that still use the deleted index have already
            # opened its companion files.
            for suffix in _COMPANIONS:
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, _FILE_MODE))


def _prepare(database: sqlite3.Connection, path: Path) -> None:
    # An empty file is accepted, and becomes an index.
    if _number(database, "application_id") != _APPLICATION and _tables(database):
        raise IndexUnusable(f"{str(path)!r} is not a transcript index; rename or move it")
    for pragma in ("journal_mode = WAL", "synchronous = NORMAL", f"cache_size = -{_CACHE_KIB}", "temp_store = FILE"):
        database.execute(f"PRAGMA {pragma}")
    with writing(database):
        if _number(database, "user_version") == _VERSION:
            return
        for table in _tables(database):
            # SQLite does not allow dropping its own tables.
            if not table.startswith("sqlite_"):
                database.execute(f'DROP TABLE "{table}"')
        for statement in _SCHEMA.split(";\n")[:-1]:
            database.execute(statement)
        database.execute(f"PRAGMA application_id = {_APPLICATION}")
        database.execute(f"PRAGMA user_version = {_VERSION}")


def _number(database: sqlite3.Connection, pragma: str) -> int:
    (number,) = database.execute(f"PRAGMA {pragma}").fetchone()
    return number


def _tables(database: sqlite3.Connection) -> list[str]:
    return [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]


@contextmanager
def translated_errors(path: Path) -> Generator[None]:
    """Convert SQLite errors to `IndexUnusable` inside a `with` block."""
    try:
        yield
    except (sqlite3.Error, OverflowError, UnicodeEncodeError) as error:
        raise IndexUnusable(f"cannot use the index {str(path)!r}: {error}; delete it if this happens again") from error


@contextmanager
def writing(database: sqlite3.Connection) -> Generator[None]:
    """Run a `with` block as one write transaction."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        # SQLite may already have ended the transaction, for example because the disk is full.
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")
