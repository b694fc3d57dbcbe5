"""Provide the claim of a leg on its call, for tools whose body must run once."""

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import anyio
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ErrorData

from roundtrip.engine.claim import Claim, Recalled
from roundtrip.engine.computed import NotedValue
from roundtrip.errors import (
    CallHasEnded,
    CallTakenOver,
    LedgerUnavailable,
    OutcomeUnknown,
    StillRunning,
    TokenRejected,
)
from roundtrip.ledger.contract import ClaimAnswer, ClaimStatus, Ledger, LedgerDown
from roundtrip.ledger.holders import holder_name
from roundtrip.system import SYSTEM, System
from roundtrip.threads.loops import run_later
from roundtrip.tokens.token import Sealer, open_text, seal_text
from roundtrip.tools.failures import Crashed, tool_failure
from roundtrip.tools.options import OnUnknown

logger = logging.getLogger("roundtrip")

# Not `Final`: read at each use, as tests set shorter times.
LEASE_SECONDS = 30.0
"""Time after which a silent process counts as dead. A process renews its claims three times as often."""
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
class LedgerClaim(Claim):
    """Claim of one leg on its call in the ledger."""

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
    _timer: asyncio.TimerHandle | None = None
    """The timer of the next renewal. Most bodies end before the first one."""
    _renewal: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        super().__init__(f"tool {self.tool!r}")
        self._holder = holder_name(self.system.entropy(_HOLDER_BYTES))

    @property
    def lease(self) -> float:
        """Return the length of a lease."""
        return LEASE_SECONDS

    async def begin(self, terms: str, *, at_once: bool) -> Recalled | None:
        """Claim the call, or recall its result.

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
        except LedgerDown as error:
            logger.error("%s", error)
            # The ledger may have granted the claim before it failed. Other legs would wait for this one.
            self._release_later()
            raise LedgerUnavailable(self.owner) from error
        except BaseException:
            # Cancelled, perhaps after the ledger had granted the claim.
            with anyio.CancelScope(shield=True):
                await self.release()
            raise
        if answer.status is ClaimStatus.GRANTED:
            try:
                self._read_notes(answer.notes)
            except LedgerUnavailable:
                # Without the notes, steps would run again.
                await self.release()
                raise
            self._free_chars = MAX_NOTED_CHARS - sum(len(name) + len(value) for name, value in answer.notes.items())
            self._renew_in_time()
            return None
        if answer.status is ClaimStatus.UNKNOWN or answer.result is None:
            raise OutcomeUnknown(self.owner)
        if answer.answers_digest != terms:
            raise CallHasEnded(self.owner)
        return Recalled(_parsed(self._open(answer.result, "result")))

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
        with _reported(self.owner, "save a computed value"):
            digest = hashlib.blake2b(
                f"{noted.revision}/{noted.key}".encode("utf-8", "surrogatepass"), digest_size=_NAME_BYTES
            )
            name = f"{self._digest}/{digest.hexdigest()}"
            text = self._seal(json.dumps([noted.revision, noted.key, noted.value]), name)
            self._free_chars -= len(name) + len(text)
            if self._free_chars < 0:
                logger.warning("%s could not save a computed value: its call has saved too many", self.owner)
                return
            await self._write_held(
                lambda: self.ledger.note(self.call_id, name, text, holder=self._holder, epoch=self._epoch)
            )

    async def settle(self, value: Any) -> None:
        """Record the body's result."""
        await self._settle(lambda: _result_text(value), "save its result")

    async def fail(self, error: Exception) -> None:
        """Record the body's error."""
        await self._settle(lambda: _failure_text(self.tool, error), "save its error")

    async def lose(self) -> None:
        """Record that the outcome of the body will never be known."""
        await self._settle(lambda: None, "save that its outcome is unknown")

    async def release(self) -> None:
        """Release the claim."""
        self._is_released = True
        self.stop_renewals()
        try:
            await self.ledger.release(self.call_id, holder=self._holder)
        except LedgerDown as error:
            logger.error("%s could not release its claim, and tries again: %s", self.owner, error)
            self._release_later()
        except BaseException:
            # Cancelled, perhaps before the ledger had received it.
            self._release_later()
            raise

    async def renew(self) -> None:
        """Extend the lease.

        Raises:
            CallTakenOver: Another leg has taken the call over.
        """
        with _reported(self.owner, "renew its claim"):
            await self._write_held(
                lambda: self.ledger.renew(self.call_id, holder=self._holder, epoch=self._epoch, lease=LEASE_SECONDS)
            )

    def _renew_in_time(self) -> None:
        """Extend the lease periodically, until `stop_renewals`."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            self._renewal = loop.create_task(self._renew_or_cancel())
        self._timer = loop.call_later(LEASE_SECONDS / 3, self._renew_in_time)

    async def _renew_or_cancel(self) -> None:
        """Extend the lease, and cancel the work if another leg has taken the call over."""
        with suppress(CallTakenOver):
            await self.renew()

    def stop_renewals(self) -> None:
        """Let the lease end."""
        for pending in (self._timer, self._renewal):
            if pending is not None:
                pending.cancel()
        self._timer = self._renewal = None

    async def _write_held(self, write: Callable[[], Awaitable[bool]]) -> None:
        """Write as the holder of the claim.

        Raises:
            CallTakenOver: Another leg has the claim.
        """
        if self.is_taken_over or self._is_released:
            raise CallTakenOver(self.owner)
        began = anyio.current_time()
        held = await self._written(write)
        if not held and await self._claim_again():
            # The ledger had lost the entry, or it was free again.
            held = await self._written(write)
        if not held:
            self.stop_renewals()
            self.lose_lease()
            raise CallTakenOver(self.owner)
        self._confirmed_at = began

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
        for name, text in notes.items():
            if name.startswith(f"{self._digest}/"):
                revision, key, value = json.loads(self._open(text, name))
                self._noted.setdefault(revision, {})[key] = value

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
            lease=LEASE_SECONDS,
            keep=self.keep,
            rerun=self.on_unknown == "rerun",
            tentative=tentative,
            account=self.account,
        )
        self._confirmed_at = began
        if answer.status is ClaimStatus.GRANTED:
            self._epoch = answer.epoch
        return answer

    async def _settle(self, write: Callable[[], str | None], purpose: str) -> None:
        self.stop_renewals()
        result = self._stored_result(write, purpose)
        try:
            await self._record(result)
        except LedgerDown as error:
            logger.error("%s could not %s, and tries again: %s", self.owner, purpose, error)
            run_later(self._record_later(result, purpose))
        except BaseException:
            # Cancelled, perhaps before the ledger had received it.
            run_later(self._record_later(result, purpose))
            raise

    def _stored_result(self, write: Callable[[], str | None], purpose: str) -> str | None:
        try:
            result = write()
        except (TypeError, ValueError) as error:
            logger.error("%s could not %s: %s", self.owner, purpose, error)
            return None
        if result is not None and len(result) > MAX_RESULT_CHARS:
            logger.error("%s could not %s: it is too large, with %d characters", self.owner, purpose, len(result))
            return None
        return self._seal(result, "result") if result is not None else None

    async def _record(self, result: str | None) -> None:
        is_recorded = await self.ledger.settle(
            self.call_id, holder=self._holder, epoch=self._epoch, result=result, keep=self.keep
        )
        if not is_recorded:
            logger.warning("%s ran, but the ledger has forgotten its call, or given it to another leg", self.owner)

    async def _record_later(self, result: str | None, purpose: str) -> None:
        """Record the result as soon as the ledger can be reached, even after the lease has ended."""
        is_done = False
        try:
            async for _ in _attempts(self.system, SETTLE_SECONDS):
                with suppress(LedgerDown):
                    await self._record(result)
                    is_done = True
                    return
        finally:
            # The process ends, or the time is over.
            if not is_done:
                logger.error("%s could not %s, and gives up", self.owner, purpose)

    def _release_later(self) -> None:
        """Release the claim as soon as the ledger can be reached: other legs would wait for it."""
        run_later(_release_twice(self.ledger, self.call_id, self._holder, self.system))


async def _attempts(system: System, seconds: float) -> AsyncGenerator[None]:
    """Pause before each attempt, longer each time, until the time is over."""
    ends = anyio.current_time() + seconds
    pause = _FIRST_PAUSE_SECONDS
    while anyio.current_time() < ends:
        # Random, so that the many requests that arrived while the ledger was down do not all try at the same moment.
        await system.sleep(pause * (0.75 + system.entropy(1)[0] / 512))
        pause = min(pause * 2, _MAX_PAUSE_SECONDS)
        yield


async def _release_twice(ledger: Ledger, call_id: str, holder: str, system: System) -> None:
    # Twice: the request for the claim may reach the ledger after the first release.
    times = 0
    async for _ in _attempts(system, LEASE_SECONDS):
        with suppress(LedgerDown):
            await ledger.release(call_id, holder=holder)
            times += 1
        if times == 2:
            return


@contextmanager
def _reported(owner: str, purpose: str) -> Generator[None]:
    """Log that a ledger is down, and go on without it."""
    try:
        yield
    except LedgerDown as error:
        logger.error("%s could not %s: %s", owner, purpose, error)


def _result_text(value: Any) -> str:
    if not isinstance(value, CallToolResult):
        raise TypeError(f"a tool's result was expected, not {type(value).__name__}")
    return json.dumps({"result": value.model_dump(mode="json", by_alias=True, exclude_none=True)})


def _failure_text(tool: str, error: Exception) -> str:
    failure = error if isinstance(error, MCPError) else tool_failure(tool, error, mask=False)
    if isinstance(failure, MCPError):
        return json.dumps({"protocol": failure.error.model_dump(mode="json", by_alias=True, exclude_none=True)})
    kind = "crashed" if isinstance(failure, UnexpectedToolError) else "failed"
    return json.dumps({kind: str(error) or type(error).__name__})


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
