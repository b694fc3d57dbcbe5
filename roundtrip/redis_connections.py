"""Connections to Redis or Valkey: few, kept open, and each used on the event loop that opened it.

redis-py's client spends several times as long on a command as the server and the socket do, so that only its
connections are used. Whatever goes wrong comes as `RedisDown`, within the timeout.
"""

import asyncio
import hashlib
import importlib
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from anyio.lowlevel import RunVar

__all__ = ["RedisConnections", "RedisDown", "RedisScript", "Word", "redis_py"]

Word = str | bytes | int
"""A part of a command."""

_MOST_CONNECTIONS: Final = 64


class RedisDown(Exception):
    """Redis cannot be reached, or cannot do what it is asked; the text says why."""


@dataclass(frozen=True, slots=True)
class RedisScript:
    """A script that Redis runs as one step."""

    text: str
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())


class RedisConnections:
    """Runs commands on one Redis.

    Args:
        url: As redis-py reads it.
        timeout: Seconds that a command may take, with connecting and waiting for a connection.
        options: Those of redis-py's connections; `max_connections` bounds those of an event loop (64).
        cluster: Whether the URL is that of any node of a cluster. Commands then go redis-py's own, slower way.

    Raises:
        ImportError: redis-py is not installed.
        ValueError: The URL is none of Redis.
    """

    def __init__(self, url: str, *, timeout: float, options: dict[str, Any], cluster: bool = False) -> None:
        self._redis = redis_py()
        self._timeout = timeout
        # Scripts are read as RESP2 writes them. The pool chooses its parser by this, and a URL would win over it.
        given = {"socket_connect_timeout": timeout, **options, "protocol": 2}
        url = _without_protocol(url)
        self._most = int(given.pop("max_connections", None) or _MOST_CONNECTIONS)
        # A pool reads the URL, and knows how to make a connection.
        self._pool = self._redis.ConnectionPool.from_url(url, **given)
        self._cluster = (url, given) if cluster else None
        self._owned: RunVar[_Owned] = RunVar(f"roundtrip_redis_{id(self)}")

    async def run(self, script: RedisScript, key: str, args: Sequence[Word]) -> Any:
        """Run a script on a key. It may run twice where a connection breaks in the middle.

        Raises:
            RedisDown: It may have run, or not.
        """
        with self._told():
            async with asyncio.timeout(self._timeout):
                try:
                    return await self._answer(("EVALSHA", script.digest, 1, key, *args))
                except self._redis.NoScriptError:
                    # After a restart, or on another server of a failover. Redis keeps it from here on.
                    return await self._answer(("EVAL", script.text, 1, key, *args))

    async def command(self, *words: Word) -> Any:
        """Run a command that may run twice.

        Raises:
            RedisDown: It may have run, or not.
        """
        with self._told():
            async with asyncio.timeout(self._timeout):
                return await self._answer(words)

    @asynccontextmanager
    async def subscribed(self, channel: str) -> AsyncGenerator[Any]:
        """A connection of redis-py that is subscribed to a channel, and is closed in the end.

        Raises:
            RedisDown: It cannot be.
        """
        connection = self._pool.make_connection()
        try:
            with self._told():
                async with asyncio.timeout(self._timeout):
                    await connection.connect()
                    await connection.send_packed_command(_packed(("SUBSCRIBE", channel)), check_health=False)
                    await connection.read_response(disable_decoding=True)
            with self._told():
                yield connection
        finally:
            await connection.disconnect(nowait=True)

    async def aclose(self) -> None:
        """Close the connections of this event loop. They are opened again when they are needed."""
        owned = self._owned.get(None)
        if owned is not None:
            await owned.aclose()

    @contextmanager
    def _told(self) -> Generator[None]:
        try:
            yield
        except (self._redis.RedisError, self._redis.RedisClusterException, OSError, TimeoutError) as error:
            raise RedisDown(str(error) or type(error).__name__) from error

    async def _answer(self, words: Sequence[Word]) -> Any:
        try:
            owned = self._owned.get()
        except LookupError:
            owned = _Owned(asyncio.Semaphore(self._most))
            self._owned.set(owned)
        if self._cluster is not None:
            return await self._answer_of_cluster(owned, words)
        async with owned.places:
            while True:
                reused = bool(owned.idle)
                connection = owned.idle.pop() if reused else self._pool.make_connection()
                try:
                    await connection.send_packed_command(_packed(words))
                    answer = await connection.read_response(disable_decoding=True)
                except self._redis.NoScriptError:
                    owned.idle.append(connection)
                    raise
                except BaseException as error:
                    # Nobody must take the answer to this for the answer to something else. And whoever answers that
                    # it only reads is not the server that the URL names any more.
                    await connection.disconnect(nowait=True)
                    if not reused or not isinstance(error, self._redis.ConnectionError | OSError):
                        raise
                    # It stood idle while the server ended, as the others have.
                    await owned.aclose()
                else:
                    owned.idle.append(connection)
                    return answer

    async def _answer_of_cluster(self, owned: "_Owned", words: Sequence[Word]) -> Any:
        if owned.cluster is None:
            url, given = self._cluster or ("", {})
            owned.cluster = self._redis.RedisCluster.from_url(
                url, **{"socket_timeout": self._timeout, **given, "decode_responses": False}
            )
        return await owned.cluster.execute_command(*words)


@dataclass(slots=True)
class _Owned:
    """What belongs to one event loop."""

    places: asyncio.Semaphore
    idle: list[Any] = field(default_factory=list[Any])
    cluster: Any = None

    async def aclose(self) -> None:
        idle, self.idle = self.idle, []
        for connection in idle:
            await connection.disconnect(nowait=True)
        cluster, self.cluster = self.cluster, None
        if cluster is not None:
            await cluster.aclose()


class _RedisPy:
    """What is used of redis-py."""

    def __init__(self) -> None:
        self._client = importlib.import_module("redis.asyncio")
        self._errors = importlib.import_module("redis.exceptions")
        self.ConnectionPool: Any = self._client.ConnectionPool
        self.RedisCluster: Any = self._client.RedisCluster
        self.RedisError: type[Exception] = self._errors.RedisError
        self.RedisClusterException: type[Exception] = self._errors.RedisClusterException
        self.ConnectionError: type[Exception] = self._errors.ConnectionError
        self.NoScriptError: type[Exception] = self._errors.NoScriptError


def redis_py() -> _RedisPy:
    """The library, loaded where it is first needed.

    Raises:
        ImportError: It is not installed.
    """
    try:
        return _RedisPy()
    except ImportError as error:
        raise ImportError("this needs redis-py: pip install 'roundtrip[redis]'") from error


def _without_protocol(url: str) -> str:
    """Return the URL without its option `protocol`."""
    address, mark, query = url.partition("?")
    kept = [option for option in query.split("&") if option and not option.startswith("protocol=")]
    return f"{address}{mark}{'&'.join(kept)}" if kept else address


def _packed(words: Sequence[Word]) -> bytes:
    """A command as Redis reads it. redis-py does the same, and needs four times as long."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogatepass")
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)
