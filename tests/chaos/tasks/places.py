"""The stores of the attack on tasks, which keep a history of every note of a step that was ever stored."""

import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from tests.kit.postgres_server import PostgresServer, postgres_server
from tests.kit.redis_server import RedisServer, redis_server

__all__ = ["KINDS", "Place", "Stored", "place"]

KINDS: Final = ("sqlite", "redis", "postgres")
# Rewriting would drop the history from the log.
_REDIS_OPTIONS: Final = ("--auto-aof-rewrite-percentage", "0")
_SQLITE_HISTORY: Final = """
CREATE TABLE history (call_id TEXT, note TEXT);
CREATE TRIGGER noted AFTER INSERT ON task_notes BEGIN INSERT INTO history VALUES (NEW.call_id, NEW.value); END;
"""
_POSTGRES_HISTORY: Final = """
CREATE TABLE chaos.history (number serial, call_id text, note text);
CREATE FUNCTION chaos.noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO chaos.history (call_id, note)
    SELECT NEW.call_id, unnest(NEW.notes[cardinality(OLD.notes) + 1:]);
    RETURN NULL;
END $$;
CREATE TRIGGER noted AFTER UPDATE ON chaos.tasks FOR EACH ROW EXECUTE FUNCTION chaos.noted();
"""


class Stored(NamedTuple):
    """A note as a store wrote it."""

    call_id: str
    note: str


@dataclass(frozen=True, slots=True)
class Place:
    """One store."""

    kind: str
    where: str
    begin: Callable[[], None]
    """Begins the history, once the tables are there."""
    history: Callable[[], list[Stored]]
    left: Callable[[set[str]], list[str]]
    """Returns what is left behind in the store besides the ended tasks of these calls, with the names of their last
    steps.
    """


@contextmanager
def place(kind: str, folder: Path) -> Generator[Place]:
    """Run a store of a kind."""
    match kind:
        case "sqlite":
            file = folder / "tasks.db"
            yield Place(
                kind,
                str(file),
                lambda: _run_sqlite(file, _SQLITE_HISTORY),
                lambda: _sqlite_history(file),
                lambda _: _left_in_sqlite(file),
            )
        case "redis":
            with redis_server(*_REDIS_OPTIONS) as redis:
                yield Place(
                    kind,
                    redis.url,
                    lambda: None,
                    lambda: list(_redis_history(redis)),
                    lambda calls: _left_in_redis(redis, calls),
                )
        case _:
            with postgres_server() as postgres:
                yield Place(
                    kind,
                    postgres.url,
                    lambda: _begin_postgres(postgres),
                    lambda: _postgres_history(postgres),
                    lambda _: _left_in_postgres(postgres),
                )


def _run_sqlite(file: Path, script: str) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.executescript(script)


def _sqlite_history(file: Path) -> list[Stored]:
    with closing(sqlite3.connect(file)) as db:
        return [Stored(*row) for row in db.execute("SELECT call_id, note FROM history ORDER BY rowid")]


def _left_in_sqlite(file: Path) -> list[str]:
    tables = ("task_notes WHERE call_id NOT IN (SELECT call_id FROM tasks)", "task_labels", "entries", "notes")
    with closing(sqlite3.connect(file)) as db:
        counts = {table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}
    return [f"{count} rows in {table}" for table, count in counts.items() if count]


def _redis_history(redis: RedisServer) -> Iterator[Stored]:
    """Yield what the log of Redis has, command by command."""
    folder = Path(redis.command("config", "get", "dir").splitlines()[-1], "appendonlydir")
    for path in sorted(folder.glob("*.incr.aof")):
        with path.open("rb") as file:
            while head := file.readline():
                words: list[str] = []
                for _ in range(int(head[1:])):
                    words.append(file.read(int(file.readline()[1:])).decode("utf-8", "replace"))
                    file.readline()
                if words[0].upper() == "RPUSH":
                    yield from (Stored(words[1].rpartition(":n:")[2], note) for note in words[2:])


def _left_in_redis(redis: RedisServer, calls: set[str]) -> list[str]:
    base = "chaos:{tasks}"
    expected = {f"{base}:due", f"{base}:calls", f"{base}:s:completed", *(f"{base}:t:{call}" for call in calls)}
    steps = {f"{base}:n:{call}" for call in calls}
    return sorted((set(redis.command("keys", "*").splitlines()) - steps) ^ expected)


def _begin_postgres(postgres: PostgresServer) -> None:
    postgres.command(_POSTGRES_HISTORY)
    if postgres.command("SELECT count(*) FROM pg_trigger WHERE tgname = 'noted'") != "1":
        raise AssertionError("the history could not be begun")


def _postgres_history(postgres: PostgresServer) -> list[Stored]:
    rows = postgres.command("SELECT call_id || ' ' || note FROM chaos.history ORDER BY number").splitlines()
    return [Stored(*row.split(" ", 1)) for row in rows]


def _left_in_postgres(postgres: PostgresServer) -> list[str]:
    tables = ("task_labels", "entries")
    counts = {table: postgres.command(f"SELECT count(*) FROM chaos.{table}") for table in tables}
    left = [f"{count} rows in {table}" for table, count in counts.items() if count != "0"]
    locks = postgres.command("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
    return left if locks == "0" else [*left, f"{locks} advisory locks"]
