"""A task's leg, with the data that other legs read from a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.transport_context import TransportContext
from mcp_types import InputResponse
from pydantic import TypeAdapter, ValidationError

from roundtrip.engine.computed import ComputedValues
from roundtrip.engine.leg import Authored, Suspended
from roundtrip.engine.ports import Channels, Wait
from roundtrip.errors import BodyMistake
from roundtrip.legs.requests import ClientlessRequest, RequestRecord
from roundtrip.machine.call import Call
from roundtrip.machine.journal import Journal, Limits
from roundtrip.machine.pins import Pinner
from roundtrip.machine.table import State
from roundtrip.questions.wire import PendingQuestion, UrlQuestion
from roundtrip.sdk import RequestChannel
from roundtrip.stored.content import CallContent, Pause
from roundtrip.stored.lease import CallLease
from roundtrip.stored.model_answers import names_for_model

_PAGE_SECONDS: Final = 2.0
"""Seconds before the first check of a page that a user is visiting."""
_PAGE_GROWTH: Final = 1.1
"""The delay grows by this factor after each check, because users may never come back. A delay is then about 10 % of the
time since the user left.
"""
_MAX_PAGE_SECONDS: Final = 60.0
_MAX_LOOKS: Final = 100
_ANSWER: Final[TypeAdapter[InputResponse]] = TypeAdapter(InputResponse)

# Prefixes for names of computed values. No question or step can have such a name.
_UNTIL: Final = "~~until-"
_RECEIVED: Final = "~~received-"
_SLEEP: Final = "~sleep-"


class ToolMissing(Exception):
    """Error for a stored call whose tool is missing from this build. Another worker may have the tool."""


class TaskInfo:
    """The task in which a body runs: `ctx.task`."""

    def __init__(self, task_id: str, say: Callable[[str], Awaitable[None]]) -> None:
        self._say = say
        self.id = task_id
        """The task id that the client uses."""

    async def status(self, message: str) -> None:
        """Set the message that clients see with the task's status. At most two messages are written per second. The
        latest message is always written.
        """
        await self._say(message)


@dataclass(eq=False, repr=False)
class WorkerLeg:
    """One leg of a task, with the data that other legs read from a request."""

    content: CallContent
    journal: Journal
    claim: CallLease
    pinner: Pinner
    request: ServerRequestContext[Any, Any] | None = None
    """The client's request that runs the leg; None if a worker runs the leg without a request."""
    written: Journal | None = field(default=None, init=False)
    """The journal at the end of the leg."""
    end_mark: str | None = field(default=None, init=False)
    """Says how the call has ended, if its end may not count for later calls: "declined" or "failed"."""
    kept_for: float = field(default=0.0, init=False)
    """Seconds for which the end must be kept."""
    retry_seconds: float | None = field(default=None, init=False)
    """Seconds before the failed body is tried again; None if it is not tried again."""

    def __post_init__(self) -> None:
        claim, entry, origin, asked = self.claim, self.claim.entry, self.content.origin, self.content.asked
        self.tool, self.expires, self.takes_over, self.clock = entry.tool, entry.expires, entry.takes_over, claim.clock
        self.principal, self.user = origin.principal, origin.user
        self.by_model: Collection[str] = asked.by_model
        self.responses: Mapping[str, InputResponse | None] = {
            name: _parse_answer(answer) for name, answer in asked.answers.items()
        }
        """The answers that have arrived since the task was last parked, by question name. A malformed answer is None.
        """
        self.info = TaskInfo(self.content.id_of(claim.call_id), claim.say)

    def begin_waits(self, caller: str, computed: ComputedValues) -> BodyWaits:
        """Return the object that a new run of the body uses to sleep and to wait for signals."""
        del caller
        return BodyWaits(computed, self.content.signals, self.clock)

    def limits(self, now: float) -> Limits:
        """Return the leg's time limits. A token's time limits do not apply to a task."""
        left = max(1.0, self.expires - now)
        return Limits(ttl=left, max_age=left)

    def call(self) -> Call:
        """Return the call as it was when the task was parked or created."""
        journal = self.journal
        if self.content.is_fresh:
            return Call(journal.call_id, leg=journal.leg, round=journal.round, state=State.RESOLVING)
        return Call.resumed(journal)

    def pause(self, end: Suspended | Authored, journal: str, now: float) -> Pause:
        """Return what the task waits for after the leg.

        Args:
            end: How the leg ended.
            journal: The leg's journal, as base64url.
            now: The current time.
        """
        questions: dict[str, tuple[Any, str]]
        times: list[float] = []
        signals: list[str] = []
        if isinstance(end, Suspended):
            asked = {name: waiting for name, waiting in end.questions.items() if not _is_visited(waiting)}
            questions = {name: (waiting.sent(), waiting.asked.pin.hex()) for name, waiting in asked.items()}
            is_visiting = len(asked) < len(end.questions)
            times += [wait.until for wait in end.waits if wait.until is not None]
            signals += [wait.signal for wait in end.waits if wait.signal is not None]
        else:
            requests = (end.result.input_requests or {}).items()
            questions = {
                name: (one.model_dump(by_alias=True, mode="json", exclude_none=True), "") for name, one in requests
            }
            is_visiting = not questions
        looks, attempt, needs_client = self.content.looks, 1, False
        if is_visiting:
            times.append(now + min(_PAGE_SECONDS * _PAGE_GROWTH ** min(looks, _MAX_LOOKS), _MAX_PAGE_SECONDS))
        if self.retry_seconds is not None:
            times.append(now + self.retry_seconds)
            attempt = self.content.attempt + 1
        elif self.content.is_continued:
            # If the task waits for nothing else, the leg ended because the body needs a request from the client.
            waits_for_others = isinstance(end, Suspended) and bool(end.external)
            needs_client = not (questions or times or signals or waits_for_others)
        return Pause(
            journal,
            questions,
            min(times, default=None),
            signals,
            looks=looks + 1 if is_visiting else 0,
            attempt=attempt,
            needs_client=needs_client,
            for_model=names_for_model(end) if isinstance(end, Suspended) else (),
        )


def _is_visited(waiting: PendingQuestion) -> bool:
    """Return True if the user agreed to visit a page, and the page's `done` function decides when the user has
    finished.
    """
    question = waiting.question
    return waiting.consented and isinstance(question, UrlQuestion) and question.done is not None


@dataclass(slots=True, eq=False, repr=False)
class BodyWaits:
    """The sleeps and the waits for signals in one run of a body. The call remembers when each wait ends, and which
    signals the body received.
    """

    computed: ComputedValues
    signals: Mapping[str, Any]
    """The payloads of the signals that have arrived, by signal name."""
    clock: Callable[[], float]
    _sleeps: int = 0
    _is_sleeping: bool = False
    """True while a sleep without a name is pending."""

    def sleep(self, seconds: float, name: str | None) -> Wait | None:
        """Return a wait for the remaining time of a sleep, or None if the sleep has ended.

        Raises:
            BodyMistake: Another sleep without a name is pending.
        """
        if name is None and self._is_sleeping:
            raise BodyMistake(
                "two ctx.sleep(...) calls without name= are pending at once, and could swap their times on the next "
                "leg; name them: ctx.sleep(..., name='...')"
            )
        self._sleeps += name is None
        until = self._until(f"{_SLEEP}{self._sleeps}" if name is None else name, seconds)
        if self.clock() >= until:
            return None
        self._is_sleeping |= name is None
        return Wait(until)

    def receive(self, name: str, seconds: float | None) -> Wait | list[Any]:
        """Return a signal's payload in a one-item list. If the signal has not arrived, return an awaitable that waits
        for the signal.

        Raises:
            TimeoutError: The signal did not arrive in time.
        """
        until = None if seconds is None else self._until(name, seconds)
        values, key = self.computed.values, f"{_RECEIVED}{name}"
        if key not in values:
            if name in self.signals:
                self.computed.fix(key, [self.signals[name]])
            elif until is not None and self.clock() >= until:
                # Record the timeout. A later signal changes nothing.
                self.computed.fix(key, [])
            else:
                return Wait(until, name)
        if not values[key].value:
            raise TimeoutError(f"the signal {name!r} did not arrive in time")
        return values[key].value

    def _until(self, name: str, seconds: float) -> float:
        """Return the time at which a wait ends. The time is fixed when the wait begins."""
        key = f"{_UNTIL}{name}"
        if key not in self.computed.values:
            self.computed.fix(key, self.clock() + seconds)
        return self.computed.values[key].value


def record_of(leg: WorkerLeg, lifespan: Any) -> RequestRecord:
    """Return a request record for a task's leg.

    Args:
        leg: The leg.
        lifespan: The state that the server's lifespan yielded.
    """
    content = leg.content
    connection = Connection.from_envelope(content.origin.protocol, None, content.origin.capabilities)
    session = ServerSession(_NoClient(leg.claim.say), connection)
    params: dict[str, Any] = {"name": leg.tool, "arguments": content.origin.arguments}
    lacks_client = content.is_continued and leg.request is None
    context = (ClientlessRequest if lacks_client else ServerRequestContext[Any, Any])(
        session=session,
        lifespan_context=lifespan,
        protocol_version=content.origin.protocol,
        method="tools/call",
        params=params,
        request=leg.request.request if leg.request is not None else None,
    )
    record = RequestRecord(context, may_ask=True, journal=leg.journal, stored=leg)
    if content.channel.page_secret or content.channel.asks_model:
        if content.channel.leaves_at == "link" and content.channel.reply is None:
            record.channels = Channels(for_links="link")
        else:
            shown_on = "app" if content.channel.app_secret else "page" if content.channel.page_secret else None
            record.channels = Channels(shown_on, content.channel.asks_model)
    return record


class _NoClient(RequestChannel):
    """The client channel of a leg without a client. Progress reports become the task's status message."""

    def __init__(self, say: Callable[[str], Awaitable[None]]) -> None:
        self.transport = TransportContext(kind="task", can_send_request=False)
        self._say = say

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Set the status message."""
        share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        await self._say(share if message is None else f"{message} ({share})")


def _parse_answer(answer: Any) -> InputResponse | None:
    try:
        return _ANSWER.validate_python(answer, by_name=False, by_alias=True)
    except ValidationError:
        return None
