"""Leg extension for exactly-once calls: it claims calls whose body must run once, and counts guesses."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Never

from typing_extensions import override

from roundtrip.errors import CallUncovered, GuessUncounted, InvalidSignature, RejectionReason
from roundtrip.legs.extensions import LegExtension, LegPart
from roundtrip.legs.requests import announced_name, token_rejection
from roundtrip.machine.journal import Chain
from roundtrip.on_demand import load_on_use
from roundtrip.once.entries import account_of, log_uncovered, retention_seconds
from roundtrip.tokens.binding import DEFAULT_AUDIENCE
from roundtrip.tools.promises import OncePolicy, warn_of_promise

if TYPE_CHECKING:
    from roundtrip.engine.leg import Leg
    from roundtrip.ledger import contract
    from roundtrip.legs.extensions import OpenLeg
    from roundtrip.legs.functions import AskingFunction
    from roundtrip.legs.parts import Parts
    from roundtrip.once import exactly_once, intent_legs
    from roundtrip.tools.intents import IntentPolicy

load_on_use(globals(), "roundtrip.ledger.contract", "roundtrip.once.exactly_once", "roundtrip.once.intent_legs")

logger = logging.getLogger("roundtrip")

_DIGEST_BYTES: Final = 9


class ExactlyOnce(LegExtension):
    """Extension that claims calls whose body must run once, per call or per intent.

    Args:
        parts: The server's parts.
        service_of: Returns the name of the service.
    """

    def __init__(self, parts: Parts, service_of: Callable[[], str]) -> None:
        self._parts = parts
        self._service_of = service_of

    @override
    def concerns(self, function: AskingFunction) -> bool:
        policy = function.policy(OncePolicy)
        if policy is None:
            return False
        if policy.intent is not None:
            self._check_intent(function, policy.intent)
        warn_of_promise(function, self._parts, "has to run once")
        return True

    def _check_intent(self, function: AskingFunction, policy: IntentPolicy) -> None:
        protection = self._parts.protection
        if policy.scope == "caller" and protection.policy.bind_principal is None:
            raise InvalidSignature(
                f"{function.owner}: once_per= gives each caller their own intents, but this server does not know its "
                "callers; set principal=, or write scope='service' if all callers may share results"
            )
        if self._service_of() in ("", DEFAULT_AUDIENCE) and not protection.own_key:
            raise InvalidSignature(
                f"{function.owner}: once_per= needs a server with a name, because servers without names would share "
                "their intents; give the server a name or an audience="
            )

    @override
    def join(self, leg: OpenLeg) -> LegPart | None:
        policy = leg.function.policy(OncePolicy)
        if policy is None:
            return None
        if leg.stored is not None:
            # The store already records whether the body began.
            intent, service = policy.intent, self._service_of()
            return intent_legs.StoredPart(leg, leg.stored, intent, service) if intent is not None else None
        if policy.intent is None:
            return _OncePart(leg, policy)
        # A call from inside another function is not the client's. A rehearsal must neither join nor recall a call.
        has_part = leg.record is not None and leg.parts.effects.dry_run is None
        return intent_legs.IntentPart(leg, policy, self._service_of()) if has_part else None


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
        if leg.journal is not None and leg.journal.chain is not Chain.NONE:
            self._reject_token()
        if leg.journal is None:
            ports.begin_unclaimed = self._begin_unclaimed()
            ports.needs_token = ports.begin_unclaimed is None
        elif not hands_over:
            claim = exactly_once.claim_on(self._open_leg.call.id, self._open_leg, self._policy.on_unknown)
            ports.claim = ports.recorded_claim = claim

    def _reject_token(self) -> Never:
        """Reject a token of a build that has claimed the call's intent. This build does not know the intent, so both
        could run the body.
        """
        if self._open_leg.record is not None:
            self._open_leg.record.reason = RejectionReason.OTHER_VERSION
        raise token_rejection()

    def _begin_unclaimed(self) -> Callable[[], None] | None:
        """Return a function that logs that the body began without a token.

        Return None if the client first gets a token in an empty round.
        """
        # If a server is mounted, the parent server's runner serves its functions, so use the runner's `parts`.
        policy, open_leg, skipped = self._policy, self._open_leg, self._open_leg.parts.no_empty_rounds
        owner = open_leg.function.owner
        if policy.uncovered == "reject":
            return lambda: _reject(owner)
        if policy.uncovered == "round" and (not skipped or announced_name(open_leg.request) not in skipped):
            return None
        reason = (
            "uncovered='run', and the call asked no question"
            if policy.uncovered == "run"
            else "its client does not accept a round without questions"
        )
        return lambda: log_uncovered(owner, open_leg.call.id, reason)


def _reject(owner: str) -> Never:
    raise CallUncovered(owner)


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
            return await ledger.count(name, item, most=guesses, keep=retention_seconds(leg), account=account_of(leg))
        except contract.LedgerDown as error:
            logger.error("%s", error)
            raise GuessUncounted(leg.function.owner) from error
