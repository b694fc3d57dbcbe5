"""Find the stored call that an equal request has begun, and let one of several equal calls win.

Models repeat a tool's call while it waits, and hosts send equal calls at once. All of them get one handle.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, get_args

from roundtrip.channels.stored_replies import awaited_groups
from roundtrip.ledger.contract import LedgerDown
from roundtrip.ledger.machines import StoredEvent, StoredState
from roundtrip.ledger.tasks import CallEntry
from roundtrip.stored.book import CallBook, StoredView

Showing = Literal["", "forms", "page", "any"]
"""Way in which a client shows questions: not at all, as forms, or on the page of this call; any while there are none
to show."""
SHOWINGS: Final[tuple[Showing, ...]] = get_args(Showing)
_MAX_EQUAL: Final = 1000
_MAX_ROUNDS: Final = 100


class EqualCalls:
    """Equal calls of one server's users.

    Each stored call has a label that equal calls of one user share. One of them is chosen, and it stays chosen until it
    ends: that is written into the call itself, so that comparing and setting a single entry decides.

    Args:
        book: The stored calls.
    """

    def __init__(self, book: CallBook) -> None:
        self._book = book

    def labels(
        self, user: str, params: Mapping[str, Any], version: str | None, *, showing: Showing = ""
    ) -> tuple[str, ...]:
        """Return the labels of a user's call of a tool, with the parameters of its request: one of each key.

        The first is of the newest key, which labels a call that is stored. Instances may still have another one.

        Args:
            user: The user.
            params: The parameters.
            version: The version of the tool.
            showing: What its client shows. Clients that show different things share a call only while it waits for an
                approval.
        """
        called: list[Any] = [user, params.get("name"), version, params.get("arguments") or {}]
        text = json.dumps([*called, *([showing] if showing else [])], sort_keys=True).encode("utf-8", "surrogatepass")
        return tuple(hmac.digest(key, text, "sha256").hex() for key in self._book.page_keys)

    async def _equal(self, labels: Iterable[str]) -> list[str]:
        """Return the ids of the calls with one of some labels, the oldest first."""
        store = self._book.store
        found = {(one.created, one.call_id) for each in labels for one in await store.labelled(each, limit=_MAX_EQUAL)}
        return [call_id for _, call_id in sorted(found)]

    async def chosen(self, labels: Iterable[str]) -> str | None:
        """Return the chosen call of the labels; None if there is none.

        Raises:
            LedgerDown: The store cannot be used.
        """
        return await self._first(labels, lambda view: view.content.channel.is_chosen)

    async def awaiting(self, labels: Iterable[str]) -> str | None:
        """Return a call of the labels that waits for an approval, and for nothing else; None if there is none.

        Raises:
            LedgerDown: The store cannot be used.
        """
        return await self._first(labels, awaited_groups)

    async def _first(self, labels: Iterable[str], fits: Callable[[StoredView], object]) -> str | None:
        for call_id in await self._equal(labels):
            view = await self._book.view(call_id)
            if view is not None and not view.entry.has_ended and fits(view):
                return call_id
        return None

    async def choose(self, labels: Iterable[str], call_id: str) -> str:
        """Return the chosen call of the labels, after a call with one was stored; drop that call if it is another one.

        If none is chosen, the oldest is: the others are dropped first, and then it is marked. A call that was marked
        meanwhile cannot be dropped, and one that was dropped cannot be marked; then the caller looks again. Whoever
        stores an equal call later finds the marked one, or drops the one that its owner is about to mark.

        Raises:
            LedgerDown: The store cannot be used.
        """
        for _ in range(_MAX_ROUNDS):
            chosen = await self.chosen(labels)
            if chosen is not None:
                if chosen != call_id:
                    await self._book.change(call_id, self._drop, joins=chosen)
                return chosen
            equal = await self._equal(labels)
            if not equal:
                # It has ended already.
                return call_id
            first, *others = equal
            dropped = [await self._book.change(other, self._drop, joins=first) is not False for other in others]
            if not all(dropped) or not await self._book.change(first, self._mark):
                continue
            if first != call_id and call_id not in others:
                await self._book.change(call_id, self._drop, joins=first)
            return first
        raise LedgerDown("equal calls are stored too often")

    def _drop(self, entry: CallEntry, now: float) -> bool:
        """Cancel a call, unless it is chosen. Return False if it is."""
        if entry.has_ended:
            return True
        if self._book.seal.read(entry.content, entry.call_id).channel.is_chosen:
            return False
        return entry.apply(StoredEvent.CANCEL, now)

    def _mark(self, entry: CallEntry, now: float) -> bool:
        """Choose a call, unless it was dropped. Return False if it was."""
        if entry.has_ended:
            # One that has run meanwhile has the result for all of them.
            return entry.state is not StoredState.CANCELLED
        content = self._book.seal.read(entry.content, entry.call_id)
        content.channel.is_chosen = True
        entry.content, entry.updated = self._book.seal.write(content, entry.call_id), now
        return True
