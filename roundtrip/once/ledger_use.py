"""Use the ledger for one leg: claim the call of a body that must run once, and count guesses."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from typing import TYPE_CHECKING, Any, Final

from roundtrip.errors import GuessUncounted
from roundtrip.ledger.contract import LedgerDown, Reach
from roundtrip.legs.requests import SKEW
from roundtrip.once.exactly_once import LedgerClaim

if TYPE_CHECKING:
    from roundtrip.legs.extensions import OpenLeg
    from roundtrip.tools.promises import OncePolicy

logger = logging.getLogger("roundtrip")

_DIGEST_BYTES: Final = 9


class LedgerUse:
    """Use of the ledger by one leg."""

    def __init__(self, leg: OpenLeg) -> None:
        self._leg = leg
        self._parts = leg.parts
        principal = leg.principal()
        self._account = f"tool {leg.function.name}" if principal is None else f"caller {principal}"

    @property
    def is_of_process(self) -> bool:
        """Return True if only this process uses the ledger."""
        return self._parts.effects.ledger.reach is Reach.PROCESS

    def claim(self, once: OncePolicy) -> LedgerClaim:
        """Return a claim on the call, for a body that must run once."""
        ledger, name = self._parts.effects.ledger, self._leg.function.name
        claim = LedgerClaim(ledger, self._leg.call.id, name, self._keep(), once.on_unknown, system=self._parts.system)
        if ledger.reach > Reach.PROCESS:
            # Values that never leave this process need no seal, and only its memory is scarce.
            claim.sealer = self._parts.protection.ledger_sealer
        else:
            claim.account = self._account
        return claim

    async def count_guess(self, key: str, answer: Any, guesses: int) -> bool:
        """Count an answer to a question of the call; return False if it is one too many.

        After a rotation of keys, a repeated answer may be counted again. No count is lost.

        Raises:
            GuessUncounted: The ledger could not count the answer.
        """
        counted = json.dumps([self._leg.call.id, key, answer], sort_keys=True).encode()
        item = hmac.digest(self._parts.protection.guess_key or b"", counted, "sha256").hex()
        question = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
        try:
            return await self._parts.effects.ledger.count(
                f"{self._leg.call.id}/guesses/{question}",
                item,
                most=guesses,
                keep=self._keep() + SKEW,
                account=self._account,
            )
        except LedgerDown as error:
            logger.error("%s", error)
            raise GuessUncounted(self._leg.function.owner) from error

    def _keep(self) -> float:
        """Return the seconds after which no leg of the call can arrive."""
        journal, limits = self._leg.journal, self._leg.function.limits
        if journal is None:
            return limits.max_age
        # The build that began the call, perhaps another one, chose how long its tokens live.
        return max(0.0, journal.end - self._parts.system.time())
