"""Stored calls in a server's ledger: tasks, waiting calls, approvals, and the operator actions on them.

Only test users see the values in stored calls. Unlike for traces, no setting reveals them to others.
"""

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar, cast

from roundtrip.approvals.inbox import Inbox
from roundtrip.approvals.rules import records_of, state_of
from roundtrip.ledger.contract import LedgerDown, Reach
from roundtrip.ledger.machines import StoredState
from roundtrip.ledger.tasks import CallEntry
from roundtrip.machine.table import State
from roundtrip.playground.forms import ShownForm, parse_posted
from roundtrip.server.attach import Attached
from roundtrip.stored.content import CallContent, CallNotChanged, ContentUnreadable, is_call_id
from roundtrip.stored.operations import AnswerUnfit, Backlog, CallOperations, LoggedOperations
from roundtrip.trace.explaining.wording import clock_text, distance_text
from roundtrip.trace.page.data import Data
from roundtrip.trace.page.requests import FormInvalid
from roundtrip.trace.writing.operator_log import OperatorLog

T = TypeVar("T")

_MAX_LISTED: Final = 100
_MAX_COUNTED: Final = 1000
_COUNT_CACHE_SECONDS: Final = 5.0
_STORE_SECONDS: Final = 2.0
_NO_SERVER: Final = "Name the server to see its stored calls: roundtrip ui --server MODULE:SERVER"
_NO_STORE: Final = "The server stores no calls: no tool has task=True, and it has no pages=, channels= or approvals="
_IN_MEMORY: Final = (
    "The server keeps its calls in process memory; give it a SqliteLedger, a RedisLedger or a PostgresLedger"
)
_UNREADABLE: Final = "Not readable: no key of this server opens it, or the call belongs to another service"
_END_STATES: Final = (StoredState.COMPLETED, StoredState.FAILED, StoredState.LOST, StoredState.CANCELLED)

_CALL_STATES: Final[Mapping[str, State]] = {
    **{StoredState.DUE: State.RECEIVED, StoredState.RUNNING: State.EXECUTING},
    **dict.fromkeys((StoredState.ASKING, StoredState.WAITING), State.AWAITING_INPUT),
    **dict.fromkeys((StoredState.LOST, StoredState.CANCELLED), State.FAILED),
}
"""Maps the store's state names to the trace's state names, where these differ."""

StoredAction = Literal["cancel", "retry", "expire", "remind"]
"""Operator action on a stored call, other than answering as a test user."""


def call_state(stored_state: str) -> str:
    """Return the name that traces use for a stored call's state."""
    return _CALL_STATES.get(stored_state, stored_state)


class OperatedCalls:
    """The calls that a server stores.

    Args:
        server: The server; None if the operator did not name a server.
        answers: True if page users may answer questions. Only development servers should allow this.
    """

    def __init__(self, server: Attached | None, *, answers: bool) -> None:
        self._answers = answers
        service = server.call_service if server is not None else None
        self.problem = ""
        """A sentence that says why no stored calls are shown; empty if they are shown."""
        if server is None:
            self.problem = _NO_SERVER
        elif service is None:
            self.problem = _NO_STORE
        elif server.ledger.reach is Reach.PROCESS:
            self.problem = _IN_MEMORY
        self._book = service.book if service is not None and not self.problem else None
        self._operations = CallOperations(self._book) if self._book is not None else None
        self._backlog: Backlog | None = None
        self._counted_at = 0.0

    # Lists.

    async def tasks(self, states: Sequence[StoredState]) -> Data:
        """Return the stored calls in the given states, or all stored calls if no states are given. The call that
        changed last comes first.
        """
        shown: Data = {"tasks": [], "states": [], "chosen": list(states), "more": False}
        shown |= {"counted": None, "error": self.problem}
        if self._book is None:
            return shown
        try:
            found = await _within_limit(self._book.store.list(limit=_MAX_LISTED + 1, states=states))
            shown["tasks"] = [await self._task(one.call_id) for one in found[:_MAX_LISTED]]
            shown["more"] = len(found) > _MAX_LISTED
            backlog = await _within_limit(self._count())
            shown |= {"states": sorted(backlog.states.items()), "counted": _counted_calls(backlog)}
        except LedgerDown as error:
            shown["error"] = str(error)
        shown["tasks"] = [one for one in shown["tasks"] if one is not None]
        return shown

    async def approvals(self) -> Data:
        """Return the approvals that have waited longest, and the approvals in the most recently changed calls."""
        found: list[Data] = []
        shown: Data = {"approvals": found, "error": self.problem}
        if self._book is None:
            return shown
        inbox = next((each for each in self._book.features if isinstance(each, Inbox)), None)
        if inbox is None:
            return {**shown, "error": "The server has no approvals="}
        try:
            waiting = await _within_limit(inbox.waiting(limit=_MAX_LISTED))
            changed = await self._book.store.list(limit=_MAX_LISTED)
            for call_id, tool in {one.call_id: one.tool for one in [*waiting, *changed]}.items():
                entry, content, now = await self._load(call_id)
                if entry is not None and content is not None:
                    is_over = entry.has_ended or entry.is_over(now)
                    found += [self._approval(call_id, tool, record, is_over) for record in records_of(content)]
        except LedgerDown as error:
            shown["error"] = str(error)
        # Pending approvals come first.
        found.sort(key=lambda approval: approval["state"] != "pending")
        return shown

    async def keys(self) -> Data:
        """Count the stored calls by the public name of their sealing key. Without a store, `keys` is None."""
        if self._book is None:
            return {"keys": None, "counted": None}
        try:
            backlog = await _within_limit(self._count())
        except LedgerDown:
            return {"keys": None, "counted": None}
        keys = [{"name": name, "tasks": number} for name, number in sorted(backlog.keys.items())]
        return {"keys": keys, "counted": _counted_calls(backlog)}

    async def _count(self) -> Backlog:
        """Return the store's call counts. They are cached for a few seconds."""
        now = time.monotonic()
        if self._operations is not None and (self._backlog is None or now - self._counted_at > _COUNT_CACHE_SECONDS):
            self._backlog, self._counted_at = await self._operations.backlog(limit=_MAX_COUNTED), now
        return self._backlog or Backlog({}, {}, 0, is_whole=True)

    async def _task(self, call_id: str) -> Data | None:
        entry, content, now = await self._load(call_id)
        if entry is None:
            return None
        following = "-" if entry.state in (StoredState.ASKING, *_END_STATES) else distance_text(entry.due - now)
        return {
            "call": call_id,
            "tool": entry.tool,
            "state": entry.state.value,
            "created": distance_text(entry.created - now),
            "changed": distance_text(entry.updated - now),
            "next": following,
            "approvals": [
                f"{one['by']}: {state_of(one, is_over=entry.has_ended)}"
                for one in (records_of(content) if content is not None else ())
            ],
            "actions": self._possible_actions(entry, content, now),
        }

    def _approval(self, call_id: str, tool: str, record: Mapping[str, Any], is_over: bool) -> Data:
        decision: Mapping[str, Any] = record["decision"] or {}
        decided: float | None = decision.get("when")
        state = state_of(record, is_over=is_over)
        return {
            "call": call_id,
            "tool": tool,
            "name": record["name"],
            "by": record["by"],
            "state": state,
            "opened": clock_text(record["opened"]),
            "until": clock_text(record["until"]),
            "decided": clock_text(decided) if decided is not None else "",
            "who": decision.get("who") or "" if self._answers else "",
            "message": record["message"] if self._answers else "",
            "actions": ["remind"] if state == "pending" else [],
        }

    # One call.

    async def call(self, call_id: str) -> Data | None:
        """Return a stored call; None for an unknown id."""
        try:
            entry, content, now = await self._load(call_id)
        except LedgerDown as error:
            return {"tool": "?", "state": "?", "facts": [["Store", str(error)]], "actions": [], "questions": []}
        if entry is None:
            return None
        facts = [["Created", clock_text(entry.created)], ["Changed", clock_text(entry.updated)]]
        facts.append(["Kept until", clock_text(entry.expires)])
        if entry.state is StoredState.RUNNING:
            facts.append(["Worker", entry.holder])
        elif entry.state not in _END_STATES:
            facts.append(["Looked at", distance_text(entry.due - now)])
        if entry.deaths:
            facts.append(["Workers that died while running it", str(entry.deaths)])
        if content is None:
            facts.append(["Content", _UNREADABLE])
        else:
            is_over = entry.has_ended
            facts += [
                ["Approval", f"{one['name']} by {one['by']}: {state_of(one, is_over=is_over)}"]
                for one in records_of(content)
            ]
        questions = content.user_questions if content is not None and not entry.has_ended and self._answers else {}
        return {
            "tool": entry.tool,
            "state": entry.state.value,
            "facts": facts,
            "actions": self._possible_actions(entry, content, now),
            "questions": [self._question(call_id, key, one) for key, one in questions.items()],
        }

    def _question(self, call_id: str, key: str, asked: Mapping[str, Any]) -> Data:
        parameters = cast("Mapping[str, Any]", asked["params"])
        schema = parameters.get("requestedSchema")
        return {
            "key": key,
            "message": parameters.get("message"),
            "fields": _form(call_id, key, schema).data() if schema is not None else None,
            "url": schema is None,
        }

    # Actions.

    async def answer(self, log: OperatorLog, call_id: str, key: str, action: str, fields: object) -> None:
        """Answer an open question as a test user.

        Raises:
            FormInvalid: A text does not fit its form field.
            CallNotChanged: The question cannot be answered; the message says why.
            OperatorLogUnwritable: The operator log cannot be written.
            LedgerDown: The store cannot be used.
        """
        logged = self.logged_operations(log)
        if not self._answers:
            raise CallNotChanged("only development servers accept answers here; start roundtrip ui with --test-user")

        async def response() -> dict[str, Any]:
            if action != "accept":
                return {"action": action}
            schema = await logged.operations.open_form(call_id, key)
            try:
                return {"action": action, "content": _form(call_id, key, schema).read(parse_posted(fields))}
            except FormInvalid as error:
                raise AnswerUnfit("the answer does not fit its question") from error

        try:
            await logged.answer_made(call_id, key, response)
        except AnswerUnfit as error:
            raise error.__cause__ or error from None

    def logged_operations(self, log: OperatorLog) -> LoggedOperations:
        """Return the operations on stored calls. Each operation is recorded in the log.

        Raises:
            CallNotChanged: No stored calls are shown; the message says why.
        """
        if self._operations is None:
            raise CallNotChanged(self.problem)
        return LoggedOperations(self._operations, log)

    def _possible_actions(self, entry: CallEntry, content: CallContent | None, now: float) -> list[str]:
        """Return the possible actions. If no key can open the call, it may belong to another service, so no action is
        possible.
        """
        if content is None or self._operations is None:
            return []
        found = self._operations.possible(entry, content, now)
        return [action for action in found if action != "answer" or self._answers]

    async def _load(self, call_id: str) -> tuple[CallEntry | None, CallContent | None, float]:
        if self._book is None or not is_call_id(call_id):
            return None, None, 0.0
        entry, now = await _within_limit(self._book.store.load(call_id))
        if entry is None:
            return None, None, now
        entry.advance(now)
        try:
            return entry, self._book.seal.read(entry.content, call_id), now
        except ContentUnreadable:
            return entry, None, now


async def _within_limit(work: Awaitable[T]) -> T:
    """Await a store operation, but not longer than a page's user would wait.

    Raises:
        LedgerDown: The store did not answer in time.
    """
    try:
        # Do not use anyio's timeout here: it would wait for the thread that uses a file.
        async with asyncio.timeout(_STORE_SECONDS):
            return await work
    except TimeoutError:
        raise LedgerDown(f"the store did not answer within {_STORE_SECONDS:g} seconds") from None


def _form(call_id: str, key: str, schema: Mapping[str, Any]) -> ShownForm:
    return ShownForm(f"{call_id} {key}", schema)


def _counted_calls(backlog: Backlog) -> int | None:
    """If only some stored calls were counted, return how many; otherwise, return None."""
    return None if backlog.is_whole else _MAX_COUNTED
