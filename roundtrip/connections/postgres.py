"""PostgreSQL connections: a small pool for each event loop, kept open between uses.

Every failure raises `PostgresDown` within the timeout.
"""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, Final, TypeVar

from anyio.lowlevel import RunVar

T = TypeVar("T")

_MAX_CONNECTIONS: Final = 8
_RETRY_SECONDS: Final = 0.5
_SCHEMA_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_TABLES_LOCK: Final = 0x726F756E64747269
"""Advisory-lock number. Only the process that holds this lock creates tables."""


class PostgresDown(Exception):
    """PostgreSQL cannot be reached or cannot run a statement. The message says why."""


class PostgresConnections:
    """Connections to one database.

    Args:
        dsn: A connection URL for asyncpg, for example `postgresql://user@host/database`.
        schema: The schema for the tables. It is created at first use.
        timeout: Maximum seconds for a statement, including the time to get or open a connection.
        options: asyncpg connection options. `max_size` limits the connections of each event loop (default 8).

    Raises:
        ImportError: asyncpg is not installed.
        ValueError: The schema name is too long, begins with a digit, or has characters other than lowercase letters,
            digits and underscores.
    """

    def __init__(self, dsn: str, *, schema: str, timeout: float, options: dict[str, Any]) -> None:
        try:
            self._asyncpg: Any = importlib.import_module("asyncpg")
        except ImportError as error:
            raise ImportError("PostgreSQL connections need asyncpg: pip install 'mcp-roundtrip[postgres]'") from error
        if not _SCHEMA_NAME.fullmatch(schema):
            raise ValueError(
                f"schema= must have at most 63 lowercase letters, digits and underscores, and no leading digit, "
                f"got {schema!r}; use a name such as 'calls'"
            )
        self.schema = schema
        self._dsn = dsn
        self._timeout = timeout
        self._limit = int(options.pop("max_size", _MAX_CONNECTIONS))
        self._options = options
        self._table_groups: list[str] = []
        self._loop_pool: RunVar[_LoopPool] = RunVar(f"roundtrip_postgres_{id(self)}")

    def add_tables(self, tables: str) -> None:
        """Register statements that create missing tables. They run before the next statement."""
        if tables not in self._table_groups:
            self._table_groups.append(tables)

    async def fetch(self, statement: str, *values: Any) -> Sequence[Any]:
        """Run a statement and return its rows. `{s}` in the statement stands for the schema.

        Raises:
            PostgresDown: The statement failed. It may still have taken effect.
        """
        text = statement.replace("{s}", self.schema)
        return await self._run_uncancelled(lambda: self._fetch(text, values))

    async def hear(
        self, channel: str, on_message: Callable[[str | None], None], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        """Call a function with each message from a channel, and with None if messages may have been missed.

        This function runs forever. After a failure, it sleeps, and then listens again.
        """
        name = f"{self.schema}.{channel}"
        while True:
            with suppress(PostgresDown):
                await self._hear(name, on_message)
            await sleep(_RETRY_SECONDS)

    async def aclose(self) -> None:
        """Close this event loop's connections. The next statement opens new ones."""
        pool = self._loop_pool.get(None)
        if pool is not None:
            pool.close()

    def _current_pool(self) -> _LoopPool:
        if (pool := self._loop_pool.get(None)) is None:
            pool = _LoopPool(self._limit)
            self._loop_pool.set(pool)
        pool.close_with_loop()
        return pool

    async def _run_uncancelled(
        self, work: Callable[[], Coroutine[Any, Any, T]], drop: Callable[[T], object] | None = None
    ) -> T:
        """Run work in a separate task. If the caller is cancelled, the work continues, because interrupted work would
        break the connection.

        Args:
            work: The work to run.
            drop: Disposes of the work's result if the caller is cancelled.

        Raises:
            PostgresDown: The work failed or timed out.
        """

        async def bounded() -> T:
            library = self._asyncpg
            down = (library.PostgresError, library.InterfaceError, library.InternalClientError, OSError, EOFError)
            try:
                async with asyncio.timeout(self._timeout):
                    return await work()
            except down as error:
                raise PostgresDown(str(error) or type(error).__name__) from error

        task = asyncio.get_running_loop().create_task(bounded(), context=Context())
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if drop is not None:
                task.add_done_callback(partial(_drop_result, drop))
            raise

    async def _fetch(self, text: str, values: Sequence[Any]) -> Sequence[Any]:
        pool = self._current_pool()
        async with pool.slots:
            connection = await self._connection(pool)
            try:
                rows = await connection.fetch(text, *values)
            except BaseException:
                connection.terminate()
                raise
            pool.idle.append(connection)
            return rows

    async def _connection(self, pool: _LoopPool) -> Any:
        """Return a connection, after creating the missing tables."""
        while pool.idle:
            connection = pool.idle.pop()
            if not connection.is_closed():
                break
        else:
            connection = await self._connect()
        try:
            async with pool.lock:
                while pool.tables < len(self._table_groups):
                    await self._create(connection, self._table_groups[pool.tables])
                    pool.tables += 1
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _connect(self) -> Any:
        try:
            return await self._asyncpg.connect(self._dsn, **self._options)
        except (AttributeError, LookupError) as error:
            raise ConnectionError("the server at this address is not PostgreSQL") from error

    async def _create(self, connection: Any, tables: str) -> None:
        # Only one process at a time may create tables: even with IF NOT EXISTS, two concurrent attempts fail.
        async with connection.transaction():
            await connection.execute(f"SELECT pg_advisory_xact_lock({_TABLES_LOCK})")
            if not await connection.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = $1", self.schema):
                await connection.execute(f"CREATE SCHEMA {self.schema}")
            await connection.execute(tables.replace("{s}", self.schema))

    async def _hear(self, channel: str, on_message: Callable[[str | None], None]) -> None:
        """Listen until the connection breaks."""
        pool, is_broken = self._current_pool(), asyncio.Event()

        def note_end(_: object) -> None:
            is_broken.set()

        def note_message(connection: object, process: object, channel: object, payload: str) -> None:
            on_message(payload)

        async def listen() -> Any:
            connection = await self._connect()
            pool.listening.add(connection)
            connection.add_termination_listener(note_end)
            await connection.add_listener(channel, note_message)
            return connection

        def end(connection: Any) -> None:
            pool.listening.discard(connection)
            connection.terminate()

        connection = await self._run_uncancelled(listen, drop=end)
        try:
            # All messages sent before this point were missed.
            on_message(None)
            await is_broken.wait()
        finally:
            end(connection)


class _LoopPool:
    """Connections of one event loop."""

    def __init__(self, limit: int) -> None:
        self.slots = asyncio.Semaphore(limit)
        self.idle: list[Any] = []
        self.listening: set[Any] = set()
        self.lock = asyncio.Lock()
        self.tables = 0
        """How many of the registered table groups already exist."""
        self._closing: asyncio.Task[None] | None = None

    def close_with_loop(self) -> None:
        """Close the connections when the event loop shuts down and cancels its tasks. asyncpg needs a running loop to
        close them.
        """
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close_at_end(), context=Context())

    def close(self) -> None:
        """Close the idle connections."""
        idle, self.idle = self.idle, []
        for connection in idle:
            connection.terminate()
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None

    async def _close_at_end(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for connection in [*self.idle, *self.listening]:
                connection.terminate()
            self.idle.clear()


def _drop_result(drop: Callable[[T], object], task: asyncio.Task[T]) -> None:
    if not task.cancelled() and task.exception() is None:
        drop(task.result())
