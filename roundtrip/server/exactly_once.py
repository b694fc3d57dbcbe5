"""Keeping the books on the calls of tools that must run once, in a ledger."""

import asyncio
import contextvars
import hashlib
import json
import logging
import os
import random
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import anyio
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ErrorData

from roundtrip.engine.claim import Recalled
from roundtrip.engine.computed import NotedValue
from roundtrip.errors import (
    CallHasEnded,
    CallTakenOver,
    LedgerUnavailable,
    OutcomeUnknown,
    StillRunning,
    TokenRejected,
)
from roundtrip.ledger.contract import Claim, EntryState, Ledger, LedgerDown
from roundtrip.machine.journal import from_text, to_text
from roundtrip.server.failures import Crashed, tool_failure
from roundtrip.server.requests import SKEW
from roundtrip.tokens.token import Sealer

__all__ = ["LedgerClaim", "OnUnknown", "OncePolicy"]

logger = logging.getLogger("roundtrip")

OnUnknown = Literal["fail", "rerun"]


class OncePolicy(NamedTuple):
    """What a tool says of running its body once for a call."""

    on_unknown: OnUnknown
    when_possible: bool
    """Whether it runs without a token rather than ask for a round without questions."""


# Read when they are needed, as the tests have less time.
LEASE = 30.0
"""Seconds after which a process that has not been heard of counts as dead; it is heard of three times as often."""
PATIENCE = 20.0
"""Seconds to wait for another instance that is at the same call, before the client is told to come back."""
LARGEST = 16 * 1024 * 1024
"""Characters of a result that are kept."""
MOST_NOTED = 1024 * 1024
"""Characters of what is noted for a call. Each leg with other answers adds its own, and each claim reads them all."""
SETTLE_FOR: Final = 300.0
"""Seconds for which it is tried to put down what came of a call, where the ledger is down when its body ends."""
_HOLDER_BYTES: Final = 12
_NAME_BYTES: Final = 16
_SEALED: Final = "s1."
"""Begins what is sealed in a ledger. JSON begins otherwise."""
_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 5.0


class _Unreadable(Exception):
    """An entry of the ledger that was not sealed with a key of this server."""


@dataclass(slots=True)
class LedgerClaim:
    """The books on one call, for one leg."""

    ledger: Ledger
    call_id: str
    tool: str
    keep: float
    """Seconds after which no leg of the call can arrive any more."""
    on_unknown: OnUnknown = "fail"
    sealer: Sealer | None = None
    """Seals what is kept; None where there are no keys, or where it never leaves the memory of this process."""
    account: str | None = None
    """Who is to share a ledger that holds little."""
    _holder: str = field(default_factory=lambda: os.urandom(_HOLDER_BYTES).hex())
    _terms: str = ""
    _firm: bool = False
    """Whether the claim that was made is the body's own."""
    _heard: float = 0.0
    """When it was last sure that the call is this leg's."""
    _taken_over: bool = False
    _scope: anyio.CancelScope | None = None
    _noted: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    _room: int = 0
    """Characters that may still be noted."""
    _heart: "_Heart | None" = None

    @property
    def owner(self) -> str:
        """The tool, for error messages."""
        return f"tool {self.tool!r}"

    async def begin(self, terms: str, *, at_once: bool) -> Recalled | None:
        """Claim the call, or recall what came of it.

        Args:
            terms: With what it is to be done.
            at_once: Whether the body is the first thing that runs, and need not be claimed again.

        Raises:
            StillRunning: Another instance is at it, and was waited for in vain.
            OutcomeUnknown: Another instance was at it, and will never tell.
            CallHasEnded: It has ended, with other answers.
            LedgerUnavailable: The ledger does not say, or says what no key of this server opens.
            Exception: What an earlier serving ended with.
        """
        self._terms = terms
        self._firm = at_once
        try:
            claim = await self._claim_in_turn()
        except LedgerDown as error:
            logger.error("%s", error)
            # It may have heard all the same, and would then wait for somebody who has not begun.
            self._take_back_later()
            raise LedgerUnavailable(self.owner) from error
        except BaseException:
            # Cancelled, perhaps after the ledger had agreed.
            with anyio.CancelScope(shield=True):
                await self.release()
            raise
        if claim.standing is EntryState.GRANTED:
            try:
                self._take_notes(claim.notes)
            except _Unreadable as error:
                # Without them, steps that have been taken would be taken again.
                await self.release()
                raise self._unreadable() from error
            self._room = MOST_NOTED - sum(len(name) + len(value) for name, value in claim.notes.items())
            self._heart = _Heart(self)
            return None
        if claim.standing is EntryState.UNKNOWN or claim.result is None:
            raise OutcomeUnknown(self.owner)
        if claim.terms != terms:
            raise CallHasEnded(self.owner)
        try:
            kept = self._open(claim.result, "result")
        except _Unreadable as error:
            raise self._unreadable() from error
        return Recalled(_read(kept))

    async def start_body(self) -> None:
        """Put down that the body begins now.

        Raises:
            StillRunning: This process was silent for so long that another instance has taken the call over.
            LedgerUnavailable: The ledger does not say.
        """
        if self._firm:
            return
        try:
            claim = await self._claim(tentative=False)
        except LedgerDown as error:
            logger.error("%s", error)
            raise LedgerUnavailable(self.owner) from error
        if claim.standing is not EntryState.GRANTED:
            # What came of it, whoever sends the request again is told.
            raise StillRunning(self.owner)
        self._firm = True

    def noted(self) -> Mapping[int, Mapping[str, Any]]:
        """Return what an earlier serving of this very leg has computed, by the revision it was computed in."""
        return self._noted

    @contextmanager
    def holding(self) -> Generator[None]:
        """Surround the work of the leg, which is cancelled when another leg turns out to have taken the call over.

        Raises:
            CallTakenOver: Another leg has.
        """
        with anyio.CancelScope() as self._scope:
            try:
                yield
            except Exception as error:
                if self._taken_over:
                    raise CallTakenOver(self.owner) from error
                raise
        if self._taken_over:
            raise CallTakenOver(self.owner)

    async def require_held(self) -> None:
        """Make sure that the call is still this leg's, where it has been silent for long enough to lose it.

        Raises:
            CallTakenOver: Another leg has taken it over.
        """
        if anyio.current_time() - self._heard > LEASE / 2:
            await self.renew()

    async def note(self, noted: NotedValue) -> None:
        """Keep what was computed. A ledger that cannot is told to the log: what was computed stands.

        Raises:
            CallTakenOver: Another leg has taken the call over.
        """
        with _reported(self.owner, "keep what it computed"):
            digest = hashlib.blake2b(
                f"{noted.revision}/{noted.key}".encode("utf-8", "surrogatepass"), digest_size=_NAME_BYTES
            )
            name = f"{self._terms}/{digest.hexdigest()}"
            text = self._seal(json.dumps([noted.revision, noted.key, noted.value]), name)
            self._room -= len(name) + len(text)
            if self._room < 0:
                logger.warning("%s does not keep what it computed: too much has been noted for its call", self.owner)
                return
            await self._while_held(lambda: self.ledger.note(self.call_id, name, text, holder=self._holder))

    async def settle(self, value: Any) -> None:
        """Put the result down."""
        await self._settle(lambda: _written(value), "keep its result")

    async def fail(self, error: Exception) -> None:
        """Put down how it failed."""
        await self._settle(lambda: _written_failure(self.tool, error), "keep how it failed")

    async def lose(self) -> None:
        """Put down that nobody will ever know."""
        await self._settle(lambda: None, "keep that its outcome is unknown")

    async def release(self) -> None:
        """Take the claim back."""
        self._stop()
        try:
            await self.ledger.release(self.call_id, holder=self._holder)
        except LedgerDown as error:
            logger.error("%s could not take its claim back, and tries again: %s", self.owner, error)
            self._take_back_later()
        except BaseException:
            # Cut short, perhaps before the ledger had heard.
            self._take_back_later()
            raise

    async def renew(self) -> None:
        """Say that it is still being worked on.

        Raises:
            CallTakenOver: Another leg has taken the call over.
        """
        with _reported(self.owner, "say that it still runs"):
            await self._while_held(lambda: self.ledger.renew(self.call_id, holder=self._holder, lease=LEASE))

    async def beat(self) -> None:
        """Say that it is still being worked on, and end the work where it is another's by now."""
        with suppress(CallTakenOver):
            await self.renew()

    async def _while_held(self, write: Callable[[], Awaitable[bool]]) -> None:
        """Write what only the holder of the call may write.

        Raises:
            CallTakenOver: Another leg holds it.
        """
        if self._taken_over:
            raise CallTakenOver(self.owner)
        began = anyio.current_time()
        held = await write()
        if not held and (await self._claim(tentative=not self._firm)).standing is EntryState.GRANTED:
            # The ledger has lost the entry, and has a new one by now.
            held = await write()
        if not held:
            self._taken_over = True
            self._stop()
            if self._scope is not None:
                self._scope.cancel()
            raise CallTakenOver(self.owner)
        self._heard = began

    def _take_notes(self, notes: Mapping[str, str]) -> None:
        for name, text in notes.items():
            if name.startswith(f"{self._terms}/"):
                revision, key, value = json.loads(self._open(text, name))
                self._noted.setdefault(revision, {})[key] = value

    def _seal(self, text: str, use: str) -> str:
        """What the ledger keeps of a text, for one use in this call only."""
        if self.sealer is None:
            return text
        return _SEALED + to_text(self.sealer.seal(text.encode("utf-8", "surrogatepass"), self._bound(use)))

    def _open(self, kept: str, use: str) -> str:
        """The text that a ledger has kept.

        Raises:
            _Unreadable: It was sealed with another key or for something else, or is not sealed and should be.
        """
        if self.sealer is None and not kept.startswith(_SEALED):
            return kept
        try:
            if self.sealer is None or not kept.startswith(_SEALED):
                raise ValueError("keys on one side only")
            sealed = from_text(kept.removeprefix(_SEALED))
            return self.sealer.open(sealed, self._bound(use)).decode("utf-8", "surrogatepass")
        except (TokenRejected, ValueError) as error:
            raise _Unreadable from error

    def _bound(self, use: str) -> bytes:
        return json.dumps([self.call_id, self._terms, use]).encode()

    def _unreadable(self) -> LedgerUnavailable:
        logger.error(
            "the ledger has an entry for %s that no key of this server opens; give all instances that share a ledger "
            "the same keys",
            self.owner,
        )
        return LedgerUnavailable(self.owner)

    async def _claim_in_turn(self) -> Claim:
        """Claim the call when nobody is at it any more.

        Raises:
            StillRunning: Somebody was until the patience ended.
        """
        ends = anyio.current_time() + PATIENCE
        while (claim := await self._claim(tentative=not self._firm)).standing is EntryState.RUNNING:
            # Once it is released, lapsed or settled, who may begin is for a claim to say.
            waited = await self.ledger.wait(self.call_id, patience=max(0.0, ends - anyio.current_time()))
            if waited is None and anyio.current_time() < ends:
                continue
            if waited is None or waited.standing is EntryState.RUNNING:
                # The patience has ended, or too many wait already.
                raise StillRunning(self.owner)
            if waited.standing is EntryState.SETTLED:
                # Nothing that a claim could say would be different, and many may have waited.
                return waited
        return claim

    async def _claim(self, *, tentative: bool) -> Claim:
        began = anyio.current_time()
        claim = await self.ledger.claim(
            self.call_id,
            self._terms,
            holder=self._holder,
            lease=LEASE,
            keep=self.keep + SKEW,
            although_unknown=self.on_unknown == "rerun",
            tentative=tentative,
            account=self.account,
        )
        self._heard = began
        return claim

    async def _settle(self, write: Callable[[], str | None], what: str) -> None:
        self._stop()
        result = self._kept(write, what)
        try:
            await self._put_down(result)
        except LedgerDown as error:
            logger.error("%s could not %s, and tries again: %s", self.owner, what, error)
            _later(self._put_down_later(result, what))
        except BaseException:
            # Cut short, perhaps before the ledger had heard.
            _later(self._put_down_later(result, what))
            raise

    def _kept(self, write: Callable[[], str | None], what: str) -> str | None:
        try:
            result = write()
        except (TypeError, ValueError) as error:
            logger.error("%s could not %s: %s", self.owner, what, error)
            return None
        if result is not None and len(result) > LARGEST:
            logger.error("%s could not %s: it is too large, with %d characters", self.owner, what, len(result))
            return None
        return self._seal(result, "result") if result is not None else None

    async def _put_down(self, result: str | None) -> None:
        kept = await self.ledger.settle(self.call_id, holder=self._holder, result=result, keep=self.keep + SKEW)
        if not kept:
            logger.warning("%s ran, but the ledger has forgotten its call, or given it to somebody else", self.owner)

    async def _put_down_later(self, result: str | None, what: str) -> None:
        """Put it down as soon as the ledger can be reached again. Whoever counts as dead by then may still do so."""
        ends = anyio.current_time() + SETTLE_FOR
        pause = _PAUSE
        told = False
        try:
            while not told and anyio.current_time() < ends:
                await anyio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                with suppress(LedgerDown):
                    await self._put_down(result)
                    told = True
        finally:
            # The process ends, or it took too long.
            if not told:
                logger.error("%s could not %s, and gives up", self.owner, what)

    def _take_back_later(self) -> None:
        """Take the claim back as soon as the ledger can be reached again, while others would wait for it."""
        _later(_take_back(self.ledger, self.call_id, self._holder))

    def _stop(self) -> None:
        if self._heart is not None:
            self._heart.stop()
            self._heart = None


class _Heart:
    """Renews a claim for as long as its body runs. Most are done before it first beats, so it begins with a timer."""

    __slots__ = ("_booked", "_loop", "_task", "_timer")

    def __init__(self, booked: LedgerClaim) -> None:
        self._booked = booked
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(LEASE / 3, self._beat)

    def stop(self) -> None:
        """Renew no more."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _beat(self) -> None:
        self._task = self._loop.create_task(self._booked.beat())
        self._timer = self._loop.call_later(LEASE / 3, self._beat)


_UNDER_WAY: Final[set[asyncio.Task[None]]] = set()
"""What is yet to be told to ledgers; a loop alone would forget it."""


def _later(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.get_running_loop().create_task(work, context=contextvars.Context())
    _UNDER_WAY.add(task)
    task.add_done_callback(_UNDER_WAY.discard)


async def _take_back(ledger: Ledger, call_id: str, holder: str) -> None:
    ends = anyio.current_time() + LEASE
    # Twice, as a claim that nobody waits for any more may be heard after it was taken back.
    heard = 0
    pause = _PAUSE
    while heard < 2 and anyio.current_time() < ends:
        # There may be one of these for each request that has come since the ledger is down.
        await anyio.sleep(pause * random.uniform(0.75, 1.25))  # noqa: S311 - nobody gains anything by guessing it
        pause = min(pause * 2, _LONGEST_PAUSE)
        with suppress(LedgerDown):
            await ledger.release(call_id, holder=holder)
            heard += 1


@contextmanager
def _reported(owner: str, what: str) -> Generator[None]:
    """Tell the log of a ledger that cannot be written any more: what has been done is done."""
    try:
        yield
    except LedgerDown as error:
        logger.error("%s could not %s: %s", owner, what, error)


def _written(value: Any) -> str:
    if not isinstance(value, CallToolResult):
        raise TypeError(f"a tool's result was expected, not {type(value).__name__}")
    return json.dumps({"result": value.model_dump(mode="json", by_alias=True, exclude_none=True)})


def _written_failure(tool: str, error: Exception) -> str:
    if isinstance(error, MCPError):
        return json.dumps({"protocol": error.error.model_dump(mode="json", by_alias=True, exclude_none=True)})
    failure = tool_failure(tool, error, mask=False)
    if isinstance(failure, MCPError):
        return json.dumps({"protocol": failure.error.model_dump(mode="json", by_alias=True, exclude_none=True)})
    kind = "crashed" if isinstance(failure, UnexpectedToolError) else "failed"
    return json.dumps({kind: str(error) or type(error).__name__})


def _read(text: str) -> CallToolResult:
    """What an earlier serving returned.

    Raises:
        Exception: What it ended with.
    """
    kept = json.loads(text)
    if "result" in kept:
        return CallToolResult.model_validate(kept["result"])
    if "protocol" in kept:
        raise MCPError.from_error_data(ErrorData.model_validate(kept["protocol"]))
    if "failed" in kept:
        raise ToolError(kept["failed"])
    raise Crashed(kept["crashed"])
