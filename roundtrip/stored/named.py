"""The tasks that clients of one process have made or asked for, in a process that runs no others."""

from typing import Final

from roundtrip.ledger.tasks import CallStore

_MOST: Final = 100
"""The most calls to look at. Those that clients asked for longest ago are left to other processes."""


class NamedCalls:
    """Some tasks of a store."""

    def __init__(self, store: CallStore) -> None:
        self._store = store
        self._calls: dict[str, None] = {}

    def add(self, call_id: str) -> None:
        """Add the task of a call, which may not be stored yet."""
        self._calls.pop(call_id, None)
        self._calls[call_id] = None
        if len(self._calls) > _MOST:
            del self._calls[next(iter(self._calls))]

    async def due(self, limit: int) -> tuple[list[str], float | None]:
        """Look for due ones, as `CallStore.due` does. What has ended is forgotten until a client asks for it again."""
        waits: list[tuple[float, str]] = []
        for call_id in list(self._calls):
            entry, now = await self._store.load(call_id)
            if entry is not None and entry.has_ended:
                self._calls.pop(call_id, None)
            elif entry is not None:
                waits.append((min(entry.due, entry.expires) - now, call_id))
        waits.sort()
        due = [call_id for wait, call_id in waits if wait <= 0]
        return due[:limit], None if due or not waits else waits[0][0]
