"""What the ledger remembers of an intent between legs: the newest journal, and the answers that its calls have used.

A leg adopts the newest journal, and with it the id of the call that wrote it. So pins, seals and tokens stay valid.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from mcp_types import InputResponse

from roundtrip.errors import AnsweredOtherwise
from roundtrip.machine.journal import ACTIONS, Action, Asked, Chain, Entry, Journal, from_text, to_text
from roundtrip.machine.pins import MARKS_BYTES
from roundtrip.tokens.token import JournalCodec
from roundtrip.untrusted import mapping_of

_DIGEST_BYTES: Final = 12
_STAND_IN: Final = "~"

Responses = Mapping[str, InputResponse | None]
Renew = Callable[[Journal, bool], Journal]
"""Returns a journal of a new call if the journal's own call is too old, or if the second argument says that it is over.
"""


class Adopted(NamedTuple):
    """What a leg begins with."""

    journal: Journal | None
    """None for the first leg of a new call."""
    responses: Responses
    """The answers that the leg may read."""
    chain: Chain


@dataclass(eq=False)
class IntentMemory:
    """An intent's memory, as one leg reads and writes it.

    Args:
        owner: The tool's name in error messages.
        caller: The caller. Callers who share an intent do not share their answers.
        codec: Reads and writes journals.
        renew: Renews journals of calls that are over.
        replays: True if a client that begins again gives its earlier answers again, in the same order.
        hint: The public name of the key that seals the journal.
        is_shared: True if several callers share the intent.
    """

    owner: str
    caller: str | None
    codec: JournalCodec
    renew: Renew
    replays: bool
    hint: str
    is_shared: bool
    pin_keys: Sequence[str] = field(default=(), init=False)
    """Former pin keys, as base64url. They are kept after rekeying, because the pins of answered questions need them."""
    given: list[str] = field(default_factory=list[str], init=False)
    """Digests of all answers that the intent's calls have used, with the pins of their questions."""
    has_news: bool = field(default=False, init=False)
    """True if the leg has answers that no journal in the ledger has."""
    is_former: bool = field(default=False, init=False)
    """True if the newest journal's call began at a build without intents, which may continue it at the same time."""
    terms: str = field(default="", init=False)
    """The digest of the leg's answers. Notes of steps belong to these answers."""
    _again: list[str] = field(default_factory=list[str], init=False)
    """Names of questions that were answered by clients that had begun again."""
    _retried: list[str] = field(default_factory=list[str], init=False)
    """Digests of answers that did not count, so their questions were asked again."""
    _brought: dict[str, str] = field(default_factory=dict[str, str], init=False)
    """Digests of the answers that the leg has brought and no earlier leg has used, by question."""
    _is_sincere: bool = field(default=False, init=False)
    """True if a user may have given the answer that was rejected. Invalid answers prove nothing about the client."""
    _hidden: Journal | None = field(default=None, init=False)
    """The newest journal, if the leg sees only a part of its answers."""

    def adopt(self, text: str | None, token: Journal | None, responses: Responses, *, is_over: bool) -> Adopted:
        """Return what the leg begins with.

        Args:
            text: The memory, in the form of `text_of`; None if the ledger has none.
            token: The journal in the request's token, or of the request's previous leg.
            responses: The answers that the request has brought.
            is_over: True if the call in the memory is over, so that a new one begins.

        Raises:
            AnsweredOtherwise: The request answers a question that another request has answered otherwise.
            TokenRejected: No key opens the memory's journal.
        """
        newest, is_own = self._read(text, is_over=is_over)
        if newest is not None and not is_own:
            # Callers who share an intent share its end, and the notes of steps with equal answers. They must not read
            # each other's answers, or values that were computed from them.
            newest = token
            self.is_former = token is not None and token.chain is Chain.NONE
        elif newest is None or (token is not None and token.authored is not None):
            newest, self.is_former = token, token is not None and token.chain is Chain.NONE
        if newest is None:
            return Adopted(None, {}, Chain.FIRST)
        chain = Chain.AGAIN if token is None else token.chain or Chain.FIRST
        again = [*self._again]
        if token is None:
            asked, unread, skipped = newest.asked, dict[str, InputResponse | None](), newest.round
        else:
            asked, unread, skipped = self._take(token, responses, newest, chain)
        self.terms = _terms(newest.entries, unread)
        hidden = set(self._repeated(again, token, responses, newest)) if chain is Chain.AGAIN else set[str]()
        self._hidden = newest if hidden else None
        view = replace(
            newest,
            entries={key: entry for key, entry in newest.entries.items() if key not in hidden},
            computed={key: kept for key, kept in newest.computed.items() if key.removeprefix(_STAND_IN) not in hidden},
            asked=asked,
            leg=newest.leg if token is None else max(newest.leg, token.leg),
            round=newest.round if token is None else max(newest.round, token.round),
            skipped=skipped,
        )
        return Adopted(view, unread, chain)

    def _take(
        self, token: Journal, responses: Responses, newest: Journal, chain: Chain
    ) -> tuple[dict[str, Asked], dict[str, InputResponse | None], int]:
        """Return the open questions, the new answers to them, and the number of rounds that were not the client's own.

        An answer counts only if its own token asked the question.
        """
        again, repeats = [*self._again], False
        asked, unread = dict(newest.asked), dict[str, InputResponse | None]()
        for key, shown in token.asked.items():
            if key not in responses:
                continue
            if not self._is_unread(key, responses[key], token, newest):
                # A client that begins again for each answer has no limit of rounds, and it could not answer on a page.
                repeats |= key in again
                continue
            unread[key], self.has_news = responses[key], True
            asked[key] = shown._replace(attempts=max(shown.attempts, asked[key].attempts))
            self._brought[key] = _digest_of(key, responses[key], shown)
            self.given.append(self._brought[key])
            if chain is Chain.AGAIN and key not in self._again:
                self._again.append(key)
        return asked, unread, max(newest.round, token.round) - token.own_rounds + repeats

    def _is_unread(self, key: str, response: InputResponse | None, token: Journal, newest: Journal) -> bool:
        """Return True if an answer is new, and False if it has counted before.

        Raises:
            AnsweredOtherwise: Another request has answered the question otherwise.
        """
        is_open = key in newest.asked
        if self.was_given(key, response, token.asked[key]) and not (is_open and token.leg >= newest.leg):
            return False
        entry = newest.entries.get(key)
        action, data = _read(response)
        # An earlier leg may have had an answer to an open question when its body began. That answer counts.
        is_answered = entry is not None and (not is_open or entry.pin == newest.asked[key].pin)
        if is_open and not is_answered:
            return True
        repeats = is_open or key in self._again
        if entry is not None and repeats and (entry.action, entry.data or None) == (action, data):
            return False
        if entry is not None or action is not Action.ACCEPT:
            self._is_sincere = entry is None or action is not Action.ACCEPT or _shape(data) == _shape(entry.data)
            raise AnsweredOtherwise(self.owner)
        # The question is no longer asked in these words. If it is still needed, the leg asks it again.
        return False

    def _repeated(
        self, again: list[str], token: Journal | None, responses: Responses, newest: Journal
    ) -> Iterator[str]:
        """Yield the questions that are asked again, because a client that begins again answers them again."""
        if not self.replays:
            return
        seen = set[str]()
        if token is not None:
            # After an answer that did not count, the client was asked the question again, and answered once more.
            brought = token.asked.keys() & responses.keys()
            counted = {key for key in brought if _digest_of(key, responses[key], token.asked[key]) not in self._retried}
            seen = {*counted, *token.entries, *token.computed}
        answered = {*newest.entries, *(name.removeprefix(_STAND_IN) for name in newest.computed)}
        yield from (key for key in again if key in answered and key not in seen and _STAND_IN + key not in seen)

    def was_given(self, key: str, response: InputResponse | None, asked: Asked, *, of_other_call: bool = False) -> bool:
        """Return True if an answer was used before, perhaps in another call with the same intent."""
        digest = _digest_of(key, response, asked)
        if digest in self.given:
            return True
        # Other calls and other newest keys make different pins for the same wording. Only the marks can be compared. Do
        # not compare them with other callers' answers, or a caller could guess these answers.
        plain = digest.partition("/")[0]
        is_comparable = not self.is_shared and (of_other_call or self.codec.pinner.rotates)
        return is_comparable and any(each.partition("/")[0] == plain for each in self.given)

    def without_repeats(self, text: str | None) -> str | None:
        """Return the memory for the next request, which then continues with the answers that were used.

        If it were asked again, a client that does not know these answers would never get through.
        """
        is_sincere = self._is_sincere
        newest, _ = self._read(text, is_over=False)
        if newest is None or not self._again or not is_sincere:
            return None
        self._again = []
        return self.text_of(newest)

    def came_to_nothing(self, text: str, *, is_over: bool) -> bool:
        """Return True if the memory's call has computed nothing, and has ended or is too old.

        Raises:
            TokenRejected: No key opens the memory's journal.
        """
        stored = json.loads(text)
        journal = self.codec.read(from_text(stored["journal"]))
        renewed = self.renew(journal, is_over)
        # A build without intents may still run a call that it began.
        return renewed.call_id != journal.call_id and not renewed.computed and not stored["former"]

    def after(self, journal: Journal) -> str | None:
        """Return the memory after a leg that has asked; None if it must stay as it is."""
        # A leg that repeats earlier rounds has a part of the journal, so keep the whole one.
        if self._hidden is not None or journal.authored is not None:
            return None
        self._retried += [digest for key, digest in self._brought.items() if key in journal.asked]
        return self.text_of(journal)

    def text_of(self, journal: Journal) -> str:
        """Return the memory with this journal, as text."""
        if (whole := self._hidden) is not None:
            entries, computed = {**whole.entries, **journal.entries}, {**whole.computed, **journal.computed}
            journal = replace(journal, entries=entries, computed=computed)
        lists = {"given": self.given, "again": self._again, "retried": self._retried, "pin_keys": self.pin_keys}
        packed = to_text(self.codec.write(journal))
        return json.dumps({"journal": packed, "key": self.hint, "by": self.caller, "former": self.is_former, **lists})

    def _read(self, text: str | None, *, is_over: bool) -> tuple[Journal | None, bool]:
        """Return the newest journal, and True if this caller wrote it."""
        if text is None:
            return None, True
        stored = json.loads(text)
        self.given, self._again, self._retried = stored["given"], stored["again"], stored["retried"]
        self.pin_keys = stored["pin_keys"]
        journal = self.codec.read(from_text(stored["journal"]))
        newest = self.renew(journal, is_over)
        self.is_former = stored["former"] and newest.call_id == journal.call_id
        return newest, self.caller is not None and stored["by"] == self.caller


def _read(response: InputResponse | None) -> tuple[Action, Any]:
    """Return an answer's action and content, as an `Entry` stores them."""
    if response is None:
        return Action.CANCEL, None
    wire = response.model_dump(mode="json", by_alias=True, exclude_none=True)
    action = ACTIONS.get(wire.get("action", ""), Action.ACCEPT)
    # Clients may leave out an empty content.
    return action, (wire.get("content") if "action" in wire else wire) or None


def _shape(data: Any) -> Any:
    """Return the types of an answer's fields."""
    types: dict[str, type] = {name: type(value) for name, value in mapping_of(data).items()}
    return types


def _digest_of(key: str, response: InputResponse | None, asked: Asked) -> str:
    """Return the digest of an answer to a question with certain marks, and the pin of the question's exact words."""
    action, data = _read(response)
    text = json.dumps([key, int(action), data, asked.pin[-MARKS_BYTES:].hex()], sort_keys=True)
    return f"{hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()}/{asked.pin.hex()}"


def _terms(entries: Mapping[str, Entry], responses: Responses) -> str:
    """Return the digest of all answers, in whichever leg they came."""
    given: dict[str, Any] = {key: (entry.action, entry.data or None) for key, entry in entries.items()}
    given |= {key: _read(response) for key, response in responses.items()}
    text = json.dumps({key: [int(action), data] for key, (action, data) in given.items()}, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
