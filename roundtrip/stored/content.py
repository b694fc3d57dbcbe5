"""Stored call content, which only servers with the right keys can read."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar

from mcp_types import INTERNAL_ERROR

from roundtrip.errors import RoundtripError, TokenRejected
from roundtrip.ledger.machines import StoredEvent
from roundtrip.ledger.tasks import CallEntry
from roundtrip.tokens.token import Sealer, open_text, seal_text

if TYPE_CHECKING:
    from roundtrip.engine.leg import Authored, Suspended

_USER_METHOD: Final = "elicitation/create"
KeysT = TypeVar("KeysT", bound="CallSection")
_CALL_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,256}", re.ASCII)


@dataclass(slots=True)
class CallSection:
    """One feature's keys in the stored JSON. Each subclass is a dataclass whose fields are the keys."""

    @property
    def is_empty(self) -> bool:
        """Return True if this section can be left out of the stored JSON. Builds without the feature can then continue
        the call.
        """
        return False


class ContentUnreadable(Exception):
    """Error for task content that cannot be read. The content is sealed with an unknown key, belongs to another
    service, or was written by a newer build.
    """


@dataclass(slots=True)
class CallOrigin(CallSection):
    """The request that began a call, and the client that sent it."""

    arguments: dict[str, Any]
    """The tool arguments that the client sent."""
    capabilities: dict[str, Any]
    """The capabilities that the client declared when it made the call."""
    protocol: str
    """The client's protocol revision."""
    principal: str | None
    secret: str
    """The part of the task id that only the client knows. The other part, the call id, appears in logs and transcripts.
    """
    version: str | None
    """The tool's version."""
    user: str | None = None
    """The principal, if it identifies a user and not only a client. Tickets are issued only to users."""
    needs_request: bool = False
    """True if each leg needs a request from the client, because the host needs this request to authorize the tool or to
    fill parameters.
    """


@dataclass(slots=True)
class OpenQuestions(CallSection):
    """A call's open questions, and the answers that no leg has read yet."""

    questions: dict[str, Any] = field(default_factory=dict[str, Any])
    """The open questions in wire form, by wire key. The wire key is the key that the client sees."""
    names: dict[str, str] = field(default_factory=dict[str, str])
    """The open questions' names, by wire key."""
    for_model: list[str] = field(default_factory=list[str])
    """The wire keys of the open questions that a model may answer. This list is fixed when the questions are asked."""
    pins: dict[str, str] = field(default_factory=dict[str, str])
    """The open questions' pins, by wire key."""
    used: list[str] = field(default_factory=list[str])
    """All wire keys used so far. The protocol requires each key to be unique during the task's life."""
    answers: dict[str, Any] = field(default_factory=dict[str, Any])
    """The client's answers that no completed leg has read. They are in wire form, by question name."""
    answered: dict[str, str] = field(default_factory=dict[str, str])
    """The pins of the questions in `answers`, by question name."""
    by_model: list[str] = field(default_factory=list[str])
    """The names of the questions whose latest answer came from a model."""


@dataclass(slots=True)
class CallChannel(CallSection):
    """The channel by which a call's questions reach the person who answers, if the client does not ask the questions
    itself.
    """

    page_secret: str = ""
    """The secret of the call page; empty if the call has no page."""
    asks_model: bool = False
    """True if the model that made the call may answer questions with `answered_by="anyone"`."""
    is_chosen: bool = False
    """True if a client continues this stored call by making an equal call again."""
    is_local: bool = False
    """True if the call page is on a stdio server's machine. Then no other page may open the call."""
    refusal: str = ""
    """`decline` or `cancel` if the user refused the link to a call page while the page had no questions. This action
    becomes the answer to the next questions.
    """
    app_secret: str = ""
    """The secret with which an app in the client opens the call; empty if no app shows the questions."""
    leaves_at: Literal["", "question", "link"] = ""
    """The kind of question that the task's client cannot show. When the call asks such a question, the task ends for
    its client with a result.
    """
    reply: dict[str, Any] | None = None
    """The result with which the task ended for its client. With the handle in this result, the client continues the
    call.
    """


@dataclass(slots=True)
class CallContent:
    """Everything that a task remembers, except for the fields that its store needs to read."""

    origin: CallOrigin
    journal: str
    """The journal, as base64url."""
    asked: OpenQuestions = field(default_factory=OpenQuestions)
    channel: CallChannel = field(default_factory=CallChannel)
    needs_client: bool = False
    """True while the call waits for a request from its client, because the body reads part of that request."""
    is_fresh: bool = True
    """True until the task is first parked. Until then, the journal ends where the body begins, and not at questions."""
    message: str | None = None
    """The task's status message."""
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    signals: dict[str, Any] = field(default_factory=dict[str, Any])
    waits: list[str] = field(default_factory=list[str])
    """The names of the signals that the call waits for."""
    attempt: int = 1
    """The number of the next attempt to run the body. `Retry` counts these attempts."""
    looks: int = 0
    """The number of consecutive legs that checked whether the user had finished on a page."""
    pin_keys: list[str] = field(default_factory=list[str])
    """Former pin keys, as base64url. They are kept after rekeying, because the pins of answered questions need them."""
    sections: dict[type[CallSection], CallSection] = field(default_factory=dict[type[CallSection], CallSection])
    """The feature sections that have been read or created."""
    unread: dict[str, Any] = field(default_factory=dict[str, Any])
    """The stored values of sections that have not been read, by key."""

    def section(self, kind: type[KeysT]) -> KeysT:
        """Return a feature's section. The section is read on first use."""
        section = self.sections.get(kind)
        if not isinstance(section, kind):
            section = self.sections[kind] = _pop(kind, self.unread)
        return section

    @property
    def is_continued(self) -> bool:
        """Return True if the client continues the call by a handle or a token, and not as a task."""
        return (bool(self.channel.page_secret) or self.channel.asks_model) and not self.channel.leaves_at

    @property
    def takes_handle(self) -> bool:
        """Return True if the client has a handle to the call."""
        return self.is_continued or self.channel.reply is not None

    @property
    def user_questions(self) -> dict[str, Any]:
        """Return the open questions that a user must answer, keyed by wire key."""
        return {key: question for key, question in self.asked.questions.items() if question["method"] == _USER_METHOD}

    @property
    def client_questions(self) -> dict[str, Any]:
        """Return the open questions that the client's software answers without a user, keyed by wire key."""
        return {key: question for key, question in self.asked.questions.items() if question["method"] != _USER_METHOD}

    def id_of(self, call_id: str) -> str:
        """Return the task id that the client uses."""
        return f"{call_id}.{self.origin.secret}"

    def pause(self, pause: Pause, entry: CallEntry, now: float, *, delivered: Collection[str]) -> None:
        """Park the task after a leg, and store what the task waits for.

        Args:
            pause: What the task waits for.
            entry: The task, which gives up its lease.
            now: The current time.
            delivered: The names of the questions whose answers the leg read.
        """
        asked, channel = self.asked, self.channel
        self.journal, self.is_fresh = pause.journal, False
        open_before = {name: key for key, name in asked.names.items()}
        # An answer that arrived during the leg counts if its question is unchanged.
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
            # A question keeps its key while it is unchanged and no leg has read an answer to it.
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
        # All answers or a signal may have arrived while the leg was running.
        if (late and not shown) or any(name in self.signals for name in pause.signals):
            entry.apply(StoredEvent.WAKE, now)
        for park in pause.parkings:
            park(self, entry, pause, now)
        if channel.leaves_at and channel.reply is None and pause.reply is not None and self.user_questions:
            channel.reply = pause.reply(entry, self)
            if channel.page_secret:
                # From now on, the call page shows all questions.
                self.origin.capabilities = {**self.origin.capabilities, "elicitation": {"form": {}, "url": {}}}

    def take_signals(self, signals: Mapping[str, Any], entry: CallEntry, now: float) -> None:
        """Store signals. If several signals have the same name, only the first one counts."""
        self.signals = {**signals, **self.signals}
        if any(name in signals for name in self.waits):
            entry.apply(StoredEvent.WAKE, now)

    def fresh_key(self, name: str) -> str:
        """Return a wire key for a question. The key has not been used for another question in this task."""
        key, number = name, 1
        while key in self.asked.used:
            number += 1
            key = f"{name}#{number}"
        self.asked.used.append(key)
        return key


def _pop(kind: type[KeysT], values: dict[str, Any]) -> KeysT:
    """Move a section's keys out of the stored values, and return the section."""
    return kind(**{each.name: values.pop(each.name) for each in fields(kind) if each.name in values})


DECLINED: Final = {"reason": "declined"}
BODY_FAILED: Final = {"reason": "failed"}
"""The `error` of a completed call whose user declined. Its result tells the client."""
EXPIRED: Final = {"code": INTERNAL_ERROR, "message": "This call has ended: an operator of the server expired it."}
"""The `error` of a call that an operator has expired."""

_KEYS: Final = (
    *("arguments", "capabilities", "protocol", "principal", "secret", "version", "journal", "user", "page_secret"),
    *("needs_client", "needs_request", "asks_model", "is_chosen", "is_local", "is_fresh", "questions", "names"),
    *("for_model", "pins", "used", "answers", "answered", "by_model", "message", "result", "error", "signals", "waits"),
    *("attempt", "looks", "pin_keys", "approvals", "refusal", "wakes", "leaves_at", "reply", "app_secret"),
)
"""The keys of the stored JSON, in order. They are the fields of `CallContent` and of every feature's section."""
_KEY_NAMES: Final = frozenset(_KEYS)
_OWN_KEYS: Final = tuple(each.name for each in fields(CallContent) if each.name in _KEY_NAMES)


def split_id(task_id: str) -> tuple[str, str]:
    """Return the call id and the secret from a task id."""
    call_id, _, secret = task_id.rpartition(".")
    return call_id, secret


def has_id_form(task_id: str) -> bool:
    """Return True if a text has the form of a task id. Other libraries' task ids have other forms."""
    return "." in task_id


def is_call_id(text: str) -> bool:
    """Return True if a text has the form of a call id. Some stores cannot even look up other texts."""
    return _CALL_ID.fullmatch(text) is not None


Parking = Callable[["CallContent", CallEntry, "Pause", float], None]
"""Function that changes a call right after the call has been parked."""
Tell = Callable[[], None]
"""Function that tells the author's functions about a change. It is called after the change has been stored."""
ChangeCall = Callable[[Callable[[CallEntry, "CallContent", float], Any]], Awaitable[Any]]
"""Function that applies another function to a stored call, and returns that function's result. The other function may
raise `CallNotChanged`.
"""


class Pause(NamedTuple):
    """The journal of a parked task, its open questions, its wake-up time, and the signals that it waits for."""

    journal: str
    """The journal, as base64url."""
    questions: Mapping[str, tuple[Any, str]]
    """The open questions in wire form with their pins, by question name."""
    until: float | None
    """The time at which the task continues even if nothing else happens."""
    signals: Sequence[str]
    looks: int = 0
    """The number of consecutive legs that have checked a page."""
    attempt: int = 1
    """The number of the next attempt to run the body."""
    for_model: Collection[str] = ()
    """The names of the questions that a model may answer."""
    needs_client: bool = False
    """True if the leg needed a request from its client, but did not have one."""
    parkings: Sequence[Parking] = ()
    """The changes that features make after the call is parked."""
    shared_label: str | None = None
    """The label for finding equal calls that wait only for other people. It does not depend on the kind of client."""
    reply: Callable[[CallEntry, CallContent], dict[str, Any]] | None = None
    """Returns the result for a client that cannot show the questions."""


class CallNotChanged(RoundtripError):
    """Error for an operator action that a stored call does not allow. The message gives the reason and the remedy."""


def already_ended(entry: CallEntry) -> CallNotChanged:
    """Return the error for an action on a call that has ended."""
    return CallNotChanged(f"the call has already ended; its state is {entry.state.value}")


class CallFeature:
    """Methods with which one feature takes part in a server's stored calls. A feature overrides the methods that it
    needs.

    Methods that receive an entry change it in a compare-and-set, which runs again if another process wrote first. So
    these methods must change only the call, and nothing else.
    """

    def prepare(self, end: Suspended | Authored, content: CallContent, call_id: str) -> Parking | None:
        """Return a function that changes the call when the call is parked after a leg. `content` is the content that
        the leg read.
        """

    def bring_forward(self, content: CallContent, entry: CallEntry) -> None:
        """Make sure that a parked call is due no later than the time at which the feature must check it."""

    def look(self, content: CallContent, entry: CallEntry, now: float, *, holder: str) -> Tell | None:
        """Check a call that is due. If a leg has nothing to do, park the call again. Return None if nothing changed."""

    def expire(self, content: CallContent, entry: CallEntry, now: float) -> Tell | None:
        """When an operator expires the call, end everything that it waits for."""

    def status(self, content: CallContent) -> str | None:
        """Return a status message for a call that has not set its own."""

    def reseal(self, content: CallContent, entry: CallEntry) -> None:
        """Replace the values that were made with former keys."""

    def can_remind(self, content: CallContent, now: float) -> bool:
        """Return True if `remind` can remind people about the call."""
        return False

    async def remind(self, change: ChangeCall) -> None:
        """Remind the people for whom a call waits.

        Raises:
            CallNotChanged: The call does not wait for people, or the people cannot be reached.
            LedgerDown: The store cannot be used.
        """

    async def finish_telling(self) -> None:
        """Wait until the author's functions on this event loop have returned."""

    async def stop(self) -> None:
        """Give the author's functions on this event loop a moment to return, and cancel those that do not."""


class CallSeal:
    """Cipher for one service's task contents and notes. Without a sealer, contents and notes are stored as plain JSON.

    Several services can share a store and its keys, but a task can be opened only by the servers of one service.

    Args:
        sealer: The sealer; None if the tasks stay in this process's memory.
        hints: The public names of the keys. The first key seals.
        service: The name of the service.
    """

    def __init__(self, sealer: Sealer | None, hints: tuple[str, ...], service: str) -> None:
        self._sealer = sealer
        self._service = service
        self.hints = hints if sealer is not None else ()
        """The public names of the keys that open tasks. The first key also seals."""
        self.hint = next(iter(self.hints), "")
        """The public name of the key that seals."""

    def write(self, content: CallContent, call_id: str) -> str:
        """Return a task's content in stored form."""
        # The values are already JSON, so they are not copied.
        values = {key: getattr(content, key) for key in _OWN_KEYS} | content.unread
        for section in (content.origin, content.asked, content.channel, *content.sections.values()):
            if not section.is_empty:
                values |= {each.name: getattr(section, each.name) for each in fields(section)}
        # If these keys are missing, older builds can also continue the call.
        if not content.channel.leaves_at:
            del values["leaves_at"], values["reply"]
        if not content.channel.app_secret:
            del values["app_secret"]
        return self.seal({key: values[key] for key in _KEYS if key in values}, call_id, "content")

    def read(self, stored: str, call_id: str) -> CallContent:
        """Return a task's content from its stored form.

        Raises:
            ContentUnreadable: No key of this server opens the content, or the content has fields that this build does
                not know.
        """
        values = self.open(stored, call_id, "content")
        if not values.keys() <= _KEY_NAMES:
            raise ContentUnreadable
        own = {key: values.pop(key) for key in _OWN_KEYS if key in values}
        parts = _pop(CallOrigin, values), own.pop("journal"), _pop(OpenQuestions, values), _pop(CallChannel, values)
        return CallContent(*parts, **own, unread=values)

    def seal(self, value: Any, call_id: str, use: str) -> str:
        """Return a JSON value in stored form, sealed for one purpose in one call."""
        # A seal binds the text to the service. Without a sealer, the service's name is part of the text.
        text = json.dumps(value if self._sealer is not None else [self._service, value], separators=(",", ":"))
        return seal_text(self._sealer, text, "task", self._service, call_id, use, hint=f"{self.hint}.")

    def notes(self, entry: CallEntry) -> list[Any]:
        """Return a task's notes. Each note contains a step's revision, name and result."""
        return [self.open(note, entry.call_id, "note") for note in entry.notes]

    def rewrite_notes(self, entry: CallEntry, notes: Sequence[Any]) -> None:
        """Replace a task's notes."""
        entry.notes = [self.seal(note, entry.call_id, "note") for note in notes]
        if notes:
            entry.stored_notes = None

    def open(self, stored: str, call_id: str, use: str) -> Any:
        """Return a JSON value from its stored form.

        Raises:
            ContentUnreadable: No key of this server opens the value, or the value belongs to another service.
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
