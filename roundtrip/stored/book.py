"""The book of a server's tasks: it creates, shows, answers, signals and cancels them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from mcp.server.request_state import authenticated_principal

from roundtrip import tracing
from roundtrip.engine.leg import Suspended
from roundtrip.errors import InvalidSignature, KeysMissing
from roundtrip.ledger.contract import LedgerDown, Reach
from roundtrip.ledger.machines import TASK_MACHINE, StoredEvent, StoredState
from roundtrip.ledger.tasks import CallEntry, CallStore, HasCallStore, SeenEntry, change_task
from roundtrip.limited_logs import LimitedLog
from roundtrip.machine.journal import Journal, from_text, to_text
from roundtrip.machine.pins import Pinner
from roundtrip.pages.calls import CallsUnavailable
from roundtrip.stored.content import CallContent, CallFeature, CallSeal, ContentUnreadable, Pause, is_call_id
from roundtrip.stored.sweep import OwnCalls
from roundtrip.text import iso_text
from roundtrip.tokens.token import JournalCodec, Sealer

if TYPE_CHECKING:
    from roundtrip.engine.leg import Authored
    from roundtrip.legs.parts import Parts

logger = logging.getLogger("roundtrip")
_LOG: Final = LimitedLog(logger)

T = TypeVar("T")

POLL_SECONDS: Final = 1.0
"""The seconds after which clients are asked to poll a task again."""
_MAX_JOURNAL_BYTES: Final = 64 * 1024 * 1024
_STATUSES: Final[Mapping[StoredState, str]] = {
    **dict.fromkeys((StoredState.DUE, StoredState.RUNNING, StoredState.WAITING), "working"),
    StoredState.ASKING: "input_required",
    StoredState.LOST: "failed",
}
"""The task statuses that clients see. In all other states, the status is the state's name."""
_LOST_ERROR: Final = {
    "code": -32603,
    "message": "the worker of this task died or stopped responding while the body was running; the outcome is "
    "unknown, and the body is not run again",
}


class StoredView(NamedTuple):
    """A task and its content at one moment."""

    entry: CallEntry
    content: CallContent


class CallBook:
    """The tasks of one server.

    Args:
        parts: The keys, the ledger that stores the tasks, and the clocks.
        service: The server's name, which identifies its service unless an audience is set.
        needed_by: The author's option that needs stored tasks. Error messages name it.
        features: The features that add values to stored calls, in order.

    Raises:
        InvalidSignature: The ledger cannot store tasks.
        KeysMissing: The server has no keys with which to seal stored tasks.
    """

    def __init__(
        self, parts: Parts, service: str, needed_by: str = "task=", features: Sequence[CallFeature] = ()
    ) -> None:
        self._parts = parts
        protection = parts.protection
        ledger = parts.effects.ledger
        is_private = ledger.reach is Reach.PROCESS
        if not isinstance(ledger, HasCallStore):
            raise InvalidSignature(
                f"{needed_by} needs a ledger that stores tasks, got {type(ledger).__name__}; give the server a "
                "SqliteLedger, a RedisLedger or a PostgresLedger"
            )
        if protection.ring is None:
            raise KeysMissing(
                f"{needed_by} needs a key for stored tasks, but request_state_security= has none; add seal_keys="
            )
        if not is_private and protection.own_key:
            raise KeysMissing(
                f"{needed_by} with a {type(ledger).__name__} needs keys=, because a restart loses this process's "
                "random key; pass keys=, or set ROUNDTRIP_KEY_FILE to a key file from `roundtrip keys new`"
            )
        self.store: CallStore = ledger.tasks
        self.knows_users_by_token = protection.policy.bind_principal is authenticated_principal
        """True if users are identified by access tokens; False if the author's `principal=` identifies them."""
        audience = protection.policy.audience
        service = service if audience is None else audience
        self.seal = CallSeal(None if is_private else protection.ledger_sealer, protection.hints, service)
        self.own_calls: OwnCalls | None = None
        """The calls that this process's clients have made or asked for. It is None if the process runs all calls."""
        self.features = features
        self.reply: Callable[[StoredView], dict[str, Any]] | None = None
        """Function that returns the client's result for a call that asks its questions on a page or asks a model. It is
        None if the server has no such calls.
        """
        self._ahead: float | None = None
        """The seconds by which the store's clock is ahead of this process's clock. It is None until the store's clock
        has been read.
        """
        self._pin_keys = protection.ring.derive(b"pin")
        self.page_keys = protection.ring.derive(b"page/" + service.encode("utf-8", "surrogatepass"))
        """The service's keys, newest first. They sign question forms and make call labels."""
        # A journal may be larger in a store than in a token.
        sealer = Sealer(protection.ring, purpose=b"seal", entropy=parts.system.entropy)
        self.journals = JournalCodec(sealer, pinner=protection.journals.pinner, max_bytes=_MAX_JOURNAL_BYTES)

    def clock(self) -> float:
        """Return the estimated time on the store's clock. All instances use this clock to compare times."""
        return self._parts.system.time() + (self._ahead or 0.0)

    def record_time(self, now: float) -> None:
        """Record the time that the store's clock showed."""
        self._ahead = now - self._parts.system.time()

    async def entry(self, call_id: str, tool: str, content: CallContent, *, ttl: float, runs_once: bool) -> CallEntry:
        """Return a new task. The task is not stored yet."""
        if self._ahead is None:
            # If the store is down, this matters only when the task has to be stored.
            with suppress(LedgerDown):
                self.record_time((await self.store.load(call_id))[1])
        now = self.clock()
        self.name(call_id)
        stored = self.seal.write(content, call_id)
        return CallEntry(call_id, tool, now, now + ttl, due=now, updated=now, runs_once=runs_once, content=stored)

    def name(self, call_id: str) -> None:
        """Record that a client of this process has made a call, or has proved that it owns a call."""
        if self.own_calls is not None:
            self.own_calls.add(call_id)

    async def add(self, entry: CallEntry, content: CallContent) -> StoredView | None:
        """Store a new task and return it. If the call already has a task, return that task. If that task has expired,
        return None.

        Raises:
            LedgerDown: The store cannot be used.
        """
        if await self.store.add(entry):
            return StoredView(entry, content)
        return await self.view(entry.call_id)

    async def view(self, call_id: str) -> StoredView | None:
        """Return a call's task. Return None if there is no task, or if the task has expired.

        Raises:
            LedgerDown: The store cannot be used.
            ContentUnreadable: No key of this server opens the task.
        """
        entry, now = await self.store.load(call_id)
        self.record_time(now)
        if entry is None:
            return None
        if entry.advance(now) and entry.state is StoredState.LOST:
            # Store that the task is lost before a client can see it. Otherwise, a worker that was only silent could
            # still store a result.
            entry = await self.change(call_id, lambda entry, now: entry)
            if entry is None:
                return None
        return None if now >= entry.expires else StoredView(entry, self.seal.read(entry.content, call_id))

    async def find(self, call_id: str) -> StoredView | None:
        """Return the task for a call id that a client sent. Return None if there is no task, or if no key of this
        server opens it.

        Raises:
            LedgerDown: The store cannot be used.
        """
        if not is_call_id(call_id):
            # Some stores cannot even look up a text that is not a call id.
            return None
        try:
            return await self.view(call_id)
        except ContentUnreadable:
            _LOG.warning("no key of this server opens a stored call; give all instances the same keys")
            return None

    async def change(
        self,
        call_id: str,
        work: Callable[[CallEntry, float], T],
        *,
        seen: SeenEntry | None = None,
        joins: str | None = None,
    ) -> T | None:
        """Change a task with `change_task`. If the change ends the task, report this to the tracers, unless the task's
        leg does so.

        Args:
            call_id: The task's call.
            work: Changes the task.
            seen: See `change_task`.
            joins: The id of an equal call that continues in place of this cancelled call.
        """
        ended = partial(self._report_if_stopped, seen is not None, joins) if self._parts.effects.tracers else None
        return await change_task(self.store, call_id, work, seen=seen, ended=ended)

    def _report_if_stopped(
        self, is_by_worker: bool, joins: str | None, before: StoredState, entry: CallEntry, now: float
    ) -> None:
        if entry.state is StoredState.CANCELLED:
            how = "cancelled" if joins is None else "joined"
        elif entry.state is StoredState.LOST:
            how = "lost"
        elif entry.state is StoredState.FAILED and now >= entry.expires:
            how = "expired"
        else:
            # The task was ended by its leg, and the leg itself reports this.
            return
        # After the lease has lapsed, the leg may still be running: a silent worker is not always dead.
        ends_leg = before is StoredState.RUNNING and (how != "lost" or is_by_worker)
        joined = joins if how == "joined" else None
        self._report_stop(tracing.StoppedCall(entry.call_id, entry.tool, how, ends_leg, joined))

    def tell_unstored(self, call_id: str, tool: str) -> None:
        """Report to tracers that a call with questions could not be stored."""
        if self._parts.effects.tracers:
            self._report_stop(tracing.StoppedCall(call_id, tool, "unstored", ends_leg=False))

    def _report_stop(self, stopped: tracing.StoppedCall) -> None:
        for tracer in self._parts.effects.tracers.tracers:
            if isinstance(tracer, tracing.StoredCallTracer):
                try:
                    tracer.stop(stopped)
                except Exception:
                    logger.exception("a tracer failed when a stored call ended")

    def _reply(self, entry: CallEntry, content: CallContent) -> dict[str, Any]:
        """Return the task's final result for a client that cannot show the task's questions."""
        reply = {} if self.reply is None else self.reply(StoredView(entry, content))
        reply.pop("resultType", None)
        return reply

    def prepare(self, pause: Pause, end: Suspended | Authored, content: CallContent, call_id: str) -> Pause:
        """Return the pause with the features' additions, and a reply for clients that cannot show the questions.

        Args:
            pause: The pause.
            end: How the leg ended.
            content: The call's content as the leg read it.
            call_id: The call.
        """
        if self.reply is not None and isinstance(end, Suspended) and end.channel is not None:
            pause = pause._replace(reply=self._reply)
        parkings = [feature.prepare(end, content, call_id) for feature in self.features]
        return pause._replace(parkings=[park for park in parkings if park is not None])

    def read_journal(self, content: CallContent) -> Journal:
        """Return a task's journal.

        Raises:
            TokenRejected: The journal has a newer format.
        """
        return self.journals.read(from_text(content.journal))

    def pinner_of(self, content: CallContent) -> Pinner:
        """Return the pinner that makes and checks a task's pins."""
        if not content.pin_keys:
            return self.journals.pinner
        return Pinner([*self._pin_keys, *map(from_text, content.pin_keys)])

    def reseal(self, entry: CallEntry) -> None:
        """Seal a task with the newest key, so that former keys are no longer needed.

        Raises:
            ContentUnreadable: No key of this server opens the task.
        """
        content = self.seal.read(entry.content, entry.call_id)
        content.journal = to_text(self.journals.write(self.read_journal(content)))
        for feature in self.features:
            feature.reseal(content, entry)
        former = [to_text(key) for key in self._pin_keys[1:]]
        content.pin_keys += [key for key in former if key not in content.pin_keys]
        entry.content = self.seal.write(content, entry.call_id)
        self.seal.rewrite_notes(entry, self.seal.notes(entry))

    async def answer(self, call_id: str, responses: Mapping[str, Any]) -> None:
        """Store answers to a task's open questions. Ignore answers to other questions."""

        def answer(entry: CallEntry, now: float) -> None:
            if entry.has_ended:
                return
            content = self.seal.read(entry.content, call_id)
            # A reply in the content means that the client could not show these questions. In that case, the answers
            # must come from the user.
            if content.channel.reply is None:
                self.take_answers(entry, content, responses, now)

        await self.change(call_id, answer)

    def take_answers(
        self,
        entry: CallEntry,
        content: CallContent,
        responses: Mapping[str, Any],
        now: float,
        *,
        by_model: bool = False,
    ) -> bool:
        """Add answers to a task's open questions. Return True if at least one answer matches an open question.

        Args:
            entry: The task.
            content: The task's content.
            responses: The answers by wire key.
            now: The current time.
            by_model: True if a model gave the answers.
        """
        asked = content.asked
        open_keys = [key for key in responses if key in asked.questions]
        for key in open_keys:
            # A timer may already have started a leg. When that leg parks the call, it keeps this answer.
            name = asked.names.pop(key)
            asked.answers[name], asked.answered[name] = responses[key], asked.pins.pop(key)
            del asked.questions[key]
            asked.by_model = [other for other in asked.by_model if other != name] + [name] * by_model
        asked.for_model = [key for key in asked.for_model if key in asked.questions]
        if open_keys:
            entry.content = self.seal.write(content, entry.call_id)
            entry.updated = now
        if open_keys and entry.state is StoredState.ASKING:
            entry.apply(StoredEvent.ANSWER if asked.questions else StoredEvent.WAKE, now)
        return bool(open_keys)

    async def signal(self, call_id: str, name: str, payload: Any) -> bool:
        """Store a signal for a task. If several signals have the same name, only the first one counts. Return False if
        there is no such task.
        """

        def signal(entry: CallEntry, now: float) -> bool:
            # Store the signal even for a lost task, because an operator may let a worker continue the task.
            if entry.state in TASK_MACHINE.final:
                return True
            content = self.seal.read(entry.content, call_id)
            if name not in content.signals:
                content.take_signals({name: payload}, entry, now)
                entry.content = self.seal.write(content, call_id)
            return True

        # The call id may come from outside this server, so check its form first.
        return (is_call_id(call_id) and await self.change(call_id, signal)) or False

    async def cancel(self, call_id: str) -> bool:
        """Cancel a task unless it has ended. Return False if there is no such task."""

        def cancel(entry: CallEntry, now: float) -> bool:
            entry.apply(StoredEvent.CANCEL, now)
            return True

        return await self.change(call_id, cancel) or False

    def describe(self, view: StoredView) -> dict[str, Any]:
        """Return a task in the form of a `tasks/get` result, without `resultType`."""
        entry, content = view
        shown = self.handle(view)
        if content.channel.reply is not None:
            shown["result"] = content.channel.reply
        elif entry.state is StoredState.ASKING:
            shown["inputRequests"] = content.asked.questions
        elif entry.state is StoredState.COMPLETED:
            shown["result"] = content.result
        elif entry.state in (StoredState.FAILED, StoredState.LOST):
            shown["error"] = content.error or _LOST_ERROR
        return shown

    def handle(self, view: StoredView) -> dict[str, Any]:
        """Return the task fields that a client gets when the task is created and in each reply to `tasks/get`."""
        entry, content = view
        shown: dict[str, Any] = {
            "taskId": content.id_of(entry.call_id),
            "status": _STATUSES.get(entry.state, entry.state.value) if content.channel.reply is None else "completed",
            "createdAt": iso_text(entry.created, timespec="milliseconds"),
            "lastUpdatedAt": iso_text(entry.updated, timespec="milliseconds"),
            "ttlMs": max(1, round((entry.expires - entry.created) * 1000)),
            "pollIntervalMs": round(POLL_SECONDS * 1000),
        }
        message = content.message
        if message is None and not entry.has_ended and content.channel.reply is None:
            message = next(filter(None, (feature.status(content) for feature in self.features)), None)
        if message is not None:
            shown["statusMessage"] = message
        return shown


@contextmanager
def reaching_store() -> Generator[None]:
    """Raise `CallsUnavailable` if the store cannot be used or a call cannot be read."""
    try:
        yield
    except (LedgerDown, ContentUnreadable) as error:
        _LOG.warning("a page cannot be shown: %s", error)
        raise CallsUnavailable from error
