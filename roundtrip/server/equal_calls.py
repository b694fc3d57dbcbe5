"""Find the stored call that an equal request has begun, and let one of several equal calls win.

Models repeat a tool's call while it waits, and hosts send equal calls at once. All of them get one handle.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from typing import Any, Final

from roundtrip.ledger.contract import LedgerDown
from roundtrip.ledger.tasks import TaskEntry, change_task
from roundtrip.machine.tasks import TaskEvent
from roundtrip.server.stored_replies import awaited_groups
from roundtrip.server.tasks.book import TaskBook

__all__ = ["EqualCalls"]

_MAX_EQUAL: Final = 1000
_MAX_ROUNDS: Final = 100


class EqualCalls:
    """Equal calls of one server's users.

    Each stored call has a label that equal calls of one user share. One of them is chosen, and it stays chosen until it
    ends: that is written into the call itself, so that comparing and setting a single entry decides.

    Args:
        book: The stored calls.
    """

    def __init__(self, book: TaskBook) -> None:
        self._book = book

    def label(self, user: str, params: Mapping[str, Any], version: str | None, *, on_page: bool = False) -> str:
        """Return the label of a user's call of a tool, with the parameters of its request.

        Args:
            user: The user.
            params: The parameters.
            version: The version of the tool.
            on_page: True for a call whose client shows its page. It is equal to no other one until it waits for an
                approval.
        """
        called: list[Any] = [user, params.get("name"), version, params.get("arguments") or {}]
        return self._digest(json.dumps([*called, *(["page"] if on_page else [])], sort_keys=True))

    def _digest(self, called: str) -> str:
        return hmac.digest(self._book.page_keys[0], called.encode("utf-8", "surrogatepass"), "sha256").hex()

    async def chosen(self, label: str) -> str | None:
        """Return the chosen call of a label; None if there is none.

        Raises:
            LedgerDown: The store cannot be used.
        """
        for summary in await self._book.store.labelled(label, limit=_MAX_EQUAL):
            view = await self._book.view(summary.call_id)
            if view is not None and view.content.is_chosen and not view.entry.has_ended:
                return summary.call_id
        return None

    async def awaiting(self, label: str) -> str | None:
        """Return a call of a label that waits for an approval, and for nothing else; None if there is none.

        Raises:
            LedgerDown: The store cannot be used.
        """
        for summary in await self._book.store.labelled(label, limit=_MAX_EQUAL):
            view = await self._book.view(summary.call_id)
            if view is not None and not view.entry.has_ended and awaited_groups(view):
                return summary.call_id
        return None

    async def choose(self, label: str, call_id: str) -> str:
        """Return the chosen call of a label, after a call with it was stored; drop that call if it is another one.

        If none is chosen, the oldest is: the others are dropped first, and then it is marked. A call that was marked
        meanwhile cannot be dropped, and one that was dropped cannot be marked; then the caller looks again. Whoever
        stores an equal call later finds the marked one, or drops the one that its owner is about to mark.

        Raises:
            LedgerDown: The store cannot be used.
        """
        for _ in range(_MAX_ROUNDS):
            chosen = await self.chosen(label)
            if chosen is not None:
                if chosen != call_id:
                    await change_task(self._book.store, call_id, self._drop)
                return chosen
            equal = [summary.call_id for summary in await self._book.store.labelled(label, limit=_MAX_EQUAL)]
            if not equal:
                # It has ended already.
                return call_id
            first, *others = equal
            dropped = [await change_task(self._book.store, other, self._drop) is not False for other in others]
            if not all(dropped) or not await change_task(self._book.store, first, self._mark):
                continue
            if first != call_id and call_id not in others:
                await change_task(self._book.store, call_id, self._drop)
            return first
        raise LedgerDown("equal calls are stored too often")

    def _drop(self, entry: TaskEntry, now: float) -> bool:
        """Cancel a call, unless it is chosen. Return False if it is."""
        if entry.has_ended:
            return True
        if self._book.seal.read(entry.content, entry.call_id).is_chosen:
            return False
        return entry.apply(TaskEvent.CANCEL, now)

    def _mark(self, entry: TaskEntry, now: float) -> bool:
        """Choose a call, unless it was dropped. Return False if it was."""
        if entry.has_ended:
            return False
        content = self._book.seal.read(entry.content, entry.call_id)
        content.is_chosen = True
        entry.content, entry.updated = self._book.seal.write(content, entry.call_id), now
        return True
