"""A leg's claim on its call in the ledger, for tools whose body must run once."""

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import anyio
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ErrorData

from roundtrip.engine.computed import NotedValue
from roundtrip.errors import CallHasEnded, CallTakenOver, LedgerUnavailable, OutcomeUnknown, StillRunning, TokenRejected
from roundtrip.ledger.contract import ClaimAnswer, ClaimStatus, Ledger, LedgerDown
from roundtrip.ledger.lease import Lease, holder_name, lease_seconds
from roundtrip.system import SYSTEM, System
from roundtrip.threads.loops import run_later
from roundtrip.tokens.token import Sealer, open_text, seal_text
from roundtrip.tools.failures import Crashed, tool_failure
from roundtrip.tools.options import OnUnknown

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
    call_id: str
    tool: str
    keep: float
    """Seconds until the ledger may forget the call."""
    on_unknown: OnUnknown = "fail"
    sealer: Sealer | None = None
    """Seals results and notes. It is None if the server has no keys, or if its ledger is in this process's memory."""
    account: str | None = None
    """The account that the entry is charged to: a caller or a tool. It is set only for a ledger that limits the size of
    each account.
    """
    system: System = SYSTEM
    _holder: str = ""
    _epoch: int = 0
    _digest: str = ""
    _is_firm: bool = False
    """True if the ledger knows that the body may have begun."""
    _is_released: bool = False
    """True once the leg has ended. After that, the leg's late writes must not claim the call again."""
    _remaining_chars: int = 0
    """The number of characters that the call may still use for notes."""

    def __post_init__(self) -> None:
        super().__init__(f"tool {self.tool!r}")
        self._holder = holder_name(self.system.entropy(_HOLDER_BYTES))

    async def begin(self, terms: str, *, at_once: bool) -> CallToolResult | None:
        """Claim the call. If the call has already run, return its result instead.

        Args:
            terms: The digest of the client's answers.
            at_once: True if nothing runs before the body, so that a single claim is enough.

        Raises:
            StillRunning: Another leg still has the claim when the wait ends.
            OutcomeUnknown: The call's body began, and its outcome is unknown.
            CallHasEnded: The call has already ended, with other answers.
            LedgerUnavailable: The ledger is down, or no key of this server opens its entry.
            Exception: The error of the earlier run.
        """
        self._digest, self._is_firm = terms, at_once
        try:
            answer = await self._claim_in_turn()
            self._read_notes(answer.notes)
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
        if answer.status is ClaimStatus.GRANTED:
            self.renew_in_time()
            return None
        if answer.status is ClaimStatus.UNKNOWN or answer.result is None:
            raise OutcomeUnknown(self.owner)
        if answer.answers_digest != terms:
            raise CallHasEnded(self.owner)
        return _parse_result(self._open(answer.result, "result"))

    async def start_body(self) -> None:
        """Record that the body begins now.

        Raises:
            StillRunning: This process was silent for so long that another instance took over the claim.
            LedgerUnavailable: The ledger is down.
        """
        if self._is_firm:
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

    async def note(self, noted: NotedValue) -> None:
        """Save a computed value in the ledger. If this fails, log the failure. The leg uses the value in any case.

        Raises:
            CallTakenOver: Another leg has taken over the call.
        """
        named = f"{noted.revision}/{noted.key}".encode("utf-8", "surrogatepass")
        name = f"{self._digest}/{hashlib.blake2b(named, digest_size=_NAME_BYTES).hexdigest()}"
        text = self._seal(json.dumps([noted.revision, noted.key, noted.value]), name)
        self._remaining_chars -= len(name) + len(text)
        if self._remaining_chars < 0:
            logger.warning(
                "%s could not save a computed value: the call's saved values have reached the size limit", self.owner
            )
            return
        await self._write(
            "save a computed value",
            lambda: self.ledger.note(self.call_id, name, text, holder=self._holder, epoch=self._epoch),
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
        settle = partial(self._settle, self._stored_form(outcome, purpose))

        async def settle_later() -> None:
            is_done = False
            try:
                is_done = await self._retry(settle, SETTLE_SECONDS)
            finally:
                # The process is ending, or the time limit has passed.
                if not is_done:
                    logger.error("%s could not %s, and will not try again", self.owner, purpose)

        await self._write_or_defer(purpose, settle, lambda: run_later(settle_later()))

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
            lambda: self.ledger.renew(self.call_id, holder=self._holder, epoch=self._epoch, lease=lease_seconds()),
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

    def _read_notes(self, notes: Mapping[str, str]) -> None:
        own_notes = {name: text for name, text in notes.items() if name.startswith(f"{self._digest}/")}
        self.noted = [NotedValue(*json.loads(self._open(text, name))) for name, text in own_notes.items()]
        self._remaining_chars = MAX_NOTED_CHARS - sum(len(name) + len(value) for name, value in notes.items())

    def _seal(self, text: str, use: str) -> str:
        return seal_text(self.sealer, text, self.call_id, self._digest, use)

    def _open(self, stored: str, use: str) -> str:
        """Open a text that the ledger stored.

        Raises:
            LedgerUnavailable: No key of this server opens the text.
        """
        try:
            return open_text(self.sealer, stored, self.call_id, self._digest, use)
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
            seen = await self.ledger.wait(self.call_id, patience=max(0.0, ends - anyio.current_time()))
            if seen is None and anyio.current_time() < ends:
                # The claim was released or has lapsed. To decide which leg is next, each leg must claim the call again.
                continue
            if seen is None or seen.status is ClaimStatus.RUNNING:
                # The time for waiting has passed, or too many legs are already waiting.
                raise StillRunning(self.owner)
            if seen.status is ClaimStatus.SETTLED:
                # Return this answer without another claim. A claim would return the same answer, and many legs may have
                # waited.
                return seen
        return answer

    async def _claim(self, *, tentative: bool) -> ClaimAnswer:
        began = anyio.current_time()
        answer = await self.ledger.claim(
            self.call_id,
            self._digest,
            holder=self._holder,
            lease=lease_seconds(),
            keep=self.keep,
            rerun=self.on_unknown == "rerun",
            tentative=tentative,
            account=self.account,
        )
        self._confirmed_at = began
        if answer.status is ClaimStatus.GRANTED:
            self._epoch = answer.epoch
        return answer

    def _stored_form(self, outcome: Any, purpose: str) -> str | None:
        """Return the outcome in its stored form. Return None if the outcome is unknown or cannot be stored."""
        if outcome is None:
            return None
        try:
            text = _result_text(self.tool, outcome)
            if len(text) > MAX_RESULT_CHARS:
                raise ValueError(f"the result must have at most {MAX_RESULT_CHARS} characters, got {len(text)}")
        except (TypeError, ValueError) as error:
            logger.error("%s could not %s: %s", self.owner, purpose, error)
            return None
        return self._seal(text, "result")

    async def _settle(self, result: str | None) -> None:
        is_recorded = await self.ledger.settle(
            self.call_id, holder=self._holder, epoch=self._epoch, result=result, keep=self.keep
        )
        if not is_recorded:
            logger.warning("%s ran, but the ledger has forgotten the call, or another leg has claimed it", self.owner)

    async def _send_release(self) -> None:
        await self.ledger.release(self.call_id, holder=self._holder)

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


def _result_text(tool: str, outcome: Any) -> str:
    if isinstance(outcome, CallToolResult):
        return json.dumps({"result": outcome.model_dump(mode="json", by_alias=True, exclude_none=True)})
    if not isinstance(outcome, Exception):
        raise TypeError(f"the result must be a CallToolResult, got {type(outcome).__name__}")
    failure = outcome if isinstance(outcome, MCPError) else tool_failure(tool, outcome, mask=False)
    if isinstance(failure, MCPError):
        return json.dumps({"protocol": failure.error.model_dump(mode="json", by_alias=True, exclude_none=True)})
    kind = "crashed" if isinstance(failure, UnexpectedToolError) else "failed"
    return json.dumps({kind: str(outcome) or type(outcome).__name__})


def _parse_result(text: str) -> CallToolResult:
    """Return the result of an earlier run.

    Raises:
        Exception: The earlier run's error.
    """
    stored = json.loads(text)
    if "result" in stored:
        return CallToolResult.model_validate(stored["result"])
    if "protocol" in stored:
        raise MCPError.from_error_data(ErrorData.model_validate(stored["protocol"]))
    if "failed" in stored:
        raise ToolError(stored["failed"])
    raise Crashed(stored["crashed"])
