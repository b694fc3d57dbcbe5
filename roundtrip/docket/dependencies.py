"""Docket dependencies as tool parameters: `Timeout`, `Retry`, `Progress` and others.

Docket does not run the body, so each dependency acts on a leg. `Timeout` limits the leg's work. With `Retry`, a failed
attempt ends the leg, and another leg tries again. `Progress` becomes the status message. This module imports Docket.
Therefore, it is imported only if a tool has such a parameter.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import anyio
from docket.dependencies import Progress, Retry, Timeout, current_execution
from typing_extensions import override

from roundtrip.engine.interruptions import LegClock, Suspension, cancel_after, verdict_on, with_timeout
from roundtrip.errors import BodyMistake, InvalidSignature, RoundtripError, ToolTimedOut
from roundtrip.legs.extensions import LegExtension, LegPart
from roundtrip.legs.requests import holding
from roundtrip.resolvers.signatures import is_async
from roundtrip.tools.promises import OncePolicy, TaskMode

if TYPE_CHECKING:
    from docket import Execution
    from mcp.server.session import ServerSession

    from roundtrip.engine.silent_body import Execute
    from roundtrip.legs.extensions import OpenLeg
    from roundtrip.legs.functions import FunctionSignature
    from roundtrip.stored.legs import WorkerLeg

T = TypeVar("T")

logger = logging.getLogger("roundtrip")

_TOTAL: Final = 100
"""The progress total until the body sets its own, as in Docket."""


class _LegTimeout(Timeout):
    """Docket's `Timeout`, applied to the body in a single leg."""

    _clock: LegClock | None = None

    def begin(self, clock: LegClock) -> None:
        """Start the timeout, which `clock` enforces."""
        self._clock, clock.restarted = clock, self.start
        self.start()

    def extend(self, by: timedelta | None = None) -> None:
        """Extend the timeout by a duration. The default is the duration of the original timeout."""
        added = self.base if by is None else by
        clock = self._clock
        if clock is not None:
            try:
                # A timeout that has expired cannot be extended. After a pause, the clock restarts with the whole
                # timeout.
                if not clock.pauses and not clock.scope.cancel_called:
                    left = clock.scope.deadline - anyio.current_time()
                    cancel_after(clock.scope, left + added.total_seconds())
            except anyio.NoEventLoopError as error:
                raise BodyMistake("timeout.extend() must be called in the body itself, not in a thread") from error
        super().extend(added)


class _LegProgress(Progress):
    """Docket's `Progress`, restarted in each leg."""

    def __init__(self, task: WorkerLeg | None, session: ServerSession | None) -> None:
        super().__init__()
        self._task = task
        self._session = session
        self._count = 0
        self._goal = _TOTAL
        self._text: str | None = None
        self._has_numbers = False
        self._notified = 0

    @property
    def current(self) -> int:
        """Return the number of completed units."""
        return self._count

    @property
    def total(self) -> int:
        """Return the total number of units."""
        return self._goal

    @property
    def message(self) -> str | None:
        """Return the progress message."""
        return self._text

    async def set_total(self, total: int) -> None:
        """Set the total number of units."""
        if total < 1:
            raise ValueError(f"total must be at least 1, got {total}")
        self._goal, self._has_numbers = total, True
        await self._report()

    async def increment(self, amount: int = 1) -> None:
        """Add completed units."""
        if amount < 1:
            raise ValueError(f"amount must be at least 1, got {amount}")
        self._count, self._has_numbers = self._count + amount, True
        await self._report()

    async def set_message(self, message: str | None) -> None:
        """Set the progress message."""
        self._text = message
        await self._report()

    async def _report(self) -> None:
        if self._task is not None and not self._has_numbers:
            await self._task.info.status(self._text or "")
        elif self._session is not None and (self._task is not None or self._count > self._notified):
            # The protocol requires that each notification reports more progress than the one before it.
            self._notified = self._count
            await self._session.report_progress(self._count, self._goal, self._text)


class DocketParameters(LegExtension):
    """The tool parameters that are filled by Docket dependencies.

    Args:
        signature: The tool's function.
        policies: The tool's policies, keyed by their types.

    Raises:
        InvalidSignature: A dependency cannot work in this tool.
    """

    def __init__(self, signature: FunctionSignature, policies: Mapping[type, object]) -> None:
        owner, given = signature.owner, dict(signature.foreign)
        timeouts = [name for name, value in given.items() if isinstance(value, Timeout)]
        retries = [name for name, value in given.items() if isinstance(value, Retry)]
        for kind, names in (("Timeout", timeouts), ("Retry", retries)):
            if len(names) > 1:
                raise InvalidSignature(
                    f"{owner} must have only one {kind}, got {names[0]!r} and {names[1]!r}; leave out one of them"
                )
        if retries and policies.get(OncePolicy) is not None:
            raise InvalidSignature(
                f"{owner} must not have both Retry and exactly_once=: each attempt runs the body again; leave out one"
            )
        if retries and policies.get(TaskMode) is None:
            raise InvalidSignature(f"{owner} has Retry, but only tasks are retried; add task=True, or leave out Retry")
        waiting = next((value for value in given.values() if isinstance(value, Timeout | Progress)), None)
        if waiting is not None and not is_async(signature.fn):
            kind = type(waiting).__name__
            raise InvalidSignature(f"{owner} has {kind}, which needs a coroutine function; use async def")
        self.tool = signature.name
        self.given = given
        # A new attempt must not overlap with threads that the previous attempt left behind.
        self.leaves_threads = bool(timeouts) and not retries

    @override
    def join(self, leg: OpenLeg) -> LegPart:
        return _DocketPart(self, leg)


class _DocketPart(LegPart):
    """The Docket dependencies in one leg."""

    def __init__(self, parameters: DocketParameters, leg: OpenLeg) -> None:
        self._tool, self._dependencies = parameters.tool, parameters.given
        self._call = leg.call
        self._task = cast("WorkerLeg | None", leg.stored)
        self._session = leg.request.session if leg.request is not None else None
        """The session that reports progress to the client. In a task, progress becomes the status message. If the
        author's code made the call, there is no session.
        """

    @override
    def around(self, execute: Execute) -> Execute:
        async def run(filled: Mapping[str, Any], context: Any) -> Any:
            """Run the body with the parameters' values.

            Raises:
                ToolTimedOut: The body took too long.
                Suspension: The body failed and will be retried.
                Exception: The body failed and will not be retried.
            """
            attempt = self._task.content.attempt if self._task is not None else 1
            values = {name: await self._value(dependency, attempt) for name, dependency in self._dependencies.items()}
            timeout = _first(_LegTimeout, values)
            work = execute({**filled, **values}, context)
            if timeout is not None:
                work = with_timeout(timeout.base.total_seconds(), work, begun=timeout.begin)
            try:
                return await work
            except (Exception, BaseExceptionGroup) as raised:
                retry = _first(Retry, values)
                if self._task is None or retry is None or not _is_retried(verdict_on(raised), retry):
                    raise
                self._task.retry_seconds = max(0.0, retry.delay.total_seconds())
                logger.warning(
                    "tool %r failed in attempt %d of %s in call %s; the next attempt starts in %g seconds",
                    self._tool,
                    attempt,
                    retry.attempts or "any number",
                    self._call.id,
                    self._task.retry_seconds,
                    exc_info=raised,
                )
            raise Suspension

        return run

    async def _value(self, given: Any, attempt: int) -> Any:
        """Return one parameter's value."""
        if isinstance(given, Timeout):
            return _LegTimeout(given.base)
        if isinstance(given, Progress):
            return _LegProgress(self._task, self._session)
        if isinstance(given, Retry):
            # Docket's `Retry` calculates its delay from the execution's attempt number, and reads nothing else from it.
            with holding(current_execution, cast("Execution", SimpleNamespace(attempt=attempt))):
                return await given.__aenter__()
        if type(given).__name__ == "_TaskKey":
            return self._call.id
        return logging.LoggerAdapter(
            logging.getLogger(f"docket.task.{self._tool}"),
            {"docket.task": self._tool, "docket.key": self._call.id, "docket.attempt": attempt},
        )


def _first(kind: type[T], values: Mapping[str, Any]) -> T | None:
    return next((value for value in values.values() if isinstance(value, kind)), None)


def _is_retried(failure: BaseException, retry: Retry) -> bool:
    """Return True if a failed body will be retried."""
    is_own = isinstance(failure, RoundtripError) and not isinstance(failure, ToolTimedOut)
    # Do not retry after a user's refusal or an author's mistake, because another attempt would end in the same way.
    if not isinstance(failure, Exception) or is_own:
        return False
    return retry.attempts is None or retry.attempt < retry.attempts
