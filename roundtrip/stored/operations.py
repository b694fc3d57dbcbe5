"""Operator actions on stored tasks, and the operator log. Clients cannot perform these actions.

Operator commands and pages change stored calls only through `LoggedOperations`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeVar

from roundtrip.ledger.machines import TASK_MACHINE, StoredEvent, StoredState
from roundtrip.ledger.tasks import CallEntry
from roundtrip.stored.book import CallBook
from roundtrip.stored.content import (
    EXPIRED,
    CallContent,
    CallNotChanged,
    ContentUnreadable,
    Tell,
    already_ended,
    is_call_id,
    split_id,
)
from roundtrip.stored.model_answers import AnswersInvalid, read_answer
from roundtrip.text import quoted
from roundtrip.tokens.token import hint_of
from roundtrip.trace.writing.lines import OperatorAction
from roundtrip.trace.writing.operator_log import OperatorLog, OperatorLogUnwritable

T = TypeVar("T")

_TASKS_PER_READ: Final = 200
_OVERDUE_SECONDS: Final = 60.0
_UNREADABLE: Final = (
    "the task belongs to another service, or no key of this server opens it; use the task's own server and its keys"
)
_UNKNOWN_OUTCOME: Final = (
    "the action was interrupted, or the store could not be used; check the call to see if the action was done"
)
_UNFIT_REASON: Final = "the answer does not fit its question"
"""The log contains this text and not the violated rule, because a rule can contain form choices that only the user may
know.
"""
_EVENT_NAMES: Final[tuple[OperatorAction, ...]] = ("cancel", "retry", "expire")
"""The operator actions that have the same name as an event of the task state machine."""


class AnswerUnfit(CallNotChanged):
    """Error for an answer that does not fit its question. The message names the field and the rule, and may list form
    choices.
    """


class Backlog(NamedTuple):
    """Task counts for a store. The counts may cover only the first tasks; see `is_whole`."""

    states: Mapping[str, int]
    keys: Mapping[str, int]
    """The number of tasks that are sealed with each key, by the key's public name."""
    overdue: int
    """The number of tasks that have been due for over a minute. If there are any, probably no worker is running."""
    is_whole: bool


class CallOperations:
    """Operator actions on a server's tasks. These actions are not written to the log."""

    def __init__(self, book: CallBook) -> None:
        self._book = book

    async def find(self, text: str) -> str | None:
        """Return the call that a text names: a call id, a task id, a unique id prefix, or the word `last`."""
        if text == "last":
            newest = await self._book.store.list(limit=1)
            return newest[0].call_id if newest else None
        call_id, _ = split_id(text) if "." in text else (text, "")
        if not is_call_id(call_id):
            return None
        entry, _ = await self._book.store.load(call_id)
        if entry is not None:
            return call_id
        following = await self._book.store.scan(after=call_id, limit=2)
        fits = [entry.call_id for entry in following if entry.call_id.startswith(call_id)]
        return fits[0] if len(fits) == 1 else None

    async def tool_of(self, call_id: str) -> str | None:
        """Return the tool name of a stored call; None if there is no such call."""
        entry = (await self._book.store.load(call_id))[0] if is_call_id(call_id) else None
        return None if entry is None else entry.tool

    def possible(self, entry: CallEntry, content: CallContent, now: float) -> list[OperatorAction]:
        """Return the actions that the call allows now."""
        targets = TASK_MACHINE.targets
        actions: list[OperatorAction] = [each for each in _EVENT_NAMES if (entry.state, StoredEvent(each)) in targets]
        if not entry.has_ended and any(feature.can_remind(content, now) for feature in self._book.features):
            actions.append("remind")
        if not entry.has_ended and any(_is_form(asked) for asked in content.user_questions.values()):
            actions.append("answer")
        return actions

    async def cancel(self, call_id: str) -> None:
        """Cancel a task.

        Raises:
            CallNotChanged: There is no such task, the task belongs to another service, or it has ended.
            LedgerDown: The store cannot be used.
        """

        def cancel(entry: CallEntry, content: CallContent, now: float) -> None:
            if not entry.apply(StoredEvent.CANCEL, now):
                raise already_ended(entry)

        await self._change(call_id, cancel)

    async def retry(self, call_id: str, *, even_once: bool) -> None:
        """Let a worker continue a lost task after its stored steps.

        Args:
            call_id: The call.
            even_once: True to run the body again even if it must not begin twice.

        Raises:
            CallNotChanged: There is no such task, the task belongs to another service, it is not lost, or its body must
                not run twice.
            LedgerDown: The store cannot be used.
        """

        def retry(entry: CallEntry, content: CallContent, now: float) -> None:
            if entry.runs_once and entry.has_begun and not even_once:
                raise CallNotChanged(
                    "the body must not begin twice, and may already have done its work; check this first, and then "
                    "allow the retry with --even-once, or with the box on the page"
                )
            if not entry.retry(now):
                raise CallNotChanged(f"only lost tasks can be retried, and this task is {entry.state.value}")

        await self._change(call_id, retry)

    async def expire(self, call_id: str) -> None:
        """Expire a task now, and end what it waits for.

        The store forgets the task, and the client sees an expired task. Two kinds of calls stay in the store as failed
        until their normal expiry: calls whose body must not begin twice, and calls that are continued by a handle. If
        the client repeats its first request, the server must find the existing call.

        Raises:
            CallNotChanged: There is no such task, the task belongs to another service, or it has ended.
            LedgerDown: The store cannot be used.
        """

        def expire(entry: CallEntry, content: CallContent, now: float) -> list[Tell]:
            if (entry.state, StoredEvent.EXPIRE) not in TASK_MACHINE.targets:
                raise already_ended(entry)
            tells = [feature.expire(content, entry, now) for feature in self._book.features]
            if entry.runs_once or content.is_continued:
                content.error = EXPIRED
            else:
                entry.expires = now
            entry.content = self._book.seal.write(content, call_id)
            entry.apply(StoredEvent.EXPIRE, now)
            return [tell for tell in tells if tell is not None]

        for tell in await self._change(call_id, expire):
            tell()
        for feature in self._book.features:
            await feature.finish_telling()

    async def remind(self, call_id: str) -> None:
        """Remind the people for whom a call waits. This process sends the reminders.

        Raises:
            CallNotChanged: There is no such task, the task belongs to another service, the call does not wait for
                people, or the people cannot be reached.
            LedgerDown: The store cannot be used.
        """
        for feature in self._book.features:
            await feature.remind(partial(self._change, call_id))

    async def open_form(self, call_id: str, key: str) -> Mapping[str, Any]:
        """Return the form schema of an open question.

        Args:
            call_id: The call.
            key: The question's wire key or name.

        Raises:
            CallNotChanged: There is no such task or question, the task belongs to another service, or the question has
                no form.
            LedgerDown: The store cannot be used.
        """

        def find(entry: CallEntry, content: CallContent, now: float) -> Mapping[str, Any]:
            return content.asked.questions[_open_question(entry, content, key)]["params"]["requestedSchema"]

        return await self._change(call_id, find)

    async def answer(self, call_id: str, key: str, response: Mapping[str, Any]) -> str:
        """Store a test user's answer to an open question, and return the question's name.

        Args:
            call_id: The call.
            key: The question's wire key or name.
            response: The answer, as an `elicitation/create` result.

        Raises:
            AnswerUnfit: The answer does not fit the question's form.
            CallNotChanged: There is no such task or question, the task belongs to another service, or the question has
                no form.
            LedgerDown: The store cannot be used.
        """

        def answer(entry: CallEntry, content: CallContent, now: float) -> str:
            wire_key = _open_question(entry, content, key)
            name, asked = content.asked.names[wire_key], content.asked.questions[wire_key]
            read = _read_response(wire_key, asked["params"], response)
            self._book.take_answers(entry, content, {wire_key: read}, now)
            return name

        return await self._change(call_id, answer)

    async def _change(self, call_id: str, work: Callable[[CallEntry, CallContent, float], T]) -> T:
        """Apply a function to a task that this server can read. The function may raise `CallNotChanged`."""

        def change(entry: CallEntry, now: float) -> tuple[T]:
            try:
                content = self._book.seal.read(entry.content, call_id)
            except ContentUnreadable:
                raise CallNotChanged(_UNREADABLE) from None
            return (work(entry, content, now),)

        # Some stores cannot even look up a text that is not a call id.
        changed = await self._book.change(call_id, change) if is_call_id(call_id) else None
        if changed is None:
            raise CallNotChanged("there is no such task; `roundtrip calls stored` lists all tasks")
        return changed[0]

    async def scan(self) -> AsyncGenerator[CallEntry]:
        """Yield all tasks, ordered by call id."""
        after = ""
        while page := await self._book.store.scan(after=after, limit=_TASKS_PER_READ):
            for entry in page:
                yield entry
            after = page[-1].call_id

    async def renew_key(self, entry: CallEntry) -> bool:
        """Seal a task with the newest key. Return False if the task was already sealed with that key.

        Raises:
            ContentUnreadable: No key of this server opens the task.
            LedgerDown: The store cannot be used.
        """
        seal = self._book.seal

        def renew(entry: CallEntry, now: float) -> bool:
            if self._keys_of(entry) <= {seal.hint}:
                return False
            self._book.reseal(entry)
            return True

        if self._keys_of(entry) <= {seal.hint}:
            return False
        return await self._book.change(entry.call_id, renew) or False

    async def backlog(self, *, limit: int) -> Backlog:
        """Count the tasks in the store, up to `limit` tasks."""
        states, keys, seen = Counter[str](), Counter[str](), 0
        async for entry in self.scan():
            if seen == limit:
                break
            seen += 1
            states[entry.state.value] += 1
            keys.update(self._keys_of(entry))
        due, _ = await self._book.store.due(_TASKS_PER_READ)
        overdue = 0
        for call_id in due:
            entry, now = await self._book.store.load(call_id)
            overdue += entry is not None and entry.state is StoredState.DUE and now - entry.due > _OVERDUE_SECONDS
        return Backlog(dict(states), dict(keys), overdue, seen < limit)

    def _keys_of(self, entry: CallEntry) -> set[str]:
        return {hint_of(text) for text in (entry.content, *entry.notes)}


class LoggedOperations:
    """One operator's actions on a server's tasks. An action that cannot be logged is not performed.

    Args:
        operations: The actions themselves.
        log: The operator log.
    """

    def __init__(self, operations: CallOperations, log: OperatorLog) -> None:
        self.operations = operations
        self._log = log

    async def act(
        self, call_id: str, action: Literal["cancel", "retry", "expire", "remind"], *, even_once: bool = False
    ) -> None:
        """Perform and log an action on a call.

        Args:
            call_id: The call.
            action: The action.
            even_once: For `retry`, True to run the body again even if it must not begin twice.

        Raises:
            CallNotChanged: The call does not allow the action.
            OperatorLogUnwritable: The operator log cannot be written.
            LedgerDown: The store cannot be used.
        """
        acts: Mapping[str, Callable[[], Awaitable[None]]] = {
            "cancel": partial(self.operations.cancel, call_id),
            "retry": partial(self.operations.retry, call_id, even_once=even_once),
            "expire": partial(self.operations.expire, call_id),
            "remind": partial(self.operations.remind, call_id),
        }
        await self._perform(call_id, action, acts[action])

    async def answer(self, call_id: str, key: str, response: Mapping[str, Any]) -> None:
        """Store and log a test user's answer to an open question; see `CallOperations.answer` and `answer_made`."""

        async def make() -> Mapping[str, Any]:
            return response

        await self.answer_made(call_id, key, make)

    async def answer_made(self, call_id: str, key: str, make: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
        """Make, store and log a test user's answer. If `make` fails, log the failure.

        Raises:
            AnswerUnfit: The answer does not fit the question's form.
            CallNotChanged: The call does not allow the answer.
            OperatorLogUnwritable: The operator log cannot be written.
            LedgerDown: The store cannot be used.
        """

        async def work() -> str | None:
            return await self.operations.answer(call_id, key, await make())

        await self._perform(call_id, "answer", work)

    async def _perform(self, call_id: str, action: OperatorAction, work: Callable[[], Awaitable[str | None]]) -> None:
        tool = await self.operations.tool_of(call_id)
        with self._log.open(call_id, tool, action) as write:
            try:
                why = await work()
            except CallNotChanged as error:
                write("rejected", _UNFIT_REASON if isinstance(error, AnswerUnfit) else str(error))
                raise
            except BaseException:
                with suppress(OperatorLogUnwritable):
                    write("rejected", _UNKNOWN_OUTCOME)
                raise
            write("done", why or "")


def _is_form(asked: Mapping[str, Any]) -> bool:
    return asked["params"].get("mode", "form") == "form"


def _open_question(entry: CallEntry, content: CallContent, key: str) -> str:
    """Return the wire key of an open question that has a form. `key` is the question's wire key or its name.

    Raises:
        CallNotChanged: The call has ended, or it has no such question with a form.
    """
    if entry.has_ended:
        raise already_ended(entry)
    questions, names = content.asked.questions, content.asked.names
    wire_key = key if key in questions else next((each for each, name in names.items() if name == key), None)
    if wire_key is None:
        listed = ", ".join(map(quoted, questions)) or "none"
        raise CallNotChanged(f"the call has no such open question; its open questions: {listed}")
    if wire_key in content.client_questions:
        raise CallNotChanged("this question is answered by the client's software, not by a user; wait for the client")
    if not _is_form(questions[wire_key]):
        raise CallNotChanged("this question sends the user to a page; open the page to answer it")
    return wire_key


def _read_response(key: str, params: Mapping[str, Any], response: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer in wire form.

    Raises:
        AnswerUnfit: The answer does not fit the form.
    """
    action, content = response.get("action"), response.get("content")
    if action in ("decline", "cancel"):
        return {"action": action}
    if action != "accept" or content is None:
        raise AnswerUnfit("an answer must have the action accept (with content), decline or cancel")
    try:
        return read_answer(key, params, content)
    except AnswersInvalid as error:
        raise AnswerUnfit(str(error)) from error
