"""Provide the content of a stored task, which only servers with its keys can read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal, NamedTuple

from roundtrip.approvals import rules
from roundtrip.errors import TokenRejected
from roundtrip.ledger.tasks import TaskEntry
from roundtrip.machine.journal import from_text, to_text
from roundtrip.machine.tasks import TaskEvent
from roundtrip.tokens.token import Sealer

_SEALED_PREFIX: Final = "s1."
"""The prefix of sealed text, before the public name of its key. JSON cannot begin with it."""

_FOR_USERS: Final = "elicitation/create"
_CALL_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,256}", re.ASCII)


class ContentUnreadable(Exception):
    """No key of this server opens the content of a task, it is another service's, or a newer build has written it."""


@dataclass(slots=True)
class TaskContent:
    """Everything that a task remembers, besides what its store needs to know."""

    arguments: dict[str, Any]
    """The client's arguments."""
    capabilities: dict[str, Any]
    """The capabilities that the client declared when it made the call."""
    protocol: str
    """The protocol revision of the client."""
    principal: str | None
    secret: str
    """The part of the task's id that only its client knows: ids of calls are in logs and transcripts."""
    version: str | None
    """The version of the tool."""
    journal: str
    """The journal, as base64url."""
    user: str | None = None
    """The principal, if it names a user and not only a client: tickets are for users."""
    page_secret: str = ""
    """The secret of its page, for a call whose questions are on a page."""
    needs_client: bool = False
    """True while it waits for a request of its client, because its body reads a part of one."""
    needs_request: bool = False
    """True if each leg needs a request of its client, by which its host authorizes the tool or fills parameters."""
    asks_model: bool = False
    """True if the model that made the call may answer its questions for anyone."""
    is_chosen: bool = False
    """True if, of all equal calls that wait, this one is continued."""
    is_local: bool = False
    """True if its page is on the machine of a stdio server, and no other page may open it."""
    is_fresh: bool = True
    """True until a worker has parked the task: the journal ends before the body, and not at questions."""
    questions: dict[str, Any] = field(default_factory=dict[str, Any])
    """The open questions as the client sees them, by their keys on the wire."""
    names: dict[str, str] = field(default_factory=dict[str, str])
    """The names of the open questions, by their keys on the wire."""
    for_model: list[str] = field(default_factory=list[str])
    """The keys of the open questions that a model may answer. They were decided when the questions were asked."""
    pins: dict[str, str] = field(default_factory=dict[str, str])
    """The pins of the open questions, by their keys on the wire."""
    used: list[str] = field(default_factory=list[str])
    """All keys on the wire so far. The protocol wants each to be unique in the life of a task."""
    answers: dict[str, Any] = field(default_factory=dict[str, Any])
    """The answers that no worker has parked yet, by the names of their questions, as the client sent them."""
    answered: dict[str, str] = field(default_factory=dict[str, str])
    """The pins of the questions to which they were given."""
    by_model: list[str] = field(default_factory=list[str])
    """The names of the questions whose last answer a model gave."""
    message: str | None = None
    """The status message."""
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    signals: dict[str, Any] = field(default_factory=dict[str, Any])
    waits: list[str] = field(default_factory=list[str])
    """The names of the signals that it waits for."""
    attempt: int = 1
    """The number of the next attempt at the body, which `Retry` counts."""

    looks: int = 0
    """The number of times in a row that legs have looked at a page that the user is visiting."""
    pin_keys: list[str] = field(default_factory=list[str])
    """Former keys of pins, as base64url, which rekeying has kept: the pins of answered questions need them."""
    approvals: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """All approvals that it has asked for, in their order: see `roundtrip.approvals.inbox`."""
    refusal: str = ""
    """The action with which the user refused the link to its page while it asked nothing there."""
    wakes: float | None = None
    """The time at which it goes on, if it has approvals; it may be due earlier, to notify their groups."""
    leaves_at: Literal["", "question", "link"] = ""
    """The kind of question that the client of a task cannot show. There the task ends for the client, with a result."""
    reply: dict[str, Any] | None = None
    """The result with which a task has ended for its client, and by whose handle the client continues the call."""

    @property
    def is_continued(self) -> bool:
        """Return True for a call that is no task: its client continues it by a handle or a token."""
        return (bool(self.page_secret) or self.asks_model) and not self.leaves_at

    @property
    def takes_handle(self) -> bool:
        """Return True for a call whose client has its handle."""
        return self.is_continued or self.reply is not None

    @property
    def user_questions(self) -> dict[str, Any]:
        """Return the open questions that a user answers, by their keys on the wire."""
        return {key: asked for key, asked in self.questions.items() if asked["method"] == _FOR_USERS}

    @property
    def client_questions(self) -> dict[str, Any]:
        """Return the open questions that only the client's software answers, by their keys on the wire."""
        return {key: asked for key, asked in self.questions.items() if asked["method"] != _FOR_USERS}

    def id_of(self, call_id: str) -> str:
        """Return the id by which the client knows the task."""
        return f"{call_id}.{self.secret}"

    def pause(self, pause: Pause, entry: TaskEntry, now: float, *, delivered: Collection[str]) -> None:
        """Park the task at the questions, times and signals that a leg waits for.

        Args:
            pause: What it waits for.
            entry: The task, whose lease the caller gives up.
            now: The time.
            delivered: The names of the questions whose answers the leg had read.
        """
        self.journal, self.is_fresh = pause.journal, False
        open_before = {name: key for key, name in self.names.items()}
        # Answers that came while the leg ran count, if their questions are still the same.
        late = {
            name: self.answers[name]
            for name, (_, pin) in pause.questions.items()
            if name in self.answers and name not in delivered and self.answered.get(name) == pin
        }
        shown: dict[str, Any] = {}
        names: dict[str, str] = {}
        pins: dict[str, str] = {}
        for name, (request, pin) in pause.questions.items():
            if name in late:
                continue
            key = open_before.get(name)
            # A question keeps its key while it is the same one, and no answer to it was read.
            if key is None or name in delivered or self.pins.get(key) != pin:
                key = self.fresh_key(name)
            shown[key], names[key], pins[key] = request, name, pin
        self.questions, self.names, self.pins = shown, names, pins
        if self.refusal and (refused := self.user_questions):
            for key in refused:
                name = names.pop(key)
                late[name], self.answered[name] = {"action": self.refusal}, pins.pop(key)
                del shown[key]
            self.refusal = ""
        self.for_model = [key for key, name in names.items() if name in pause.for_model]
        self.answers = late
        self.answered = {name: self.answered[name] for name in late}
        self.waits, self.looks = list(pause.signals), pause.looks
        self.attempt, self.needs_client = pause.attempt, pause.needs_client
        due, is_decided = pause.until, False
        if pause.approvals or self.approvals:
            self.wakes = due
            look, is_decided = rules.park_approvals(
                self, entry, pause.approvals, now, read=pause.read_approvals, asks_client=bool(pause.questions)
            )
            due = min((at for at in (due, look) if at is not None), default=None)
        entry.park(TaskEvent.ASK if pause.questions else TaskEvent.WAIT, now, due=due)
        # Everything may have come before the leg ended.
        if (late and not shown) or is_decided or any(name in self.signals for name in pause.signals):
            entry.apply(TaskEvent.WAKE, now)
        if self.refusal:
            self.refuse(self.refusal, entry, now)
        if self.leaves_at and self.reply is None and pause.reply is not None and self.user_questions:
            self.reply = pause.reply(entry, self)
            if self.page_secret:
                # Further questions are on the page, too.
                self.capabilities = {**self.capabilities, "elicitation": {"form": {}, "url": {}}}

    def refuse(self, action: str, entry: TaskEntry, now: float) -> None:
        """Take the refusal of a link, for questions that come later; a declined link to an approval ends the call.

        Args:
            action: The user's action, `decline` or `cancel`.
            entry: The call.
            now: The time.
        """
        is_withdrawal = action == "decline" and bool(self.approvals) and rules.is_waiting(self, entry)
        if is_withdrawal and rules.withdraw(self, entry, now):
            return
        self.refusal = action

    def take_signals(self, signals: Mapping[str, Any], entry: TaskEntry, now: float) -> None:
        """Store signals. Of each name the first one counts."""
        self.signals = {**signals, **self.signals}
        if any(name in signals for name in self.waits):
            entry.apply(TaskEvent.WAKE, now)

    def fresh_key(self, name: str) -> str:
        """Return a key on the wire for a question that was never used in this task."""
        key, number = name, 1
        while key in self.used:
            number += 1
            key = f"{name}#{number}"
        self.used.append(key)
        return key


# The values are JSON already, so they need no copies.
_FIELDS: Final = tuple(field.name for field in fields(TaskContent))
_FIELD_NAMES: Final = frozenset(_FIELDS)


def split_id(task_id: str) -> tuple[str, str]:
    """Return the call of a task, and the secret part of its id."""
    call_id, _, secret = task_id.rpartition(".")
    return call_id, secret


def is_call_id(text: str) -> bool:
    """Return True if a text can be the id of a call. Some stores cannot even look for other texts."""
    return _CALL_ID.fullmatch(text) is not None


_NO_APPROVALS: Final[Mapping[str, dict[str, Any]]] = {}


class Pause(NamedTuple):
    """Journal of a task that waits, and the questions, times and signals for which it waits."""

    journal: str
    """The journal, as base64url."""
    questions: Mapping[str, tuple[Any, str]]
    """The open questions as the client sees them, and their pins, by their names."""
    until: float | None
    """The time at which the task goes on by itself."""
    signals: Sequence[str]
    looks: int = 0
    """The number of times in a row that legs have looked at a page."""
    attempt: int = 1
    """The number of the next attempt at the body."""
    for_model: Collection[str] = ()
    """The names of the questions that a model may answer."""
    needs_client: bool = False
    """True if the leg needed a request of its client, and had none."""
    approvals: Mapping[str, dict[str, Any]] = _NO_APPROVALS
    """The approvals that it needs, by their names."""
    read_approvals: Collection[str] = ()
    """The ids of the decisions that the leg had read."""
    reply: Callable[[TaskEntry, TaskContent], dict[str, Any]] | None = None
    """Makes the result for a client that cannot show the questions."""


class TaskSeal:
    """Cipher of the contents and notes of one service's tasks; without a sealer, they are JSON.

    Servers may share a store and keys, but only those of one service open its tasks.

    Args:
        sealer: None if they never leave the memory of this process.
        hints: The public names of the keys, the one that seals first.
        service: The name of the service.
    """

    def __init__(self, sealer: Sealer | None, hints: tuple[str, ...], service: str) -> None:
        self._sealer = sealer
        self._service = service
        self.hints = hints if sealer is not None else ()
        """The public names of the keys that open tasks, the one that seals first."""
        self.hint = next(iter(self.hints), "")
        """The public name of the key that seals."""

    def write(self, content: TaskContent, call_id: str) -> str:
        """Return the stored form of a content."""
        fields = {name: getattr(content, name) for name in _FIELDS}
        if not content.approvals:
            # Older builds can go on with calls that have none.
            del fields["approvals"], fields["wakes"]
        if not content.leaves_at:
            del fields["leaves_at"], fields["reply"]
        return self.seal(fields, call_id, "content")

    def read(self, stored: str, call_id: str) -> TaskContent:
        """Return a stored content.

        Raises:
            ContentUnreadable: No key of this server opens it, or it has fields that this build does not know.
        """
        fields = self.open(stored, call_id, "content")
        if not fields.keys() <= _FIELD_NAMES:
            raise ContentUnreadable
        return TaskContent(**fields)

    def seal(self, value: Any, call_id: str, use: str) -> str:
        """Return the stored form of a JSON value, for one use in one call."""
        if self._sealer is None:
            return json.dumps([self._service, value], separators=(",", ":"))
        text = json.dumps(value, separators=(",", ":"))
        sealed = self._sealer.seal(text.encode("utf-8", "surrogatepass"), self._bound(call_id, use))
        return f"{_SEALED_PREFIX}{self.hint}.{to_text(sealed)}"

    def hint_of(self, stored: str) -> str:
        """Return the public name of the key under which a text is sealed; empty for text that is not sealed."""
        return stored.removeprefix(_SEALED_PREFIX).rpartition(".")[0] if stored.startswith(_SEALED_PREFIX) else ""

    def open(self, stored: str, call_id: str, use: str) -> Any:
        """Return a stored value.

        Raises:
            ContentUnreadable: No key of this server opens it, or it is another service's.
        """
        is_sealed = stored.startswith(_SEALED_PREFIX)
        try:
            if self._sealer is None or not is_sealed:
                if self._sealer is not None or is_sealed:
                    raise ValueError("keys on one side only")
                service, value = json.loads(stored)
                if service != self._service:
                    raise ValueError("another service")
                return value
            sealed = from_text(stored.rpartition(".")[2])
            return json.loads(self._sealer.open(sealed, self._bound(call_id, use)).decode("utf-8", "surrogatepass"))
        except (TokenRejected, ValueError) as error:
            raise ContentUnreadable from error

    def _bound(self, call_id: str, use: str) -> bytes:
        return json.dumps(["task", self._service, call_id, use]).encode()
