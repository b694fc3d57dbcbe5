"""Listeners for changes in a store, kept separately for each event loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any

Announce = Callable[[str | None], None]
"""Function that is called with the key of a changed entry, or the call id of a changed task. It receives None if
changes may have been missed.
"""
Feed = Callable[[Announce], Coroutine[Any, Any, None]]
"""Coroutine function that runs on each event loop that has listeners. It announces changes made by other processes and
loops.
"""


class ChangeListeners:
    """Functions that are called for each changed entry or task.

    Args:
        feed: Announces changes to an event loop; None if the store itself announces every change.
    """

    def __init__(self, feed: Feed | None = None) -> None:
        self._feed = feed
        self._lock = threading.Lock()
        self._loops: dict[asyncio.AbstractEventLoop, _LoopListeners] = {}

    def listen(self, changed: Announce, key: str | None = None) -> Callable[[], None]:
        """Implement `CallStore.listen`. If a key is given, listen only for changes to that key's entry."""
        loop, token = asyncio.get_running_loop(), object()
        with self._lock:
            loop_listeners = self._loops.setdefault(loop, _LoopListeners())
            loop_listeners.by_key.setdefault(key, {})[token] = changed
        if loop_listeners.feed is None and self._feed is not None:
            # Use an empty context: the feed must not retain the context variables of the request that starts it.
            loop_listeners.feed = loop.create_task(self._feed(loop_listeners.announce), context=Context())

        def stop() -> None:
            with_key = loop_listeners.by_key.get(key, {})
            with_key.pop(token, None)
            if not with_key:
                loop_listeners.by_key.pop(key, None)
            if loop_listeners.by_key or self._loops.get(loop) is not loop_listeners:
                return
            with self._lock:
                del self._loops[loop]
            if loop_listeners.feed is not None:
                loop_listeners.feed.cancel()

        return stop

    def announce_here(self, call_id: str) -> None:
        """Announce a change to this event loop."""
        loop_listeners = self._loops.get(asyncio.get_running_loop())
        if loop_listeners is not None:
            loop_listeners.announce(call_id)

    def announce(self, call_id: str) -> None:
        """Announce a change to all event loops in this process. Thread-safe."""
        with self._lock:
            loops = list(self._loops.items())
        for loop, loop_listeners in loops:
            if not loop.is_closed():
                loop.call_soon_threadsafe(loop_listeners.announce, call_id)


class _LoopListeners:
    """One event loop's listeners."""

    def __init__(self) -> None:
        self.by_key: dict[str | None, dict[object, Announce]] = {}
        """Listeners, grouped by the key that they listen for. Listeners under the key None listen for all changes."""
        self.feed: asyncio.Task[None] | None = None

    def announce(self, call_id: str | None) -> None:
        if call_id is None:
            concerned = [changed for with_key in self.by_key.values() for changed in with_key.values()]
        else:
            concerned = [*self.by_key.get(call_id, {}).values(), *self.by_key.get(None, {}).values()]
        for changed in concerned:
            changed(call_id)
