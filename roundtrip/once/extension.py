"""Leg extension for exactly-once calls: it claims calls whose body must run once, and counts guesses."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from typing_extensions import override

from roundtrip.errors import GuessUncounted
from roundtrip.legs.extensions import LegExtension, LegPart
from roundtrip.legs.requests import SKEW, announced_name
from roundtrip.on_demand import load_on_use
from roundtrip.tools.promises import OncePolicy, warn_of_promise

if TYPE_CHECKING:
    from roundtrip.engine.leg import Leg
    from roundtrip.ledger import contract
    from roundtrip.legs.extensions import OpenLeg
    from roundtrip.legs.functions import AskingFunction
    from roundtrip.legs.parts import Parts
    from roundtrip.once import exactly_once
else:
    load_on_use(globals(), "roundtrip.ledger.contract", "roundtrip.once.exactly_once")

logger = logging.getLogger("roundtrip")

_DIGEST_BYTES: Final = 9


class ExactlyOnce(LegExtension):
    """Extension that claims calls whose body must run once."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    @override
    def concerns(self, function: AskingFunction) -> bool:
        if function.policy(OncePolicy) is None:
            return False
        warn_of_promise(function, self._parts, "has to run exactly once")
        return True

    @override
    def join(self, leg: OpenLeg) -> LegPart | None:
        # For a stored call, the store already records whether the body began.
        policy = leg.function.policy(OncePolicy) if leg.stored is None else None
        return _OncePart(leg, policy) if policy is not None else None


class _OncePart(LegPart):
    """One leg's claim."""

    def __init__(self, open_leg: OpenLeg, policy: OncePolicy) -> None:
        self._open_leg = open_leg
        self._policy = policy
        # Older protocol revisions have no tokens, so a leg cannot claim its call.
        self.needs_engine = open_leg.record is not None and open_leg.in_retry_era and not open_leg.hands_over

    @override
    def complete(self, leg: Leg) -> None:
        ports, hands_over = leg.ports, self._open_leg.hands_over
        if not self.needs_engine and not hands_over:
            return
        # The body must begin in the asyncio task of its leg, because this task can claim the call first.
        leg.plain_body = None
        if leg.journal is None:
            ports.begin_unclaimed = self._begin_unclaimed()
            ports.needs_token = ports.begin_unclaimed is None
        elif not hands_over:
            ports.claim = ports.recorded_claim = self._claim()

    def _claim(self) -> exactly_once.LedgerClaim:
        open_leg, policy, parts = self._open_leg, self._policy, self._open_leg.parts
        ledger, tool, keep = parts.effects.ledger, open_leg.function.name, _retention_seconds(open_leg)
        claim = exactly_once.LedgerClaim(ledger, open_leg.call.id, tool, keep, policy.on_unknown, system=parts.system)
        if ledger.reach > contract.Reach.PROCESS:
            # Values that stay in this process need no seal. A size limit for each account exists only in a memory
            # ledger.
            claim.sealer = parts.protection.ledger_sealer
        else:
            claim.account = _account(open_leg)
        return claim

    def _begin_unclaimed(self) -> Callable[[], None] | None:
        """Return a function that logs that the body began without a token.

        Return None if the client first gets a token in an empty round.
        """
        # If a server is mounted, the parent server's runner serves its functions, so use the runner's `parts`.
        policy, open_leg, skipped = self._policy, self._open_leg, self._open_leg.parts.no_empty_rounds
        if not policy.when_possible and (not skipped or announced_name(open_leg.request) not in skipped):
            return None
        reason = (
            "exactly_once='when_possible', and the call asked no question"
            if policy.when_possible
            else "its client does not accept a round without questions"
        )
        owner, call = open_leg.function.owner, open_leg.call.id
        return lambda: logger.info("%s runs in call %s without the exactly_once guarantee: %s", owner, call, reason)


class GuessCounter:
    """Counter for answers to the questions that have `guesses=`."""

    def __init__(self, parts: Parts) -> None:
        self._must_warn = parts.may_forget
        """True until the warning about separate guess counts has been logged."""

    async def count(self, leg: OpenLeg, key: str, answer: Any, guesses: int) -> bool:
        """Count an answer to a leg's question. Return False if the answer exceeds the allowed number of guesses.

        After a key rotation, a repeated answer may be counted again. A count is never lost.

        Raises:
            GuessUncounted: The ledger could not count the answer.
        """
        parts, call_id = leg.parts, leg.call.id
        ledger = parts.effects.ledger
        if self._must_warn and ledger.reach is contract.Reach.PROCESS:
            self._must_warn = False
            logger.warning(
                "%s has a question with guesses=, but other processes with the same keys may count guesses separately; "
                "give all processes the same ledger= (SqliteLedger, RedisLedger or PostgresLedger), or pass "
                "ledger=MemoryLedger() if this is the only process",
                leg.function.owner,
            )
        counted = json.dumps([call_id, key, answer], sort_keys=True).encode()
        item = hmac.digest(parts.protection.guess_key or b"", counted, "sha256").hex()
        question = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
        name = f"{call_id}/guesses/{question}"
        try:
            return await ledger.count(name, item, most=guesses, keep=_retention_seconds(leg), account=_account(leg))
        except contract.LedgerDown as error:
            logger.error("%s", error)
            raise GuessUncounted(leg.function.owner) from error


def _retention_seconds(leg: OpenLeg) -> float:
    """Return the number of seconds during which more legs of the call can arrive. After that, the ledger may forget the
    call.
    """
    journal, limits = leg.journal, leg.function.limits
    # Another build may have begun the call and chosen the lifetime of its tokens.
    left = limits.max_age if journal is None else max(0.0, journal.end - leg.parts.system.time())
    return left + SKEW


def _account(leg: OpenLeg) -> str:
    """Return the account that the leg's ledger entries are charged to: a caller or a tool."""
    principal = leg.principal()
    return f"tool {leg.function.name}" if principal is None else f"caller {principal}"
