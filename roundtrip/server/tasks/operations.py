"""Provide the operations on stored tasks that are an operator's, and not a client's."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from typing import Final, NamedTuple

from roundtrip.errors import RoundtripError
from roundtrip.ledger.tasks import TaskEntry, change_task
from roundtrip.machine.tasks import TaskEvent, TaskState
from roundtrip.server.tasks.book import TaskBook
from roundtrip.server.tasks.content import ContentUnreadable, is_call_id, split_id

__all__ = ["Backlog", "TaskNotChanged", "TaskOperations"]

_PAGE: Final = 200
_OVERDUE_SECONDS: Final = 60.0
_NOT_OWN: Final = "it is another service's, or no key of this server opens it; name its own server, with its keys"


class TaskNotChanged(RoundtripError):
    """An operator cannot change a task so; the text says why, and what to do."""


class Backlog(NamedTuple):
    """What a store of tasks has, or the first part of it."""

    states: Mapping[str, int]
    keys: Mapping[str, int]
    """The number of tasks by the public names of the keys under which they are sealed."""
    overdue: int
    """The tasks that have been due for a minute, so that no worker seems to run."""
    is_whole: bool


class TaskOperations:
    """Operations on the tasks of a server."""

    def __init__(self, book: TaskBook) -> None:
        self._book = book

    async def find(self, text: str) -> str | None:
        """Return the call that a text names: by its id or its task's, by the unique start of one, or as `last`."""
        if text == "last":
            newest = await self._book.store.list(limit=1)
            return newest[0].call_id if newest else None
        call_id, _ = split_id(text) if "." in text else (text, "")
        if not is_call_id(call_id):
            return None
        entry, _ = await self._book.store.load(call_id)
        if entry is not None:
            return call_id
        following = await self._book.store.scan(after=call_id, limit=2)
        fits = [entry.call_id for entry in following if entry.call_id.startswith(call_id)]
        return fits[0] if len(fits) == 1 else None

    async def cancel(self, call_id: str) -> None:
        """Cancel a task.

        Raises:
            TaskNotChanged: There is no such task, it is another service's, or it has ended.
            LedgerDown: The store cannot be used.
        """

        def cancel(entry: TaskEntry, now: float) -> str:
            if not self.is_readable(entry):
                return _NOT_OWN
            return "" if entry.apply(TaskEvent.CANCEL, now) else f"it has ended already, and is {entry.state.value}"

        why = await change_task(self._book.store, call_id, cancel)
        if why is None or why:
            raise TaskNotChanged(why or "there is no such task; `roundtrip tasks ls` lists them")

    async def retry(self, call_id: str, *, even_once: bool) -> None:
        """Let a worker continue a lost task behind its stored steps.

        Args:
            call_id: The call.
            even_once: True to let a body begin again that must not begin twice.

        Raises:
            TaskNotChanged: There is no such task, it is another service's, it is not lost, or its body must not begin
                twice.
            LedgerDown: The store cannot be used.
        """

        def retry(entry: TaskEntry, now: float) -> str | None:
            if not self.is_readable(entry):
                return _NOT_OWN
            if entry.runs_once and entry.has_begun and not even_once:
                return "its body must not begin twice, and may have done its work; look, and then use --even-once"
            if not entry.retry(now):
                return f"only lost tasks can be retried, and this one is {entry.state.value}"
            return None

        before, _ = await self._book.store.load(call_id)
        if before is None:
            raise TaskNotChanged("there is no such task; `roundtrip tasks ls` lists them")
        if (why := await change_task(self._book.store, call_id, retry)) is not None:
            raise TaskNotChanged(why)

    async def scan(self) -> AsyncGenerator[TaskEntry]:
        """Yield all tasks, in the order of their calls."""
        after = ""
        while page := await self._book.store.scan(after=after, limit=_PAGE):
            for entry in page:
                yield entry
            after = page[-1].call_id

    async def renew_key(self, entry: TaskEntry) -> bool:
        """Seal a task with the newest key, unless it is; return True if it was not.

        Raises:
            ContentUnreadable: No key of this server opens it.
            LedgerDown: The store cannot be used.
        """
        seal = self._book.seal

        def renew(entry: TaskEntry, now: float) -> bool:
            if self._keys_of(entry) <= {seal.hint}:
                return False
            self._book.reseal(entry)
            return True

        if self._keys_of(entry) <= {seal.hint}:
            return False
        return await change_task(self._book.store, entry.call_id, renew) or False

    async def backlog(self, *, limit: int) -> Backlog:
        """Return what the store has, from at most `limit` tasks."""
        states, keys, seen = Counter[str](), Counter[str](), 0
        async for entry in self.scan():
            if seen == limit:
                break
            seen += 1
            states[entry.state.value] += 1
            keys.update(self._keys_of(entry))
        due, _ = await self._book.store.due(_PAGE)
        overdue = 0
        for call_id in due:
            entry, now = await self._book.store.load(call_id)
            overdue += entry is not None and entry.state is TaskState.DUE and now - entry.due > _OVERDUE_SECONDS
        return Backlog(dict(states), dict(keys), overdue, seen < limit)

    def is_readable(self, entry: TaskEntry) -> bool:
        """Return True if a key of this server opens a task."""
        try:
            self._book.seal.read(entry.content, entry.call_id)
        except ContentUnreadable:
            return False
        return True

    def _keys_of(self, entry: TaskEntry) -> set[str]:
        return {self._book.seal.hint_of(text) for text in (entry.content, *entry.notes)}
