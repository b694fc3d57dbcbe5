"""Provide `RedisSubscriptionBus`, which sends changes to the clients of all instances through Redis or Valkey.

The SDK does not tell a bus when to start and stop. So the bus listens to Redis while its event loop has listeners, and
an asyncio task sends while events wait. A loop that ends cancels both, like all asyncio tasks.
"""

import asyncio
import contextvars
import logging
import math
import os
import random
import threading
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final

import anyio.lowlevel
from anyio.lowlevel import RunVar
from mcp.server.subscriptions import ServerEvent

from roundtrip.redis_connections import RedisConnections, RedisDown
from roundtrip.subscriptions.messages import ALL_LISTS, MAX_EVENTS, ChangeMessage, UnreadableMessage, fits, read_message

__all__ = ["RedisSubscriptionBus"]

logger = logging.getLogger("roundtrip")

Listener = Callable[[ServerEvent], None]

_MAX_WAITING_EVENTS: Final = 1024
"""Events that wait to be sent, or to be delivered; equal ones count once."""
_FIRST_PAUSE_SECONDS: Final = 0.1
_MAX_PAUSE_SECONDS: Final = 5.0
_QUIET_SECONDS: Final = 15.0
"""Seconds without a message after which Redis is pinged."""
_COMPLAINT_SECONDS: Final = 60.0
_NAME_BYTES: Final = 12


class RedisSubscriptionBus:
    """Bus for the instances of a service: `Server(…, subscriptions=RedisSubscriptionBus(url))`.

    An instance's own clients receive an event at once, even if Redis is down. Clients of other instances receive it
    through Redis, which keeps no events: an instance without a connection misses them. When it can listen again, it
    announces to its clients that each list may have changed.

    Args:
        url: Such as `redis://redis.internal:6379/0`, `rediss://…` or `unix://…`; of a cluster, that of any node.
        channel: The channel that the instances of one service share.
        timeout: Seconds that one request may take, with connecting.
        **options: Options of redis-py's connections, as `redis.asyncio.Redis.from_url` takes them.

    Raises:
        ImportError: redis-py is not installed.
    """

    def __init__(self, url: str, *, channel: str = "roundtrip:changes", timeout: float = 2.0, **options: Any) -> None:
        self._connections = RedisConnections(url, timeout=timeout, options=options)
        self._channel = channel
        self._timeout = timeout
        self._name = os.urandom(_NAME_BYTES).hex()
        # A server may serve on several event loops, each of which has listeners and connections of its own.
        self._lock = threading.Lock()
        self._hubs: set[_Hub] = set()
        self._own: RunVar[_Hub] = RunVar(f"roundtrip_bus_{id(self)}")

    async def publish(self, event: ServerEvent) -> None:
        """Deliver an event here, and queue it for the other instances, without waiting."""
        hub = self._hub()
        hub.deliver(event)
        with self._lock:
            others = [other for other in self._hubs if other is not hub]
        for other in others:
            other.deliver_from_another_loop(event)
        if fits(event):
            hub.send(event)
        else:
            logger.warning(
                "an update of a resource is not sent to other instances: its URI is too long, or is not valid text"
            )
        # As in the SDK's own bus: during a burst of events, streams get time to send them.
        await anyio.lowlevel.checkpoint()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener to events on this event loop, and return a function that removes it."""
        hub = self._hub()
        token = object()
        hub.add(token, listener)
        with self._lock:
            self._hubs = {other for other in self._hubs if not other.is_over} | {hub}

        def unsubscribe() -> None:
            if hub.remove(token):
                with self._lock:
                    self._hubs.discard(hub)

        return unsubscribe

    async def aclose(self) -> None:
        """Send the waiting events of this event loop, within the timeout, and close its connections.

        Listeners still receive events that are published here. The next publication or listener connects again.
        """
        await self._hub().aclose()
        await self._connections.aclose()

    def _hub(self) -> "_Hub":
        try:
            return self._own.get()
        except LookupError:
            # A fork inherits the name, but is another instance.
            name = f"{self._name}-{os.getpid()}"
            hub = _Hub(self._connections, self._channel, name=name, timeout=self._timeout)
            self._own.set(hub)
            return hub


class _Hub:
    """Listeners and waiting events of one event loop, with the asyncio tasks that send and listen."""

    def __init__(self, connections: RedisConnections, channel: str, *, name: str, timeout: float) -> None:
        self._connections = connections
        self._channel = channel
        self._name = name
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._listeners: dict[object, Listener] = {}
        self._outgoing: dict[ServerEvent, None] = {}
        self._incoming: dict[ServerEvent, None] = {}
        self._lock = threading.Lock()
        self._lost = 0
        self._hearing: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._complained = -_COMPLAINT_SECONDS

    @property
    def is_over(self) -> bool:
        return self._loop.is_closed()

    def add(self, token: object, listener: Listener) -> None:
        self._listeners[token] = listener
        if self._hearing is None or self._hearing.done():
            self._hearing = self._begin(self._hear())

    def remove(self, token: object) -> bool:
        """Remove a listener, and return True if none is left."""
        self._listeners.pop(token, None)
        if not self._listeners and self._hearing is not None:
            self._hearing.cancel()
            self._hearing = None
        return not self._listeners

    def deliver(self, event: ServerEvent) -> None:
        for listener in list(self._listeners.values()):
            try:
                listener(event)
            except Exception:
                logger.exception("a listener to changes raised an exception")

    def deliver_from_another_loop(self, event: ServerEvent) -> None:
        with self._lock:
            first = not self._incoming
            _wait_in(self._incoming, event)
        if first:
            with suppress(RuntimeError):
                # A loop that has ended has no listeners.
                self._loop.call_soon_threadsafe(self._deliver_incoming)

    def _deliver_incoming(self) -> None:
        with self._lock:
            events, self._incoming = self._incoming, {}
        for event in events:
            self.deliver(event)

    def send(self, event: ServerEvent) -> None:
        self._lost += _wait_in(self._outgoing, event)
        if self._sending is None or self._sending.done():
            self._sending = self._begin(self._send())

    async def aclose(self) -> None:
        if self._again is not None:
            self._again.cancel()
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=self._timeout)
        for task in (self._sending, self._hearing):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._sending = self._hearing = None

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        # In an empty context: the task must not keep the context variables of the request that starts it.
        return self._loop.create_task(work, context=contextvars.Context())

    async def _send(self) -> None:
        """Send the waiting events, in batches of those that arrived together."""
        pauses = _Pauses()
        was_down = False
        while self._outgoing:
            batch = list(self._outgoing)[:MAX_EVENTS]
            for event in batch:
                del self._outgoing[event]
            try:
                text = ChangeMessage.of(batch, sender=self._name).model_dump_json()
                await self._connections.command("PUBLISH", self._channel, text)
            except RedisDown as error:
                self._complain("changes cannot be sent to other instances for now, and wait: %s", error)
                was_down = True
                self._put_back(batch)
                await asyncio.sleep(pauses.next())
            else:
                pauses.reset()
                if was_down:
                    # Other instances may pause before they listen again: repeat the events after the longest pause.
                    was_down = False
                    self._send_again_later([*batch, *self._outgoing])
        if self._lost:
            logger.warning("%d changes were not sent to other instances: too many waited for Redis", self._lost)
            self._lost = 0

    def _put_back(self, events: Iterable[ServerEvent]) -> None:
        later, self._outgoing = self._outgoing, {}
        self._lost += sum(_wait_in(self._outgoing, event) for event in [*events, *later])

    def _send_again_later(self, events: Iterable[ServerEvent]) -> None:
        def send_again() -> None:
            for event in events:
                self.send(event)

        if self._again is not None:
            self._again.cancel()
        self._again = self._loop.call_later(_MAX_PAUSE_SECONDS + self._timeout, send_again)

    async def _hear(self) -> None:
        """Deliver the events of other instances, and listen again after Redis was down."""
        pauses = _Pauses()
        while True:
            since = math.inf
            try:
                async with self._connections.subscribed(self._channel, quiet=_QUIET_SECONDS) as messages:
                    since = self._loop.time()
                    # Listeners that were added before may have missed events.
                    for event in ALL_LISTS:
                        self.deliver(event)
                    await self._hear_from(messages)
            except RedisDown as error:
                self._complain("changes of other instances cannot be received for now: %s", error)
            except Exception:
                logger.exception("changes of other instances cannot be received for now")
            if self._loop.time() - since > _MAX_PAUSE_SECONDS:
                # A shorter connection counts as a failure: after each one, all clients fetch all lists again.
                pauses.reset()
            await asyncio.sleep(pauses.next())

    async def _hear_from(self, messages: AsyncIterable[bytes | None]) -> None:
        """Deliver the events of messages, until the connection breaks."""
        waiting: dict[ServerEvent, None] = {}
        async for message in messages:
            # Messages that arrive together are delivered together, so that equal events are delivered once.
            if message is not None:
                waiting.update(dict.fromkeys(self._events_in(message)))
            if message is None or len(waiting) >= MAX_EVENTS:
                for event in waiting:
                    self.deliver(event)
                    # The streams of clients have limited queues, and need a moment to send.
                    await asyncio.sleep(0)
                waiting.clear()

    def _events_in(self, data: bytes) -> Iterable[ServerEvent]:
        try:
            message = read_message(data)
        except UnreadableMessage as error:
            self._complain("a message on the channel of changes is ignored: %s", error)
            return ()
        # Events that were published here have been delivered here.
        return () if message.sender == self._name else message.events()

    def _complain(self, text: str, error: Exception) -> None:
        now = self._loop.time()
        if now - self._complained >= _COMPLAINT_SECONDS:
            self._complained = now
            logger.warning(text, error)


class _Pauses:
    """Pauses between attempts: longer each time, and random, so that instances do not all try at the same moment."""

    def __init__(self) -> None:
        self._next = _FIRST_PAUSE_SECONDS

    def next(self) -> float:
        pause, self._next = self._next, min(self._next * 2, _MAX_PAUSE_SECONDS)
        return pause * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret

    def reset(self) -> None:
        self._next = _FIRST_PAUSE_SECONDS


def _wait_in(line: dict[ServerEvent, None], event: ServerEvent) -> int:
    """Queue an event once, and return the number of events that were dropped for it, the oldest first."""
    # Listeners fetch the list again, so only the latest of equal events counts.
    line.pop(event, None)
    line[event] = None
    if len(line) <= _MAX_WAITING_EVENTS:
        return 0
    line.pop(next(iter(line)))
    return 1
