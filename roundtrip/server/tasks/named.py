"""The tasks that clients of one process have made or asked for, in a process that runs no others."""

from typing import Final, Protocol

from roundtrip.ledger.tasks import TaskStore

__all__ = ["DueTasks", "NamedTasks"]

_MOST: Final = 100
"""The most calls to look at. Those that clients asked for longest ago are left to other processes."""


class DueTasks(Protocol):
    """Tasks of which some are due, such as all of a store."""

    async def due(self, limit: int) -> tuple[list[str], float | None]:
        """Return the calls of tasks that are due, the longest due first, and the seconds until the next one is."""
        ...


class NamedTasks:
    """Some tasks of a store."""

    def __init__(self, store: TaskStore) -> None:
        self._store = store
        self._calls: dict[str, None] = {}

    def add(self, call_id: str) -> None:
        """Add the task of a call, which may not be stored yet."""
        self._calls.pop(call_id, None)
        self._calls[call_id] = None
        if len(self._calls) > _MOST:
            del self._calls[next(iter(self._calls))]

    async def due(self, limit: int) -> tuple[list[str], float | None]:
        """Implement `DueTasks.due`. What has ended is forgotten until a client asks for it again."""
        found: list[tuple[float, str]] = []
        following: float | None = None
        for call_id in list(self._calls):
            entry, now = await self._store.load(call_id)
            if entry is None:
                continue
            if entry.has_ended:
                self._calls.pop(call_id, None)
                continue
            wait = min(entry.due, entry.expires) - now
            if wait <= 0:
                found.append((wait, call_id))
            else:
                following = wait if following is None else min(following, wait)
        return [call_id for _, call_id in sorted(found)][:limit], None if found else following
