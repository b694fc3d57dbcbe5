"""Claim of a leg on its call in the ledger, for tools whose body must run once."""

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

# Not `Final`: read at each use, as tests set shorter times.
PATIENCE_SECONDS = 20.0
"""Time to wait for another leg that has the claim, before the client gets `StillRunning`."""
MAX_RESULT_CHARS = 16 * 1024 * 1024
MAX_NOTED_CHARS = 1024 * 1024
"""Limit of the notes of a call. Each leg with other answers adds its own, and each claim reads them all."""
SETTLE_SECONDS: Final = 300.0
"""Time for which a result is offered to a ledger that was down when the body ended."""
_HOLDER_BYTES: Final = 12
_NAME_BYTES: Final = 16
_FIRST_PAUSE_SECONDS: Final = 0.5
_MAX_PAUSE_SECONDS: Final = 5.0


@dataclass(eq=False)
class LedgerClaim(Lease):
    """Claim of one leg on its call in the ledger, and the record of the call's outcome."""

    ledger: Ledger
    call_id: str
    tool: str
    keep: float
    """Seconds after which the ledger may forget the call."""
    on_unknown: OnUnknown = "fail"
    sealer: Sealer | None = None
    """Seals results and notes; None without keys, or if they never leave the memory of this process."""
    account: str | None = None
    """The caller or tool that the entry counts for, in a ledger that limits the room of each."""
    system: System = SYSTEM
    _holder: str = ""
    _epoch: int = 0
    _digest: str = ""
    _is_firm: bool = False
    """True if the ledger knows that the body may have begun."""
    _is_released: bool = False
    """True once the leg has ended. Then its late writes must not claim the call again."""
    _free_chars: int = 0
    """Characters that the call may still note."""

    def __post_init__(self) -> None:
        super().__init__(f"tool {self.tool!r}")
        self._holder = holder_name(self.system.entropy(_HOLDER_BYTES))

    async def begin(self, terms: str, *, at_once: bool) -> CallToolResult | None:
        """Claim the call, or return its result.

        Args:
            terms: The digest of the client's answers.
            at_once: True if the body is the first thing that runs, so that one claim is enough.

        Raises:
            StillRunning: Another leg still has the claim at the end of the wait.
            OutcomeUnknown: The body of the call has begun, and its outcome is not known.
            CallHasEnded: The call has ended, with other answers.
            LedgerUnavailable: The ledger is down, or no key of this server opens its entry.
            Exception: The error of the earlier run.
        """
        self._digest, self._is_firm = terms, at_once
        try:
            answer = await self._claim_in_turn()
            self._read_notes(answer.notes)
        except LedgerDown as error:
            logger.error("%s", error)
            # The ledger may have granted the claim before it failed. Other legs would wait for this one.
            self._release_later()
            raise LedgerUnavailable(self.owner) from error
        except BaseException:
            # Cancelled, perhaps after the ledger had granted the claim; or without the notes, steps would run again.
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
        return _parsed(self._open(answer.result, "result"))

    async def start_body(self) -> None:
        """Record that the body begins now.

        Raises:
            StillRunning: This process was silent for so long that another instance has the claim.
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
            # A client that sends the request again gets the result.
            raise StillRunning(self.owner)
        self._is_firm = True

    async def note(self, noted: NotedValue) -> None:
        """Save a computed value in the ledger. If that fails, log it: the leg still uses the value.

        Raises:
            CallTakenOver: Another leg has taken the call over.
        """
        named = f"{noted.revision}/{noted.key}".encode("utf-8", "surrogatepass")
        name = f"{self._digest}/{hashlib.blake2b(named, digest_size=_NAME_BYTES).hexdigest()}"
        text = self._seal(json.dumps([noted.revision, noted.key, noted.value]), name)
        self._free_chars -= len(name) + len(text)
        if self._free_chars < 0:
            logger.warning("%s could not save a computed value: its call has saved too many", self.owner)
            return
        await self._write(
            "save a computed value",
            lambda: self.ledger.note(self.call_id, name, text, holder=self._holder, epoch=self._epoch),
        )

    async def record(self, outcome: Any) -> None:
        """Record the body's result, its error, or None if its outcome will never be known."""
        self.close()
        if isinstance(outcome, CallTakenOver):
            # The lease has ended, and may still be this leg's. Released, the call would be free, and its body, which
            # was stopped in the middle, would begin again. If another claim raised it, this one lapses.
            return
        is_error = isinstance(outcome, Exception)
        purpose = f"save its {'error' if is_error else 'result' if outcome is not None else 'unknown outcome'}"
        settle = partial(self._settle, self._stored(outcome, purpose))

        async def settle_later() -> None:
            is_done = False
            try:
                is_done = await self._again(settle, SETTLE_SECONDS)
            finally:
                # The process ends, or the time is over.
                if not is_done:
                    logger.error("%s could not %s, and gives up", self.owner, purpose)

        await self._try(purpose, settle, lambda: run_later(settle_later()))

    async def release(self) -> None:
        """Release the claim."""
        self._is_released = True
        self.close()
        await self._try("release its claim", self._free, self._release_later)

    async def renew(self) -> None:
        """Extend the lease.

        Raises:
            CallTakenOver: Another leg has taken the call over.
        """
        await self._write(
            "renew its claim",
            lambda: self.ledger.renew(self.call_id, holder=self._holder, epoch=self._epoch, lease=lease_seconds()),
        )

    async def _write(self, purpose: str, write: Callable[[], Awaitable[bool]]) -> None:
        """Write as the holder of the claim. If the ledger is down, log it, and go on without it.

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
        # If it fails, the ledger may have lost the entry, or it was free again.
        return await self._written(write) or (await self._claim_again() and await self._written(write))

    async def _written(self, write: Callable[[], Awaitable[bool]]) -> bool:
        """Write, and again if the leg has claimed the call anew meanwhile: the write had the epoch before."""
        held, epoch = False, None
        while not held and epoch != self._epoch:
            epoch = self._epoch
            held = await write()
        return held

    async def _claim_again(self) -> bool:
        """Claim the call once more. Return False if another leg has it, or this leg has ended."""
        if self._is_released:
            return False
        answer = await self._claim(tentative=not self._is_firm)
        if self._is_released:
            # It has ended meanwhile, and nobody else would release the new claim.
            await self.release()
        return answer.status is ClaimStatus.GRANTED and not self._is_released

    def _read_notes(self, notes: Mapping[str, str]) -> None:
        own = {name: text for name, text in notes.items() if name.startswith(f"{self._digest}/")}
        self.noted = [NotedValue(*json.loads(self._open(text, name))) for name, text in own.items()]
        self._free_chars = MAX_NOTED_CHARS - sum(len(name) + len(value) for name, value in notes.items())

    def _seal(self, text: str, use: str) -> str:
        return seal_text(self.sealer, text, self.call_id, self._digest, use)

    def _open(self, stored: str, use: str) -> str:
        """Return the text that a ledger has kept.

        Raises:
            LedgerUnavailable: No key of this server opens it.
        """
        try:
            return open_text(self.sealer, stored, self.call_id, self._digest, use)
        except (TokenRejected, ValueError) as error:
            logger.error(
                "the ledger has an entry for %s that no key of this server opens; give all instances that share a "
                "ledger the same keys",
                self.owner,
            )
            raise LedgerUnavailable(self.owner) from error

    async def _claim_in_turn(self) -> ClaimAnswer:
        """Claim the call as soon as no other leg has the claim.

        Raises:
            StillRunning: Another leg still has it at the end of the wait.
        """
        ends = anyio.current_time() + PATIENCE_SECONDS
        while (answer := await self._claim(tentative=not self._is_firm)).status is ClaimStatus.RUNNING:
            seen = await self.ledger.wait(self.call_id, patience=max(0.0, ends - anyio.current_time()))
            if seen is None and anyio.current_time() < ends:
                # Released, or lapsed: only a claim decides which leg is next.
                continue
            if seen is None or seen.status is ClaimStatus.RUNNING:
                # The time to wait is over, or too many legs wait already.
                raise StillRunning(self.owner)
            if seen.status is ClaimStatus.SETTLED:
                # A claim would have the same answer, and many legs may have waited.
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

    def _stored(self, outcome: Any, purpose: str) -> str | None:
        """Return the stored form of an outcome; None if it is unknown, or cannot be stored."""
        if outcome is None:
            return None
        try:
            text = _text_of(self.tool, outcome)
            if len(text) > MAX_RESULT_CHARS:
                raise ValueError(f"it is too large, with {len(text)} characters")
        except (TypeError, ValueError) as error:
            logger.error("%s could not %s: %s", self.owner, purpose, error)
            return None
        return self._seal(text, "result")

    async def _settle(self, result: str | None) -> None:
        is_recorded = await self.ledger.settle(
            self.call_id, holder=self._holder, epoch=self._epoch, result=result, keep=self.keep
        )
        if not is_recorded:
            logger.warning("%s ran, but the ledger has forgotten its call, or given it to another leg", self.owner)

    async def _free(self) -> None:
        await self.ledger.release(self.call_id, holder=self._holder)

    def _release_later(self) -> None:
        """Release the claim as soon as the ledger can be reached: other legs would wait for it."""
        # Twice: the request for the claim may reach the ledger after the first release.
        run_later(self._again(self._free, lease_seconds(), times=2))

    async def _try(self, purpose: str, write: Callable[[], Awaitable[None]], later: Callable[[], None]) -> None:
        """Write, and see to it later if the ledger is down, or if the leg is cancelled before the ledger answers."""
        try:
            await write()
        except LedgerDown as error:
            logger.error("%s could not %s, and tries again: %s", self.owner, purpose, error)
            later()
        except BaseException:
            later()
            raise

    async def _again(self, write: Callable[[], Awaitable[None]], seconds: float, *, times: int = 1) -> bool:
        """Write as soon as the ledger can be reached, even after the lease. Return False if the time is over first."""
        ends, pause = anyio.current_time() + seconds, _FIRST_PAUSE_SECONDS
        while times and anyio.current_time() < ends:
            # Random, so that the many requests that arrived while the ledger was down do not all try at once.
            await self.system.sleep(pause * (0.75 + self.system.entropy(1)[0] / 512))
            pause = min(pause * 2, _MAX_PAUSE_SECONDS)
            with suppress(LedgerDown):
                await write()
                times -= 1
        return not times


def _text_of(tool: str, outcome: Any) -> str:
    if isinstance(outcome, CallToolResult):
        return json.dumps({"result": outcome.model_dump(mode="json", by_alias=True, exclude_none=True)})
    if not isinstance(outcome, Exception):
        raise TypeError(f"a tool's result was expected, not {type(outcome).__name__}")
    failure = outcome if isinstance(outcome, MCPError) else tool_failure(tool, outcome, mask=False)
    if isinstance(failure, MCPError):
        return json.dumps({"protocol": failure.error.model_dump(mode="json", by_alias=True, exclude_none=True)})
    kind = "crashed" if isinstance(failure, UnexpectedToolError) else "failed"
    return json.dumps({kind: str(outcome) or type(outcome).__name__})


def _parsed(text: str) -> CallToolResult:
    """Return the result of an earlier run.

    Raises:
        Exception: The error of that run.
    """
    stored = json.loads(text)
    if "result" in stored:
        return CallToolResult.model_validate(stored["result"])
    if "protocol" in stored:
        raise MCPError.from_error_data(ErrorData.model_validate(stored["protocol"]))
    if "failed" in stored:
        raise ToolError(stored["failed"])
    raise Crashed(stored["crashed"])
