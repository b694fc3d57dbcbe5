"""`RedisSubscriptionBus`, which sends changes through Redis or Valkey to the clients of all instances.

The SDK does not tell a bus when to start and stop. So the bus listens to Redis while its event loop has listeners. A
separate asyncio task sends events while there are any in the queue. When the event loop ends, it cancels the listening
and the sending, like all asyncio tasks.
"""

import asyncio
import contextvars
import logging
import math
import os
import random
import threading
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final, Literal

import anyio.lowlevel
from anyio.lowlevel import RunVar
from mcp.server.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from roundtrip.connections.redis import RedisConnections, RedisDown

logger = logging.getLogger("roundtrip")

Listener = Callable[[ServerEvent], None]

_MAX_WAITING_EVENTS: Final = 1024
"""Maximum number of events that may be queued for sending or for delivery. Equal events count once."""
_FIRST_PAUSE_SECONDS: Final = 0.1
_MAX_PAUSE_SECONDS: Final = 5.0
_WARNING_SECONDS: Final = 60.0
_NAME_BYTES: Final = 12

# Limits for messages. The reader is strict, because any Redis client can send messages.

_MAX_EVENTS: Final = 128
"""Maximum number of events in a message."""
_MAX_URI_BYTES: Final = 2048
_MAX_NAME_CHARS: Final = 64
_MAX_ESCAPED_BYTES: Final = 6
"""Maximum bytes that JSON needs for one byte of text."""
_MAX_MESSAGE_BYTES: Final = _MAX_EVENTS * (_MAX_URI_BYTES * _MAX_ESCAPED_BYTES + 32) + 1024

_List = Literal["tools", "prompts", "resources"]
_LISTS: Final[dict[_List, ServerEvent]] = {
    "tools": ToolsListChanged(),
    "prompts": PromptsListChanged(),
    "resources": ResourcesListChanged(),
}


class RedisSubscriptionBus:
    """Bus for a service's instances: `Server(…, subscriptions=RedisSubscriptionBus(url))`.

    An instance's own clients receive an event at once, even if Redis is down. Clients of other instances receive the
    event through Redis. Redis does not keep events, so an instance without a connection misses them. When this instance
    can listen again, it announces to its clients that each list may have changed.

    Args:
        url: A connection URL, for example `redis://redis.internal:6379/0`, `rediss://…` or `unix://…`. For a cluster,
            the URL of any node.
        channel: The channel that all of the service's instances share.
        timeout: Maximum seconds for one request, including connecting.
        **options: Connection options for `redis.asyncio.Redis.from_url`.

    Raises:
        ImportError: redis-py is not installed.
    """

    def __init__(self, url: str, *, channel: str = "roundtrip:changes", timeout: float = 2.0, **options: Any) -> None:
        self._connections = RedisConnections(url, timeout=timeout, options=options)
        self._channel = channel
        self._timeout = timeout
        self._name = os.urandom(_NAME_BYTES).hex()
        # One server may run on several event loops. Each loop has separate listeners and connections.
        self._lock = threading.Lock()
        self._hubs: set[_Hub] = set()
        self._loop_hub: RunVar[_Hub] = RunVar(f"roundtrip_bus_{id(self)}")

    async def publish(self, event: ServerEvent) -> None:
        """Deliver an event to this instance's listeners. Also queue it for other instances, without waiting."""
        hub = self._hub()
        hub.deliver(event)
        with self._lock:
            others = [other for other in self._hubs if other is not hub]
        for other in others:
            other.deliver_from_another_loop(event)
        if _fits_in_message(event):
            hub.send(event)
        else:
            logger.warning("a resource update is not sent to other instances: its URI is too long or is not valid text")
        # Like the SDK's own bus, yield to the event loop. Streams can then send during a burst of events.
        await anyio.lowlevel.checkpoint()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Add a listener on this event loop. Returns a function that removes the listener."""
        hub = self._hub()
        token = object()
        hub.add(token, listener)
        with self._lock:
            self._hubs = {other for other in self._hubs if not other.loop.is_closed()} | {hub}

        def unsubscribe() -> None:
            if hub.remove(token):
                with self._lock:
                    self._hubs.discard(hub)

        return unsubscribe

    async def aclose(self) -> None:
        """Send this event loop's queued events, for at most the timeout. Then close its connections.

        Listeners still receive events that this instance publishes. The next publication or listener opens a new
        connection.
        """
        await self._hub().aclose()
        await self._connections.aclose()

    def _hub(self) -> "_Hub":
        if (hub := self._loop_hub.get(None)) is None:
            # A forked child inherits the name, but must count as another instance.
            name = f"{self._name}-{os.getpid()}"
            hub = _Hub(self._connections, self._channel, name=name, timeout=self._timeout)
            self._loop_hub.set(hub)
        return hub


class _Hub:
    """One event loop's listeners and queued events, and the asyncio tasks that send and listen."""

    def __init__(self, connections: RedisConnections, channel: str, *, name: str, timeout: float) -> None:
        self._connections = connections
        self._channel = channel
        self._name = name
        self._timeout = timeout
        self.loop = asyncio.get_running_loop()
        self._listeners: dict[object, Listener] = {}
        self._outgoing: dict[ServerEvent, None] = {}
        self._incoming: dict[ServerEvent, None] = {}
        self._lock = threading.Lock()
        self._dropped = 0
        self._listening: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._resend_timer: asyncio.TimerHandle | None = None
        self._warned_at = -_WARNING_SECONDS

    def add(self, token: object, listener: Listener) -> None:
        self._listeners[token] = listener
        if self._listening is None or self._listening.done():
            self._listening = self._start_task(self._listen())

    def remove(self, token: object) -> bool:
        """Remove a listener. Return True if no listeners remain."""
        self._listeners.pop(token, None)
        if not self._listeners and self._listening is not None:
            self._listening.cancel()
            self._listening = None
        return not self._listeners

    def deliver(self, event: ServerEvent) -> None:
        for listener in list(self._listeners.values()):
            try:
                listener(event)
            except Exception:
                logger.exception("a change listener raised an exception")

    def deliver_from_another_loop(self, event: ServerEvent) -> None:
        with self._lock:
            first = not self._incoming
            _enqueue(self._incoming, event)
        if first:
            with suppress(RuntimeError):
                # If the event loop has ended, it has no listeners, so ignore the error.
                self.loop.call_soon_threadsafe(self._deliver_incoming)

    def _deliver_incoming(self) -> None:
        with self._lock:
            events, self._incoming = self._incoming, {}
        for event in events:
            self.deliver(event)

    def send(self, event: ServerEvent) -> None:
        self._dropped += _enqueue(self._outgoing, event)
        if self._sending is None or self._sending.done():
            self._sending = self._start_task(self._send())

    async def aclose(self) -> None:
        if self._resend_timer is not None:
            self._resend_timer.cancel()
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=self._timeout)
        for task in (self._sending, self._listening):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._sending = self._listening = None

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        # Use an empty context: the task must not retain the context variables of the request that starts it.
        return self.loop.create_task(work, context=contextvars.Context())

    async def _send(self) -> None:
        """Send the queued events. Each batch contains the events that are in the queue when the batch is sent."""
        pauses = _retry_pauses()
        was_down = False
        while self._outgoing:
            batch = list(self._outgoing)[:_MAX_EVENTS]
            for event in batch:
                del self._outgoing[event]
            try:
                text = _ChangeMessage.of(batch, sender=self._name).model_dump_json()
                await self._connections.command("PUBLISH", self._channel, text)
            except RedisDown as error:
                self._warn_rarely("changes cannot be sent to other instances for now and stay queued: %s", error)
                was_down = True
                self._requeue(batch)
                await asyncio.sleep(next(pauses))
            else:
                pauses = _retry_pauses()
                if was_down:
                    # Other instances may not be listening yet, because they pause after a failure. So send the events
                    # again after the longest possible pause.
                    was_down = False
                    self._resend_later([*batch, *self._outgoing])
        if self._dropped:
            logger.warning(
                "%d changes were not sent to other instances: too many changes were queued for Redis", self._dropped
            )
            self._dropped = 0

    def _requeue(self, events: Iterable[ServerEvent]) -> None:
        later, self._outgoing = self._outgoing, {}
        self._dropped += sum(_enqueue(self._outgoing, event) for event in [*events, *later])

    def _resend_later(self, events: Iterable[ServerEvent]) -> None:
        def resend() -> None:
            for event in events:
                self.send(event)

        if self._resend_timer is not None:
            self._resend_timer.cancel()
        self._resend_timer = self.loop.call_later(_MAX_PAUSE_SECONDS + self._timeout, resend)

    async def _listen(self) -> None:
        """Deliver events from other instances. After a Redis failure, pause and listen again."""
        pauses = _retry_pauses()
        while True:
            since = math.inf
            try:
                async with self._connections.subscribed(self._channel) as messages:
                    since = self.loop.time()
                    # Existing listeners may have missed events while there was no connection.
                    for event in _LISTS.values():
                        self.deliver(event)
                    await self._deliver_messages(messages)
            except RedisDown as error:
                self._warn_rarely("changes from other instances cannot be received for now: %s", error)
            except Exception:
                logger.exception("changes from other instances cannot be received for now")
            if self.loop.time() - since > _MAX_PAUSE_SECONDS:
                # A connection that ended sooner counts as a failure, because clients fetch all lists again after each
                # new connection.
                pauses = _retry_pauses()
            await asyncio.sleep(next(pauses))

    async def _deliver_messages(self, messages: AsyncIterable[bytes | None]) -> None:
        """Deliver the events in messages until the connection breaks."""
        waiting: dict[ServerEvent, None] = {}
        async for message in messages:
            # Collect messages that arrive together, so that equal events are delivered only once.
            if message is not None:
                waiting.update(dict.fromkeys(self._events_in(message)))
            if message is None or len(waiting) >= _MAX_EVENTS:
                for event in waiting:
                    self.deliver(event)
                    # Client streams have limited queues, so give the streams a moment to send.
                    await asyncio.sleep(0)
                waiting.clear()

    def _events_in(self, data: bytes) -> Iterable[ServerEvent]:
        try:
            message = _read_message(data)
        except _UnreadableMessage as error:
            self._warn_rarely("a message on the change channel is ignored: %s", error)
            return ()
        # Skip this instance's own events. They have already been delivered here.
        return () if message.sender == self._name else message.events()

    def _warn_rarely(self, text: str, error: Exception) -> None:
        now = self.loop.time()
        if now - self._warned_at >= _WARNING_SECONDS:
            self._warned_at = now
            logger.warning(text, error)


def _retry_pauses() -> Iterator[float]:
    """Yield pauses between attempts. The pauses grow. They are random, so that instances do not all retry at once."""
    pause = _FIRST_PAUSE_SECONDS
    while True:
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
        pause = min(pause * 2, _MAX_PAUSE_SECONDS)


def _enqueue(queue: dict[ServerEvent, None], event: ServerEvent) -> int:
    """Queue an event, or move it to the end if it is already queued. Return the number of dropped old events."""
    # For each event, listeners fetch a whole list again. So among equal events, only the latest one matters.
    queue.pop(event, None)
    queue[event] = None
    if len(queue) <= _MAX_WAITING_EVENTS:
        return 0
    queue.pop(next(iter(queue)))
    return 1


class _UnreadableMessage(ValueError):
    """Error for data that is not a valid message. Its text gives the reason without quoting the data."""


class _ChangeMessage(BaseModel):
    """A message with one instance's changes."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    version: Literal[1]
    sender: Annotated[str, StringConstraints(max_length=_MAX_NAME_CHARS)]
    lists: Annotated[list[_List], Field(max_length=_MAX_EVENTS)] = []
    updated: Annotated[
        list[Annotated[str, StringConstraints(max_length=_MAX_URI_BYTES)]], Field(max_length=_MAX_EVENTS)
    ] = []
    """URIs of changed resources."""

    @classmethod
    def of(cls, events: Sequence[ServerEvent], *, sender: str) -> "_ChangeMessage":
        """Build a message from events. Each event must fit into a message."""
        lists: list[_List] = [name for event in events for name, known in _LISTS.items() if event == known]
        updated = [event.uri for event in events if isinstance(event, ResourceUpdated)]
        return cls(version=1, sender=sender, lists=lists, updated=updated)

    def events(self) -> Iterator[ServerEvent]:
        """Yield each event in the message once."""
        yield from dict.fromkeys(_LISTS[name] for name in self.lists)
        yield from dict.fromkeys(ResourceUpdated(uri=uri) for uri in self.updated)


def _fits_in_message(event: ServerEvent) -> bool:
    """Return True if an event fits into a message."""
    if not isinstance(event, ResourceUpdated):
        return True
    try:
        return len(event.uri.encode()) <= _MAX_URI_BYTES
    except UnicodeEncodeError:
        return False


def _read_message(data: object) -> _ChangeMessage:
    """Parse a message. The message may come from any Redis client.

    Raises:
        _UnreadableMessage: The data is not a valid message.
    """
    if not isinstance(data, bytes):
        raise _UnreadableMessage("the data is not text")
    if len(data) > _MAX_MESSAGE_BYTES:
        raise _UnreadableMessage(f"the data must have at most {_MAX_MESSAGE_BYTES} bytes, got {len(data)}")
    try:
        return _ChangeMessage.model_validate_json(data)
    except ValidationError as error:
        # Report only pydantic's error types, because keys from the data must not reach the log.
        kinds = sorted({detail["type"] for detail in error.errors(include_input=False, include_context=False)})
        raise _UnreadableMessage(f"the data is not a roundtrip message ({', '.join(kinds)})") from None
