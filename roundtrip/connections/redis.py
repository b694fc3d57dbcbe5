"""Redis and Valkey connections: a small pool for each event loop, kept open between uses.

redis-py's client spends several times as long on a command as the socket and the server together. So this module uses
only redis-py's connections. Every failure raises `RedisDown` within the timeout.
"""

import asyncio
import hashlib
import importlib
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from anyio.lowlevel import RunVar

Word = str | bytes | float
"""One part of a command."""

_MAX_CONNECTIONS: Final = 64
_MESSAGE_PARTS: Final = 3
_QUIET_SECONDS: Final = 15.0
"""Seconds of silence after which a subscriber pings Redis."""
_RETRY_SECONDS: Final = 0.5


class RedisDown(Exception):
    """Redis cannot be reached or cannot run a command. The message says why."""


class RedisScript:
    """Lua script that Redis runs atomically."""

    def __init__(self, text: str) -> None:
        self.text: Final = text
        self.digest: Final = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class RedisConnections:
    """Connections to one Redis server or cluster.

    Args:
        url: A connection URL for redis-py.
        timeout: Maximum seconds for a command, including the time to get or open a connection.
        options: redis-py connection options. `max_connections` limits the connections of each event loop (default 64).
        cluster: True if the URL names a cluster node. redis-py's slower cluster client then runs the commands.

    Raises:
        ImportError: redis-py is not installed.
        ValueError: The URL is not a Redis URL.
    """

    def __init__(self, url: str, *, timeout: float, options: dict[str, Any], cluster: bool = False) -> None:
        try:
            self._redis: Any = importlib.import_module("redis.asyncio")
            self._errors: Any = importlib.import_module("redis.exceptions")
        except ImportError as error:
            raise ImportError("Redis connections need redis-py: pip install 'mcp-roundtrip[redis]'") from error
        self._timeout = timeout
        # Script replies are parsed as RESP2, and this option selects the pool's parser. Remove the `protocol` option
        # from the URL, because it would override this one.
        settings = {"socket_connect_timeout": timeout, **options, "protocol": 2}
        url = _remove_protocol(url)
        self._limit = int(settings.pop("max_connections", None) or _MAX_CONNECTIONS)
        # The pool only parses the URL and creates connections. Its own socket timeout must be off: with a timeout,
        # redis-py sends with `asyncio.wait_for`. On Python 3.11, that function can swallow a cancellation that arrives
        # as the send ends.
        self._pool = self._redis.ConnectionPool.from_url(url, **settings)
        self._pool.connection_kwargs["socket_timeout"] = None
        self._cluster = (url, settings) if cluster else None
        self._loop_connections: RunVar[_LoopConnections] = RunVar(f"roundtrip_redis_{id(self)}")

    async def run(self, script: RedisScript, key: str, args: Sequence[Word]) -> Any:
        """Run a script on a key. It may run twice if the connection breaks during the command.

        Raises:
            RedisDown: The script failed. It may still have taken effect.
        """
        with self._converted_errors():
            async with asyncio.timeout(self._timeout):
                try:
                    return await self._reply(("EVALSHA", script.digest, 1, key, *args))
                except self._errors.NoScriptError:
                    # Redis has restarted or failed over, and no longer has the script. EVAL also caches the script for
                    # later calls.
                    return await self._reply(("EVAL", script.text, 1, key, *args))

    async def command(self, *words: Word) -> Any:
        """Run a command that is safe to run twice.

        Raises:
            RedisDown: The command failed. It may still have taken effect.
        """
        with self._converted_errors():
            async with asyncio.timeout(self._timeout):
                return await self._reply(words)

    async def scan(self, pattern: str, after: str, count: int) -> tuple[list[bytes], str]:
        """Return some of the keys that match a pattern, and the place of the next ones, which is empty at the end.

        Args:
            pattern: The pattern.
            after: The place that the previous call returned.
            count: How many keys Redis examines, about.

        Raises:
            RedisDown: The command failed.
        """
        name, _, cursor = after.rpartition(" ")
        words: list[Word] = ["SCAN", cursor or "0", "MATCH", pattern, "COUNT", count]
        if self._cluster is None:
            at, keys = await self.command(*words)
            return keys, "" if int(at) == 0 else f" {int(at)}"
        # Each primary has some of the keys, so visit one after another in the order of their names.
        with self._converted_errors():
            async with asyncio.timeout(self._timeout):
                cluster = self._connections_of_loop().cluster
                await cluster.initialize()
                nodes = sorted(cluster.get_primaries(), key=lambda node: node.name)
                node = next((node for node in nodes if not name or node.name == name), None)
                if node is None:
                    raise RedisDown(f"the cluster's primary {name} is gone, so its keys must be listed again")
                cursors, keys = await cluster.execute_command(*words, target_nodes=node)
        at, later = int(cursors[node.name]), nodes[nodes.index(node) + 1 :]
        return keys, f"{node.name} {at}" if at else f"{later[0].name} 0" if later else ""

    @asynccontextmanager
    async def subscribed(self, channel: str) -> AsyncGenerator[AsyncGenerator[bytes | None]]:
        """Subscribe to a channel and yield its messages. The iterator yields None after the last message that has
        arrived so far.

        After `_QUIET_SECONDS` without a message, the subscriber pings Redis.

        Raises:
            RedisDown: Redis cannot be reached or does not answer a ping. Reading the messages may also raise this
                error.
        """
        connection = self._pool.make_connection()
        try:
            with self._converted_errors():
                async with asyncio.timeout(self._timeout):
                    await connection.connect()
                    await connection.send_packed_command(_encode_command(("SUBSCRIBE", channel)), check_health=False)
                    await connection.read_response(disable_decoding=True)
                yield self._messages(connection)
        finally:
            await connection.disconnect(nowait=True)

    async def hear(
        self, channel: str, on_message: Callable[[str | None], None], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        """Call a function with each message from a channel, and with None if messages may have been missed.

        This function runs forever. After a failure, it sleeps, and then subscribes again.
        """
        while True:
            with suppress(RedisDown):
                async with self.subscribed(channel) as messages:
                    # All messages sent before this point were missed.
                    on_message(None)
                    async for message in messages:
                        if message is not None:
                            on_message(redis_text(message))
            await sleep(_RETRY_SECONDS)

    async def _messages(self, connection: Any) -> AsyncGenerator[bytes | None]:
        is_pinged = has_more = False
        while True:
            patience = 0 if has_more else self._timeout if is_pinged else _QUIET_SECONDS
            answer = await connection.read_response(disable_decoding=True, timeout=patience)
            if answer is not None:
                is_pinged, has_more = False, True
                if isinstance(answer, list) and len(answer) == _MESSAGE_PARTS and answer[0] == b"message":  # pyright: ignore[reportUnknownArgumentType]
                    yield answer[2]
            elif has_more:
                has_more = False
                yield None
            elif is_pinged:
                raise RedisDown("the server does not answer")
            else:
                # A machine that has crashed does not close its connections, so only a ping can detect the crash.
                await connection.send_packed_command(_encode_command(("PING",)), check_health=False)
                is_pinged = True

    async def aclose(self) -> None:
        """Close this event loop's connections. The next command opens new ones."""
        connections = self._loop_connections.get(None)
        if connections is not None:
            await connections.aclose()

    @contextmanager
    def _converted_errors(self) -> Generator[None]:
        try:
            yield
        except (self._errors.RedisError, self._errors.RedisClusterException, OSError, TimeoutError) as error:
            raise RedisDown(str(error) or type(error).__name__) from error

    def _connections_of_loop(self) -> "_LoopConnections":
        if (connections := self._loop_connections.get(None)) is None:
            connections = _LoopConnections(asyncio.Semaphore(self._limit))
            self._loop_connections.set(connections)
        if self._cluster is not None and connections.cluster is None:
            url, settings = self._cluster
            options = {"socket_timeout": self._timeout, **settings, "decode_responses": False}
            connections.cluster = self._redis.RedisCluster.from_url(url, **options)
        return connections

    async def _reply(self, words: Sequence[Word]) -> Any:
        connections = self._connections_of_loop()
        if self._cluster is not None:
            return await connections.cluster.execute_command(*words)
        async with connections.slots:
            while True:
                is_reused = bool(connections.idle)
                connection = connections.idle.pop() if is_reused else self._pool.make_connection()
                try:
                    await connection.send_packed_command(_encode_command(words))
                    reply = await connection.read_response(disable_decoding=True)
                except self._errors.NoScriptError:
                    connections.idle.append(connection)
                    raise
                except BaseException as error:
                    # Drop the connection, because another command must not read a late reply. If the server has become
                    # read-only, it is no longer the primary, and a new connection may reach the new primary.
                    await connection.disconnect(nowait=True)
                    if not is_reused or not isinstance(error, self._errors.ConnectionError | OSError):
                        raise
                    # The server has closed this idle connection, and probably all other idle connections as well.
                    await connections.aclose()
                else:
                    connections.idle.append(connection)
                    return reply


@dataclass(slots=True, weakref_slot=True)
class _LoopConnections:
    """Connections of one event loop."""

    slots: asyncio.Semaphore
    idle: list[Any] = field(default_factory=list[Any])
    cluster: Any = None

    def __post_init__(self) -> None:
        # Drop idle connections before the interpreter exits. Otherwise each open connection prints a traceback.
        weakref.finalize(self, self.idle.clear)

    async def aclose(self) -> None:
        while self.idle:
            await self.idle.pop().disconnect(nowait=True)
        cluster, self.cluster = self.cluster, None
        if cluster is not None:
            await cluster.aclose()


def redis_text(data: bytes) -> str:
    """Decode text from Redis."""
    return data.decode("utf-8", "surrogatepass")


def _remove_protocol(url: str) -> str:
    """Remove the `protocol` option from a URL."""
    address, mark, query = url.partition("?")
    remaining = [option for option in query.split("&") if option and not option.startswith("protocol=")]
    return f"{address}{mark}{'&'.join(remaining)}" if remaining else address


def _encode_command(words: Sequence[Word]) -> bytes:
    """Encode a command in the Redis protocol. redis-py's encoder takes four times as long."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogatepass")
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)
