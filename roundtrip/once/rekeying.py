"""The ledger's entries of intents, which outlive keys: seal them with the newest key, and count those of each key."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Final, Literal

from roundtrip.errors import TokenRejected
from roundtrip.ledger.contract import INTENT_PREFIX, ListedEntry, ListsEntries, Reach
from roundtrip.machine.journal import from_text, to_text
from roundtrip.once.intents import MEMORY_NOTE
from roundtrip.tokens.token import hint_of, open_text, seal_text

if TYPE_CHECKING:
    from roundtrip.legs.parts import Parts

_ENTRIES_PER_PAGE: Final = 200
_RESULT: Final = "result"


class IntentEntries:
    """The entries of intents in a server's ledger.

    Args:
        parts: The server's ledger and keys.
    """

    def __init__(self, parts: Parts) -> None:
        ledger, protection = parts.effects.ledger, parts.protection
        self.ledger = ledger
        self.lister = ledger if isinstance(ledger, ListsEntries) else None
        """The ledger; None if it cannot list its entries."""
        self._codec = protection.journals
        self._ring = protection.ring
        self._sealer = protection.ledger_sealer if ledger.reach > Reach.PROCESS else None
        self.hint = next(iter(protection.hints), "")
        """The public name of the key that seals."""

    async def pages(self) -> AsyncGenerator[Sequence[ListedEntry]]:
        """Yield all entries, page by page. An entry may be on two pages.

        Raises:
            LedgerDown: The ledger cannot be used.
        """
        place = None
        while self.lister is not None and place != "":
            found, place = await self.lister.list_entries(INTENT_PREFIX, after=place or "", limit=_ENTRIES_PER_PAGE)
            yield found

    async def count(self, *, pages: int) -> tuple[dict[str, int], bool]:
        """Count the entries on the first pages by the keys that they need, and return True if these are all entries."""
        keys, left = Counter[str](), pages
        async for page in self.pages():
            if left == 0:
                return dict(keys), False
            left -= 1
            for entry in page:
                keys.update(self._keys_of(entry))
        return dict(keys), self.lister is not None

    async def renew_key(self, entry: ListedEntry) -> Literal["renewed", "current", "held", "unreadable"]:
        """Seal an entry's texts with the newest key, unless a leg has the claim or the entry has changed.

        Raises:
            LedgerDown: The ledger cannot be used.
        """
        if self.lister is None or self._keys_of(entry) <= {self.hint}:
            return "current"
        try:
            texts = {use: self._renewed(entry, text, use) for use, text in _texts_of(entry).items()}
        except (TokenRejected, ValueError):
            return "unreadable"
        result = texts.pop(_RESULT, None)
        return "renewed" if await self.lister.rewrite(entry, result=result, notes=texts) else "held"

    def _renewed(self, entry: ListedEntry, text: str, use: str) -> str:
        """Return a text that is sealed with the newest key, inside and outside.

        Raises:
            TokenRejected: No key of this server opens the text, or this build cannot read the journal.
            ValueError: The text is malformed.
        """
        bound_to, hint = (entry.key, entry.answers_digest, use), f"{self.hint}."
        plain = open_text(self._sealer, text, *bound_to)
        if use == MEMORY_NOTE:
            note = json.loads(plain)
            journal = self._codec.read(from_text(note["journal"]))
            # The pins of answers belong to the keys with which their questions were asked.
            former = [to_text(key) for key in self._ring.derive(b"pin")[1:]] if self._ring is not None else []
            pin_keys = dict.fromkeys([*note["pin_keys"], *former])
            note |= {"journal": to_text(self._codec.write(journal)), "pin_keys": [*pin_keys], "key": hint}
            plain = json.dumps(note)
        return seal_text(self._sealer, plain, *bound_to, hint=hint)

    def _keys_of(self, entry: ListedEntry) -> set[str]:
        """Return the public names of the keys that an entry needs."""
        texts = _texts_of(entry)
        if self._sealer is not None:
            return {hint_of(text) for text in texts.values()}
        # In this process's memory, only the sealed part of the journal needs a key.
        note = json.loads(texts.get(MEMORY_NOTE, "{}"))
        return {key.rstrip(".") for key in (note.get("key"),) if key}


def _texts_of(entry: ListedEntry) -> dict[str, str]:
    """Return an entry's texts by the use for which they are sealed."""
    texts = {name: text for name, text in entry.notes.items() if text}
    return texts if entry.result is None else {**texts, _RESULT: entry.result}
