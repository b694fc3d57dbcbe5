"""Legs of calls with an intent: claim the intent before a leg begins, and keep the leg's end for later calls."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import anyio
from typing_extensions import override

from roundtrip.engine.leg import Declined, HandedOver, JoinedCall, LegEnd, Suspended
from roundtrip.engine.leg_run import accepts
from roundtrip.errors import CallerMissing, CallUncovered, LedgerUnavailable, RoundtripError, StillRunning
from roundtrip.legs.extensions import LegPart
from roundtrip.machine.facts import IntentFound
from roundtrip.machine.journal import Chain, Computed, Journal, from_text
from roundtrip.machine.pins import Pinner
from roundtrip.once.entries import account_of, log_uncovered, retention_seconds
from roundtrip.once.exactly_once import LedgerClaim, claim_on
from roundtrip.once.intent_memory import Adopted, IntentMemory
from roundtrip.once.intents import IntentClaim, IntentEnd
from roundtrip.tools.promises import TaskMode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from roundtrip.engine.leg import Leg
    from roundtrip.engine.silent_body import Execute
    from roundtrip.legs.extensions import OpenLeg
    from roundtrip.legs.requests import StoredLeg
    from roundtrip.tools.intents import CallIntent, IntentPolicy
    from roundtrip.tools.promises import OncePolicy

logger = logging.getLogger("roundtrip")

_NAMED: Final[set[str]] = set()
"""Tools whose calls were begun by builds without intents. Each tool is named in the log once."""
_LAST_WORDS_SECONDS: Final = 15.0
"""Time limit for saving how a leg ended. Cancellation does not interrupt this."""


@dataclass(eq=False)
class Kept:
    """What the desk and a leg tell each other while a request is served."""

    claim: IntentClaim | None = None
    """The claim that the leg has kept, because its call will be stored."""
    voids: int | None = None
    """The epoch of a stored call that has ended without a result."""
    stored_nothing: Callable[[str], Awaitable[bool]] | None = None
    """Returns True if a stored call has come to nothing, so that other arguments may begin a new call."""
    computed: Mapping[str, Computed] = field(default_factory=dict[str, Computed])
    """What this stored call had computed. The next call does not run its steps again."""


KEPT: Final[ContextVar[Kept | None]] = ContextVar("roundtrip_kept_claim", default=None)
"""The desk sets it if a call may be stored."""


class IntentPart(LegPart):
    """One leg's part in its intent."""

    needs_engine = True
    opens = True

    def __init__(self, leg: OpenLeg, policy: OncePolicy, service: str) -> None:
        self._leg = leg
        self._policy = policy
        self._service = service
        self._claim: IntentClaim | None = None

    @override
    async def open(self) -> LegEnd | None:
        leg, intent = self._leg, self._policy.intent
        if intent is None:
            return None
        owner, owners = leg.function.owner, owners_of(leg, intent, self._service)
        if intent.scope == "caller" and owners[1] is None:
            raise CallerMissing(owner)
        meta = (leg.request.params or {}).get("_meta") if leg.request is not None else None
        ring = leg.parts.protection.ring
        keys = ring.derive(b"arguments") if ring is not None else ()
        found = intent.intent(leg.arguments, meta, leg.make_context, owners=owners, secret_keys=keys)
        if found is None:
            if self._policy.uncovered == "reject":
                raise CallUncovered(owner)
            log_uncovered(owner, leg.call.id, "nothing identifies its intent")
            return None
        leg.notes.intent_key = found.public if intent.is_known_later else None
        confirmation = leg.function.confirm(leg.arguments) if leg.function.confirm is not None else None
        accepted = confirmation is None or accepts(leg.journal, leg.responses, confirmation[0])
        is_former = leg.journal is not None and leg.journal.chain is Chain.NONE
        self._claim = claim = self._made(intent, found)
        at_once = accepted and not leg.function.planned.plan.nodes and not is_former and not leg.hands_over
        token = leg.journal
        try:
            opened = await claim.open(token, leg.responses or {}, found.digest, at_once=at_once)
        except Exception:
            if claim.recalled_from is not None:
                leg.notes.facts.append(IntentFound("recalled", claim.recalled_from))
            raise
        leg.notes.facts.append(_fact_of(opened, claim.recalled_from, token))
        if isinstance(opened, JoinedCall) and KEPT.get() is None:
            # This server has no stored calls. Another one of the service has stored the call.
            raise StillRunning(owner)
        if not isinstance(opened, Adopted):
            return opened
        leg.adopt(opened.journal, opened.responses)
        claim.call_id = leg.call.id
        self._chain = opened.chain
        self._skipped_rounds = 0 if opened.journal is None else opened.journal.skipped
        return None

    @override
    def complete(self, leg: Leg) -> None:
        if self._claim is None:
            leg.ports.begin_unclaimed = lambda: None
            return
        # The body must begin in the asyncio task of its leg, because this task has claimed the intent.
        leg.plain_body = None
        leg.ports.claim = leg.ports.recorded_claim = self._claim
        leg.ports.chain = self._chain
        leg.ports.skipped_rounds = self._skipped_rounds
        leg.ports.asks_between_legs = not self._leg.in_retry_era
        ring = self._leg.parts.protection.ring
        if self._claim.memory.pin_keys and ring is not None:
            leg.ports.pinner = Pinner([*ring.derive(b"pin"), *map(from_text, self._claim.memory.pin_keys)])

    @override
    async def finish(self, end: LegEnd | None) -> None:
        claim = self._claim
        if claim is None or claim.is_over:
            return
        if end is None:
            with anyio.move_on_after(_LAST_WORDS_SECONDS, shield=True):
                await claim.release()
            return
        try:
            with anyio.fail_after(_LAST_WORDS_SECONDS, shield=True):
                await self._save(claim, end)
        except TimeoutError as error:
            raise LedgerUnavailable(claim.owner) from error

    async def _save(self, claim: IntentClaim, end: LegEnd) -> None:
        kept = KEPT.get()
        stores = isinstance(end, HandedOver) or (isinstance(end, Suspended) and end.is_for_others)
        if not stores or kept is None:
            await claim.leave()
            return
        mode = self._leg.function.policy(TaskMode) if isinstance(end, HandedOver) else None
        claim.may_end_at_once = mode is not None and mode.after is not None
        try:
            await claim.park()
        except BaseException:
            await claim.release()
            raise
        kept.claim = claim

    def _made(self, intent: IntentPolicy, found: CallIntent) -> IntentClaim:
        leg, kept = self._leg, KEPT.get()
        parts, owner = leg.parts, leg.function.owner
        hint = f"{parts.protection.hints[0]}." if parts.protection.hints else ""
        is_shared, journals = intent.scope == "service", parts.protection.journals
        memory = IntentMemory(owner, leg.principal(), journals, self._renewed, leg.in_retry_era, hint, is_shared)
        claim = IntentClaim(
            parts.effects.ledger,
            found.key,
            leg.function.name,
            retention_seconds(leg) + intent.keep,
            self._policy.on_unknown,
            system=parts.system,
            memory=memory,
            policy=intent,
            # Until then, more legs of the call may arrive.
            kept_for=max(intent.keep, retention_seconds(leg)),
            voids=kept.voids if kept is not None else None,
            stored_nothing=kept.stored_nothing if kept is not None else None,
            former_digests=found.former_digests,
            former_claim=self._former,
        )
        claim.protect(parts.protection, account_of(leg))
        claim.hint = hint
        return claim

    def _former(self, call_id: str) -> LedgerClaim:
        """Return the claim on a call. A build without intents may continue this call at the same time."""
        leg = self._leg
        if leg.function.owner not in _NAMED:
            _NAMED.add(leg.function.owner)
            logger.warning(
                "%s continues a call that a build without once_per= began; until all instances have once_per=, other "
                "calls may still repeat what a call has done",
                leg.function.owner,
            )
        return claim_on(call_id, leg, self._policy.on_unknown)

    def _renewed(self, journal: Journal, is_over: bool) -> Journal:
        """Give a journal a new call if its own is over, or too old. Answers belong to their call."""
        system, limits = self._leg.parts.system, self._leg.function.limits
        now = system.time()
        if now < journal.end and not is_over:
            return journal
        kept = KEPT.get()
        values = {**journal.computed, **(kept.computed if kept is not None else {})}
        computed = {name: value for name, value in values.items() if not name.startswith("~")}
        end, call_id = now + limits.max_age, system.new_id()
        return Journal(call_id, now, end, end, 0, 0, journal.fingerprint, journal.build, computed=computed, written=now)


class StoredPart(LegPart):
    """The part in a stored call's leg. Later calls with the same intent need the stored call's end."""

    opens = True

    def __init__(self, leg: OpenLeg, stored: StoredLeg, intent: IntentPolicy, service: str) -> None:
        self._leg = leg
        self._stored = stored
        self._intent = intent
        self._service = service
        self._has_failed = False

    @override
    def around(self, execute: Execute) -> Execute:
        async def run(values: dict[str, Any], context: Any) -> Any:
            try:
                return await execute(values, context)
            except RoundtripError:
                raise  # a rejection, for example
            except Exception:
                self._has_failed = True
                raise

        return run

    @override
    async def open(self) -> None:
        leg, intent = self._leg, self._intent
        if intent.is_known_later:
            found = intent.intent(leg.arguments, None, leg.make_context, owners=owners_of(leg, intent, self._service))
            leg.notes.intent_key = found.public if found is not None else None

    @override
    async def finish(self, end: LegEnd | None) -> None:
        self._stored.kept_for = self._intent.keep
        self._stored.end_mark = "declined" if isinstance(end, Declined) else "failed" if self._has_failed else None


def owners_of(leg: OpenLeg, intent: IntentPolicy, service: str) -> list[str | None]:
    """Return the service's name, and the caller if the intent belongs to the caller."""
    return [service, leg.principal() if intent.scope == "caller" else None]


def _fact_of(opened: Adopted | IntentEnd, recalled_from: str | None, token: Journal | None) -> IntentFound:
    if isinstance(opened, JoinedCall):
        return IntentFound("joined", opened.call_id)
    if not isinstance(opened, Adopted):
        return IntentFound("recalled", recalled_from)
    newest, has_begun_again = opened.journal, opened.chain is Chain.AGAIN
    if newest is None:
        return IntentFound("began")
    if token is None or token.leg < newest.leg:
        return IntentFound("joined", None, has_begun_again, token.leg if token is not None else None)
    return IntentFound("continued", None, has_begun_again)
