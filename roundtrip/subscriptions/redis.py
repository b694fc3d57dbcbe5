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
"""Events that wait to be sent, or to be delivered; equal ones count once."""
_FIRST_PAUSE_SECONDS: Final = 0.1
_MAX_PAUSE_SECONDS: Final = 5.0
_COMPLAINT_SECONDS: Final = 60.0
_NAME_BYTES: Final = 12

# Messages. A reader is strict: any client of Redis may have sent them.

_MAX_EVENTS: Final = 128
"""Events that one message may have."""
_MAX_URI_BYTES: Final = 2048
_MAX_NAME_CHARS: Final = 64
_ESCAPED: Final = 6
"""The most bytes that one byte of text needs in JSON."""
_MAX_MESSAGE_BYTES: Final = _MAX_EVENTS * (_MAX_URI_BYTES * _ESCAPED + 32) + 1024

_List = Literal["tools", "prompts", "resources"]
_LISTS: Final[dict[_List, ServerEvent]] = {
    "tools": ToolsListChanged(),
    "prompts": PromptsListChanged(),
    "resources": ResourcesListChanged(),
}


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
        if _fits(event):
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
            self._hubs = {other for other in self._hubs if not other.loop.is_closed()} | {hub}

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
        if (hub := self._own.get(None)) is None:
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
        self.loop = asyncio.get_running_loop()
        self._listeners: dict[object, Listener] = {}
        self._outgoing: dict[ServerEvent, None] = {}
        self._incoming: dict[ServerEvent, None] = {}
        self._lock = threading.Lock()
        self._lost = 0
        self._hearing: asyncio.Task[None] | None = None
        self._sending: asyncio.Task[None] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._complained = -_COMPLAINT_SECONDS

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
                self.loop.call_soon_threadsafe(self._deliver_incoming)

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
        return self.loop.create_task(work, context=contextvars.Context())

    async def _send(self) -> None:
        """Send the waiting events, in batches of those that arrived together."""
        pauses = _pauses()
        was_down = False
        while self._outgoing:
            batch = list(self._outgoing)[:_MAX_EVENTS]
            for event in batch:
                del self._outgoing[event]
            try:
                text = _ChangeMessage.of(batch, sender=self._name).model_dump_json()
                await self._connections.command("PUBLISH", self._channel, text)
            except RedisDown as error:
                self._complain("changes cannot be sent to other instances for now, and wait: %s", error)
                was_down = True
                self._put_back(batch)
                await asyncio.sleep(next(pauses))
            else:
                pauses = _pauses()
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
        self._again = self.loop.call_later(_MAX_PAUSE_SECONDS + self._timeout, send_again)

    async def _hear(self) -> None:
        """Deliver the events of other instances, and listen again after Redis was down."""
        pauses = _pauses()
        while True:
            since = math.inf
            try:
                async with self._connections.subscribed(self._channel) as messages:
                    since = self.loop.time()
                    # Listeners that were added before may have missed events.
                    for event in _LISTS.values():
                        self.deliver(event)
                    await self._hear_from(messages)
            except RedisDown as error:
                self._complain("changes of other instances cannot be received for now: %s", error)
            except Exception:
                logger.exception("changes of other instances cannot be received for now")
            if self.loop.time() - since > _MAX_PAUSE_SECONDS:
                # A shorter connection counts as a failure: after each one, all clients fetch all lists again.
                pauses = _pauses()
            await asyncio.sleep(next(pauses))

    async def _hear_from(self, messages: AsyncIterable[bytes | None]) -> None:
        """Deliver the events of messages, until the connection breaks."""
        waiting: dict[ServerEvent, None] = {}
        async for message in messages:
            # Messages that arrive together are delivered together, so that equal events are delivered once.
            if message is not None:
                waiting.update(dict.fromkeys(self._events_in(message)))
            if message is None or len(waiting) >= _MAX_EVENTS:
                for event in waiting:
                    self.deliver(event)
                    # The streams of clients have limited queues, and need a moment to send.
                    await asyncio.sleep(0)
                waiting.clear()

    def _events_in(self, data: bytes) -> Iterable[ServerEvent]:
        try:
            message = _read_message(data)
        except _UnreadableMessage as error:
            self._complain("a message on the channel of changes is ignored: %s", error)
            return ()
        # Events that were published here have been delivered here.
        return () if message.sender == self._name else message.events()

    def _complain(self, text: str, error: Exception) -> None:
        now = self.loop.time()
        if now - self._complained >= _COMPLAINT_SECONDS:
            self._complained = now
            logger.warning(text, error)


def _pauses() -> Iterator[float]:
    """Yield pauses between attempts: longer each time, and random, so that instances do not all try at once."""
    pause = _FIRST_PAUSE_SECONDS
    while True:
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
        pause = min(pause * 2, _MAX_PAUSE_SECONDS)


def _wait_in(line: dict[ServerEvent, None], event: ServerEvent) -> int:
    """Queue an event once, and return the number of events that were dropped for it, the oldest first."""
    # Listeners fetch the list again, so only the latest of equal events counts.
    line.pop(event, None)
    line[event] = None
    if len(line) <= _MAX_WAITING_EVENTS:
        return 0
    line.pop(next(iter(line)))
    return 1


# Messages.


class _UnreadableMessage(ValueError):
    """The data is not a message. The text says why, without a quote from it."""


class _ChangeMessage(BaseModel):
    """Changes on one instance."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    version: Literal[1]
    sender: Annotated[str, StringConstraints(max_length=_MAX_NAME_CHARS)]
    lists: Annotated[list[_List], Field(max_length=_MAX_EVENTS)] = []
    updated: Annotated[
        list[Annotated[str, StringConstraints(max_length=_MAX_URI_BYTES)]], Field(max_length=_MAX_EVENTS)
    ] = []
    """The URIs of resources."""

    @classmethod
    def of(cls, events: Sequence[ServerEvent], *, sender: str) -> "_ChangeMessage":
        """Make the message of some events, all of which fit."""
        lists: list[_List] = [name for event in events for name, known in _LISTS.items() if event == known]
        updated = [event.uri for event in events if isinstance(event, ResourceUpdated)]
        return cls(version=1, sender=sender, lists=lists, updated=updated)

    def events(self) -> Iterator[ServerEvent]:
        """Yield its events, each once."""
        yield from dict.fromkeys(_LISTS[name] for name in self.lists)
        yield from dict.fromkeys(ResourceUpdated(uri=uri) for uri in self.updated)


def _fits(event: ServerEvent) -> bool:
    """Return True if a message can hold an event."""
    if not isinstance(event, ResourceUpdated):
        return True
    try:
        return len(event.uri.encode()) <= _MAX_URI_BYTES
    except UnicodeEncodeError:
        return False


def _read_message(data: object) -> _ChangeMessage:
    """Read a message that any client of Redis may have sent.

    Raises:
        _UnreadableMessage: The data is not a message.
    """
    if not isinstance(data, bytes):
        raise _UnreadableMessage("it is not text")
    if len(data) > _MAX_MESSAGE_BYTES:
        raise _UnreadableMessage(f"it must have at most {_MAX_MESSAGE_BYTES} bytes, got {len(data)}")
    try:
        return _ChangeMessage.model_validate_json(data)
    except ValidationError as error:
        # Only pydantic's own words: a key of the data must not reach the log.
        kinds = sorted({one["type"] for one in error.errors(include_input=False, include_context=False)})
        raise _UnreadableMessage(f"it is not a message of roundtrip's ({', '.join(kinds)})") from None
