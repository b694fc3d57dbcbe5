"""A leg's claim on its call in the ledger, for tools whose body must run once."""

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.lowlevel import checkpoint_if_cancelled
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ErrorData

from roundtrip.engine.computed import NotedValue
from roundtrip.errors import CallHasEnded, CallTakenOver, LedgerUnavailable, OutcomeUnknown, StillRunning, TokenRejected
from roundtrip.ledger.contract import ClaimAnswer, ClaimStatus, Ledger, LedgerDown, Reach
from roundtrip.ledger.lease import Lease, holder_name, lease_seconds
from roundtrip.machine.journal import Journal
from roundtrip.once.entries import account_of, retention_seconds
from roundtrip.system import SYSTEM, System
from roundtrip.threads.loops import run_later
from roundtrip.tokens.protection import Protection
from roundtrip.tokens.token import Sealer, open_text, seal_text
from roundtrip.tools.failures import Crashed, tool_failure
from roundtrip.tools.options import OnUnknown

if TYPE_CHECKING:
    from roundtrip.legs.extensions import OpenLeg

logger = logging.getLogger("roundtrip")

# Not `Final`: tests set shorter times, so the value is read at each use.
PATIENCE_SECONDS = 20.0
"""Seconds to wait while another leg has the claim. After that, the client gets `StillRunning`."""
MAX_RESULT_CHARS = 16 * 1024 * 1024
MAX_NOTED_CHARS = 1024 * 1024
"""Maximum size of a call's notes. Legs with different answers add separate notes, and each claim reads all of them."""
SETTLE_SECONDS: Final = 300.0
"""How many seconds to keep trying to record the result if the ledger is down when the body ends."""
_HOLDER_BYTES: Final = 12
_NAME_BYTES: Final = 16
_FIRST_PAUSE_SECONDS: Final = 0.5
_MAX_PAUSE_SECONDS: Final = 5.0


@dataclass(eq=False)
class LedgerClaim(Lease):
    """One leg's claim on its call in the ledger. It also records the call's outcome."""

    ledger: Ledger
    key: str
    """The entry's key: the call's id, or the key of the call's intent."""
    tool: str
    keep: float
    """Seconds until the ledger may forget the entry."""
    on_unknown: OnUnknown = "fail"
    sealer: Sealer | None = None
    """Seals results and notes. It is None if the server has no keys, or if its ledger is in this process's memory."""
    account: str | None = None
    """The account that the entry is charged to: a caller or a tool. It is set only for a ledger that limits the size of
    each account.
    """
    system: System = SYSTEM
    hint: str = ""
    """Begins each sealed text: the public name of the key, if the entry must outlive it."""
    _holder: str = ""
    _epoch: int = 0
    _digest: str = ""
    """The digest that an entry's later claims are compared with: of the call's answers, or of an intent's arguments."""
    _terms: str = ""
    """The digest of the answers with which the leg began. Each set of answers has its own notes."""
    _is_firm: bool = False
    """True if the ledger knows that the body may have begun."""
    _is_released: bool = False
    """True once the leg has ended. After that, the leg's late writes must not claim the call again."""
    _remaining_chars: int = 0
    """The number of characters that the call may still use for notes."""
    _note_names: set[str] = field(default_factory=set[str])
    """Names of the notes that belong to the leg's answers."""

    def __post_init__(self) -> None:
        super().__init__(f"tool {self.tool!r}")
        self._holder = holder_name(self.system.entropy(_HOLDER_BYTES))

    def protect(self, protection: Protection, account: str) -> None:
        """Seal what leaves this process, or charge the entry to an account."""
        if self.ledger.reach > Reach.PROCESS:
            # Values that stay in this process need no seal. A size limit for each account exists only in a memory
            # ledger.
            self.sealer = protection.ledger_sealer
        else:
            self.account = account

    async def begin(self, terms: str, *, at_once: bool, remember: Callable[[], Journal]) -> CallToolResult | None:
        """Claim the call. If the call has already run, return its result instead.

        Args:
            terms: The digest of the client's answers.
            at_once: True if nothing runs before the body, so that a single claim is enough.
            remember: As in `RecordedClaim.begin`.

        Raises:
            StillRunning: Another leg still has the claim when the wait ends.
            OutcomeUnknown: The call's body began, and its outcome is unknown.
            CallHasEnded: The call has already ended, with other answers.
            LedgerUnavailable: The ledger is down, or no key of this server opens its entry.
            Exception: The error of the earlier run.
        """
        self._digest, self._terms, self._is_firm = terms, terms, at_once
        answer = await self._enter(self._read_notes)
        if answer.status is ClaimStatus.GRANTED:
            self.renew_in_time()
            return None
        if answer.status is ClaimStatus.UNKNOWN or answer.result is None:
            raise OutcomeUnknown(self.owner)
        if answer.answers_digest != terms:
            raise CallHasEnded(self.owner)
        return result_from(json.loads(self._open(answer.result, "result")))

    async def _enter(self, read: Callable[[ClaimAnswer], object]) -> ClaimAnswer:
        """Claim the entry in turn, and read the answer. Release the claim if this fails.

        Raises:
            StillRunning: Another leg still has the claim when the wait ends.
            LedgerUnavailable: The ledger is down, or no key of this server opens its entry.
        """
        try:
            answer = await self._claim_in_turn()
            await checkpoint_if_cancelled()
            read(answer)
        except LedgerDown as error:
            logger.error("%s", error)
            # The ledger may have granted the claim before it failed. If the claim is not released, other legs wait for
            # this leg.
            self._release_later()
            raise LedgerUnavailable(self.owner) from error
        except BaseException:
            # Release the claim. A cancelled leg may already have it, and a leg that cannot read its notes would run
            # steps again.
            with anyio.CancelScope(shield=True):
                await self.release()
            raise
        return answer

    async def start_body(self) -> None:
        """Record that the body begins now.

        Raises:
            StillRunning: This process was silent for so long that another instance took over the claim.
            LedgerUnavailable: The ledger is down.
        """
        if self._is_firm:
            if self.on_unknown == "rerun":
                # After a silence, another leg may have run the body.
                await self.require_held()
            return
        try:
            answer = await self._claim(tentative=False)
        except LedgerDown as error:
            logger.error("%s", error)
            raise LedgerUnavailable(self.owner) from error
        if answer.status is not ClaimStatus.GRANTED:
            # If the client repeats the request, it gets the other leg's result.
            raise StillRunning(self.owner)
        self._is_firm = True
        await checkpoint_if_cancelled()

    async def note(self, noted: NotedValue) -> None:
        """Save a computed value in the ledger. If this fails, log the failure. The leg uses the value in any case.

        Raises:
            CallTakenOver: Another leg has taken over the call.
        """
        named = f"{noted.revision}/{noted.key}".encode("utf-8", "surrogatepass")
        name = f"{self._terms}/{hashlib.blake2b(named, digest_size=_NAME_BYTES).hexdigest()}"
        text = self._seal(json.dumps([noted.revision, noted.key, noted.value]), name)
        self._note_names.add(name)
        chars = len(name) + len(text)
        if chars > self._remaining_chars:
            logger.warning(
                "%s could not save a computed value: the call's saved values have reached the size limit", self.owner
            )
            return
        self._remaining_chars -= chars
        await self._write(
            "save a computed value",
            lambda: self.ledger.note(self.key, name, text, holder=self._holder, epoch=self._epoch),
        )

    async def record(self, outcome: Any) -> None:
        """Record the body's result or error. If `outcome` is None, record that the outcome will never be known."""
        self.close()
        if isinstance(outcome, CallTakenOver):
            # The lease has ended, but this leg may still have the claim. Releasing the claim would free the call, and
            # its interrupted body would begin again. So let the claim lapse. Do this even if the error came from
            # another call's claim.
            return
        is_error = isinstance(outcome, Exception)
        purpose = f"save its {'error' if is_error else 'result' if outcome is not None else 'unknown outcome'}"
        await self._settle_or_defer(self._stored_form(outcome, purpose), purpose)

    async def _settle_or_defer(self, text: str | None, purpose: str, **options: Any) -> None:
        """Record the end. If the ledger is down, keep trying for a while."""
        self.close()
        settle = partial(self._settle, text, **options)

        async def settle_later() -> None:
            is_done = False
            try:
                is_done = await self._retry(settle, SETTLE_SECONDS)
            finally:
                # The process is ending, or the time limit has passed.
                if not is_done:
                    logger.error("%s could not %s, and will not try again", self.owner, purpose)

        await self._write_or_defer(purpose, settle, lambda: run_later(settle_later()))

    async def suspend(self, computed: Iterable[NotedValue]) -> None:
        """Save what a leg has computed that ends with questions, and release the claim."""
        try:
            for noted in computed:
                await self.note(noted)
        finally:
            # Release the claim even if saving a value fails. Otherwise the claim would be renewed forever.
            await self.release()

    async def decline(self, reason: str) -> None:
        """Release the claim after the user has declined."""
        del reason
        await self.release()

    async def release(self) -> None:
        """Release the claim."""
        self._is_released = True
        self.close()
        await self._write_or_defer("release its claim", self._send_release, self._release_later)

    async def renew(self) -> None:
        """Extend the lease.

        Raises:
            CallTakenOver: Another leg has taken over the call.
        """
        await self._write(
            "renew its claim",
            lambda: self.ledger.renew(self.key, holder=self._holder, epoch=self._epoch, lease=lease_seconds()),
        )

    async def _write(self, purpose: str, write: Callable[[], Awaitable[bool]]) -> None:
        """Write as the claim's holder. If the ledger is down, log this and continue without the write.

        Raises:
            CallTakenOver: Another leg has the claim.
        """
        try:
            await self.write_held(partial(self._write_or_claim, write))
        except LedgerDown as error:
            logger.error("%s could not %s: %s", self.owner, purpose, error)

    async def _write_or_claim(self, write: Callable[[], Awaitable[bool]]) -> bool:
        if self._is_released:
            return False
        # If the write is rejected, the ledger may have lost or released the entry. So claim the call again, and write
        # again.
        return await self._write_at_epoch(write) or (await self._claim_again() and await self._write_at_epoch(write))

    async def _write_at_epoch(self, write: Callable[[], Awaitable[bool]]) -> bool:
        """Perform a write. If the leg claimed the call again during the write, the write had the old epoch, so repeat
        it.
        """
        held, epoch = False, None
        while not held and epoch != self._epoch:
            epoch = self._epoch
            held = await write()
        return held

    async def _claim_again(self) -> bool:
        """Claim the call again. Return False if another leg has the claim, or if this leg has ended."""
        if self._is_released:
            return False
        answer = await self._claim(tentative=not self._is_firm)
        if self._is_released:
            # The leg ended while it claimed the call, so no other code will release the new claim.
            await self.release()
        return answer.status is ClaimStatus.GRANTED and not self._is_released

    def _read_notes(self, answer: ClaimAnswer) -> None:
        notes = answer.notes
        own_notes = {name: text for name, text in notes.items() if text and name.startswith(f"{self._terms}/")}
        self._note_names.update(own_notes)
        self.noted = [NotedValue(*json.loads(self._open(text, name))) for name, text in own_notes.items()]
        self._remaining_chars = MAX_NOTED_CHARS - sum(len(name) + len(value) for name, value in notes.items())

    def _seal(self, text: str, use: str) -> str:
        return seal_text(self.sealer, text, self.key, self._digest, use, hint=self.hint)

    def _open(self, stored: str, use: str, digest: str | None = None) -> str:
        """Open a text that the ledger stored, perhaps in an entry with another digest.

        Raises:
            LedgerUnavailable: No key of this server opens the text.
        """
        try:
            return open_text(self.sealer, stored, self.key, digest or self._digest, use)
        except (TokenRejected, ValueError) as error:
            logger.error(
                "no key of this server opens the ledger's entry for %s; all instances that share a ledger "
                "must have the same keys",
                self.owner,
            )
            raise LedgerUnavailable(self.owner) from error

    async def _claim_in_turn(self) -> ClaimAnswer:
        """Claim the call as soon as no other leg has the claim.

        Raises:
            StillRunning: Another leg still has the claim when the wait ends.
        """
        ends = anyio.current_time() + PATIENCE_SECONDS
        while (answer := await self._claim(tentative=not self._is_firm)).status is ClaimStatus.RUNNING:
            seen = await self.ledger.wait(self.key, patience=max(0.0, ends - anyio.current_time()))
            if seen is None and anyio.current_time() < ends:
                # The claim was released or has lapsed. To decide which leg is next, each leg must claim the call again.
                continue
            if seen is None or seen.status is ClaimStatus.RUNNING:
                # The time for waiting has passed, or too many legs are already waiting.
                raise StillRunning(self.owner)
            if seen.status in (ClaimStatus.SETTLED, ClaimStatus.DECLINED):
                # Return this answer without another claim. A claim would return the same answer, and many legs may have
                # waited.
                return seen
        return answer

    async def _claim(self, *, tentative: bool) -> ClaimAnswer:
        began, answer = anyio.current_time(), ClaimAnswer(ClaimStatus.RUNNING)
        # Cancellation would not recall the request. The ledger could then grant the claim after its release.
        with anyio.CancelScope(shield=True):
            answer = await self.ledger.claim(
                self.key,
                self._digest,
                holder=self._holder,
                lease=lease_seconds(),
                keep=self.keep,
                rerun=self.on_unknown == "rerun",
                tentative=tentative,
                account=self.account,
                **self._claim_options(),
            )
        self._confirmed_at = began
        if answer.status is ClaimStatus.GRANTED:
            self._epoch = answer.epoch
        return answer

    def _claim_options(self) -> dict[str, Any]:
        """Return more options for each claim."""
        return {}

    def _stored_form(self, outcome: Any, purpose: str) -> str | None:
        """Return the outcome in its stored form. Return None if the outcome is unknown or cannot be stored."""
        if outcome is None:
            return None
        try:
            text = json.dumps(self._described(outcome_form(self.tool, outcome)))
            if len(text) > MAX_RESULT_CHARS:
                raise ValueError(f"the result must have at most {MAX_RESULT_CHARS} characters, got {len(text)}")
        except (TypeError, ValueError) as error:
            logger.error("%s could not %s: %s", self.owner, purpose, error)
            return None
        return self._seal(text, "result")

    def _described(self, outcome: dict[str, Any]) -> dict[str, Any]:
        """Return an outcome's stored form with everything else that later legs need."""
        return outcome

    async def _settle(self, result: str | None, **options: Any) -> None:
        is_recorded = await self.ledger.settle(
            self.key, holder=self._holder, epoch=self._epoch, result=result, keep=self.keep, **options
        )
        if not is_recorded:
            logger.warning("%s ran, but the ledger has forgotten the call, or another leg has claimed it", self.owner)

    async def _send_release(self) -> None:
        await self.ledger.release(self.key, holder=self._holder)

    def _release_later(self) -> None:
        """Release the claim as soon as the ledger can be reached, because other legs may be waiting for it."""
        # Release the claim twice, because the claim request may reach the ledger after the first release.
        run_later(self._retry(self._send_release, lease_seconds(), times=2))

    async def _write_or_defer(
        self, purpose: str, write: Callable[[], Awaitable[None]], later: Callable[[], None]
    ) -> None:
        """Perform a write. If the ledger is down, or if the leg is cancelled before the ledger answers, call `later` to
        retry.
        """
        try:
            await write()
        except LedgerDown as error:
            logger.error("%s could not %s, and will try again: %s", self.owner, purpose, error)
            later()
        except BaseException:
            later()
            raise

    async def _retry(self, write: Callable[[], Awaitable[None]], seconds: float, *, times: int = 1) -> bool:
        """Retry a write until the ledger can be reached, even after the lease has ended.

        Return False if the time limit passes before the write succeeds.
        """
        ends, pause = anyio.current_time() + seconds, _FIRST_PAUSE_SECONDS
        while times and anyio.current_time() < ends:
            # Use random pauses. Otherwise, all requests that arrived while the ledger was down would retry at the same
            # moment.
            await self.system.sleep(pause * (0.75 + self.system.entropy(1)[0] / 512))
            pause = min(pause * 2, _MAX_PAUSE_SECONDS)
            with suppress(LedgerDown):
                await write()
                times -= 1
        return not times


def outcome_form(tool: str, outcome: Any) -> dict[str, Any]:
    """Return a body's result or error in the form that a ledger stores.

    Raises:
        TypeError: The outcome is neither a result nor an error.
    """
    if isinstance(outcome, CallToolResult):
        return {"result": outcome.model_dump(mode="json", by_alias=True, exclude_none=True)}
    if not isinstance(outcome, Exception):
        raise TypeError(f"the result must be a CallToolResult, got {type(outcome).__name__}")
    failure = outcome if isinstance(outcome, MCPError) else tool_failure(tool, outcome, mask=False)
    if isinstance(failure, MCPError):
        return {"protocol": failure.error.model_dump(mode="json", by_alias=True, exclude_none=True)}
    kind = "crashed" if isinstance(failure, UnexpectedToolError) else "failed"
    return {kind: str(outcome) or type(outcome).__name__}


def result_from(stored: Mapping[str, Any]) -> CallToolResult:
    """Return the result of an earlier run from its stored form.

    Raises:
        Exception: The earlier run's error.
    """
    if "result" in stored:
        return CallToolResult.model_validate(stored["result"])
    if "protocol" in stored:
        raise MCPError.from_error_data(ErrorData.model_validate(stored["protocol"]))
    if "failed" in stored:
        raise ToolError(stored["failed"])
    raise Crashed(stored["crashed"])


def claim_on(call_id: str, leg: "OpenLeg", on_unknown: OnUnknown) -> LedgerClaim:
    """Return a leg's claim on a call."""
    parts = leg.parts
    keep = retention_seconds(leg)
    claim = LedgerClaim(parts.effects.ledger, call_id, leg.function.name, keep, on_unknown, system=parts.system)
    claim.protect(parts.protection, account_of(leg))
    return claim
