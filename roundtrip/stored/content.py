"""Provide the content of a stored task, which only servers with its keys can read."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

from roundtrip.errors import RoundtripError, TokenRejected
from roundtrip.ledger.machines import StoredEvent
from roundtrip.ledger.tasks import CallEntry
from roundtrip.tokens.token import SEALED_PREFIX, Sealer, open_text, seal_text

if TYPE_CHECKING:
    from roundtrip.engine.leg import Authored, Suspended

_FOR_USERS: Final = "elicitation/create"
KeysT = TypeVar("KeysT", bound="CallSection")
_CALL_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,256}", re.ASCII)


@dataclass(slots=True)
class CallSection:
    """Keys of the stored JSON that one feature owns: the fields of a subclass, which is a dataclass."""

    @property
    def is_empty(self) -> bool:
        """Return True if its keys are not stored. Builds without the feature can continue such calls."""
        return False


class ContentUnreadable(Exception):
    """No key of this server opens the content of a task, it is another service's, or a newer build has written it."""


@dataclass(slots=True)
class CallOrigin(CallSection):
    """The request that began a call, and its client."""

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
    user: str | None = None
    """The principal, if it names a user and not only a client: tickets are for users."""
    needs_request: bool = False
    """True if each leg needs a request of its client, by which its host authorizes the tool or fills parameters."""


@dataclass(slots=True)
class OpenQuestions(CallSection):
    """Open questions of a call, and the answers that no leg has read."""

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


@dataclass(slots=True)
class CallChannel(CallSection):
    """Channel by which the questions of a call reach the person who answers, if its client does not ask them."""

    page_secret: str = ""
    """The secret of its page, for a call whose questions are on a page."""
    asks_model: bool = False
    """True if the model that made the call may answer its questions for anyone."""
    is_chosen: bool = False
    """True if, of all equal calls that wait, this one is continued."""
    is_local: bool = False
    """True if its page is on the machine of a stdio server, and no other page may open it."""
    refusal: str = ""
    """The action with which the user refused the link to its page while it asked nothing there."""
    leaves_at: Literal["", "question", "link"] = ""
    """The kind of question that the client of a task cannot show. There the task ends for the client, with a result."""
    reply: dict[str, Any] | None = None
    """The result with which a task has ended for its client, and by whose handle the client continues the call."""


@dataclass(slots=True)
class CallContent:
    """Everything that a task remembers, besides what its store needs to know."""

    origin: CallOrigin
    journal: str
    """The journal, as base64url."""
    asked: OpenQuestions = field(default_factory=OpenQuestions)
    channel: CallChannel = field(default_factory=CallChannel)
    needs_client: bool = False
    """True while it waits for a request of its client, because its body reads a part of one."""
    is_fresh: bool = True
    """True until a worker has parked the task: the journal ends before the body, and not at questions."""
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
    sections: dict[type[CallSection], CallSection] = field(default_factory=dict[type[CallSection], CallSection])
    """The sections of features that were read or begun."""
    unread: dict[str, Any] = field(default_factory=dict[str, Any])
    """The stored keys of the other sections."""

    def section(self, kind: type[KeysT]) -> KeysT:
        """Return the section of a feature, which is read when it is first used."""
        found = self.sections.get(kind)
        if not isinstance(found, kind):
            found = self.sections[kind] = _take(kind, self.unread)
        return found

    @property
    def is_continued(self) -> bool:
        """Return True for a call that is no task: its client continues it by a handle or a token."""
        return (bool(self.channel.page_secret) or self.channel.asks_model) and not self.channel.leaves_at

    @property
    def takes_handle(self) -> bool:
        """Return True for a call whose client has its handle."""
        return self.is_continued or self.channel.reply is not None

    @property
    def user_questions(self) -> dict[str, Any]:
        """Return the open questions that a user answers, by their keys on the wire."""
        return {key: one for key, one in self.asked.questions.items() if one["method"] == _FOR_USERS}

    @property
    def client_questions(self) -> dict[str, Any]:
        """Return the open questions that only the client's software answers, by their keys on the wire."""
        return {key: one for key, one in self.asked.questions.items() if one["method"] != _FOR_USERS}

    def id_of(self, call_id: str) -> str:
        """Return the id by which the client knows the task."""
        return f"{call_id}.{self.origin.secret}"

    def pause(self, pause: Pause, entry: CallEntry, now: float, *, delivered: Collection[str]) -> None:
        """Park the task at the questions, times and signals that a leg waits for.

        Args:
            pause: What it waits for.
            entry: The task, whose lease the caller gives up.
            now: The time.
            delivered: The names of the questions whose answers the leg had read.
        """
        asked, channel = self.asked, self.channel
        self.journal, self.is_fresh = pause.journal, False
        open_before = {name: key for key, name in asked.names.items()}
        # Answers that came while the leg ran count, if their questions are still the same.
        late = {
            name: asked.answers[name]
            for name, (_, pin) in pause.questions.items()
            if name in asked.answers and name not in delivered and asked.answered.get(name) == pin
        }
        shown: dict[str, Any] = {}
        names: dict[str, str] = {}
        pins: dict[str, str] = {}
        for name, (request, pin) in pause.questions.items():
            if name in late:
                continue
            key = open_before.get(name)
            # A question keeps its key while it is the same one, and no answer to it was read.
            if key is None or name in delivered or asked.pins.get(key) != pin:
                key = self.fresh_key(name)
            shown[key], names[key], pins[key] = request, name, pin
        asked.questions, asked.names, asked.pins = shown, names, pins
        if channel.refusal and (refused := self.user_questions):
            for key in refused:
                name = names.pop(key)
                late[name], asked.answered[name] = {"action": channel.refusal}, pins.pop(key)
                del shown[key]
            channel.refusal = ""
        asked.for_model = [key for key, name in names.items() if name in pause.for_model]
        asked.answers = late
        asked.answered = {name: asked.answered[name] for name in late}
        self.waits, self.looks = list(pause.signals), pause.looks
        self.attempt, self.needs_client = pause.attempt, pause.needs_client
        entry.park(StoredEvent.ASK if pause.questions else StoredEvent.WAIT, now, due=pause.until)
        # Everything may have come before the leg ended.
        if (late and not shown) or any(name in self.signals for name in pause.signals):
            entry.apply(StoredEvent.WAKE, now)
        for park in pause.parkings:
            park(self, entry, pause, now)
        if channel.leaves_at and channel.reply is None and pause.reply is not None and self.user_questions:
            channel.reply = pause.reply(entry, self)
            if channel.page_secret:
                # Further questions are on the page, too.
                self.origin.capabilities = {**self.origin.capabilities, "elicitation": {"form": {}, "url": {}}}

    def take_signals(self, signals: Mapping[str, Any], entry: CallEntry, now: float) -> None:
        """Store signals. Of each name the first one counts."""
        self.signals = {**signals, **self.signals}
        if any(name in signals for name in self.waits):
            entry.apply(StoredEvent.WAKE, now)

    def fresh_key(self, name: str) -> str:
        """Return a key on the wire for a question that was never used in this task."""
        key, number = name, 1
        while key in self.asked.used:
            number += 1
            key = f"{name}#{number}"
        self.asked.used.append(key)
        return key


def _take(kind: type[KeysT], values: dict[str, Any]) -> KeysT:
    """Return a section of stored values, and remove its keys from them."""
    return kind(**{each.name: values.pop(each.name) for each in fields(kind) if each.name in values})


_KEYS: Final = (
    *("arguments", "capabilities", "protocol", "principal", "secret", "version", "journal", "user", "page_secret"),
    *("needs_client", "needs_request", "asks_model", "is_chosen", "is_local", "is_fresh", "questions", "names"),
    *("for_model", "pins", "used", "answers", "answered", "by_model", "message", "result", "error", "signals", "waits"),
    *("attempt", "looks", "pin_keys", "approvals", "refusal", "wakes", "leaves_at", "reply"),
)
"""The keys of the stored JSON, in their order: the fields of `CallContent`, and of the sections of all features."""
_KEY_NAMES: Final = frozenset(_KEYS)
_OWN_KEYS: Final = tuple(each.name for each in fields(CallContent) if each.name in _KEY_NAMES)


def split_id(task_id: str) -> tuple[str, str]:
    """Return the call of a task, and the secret part of its id."""
    call_id, _, secret = task_id.rpartition(".")
    return call_id, secret


def is_call_id(text: str) -> bool:
    """Return True if a text can be the id of a call. Some stores cannot even look for other texts."""
    return _CALL_ID.fullmatch(text) is not None


Parking = Callable[["CallContent", CallEntry, "Pause", float], None]
"""Changes a call that has just been parked."""
Tell = Callable[[], None]
"""Tells the author's functions of a change, once it is stored."""
ChangeCall = Callable[[Callable[[CallEntry, "CallContent", float], Any]], Awaitable[Any]]
"""Changes a stored call by a function, which may raise `CallNotChanged`, and returns its result."""


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
    parkings: Sequence[Parking] = ()
    """What features add."""
    shared_label: str | None = None
    """The label of equal calls, which clients of all kinds share while their calls wait for other people only."""
    reply: Callable[[CallEntry, CallContent], dict[str, Any]] | None = None
    """Makes the result for a client that cannot show the questions."""


class CallNotChanged(RoundtripError):
    """An operator cannot change a task so; the text says why, and what to do."""


def already_ended(entry: CallEntry) -> CallNotChanged:
    """Return the error of an action on a call that has ended."""
    return CallNotChanged(f"it has ended already, and is {entry.state.value}")


class CallFeature:
    """One feature's part in the stored calls of a server. A feature overrides what it needs.

    Methods that get an entry change it in a compare-and-set, which runs again if another process was faster. So they
    change nothing but the call.
    """

    def prepare(self, end: Suspended | Authored, content: CallContent, call_id: str) -> Parking | None:
        """Return what parks a call after a leg; the content is the one that the leg has read."""

    def bring_forward(self, content: CallContent, entry: CallEntry) -> None:
        """Let a call that waits be due as soon as the feature has to look at it."""

    def look(self, content: CallContent, entry: CallEntry, now: float, *, holder: str) -> Tell | None:
        """Look at a call that is due, and park it again if no leg has anything to do; None if nothing has changed."""

    def expire(self, content: CallContent, entry: CallEntry, now: float) -> Tell | None:
        """End what the call waits for, because an operator ends its life."""

    def status(self, content: CallContent) -> str | None:
        """Return the status message of a call that has none of its own."""

    def reseal(self, content: CallContent, entry: CallEntry) -> None:
        """Replace what was made with former keys."""

    def can_remind(self, content: CallContent, now: float) -> bool:
        """Return True if `remind` has people to remind."""
        return False

    async def remind(self, change: ChangeCall) -> None:
        """Remind people for whom a call waits.

        Raises:
            CallNotChanged: There are none, or they cannot be reached.
            LedgerDown: The store cannot be used.
        """

    async def finish_telling(self) -> None:
        """Wait until everything that was told on this event loop has ended."""

    async def stop(self) -> None:
        """Give up what was told on this event loop, and has not ended after a moment."""


class CallSeal:
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

    def write(self, content: CallContent, call_id: str) -> str:
        """Return the stored form of a content."""
        # The values are JSON already, so they need no copies.
        values = {key: getattr(content, key) for key in _OWN_KEYS} | content.unread
        for section in (content.origin, content.asked, content.channel, *content.sections.values()):
            if not section.is_empty:
                values |= {each.name: getattr(section, each.name) for each in fields(section)}
        if not content.channel.leaves_at:
            # Older builds can go on with calls that leave no client.
            del values["leaves_at"], values["reply"]
        return self.seal({key: values[key] for key in _KEYS if key in values}, call_id, "content")

    def read(self, stored: str, call_id: str) -> CallContent:
        """Return a stored content.

        Raises:
            ContentUnreadable: No key of this server opens it, or it has fields that this build does not know.
        """
        values = self.open(stored, call_id, "content")
        if not values.keys() <= _KEY_NAMES:
            raise ContentUnreadable
        own = {key: values.pop(key) for key in _OWN_KEYS if key in values}
        parts = _take(CallOrigin, values), own.pop("journal"), _take(OpenQuestions, values), _take(CallChannel, values)
        return CallContent(*parts, **own, unread=values)

    def seal(self, value: Any, call_id: str, use: str) -> str:
        """Return the stored form of a JSON value, for one use in one call."""
        # Sealed text is bound to the service, and other text names it.
        text = json.dumps(value if self._sealer is not None else [self._service, value], separators=(",", ":"))
        return seal_text(self._sealer, text, "task", self._service, call_id, use, hint=f"{self.hint}.")

    def notes(self, entry: CallEntry) -> list[Any]:
        """Return the notes of a task: the revision, the name and the result of each step."""
        return [self.open(note, entry.call_id, "note") for note in entry.notes]

    def rewrite_notes(self, entry: CallEntry, notes: Sequence[Any]) -> None:
        """Replace the notes of a task."""
        entry.notes = [self.seal(note, entry.call_id, "note") for note in notes]
        if notes:
            entry.stored_notes = None

    def hint_of(self, stored: str) -> str:
        """Return the public name of the key under which a text is sealed; empty for text that is not sealed."""
        return stored.removeprefix(SEALED_PREFIX).rpartition(".")[0] if stored.startswith(SEALED_PREFIX) else ""

    def open(self, stored: str, call_id: str, use: str) -> Any:
        """Return a stored value.

        Raises:
            ContentUnreadable: No key of this server opens it, or it is another service's.
        """
        try:
            value = json.loads(open_text(self._sealer, stored, "task", self._service, call_id, use))
            if self._sealer is not None:
                return value
            service, value = value
            if service != self._service:
                raise ValueError("another service")
            return value
        except (TokenRejected, ValueError) as error:
            raise ContentUnreadable from error
