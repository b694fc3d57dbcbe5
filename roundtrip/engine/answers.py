"""The answers of one call: those that earlier legs recorded, those that just arrived, and what must be asked again.

An answer counts only for the wording it was given to. It is found under the question's name or a former name; where
two functions share a name and are told apart by their paths, `adopt` finds what another build wrote under another path.
"""

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from mcp_types import (
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitResult,
    InputRequest,
    InputResponse,
    ListRootsResult,
)
from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from roundtrip.engine.reasons import Reason
from roundtrip.errors import AnswerRejected, QuestionVolatile, SchemaNotRenderable, ValueNotStorable
from roundtrip.machine.facts import AnswerRead, AnswerReused, AnswersIgnored, Fixed, Watch
from roundtrip.machine.journal import Action, Asked, Computed, Entry, Journal, to_text
from roundtrip.machine.pins import Pinner, digest, has_form, is_by_software, is_page, may_use_tools
from roundtrip.questions.forms import AnswerInvalid, Form, form_of
from roundtrip.questions.markers import NOTHING, Marker, SdkElicit, SdkListRoots, SdkSample
from roundtrip.questions.outcomes import Outcome
from roundtrip.questions.reviews import Review
from roundtrip.questions.wire import FormQuestion, Question, UrlQuestion, question_of
from roundtrip.resolvers.plan import Node, Plan

__all__ = ["UNNAMED", "VOLATILE_AFTER", "Answers", "Noted", "PendingQuestion", "seeds_of", "without_value"]

_STAND_IN = "~"
"""Begins, among the computed values, the names of questions that something stands in for."""

UNNAMED = "unnamed-"
"""Begins the names of questions whose authors gave none."""

VOLATILE_AFTER = 2
"""On how many legs in a row an answer may be lost to a changed wording before the question counts as volatile."""

_ACTIONS = {"decline": Action.DECLINE, "cancel": Action.CANCEL}
_ELICITATION_ID_BYTES: Final = 12


@dataclass(slots=True)
class PendingQuestion:
    """One question that has no answer yet, as it will be put and as the journal will note it."""

    key: str
    question: Question
    asked: Asked
    reason: Reason = Reason.NEW
    changed: tuple[str, ...] = ()
    """What differs from the wording that was answered, or at least shown."""
    former: str | None = None
    """The name under which an answer to it is known."""
    complaint: str | None = None
    consented: bool = False
    """Whether the user agreed to go to the page, and may be done there by now."""
    decisive: bool = False
    """Whether a user who declines this has ended the call, as somebody needs the bare value."""
    lost: tuple[str, ...] = ()
    """What changed, if an answer was lost to the change."""
    guess: Any = NOTHING
    """An answer that has come and has to be counted before anybody looks at it."""
    seed: Any = None
    """What it was answered with in an expired call, or invalidly in this one: shown as its defaults, but no answer."""

    def request(self) -> InputRequest:
        """The request that puts it."""
        if self.seed is not None and isinstance(self.question, FormQuestion):
            return self.question.request(self.complaint, filled_in=self.seed)
        return self.question.request(self.complaint)

    def sent(self) -> dict[str, Any]:
        """The same as a result of 2026-07-28 carries it."""
        if self.seed is not None and isinstance(self.question, FormQuestion):
            return self.question.sent(self.complaint, filled_in=self.seed)
        return self.question.sent(self.complaint)


class Noted(NamedTuple):
    """One value that a leg has computed, with the number of reviews that had changed answers before."""

    revision: int
    key: str
    value: Any


class Answers:
    """What is known of the client's answers while one leg runs."""

    def __init__(
        self,
        plan: Plan,
        journal: Journal | None,
        *,
        build: str,
        call_id: str = "",
        watch: Watch | None = None,
        seeds: Mapping[str, Entry] | None = None,
        pinner: Pinner | None = None,
        pinned_for: str | None = None,
    ) -> None:
        self._plan = plan
        self._call_id = call_id
        self._pinner = pinner if pinner is not None else Pinner()
        self._pinned_for = call_id if pinned_for is None else pinned_for
        self._watch = watch
        self._same_build = journal is not None and journal.build == build
        self._other_build = journal is not None and journal.build != build
        self._other_plan = self._other_build and journal is not None and journal.fingerprint != plan.fingerprint
        self._revised: set[str] = set()
        self._asked: dict[str, Asked] = {}
        self._responses: dict[str, InputResponse | None] = {}
        self._fresh: set[str] = set()
        self._seen: set[str] = set()
        self.entries: dict[str, Entry] = dict(journal.entries) if journal is not None else {}
        self.computed: dict[str, Computed] = dict(journal.computed) if journal is not None else {}
        self._seeds: Mapping[str, Entry] = (journal.seeds if journal is not None else seeds) or {}
        self.kept = set(self.computed)
        """The names of computed values that need no more noting: the token or the ledger has them."""
        self._revision = 0
        self._noted: Mapping[int, Mapping[str, Any]] = {}
        self._due: list[Noted] = []
        self._counted: set[tuple[str, str]] = set()
        self.guarded: set[str] = set()
        """The names of questions whose answers are counted."""
        self.open: dict[str, PendingQuestion] = {}
        self.words: dict[str, str] = {}
        """The words of this leg's questions that have no name of their own."""
        self.forms: dict[str, Form] = {}
        """The forms of the questions that came up on this leg, for a review of their answers."""

    @property
    def revision(self) -> int:
        """How many times a review has changed answers on this leg."""
        return self._revision

    def recall_computed(self, noted: Mapping[int, Mapping[str, Any]]) -> None:
        """Take over what an earlier serving of this leg has computed, by the revision it was computed in.

        A value of a later revision waits until this serving gets there: before, the journal's value is the right one.
        """
        self._noted = noted
        self._take_noted()

    def newly_computed(self) -> list[Noted]:
        """Return what this leg has computed and neither the token nor the ledger has."""
        return [
            *self._due,
            *(
                Noted(self._revision, key, computed.value)
                for key, computed in self.computed.items()
                if key not in self.kept
            ),
        ]

    def _take_noted(self) -> None:
        noted = self._noted.get(self._revision, {})
        # A note is newer than the journal: the value there was stale, or did not fit.
        self.computed |= {key: Computed(value) for key, value in noted.items()}
        self.kept |= noted.keys()

    def deliver(self, responses: Mapping[str, InputResponse | None], asked: Mapping[str, Asked]) -> None:
        """Take the answers of one round (None for a malformed one); those to what was not asked are ignored (S8)."""
        self._asked = dict(asked)
        self._responses = {key: response for key, response in responses.items() if key in asked}
        if self._watch is not None and len(self._responses) < len(responses):
            self._watch(AnswersIgnored(len(responses) - len(self._responses)))
        self._fresh = set()
        self.open = {}

    def settle_node(self, node: Node, marker: Marker) -> Outcome | None:
        """The outcome of a node's question; None leaves it in `open`.

        Raises:
            AnswerRejected: It was answered invalidly too often.
            SchemaNotRenderable: The protocol cannot show it.
            ValueNotStorable: A `once` node asks what its annotation does not say, so it could not be restored.
        """
        if node.once:
            _check_restorable(node, marker)
        return self.settle(node.names, marker, decisive=node.consumer is not None)

    def settle(self, names: tuple[str, ...], marker: Marker | Review, *, decisive: bool = False) -> Outcome | None:
        """The outcome of a question known by its key and its former keys; None leaves it in `open`.

        Raises:
            AnswerRejected: It was answered invalidly too often.
            SchemaNotRenderable: The protocol cannot show it.
        """
        key = names[0]
        self._seen.update(names)
        try:
            question = question_of(marker)
        except SchemaNotRenderable as error:
            raise SchemaNotRenderable(f"question {key!r}: {error}", field=error.field) from error
        if isinstance(question, FormQuestion) and isinstance(question.form, Form):
            self.forms[key] = question.form
        if isinstance(question, UrlQuestion):
            if not question.elicitation_id:
                named = to_text(digest(f"{self._call_id}/{key}")[:_ELICITATION_ID_BYTES])
                question = replace(question, elicitation_id=named)
            if question.done is not None:
                return self._settle_page(names, question, decisive=decisive)
        if isinstance(question, FormQuestion) and question.guesses is not None:
            self.guarded.add(key)
            guess = self._uncounted(names, question)
            if guess is not NOTHING:
                asked = Asked(self._pin(question))
                return self._leave_open(
                    PendingQuestion(key, question, asked, Reason.MISSING, decisive=decisive, guess=guess)
                )
        restored = self._restore(names, question) if self.entries or self.computed else None
        if restored is not None:
            self.open.pop(key, None)
            self._tell_reused(key)
            return restored
        name = next((name for name in names if name in self._asked), None) if self._asked else None
        if name is None:
            return self._leave_new(names, question, decisive=decisive)
        asked, answered = self._asked[name], name in self._responses
        changed = self._changes(asked, question)
        if changed:
            lost = answered and self._same_build and not question.volatile_ok and changed != _KEY_GONE
            again = Asked(self._pin(question), discards=asked.discards + 1 if lost else 0)
            if answered:
                self._tell_read(key, self._responses[name], "lost")
            return self._leave_open(
                PendingQuestion(
                    key, question, again, _reworded(changed), changed, decisive=decisive, lost=changed if lost else ()
                )
            )
        if not answered:
            again = asked._replace(pin=self._pin(question), discards=0)
            return self._leave_open(PendingQuestion(key, question, again, Reason.MISSING, decisive=decisive))
        response = self._responses.pop(name)
        try:
            outcome, data = self._read(question, response)
        except AnswerInvalid as error:
            return self._leave_invalid(key, question, asked, response, error, decisive=decisive)
        self._tell_read(key, response, "taken")
        for former in names[1:]:
            self.entries.pop(former, None)
        self.entries[key] = Entry(outcome.action, asked.pin, data)
        self._renew(key, question)
        self._fresh.add(key)
        self.open.pop(key, None)
        return outcome

    def counted(self, key: str, guess: Any) -> None:
        """Let an answer be looked at that the ledger has counted."""
        self._counted.add((key, json.dumps(guess, sort_keys=True)))

    def _uncounted(self, names: tuple[str, ...], question: FormQuestion) -> Any:
        """Return the answer that would be looked at next and has not been counted, wherever it comes from."""
        if any(_STAND_IN + name in self.computed for name in names):
            return NOTHING
        known = [self.entries[name] for name in names if name in self.entries]
        for entry in known:
            accepted = entry.action is Action.ACCEPT and not self._changes(entry, question)
            if accepted and (names[0], json.dumps(entry.data, sort_keys=True)) not in self._counted:
                return entry.data
        name = next((name for name in names if name in self._asked), None)
        if name is None or self._changes(self._asked[name], question):
            return NOTHING
        response = self._responses.get(name)
        if not isinstance(response, ElicitResult) or response.action != "accept":
            return NOTHING
        counted = (names[0], json.dumps(response.content, sort_keys=True)) in self._counted
        return NOTHING if counted else response.content

    def _settle_page(self, names: tuple[str, ...], question: UrlQuestion, *, decisive: bool) -> Outcome | None:
        """The outcome of a question whose answer comes from elsewhere, once the user has agreed to go there."""
        key = names[0]
        kept = next((self.computed[_STAND_IN + name] for name in names if _STAND_IN + name in self.computed), None)
        if kept is not None:
            try:
                outcome = question.restore(Action.ACCEPT, kept.value)
            except AnswerInvalid:
                # Another build's value does not fit this one's type: `done` is called again.
                for name in names:
                    self.computed.pop(_STAND_IN + name, None)
            else:
                self.open.pop(key, None)
                self._tell_reused(key)
                return outcome
        name = next((name for name in names if name in self._asked), key)
        asked = self._asked.get(name) or Asked(self._pin(question))
        changed = self._changes(asked, question)
        if name in self._responses and changed:
            self._tell_read(key, self._responses[name], "lost")
        elif name in self._responses:
            response = self._responses.pop(name)
            try:
                outcome, _ = self._read(question, response)
            except AnswerInvalid as error:
                known = next((self.entries[name] for name in names if name in self.entries), None)
                consented = known is not None and not self._changes(known, question)
                return self._leave_invalid(
                    key, question, asked, response, error, consented=consented, decisive=decisive
                )
            self._tell_read(key, response, "taken")
            for former in names[1:]:
                self.entries.pop(former, None)
            # Agreeing a second time is no news: the page is still not done.
            if outcome.action is not Action.ACCEPT or key not in self.entries:
                self._fresh.add(key)
            self.entries[key] = Entry(outcome.action, self._pin(question))
        known = next((name for name in names if name in self.entries), key)
        entry = self.entries.get(known)
        agreed = entry is not None and not self._changes(entry, question)
        if entry is not None and agreed and entry.action is not Action.ACCEPT:
            self.open.pop(key, None)
            return Outcome(action=entry.action)
        if name not in self._asked and not agreed:
            return self._leave_new(names, question, decisive=decisive)
        if entry is not None and agreed:
            self._renew(known, question)
        elif entry is not None:
            changed = changed or self._changes(entry, question)
        reason = Reason.UNFINISHED if agreed else _reworded(changed) if changed else Reason.MISSING
        again = Asked(self._pin(question))
        return self._leave_open(
            PendingQuestion(
                key, question, again, reason, () if agreed else changed, consented=agreed, decisive=decisive
            )
        )

    def _leave_invalid(
        self,
        key: str,
        question: Question,
        asked: Asked,
        response: InputResponse | None,
        error: AnswerInvalid,
        *,
        consented: bool = False,
        decisive: bool,
    ) -> None:
        """Leave a question open whose answer was invalid, to be asked again with the reason.

        Raises:
            AnswerRejected: It was answered invalidly too often.
        """
        self._tell_read(key, response if _is_of_kind(question, response) else None, "invalid")
        attempts = asked.attempts + 1
        if attempts >= question.attempts:
            raise AnswerRejected(key, attempts=attempts, reason=str(error)) from error
        self._leave_open(
            PendingQuestion(
                key,
                question,
                Asked(self._pin(question), attempts=attempts),
                Reason.INVALID,
                complaint=str(error),
                consented=consented,
                decisive=decisive,
                seed=response.content if isinstance(response, ElicitResult) else None,
            )
        )

    def adopt(self, blocked: Callable[[int], bool]) -> bool:
        """Give open questions what another build wrote for them under their bare name or another path.

        Only where both digests match and exactly one node and one entry fit: two closures of one factory must never
        swap. `blocked` tells of a node that has not come to ask yet, and so might fit as well. Afterwards the open
        questions can be settled again, if anything was found.
        """
        found = False
        if not self.entries and not self._asked:
            return False
        if self._plan.names.keys() >= self.entries.keys() | self._asked.keys():
            return False
        for waiting in [waiting for waiting in self.open.values() if waiting.reason in _UNKNOWN]:
            node = self._plan.nodes[self._plan.names[waiting.key]]
            rivals = [self._plan.nodes[i] for i in self._plan.bare_names[node.bare_key] if i != node.index]
            if any(blocked(rival.index) or self._fits(rival, waiting.question) for rival in rivals):
                continue
            for known in (self.entries, self._asked):
                names = [
                    name
                    for name, pinned in known.items()
                    if name.partition("@")[0] == node.bare_key
                    and name not in self._plan.names
                    and not self._changes(pinned, waiting.question)
                ]
                if len(names) == 1:
                    known[node.key] = known.pop(names[0])  # type: ignore[assignment]
                    if known is self._asked and names[0] in self._responses:
                        self._responses[node.key] = self._responses.pop(names[0])
                    found = True
        return found

    def check_volatile(self) -> None:
        """Raise for a question whose wording keeps changing under its answers while nothing else moves.

        Raises:
            QuestionVolatile: No answer to it can ever count.
        """
        for key, waiting in self.open.items():
            if not waiting.lost:
                continue
            if self._fresh:
                waiting.asked = waiting.asked._replace(discards=0)
            elif waiting.asked.discards >= VOLATILE_AFTER:
                raise QuestionVolatile(key, changed=waiting.lost)
            else:
                waiting.reason = Reason.VOLATILE

    def keeps(self, node: Node) -> bool:
        """Whether it is sure that `recall` knows what a `once` node yielded, and that nobody has declined it."""
        if not self._same_build or not self._asked.keys().isdisjoint(node.names):
            return False
        entry = self.entries.get(node.key)
        if entry is None:
            return node.key in self.computed
        return entry.action is Action.ACCEPT and not is_page(entry.pin)

    def form_of(self, key: str) -> Form | None:
        """The form that a question of this call was answered in, for a review of the answer."""
        form = self.forms.get(key)
        index = self._plan.names.get(key) if form is None else None
        if index is None or not self._plan.nodes[index].once:
            return form
        # The function has not run to show it.
        return _form_asked_by(self._plan.nodes[index])

    def recall(self, node: Node) -> Outcome | None:
        """What a `once` node yielded on an earlier leg, computed or answered."""
        if any(name in self._asked for name in node.names):
            # Its question is still out, so nothing that is known of it has been an answer to that.
            return None
        for name in node.names:
            try:
                if name in self.computed:
                    kept = self.computed.pop(name)
                    value = _adapter(node).validate_python(kept.value)
                    self.computed[node.key] = kept
                    return Outcome(value)
                if name in self.entries:
                    entry = self.entries[name]
                    if is_page(entry.pin):
                        # To agree to a page is not yet its outcome; the function asks again for that.
                        continue
                    value = _restore_answer(node, entry) if entry.action is Action.ACCEPT else None
                    self.entries[node.key] = self.entries.pop(name)
                    self._tell_reused(node.key)
                    return Outcome(value, entry.action)
            except (ValidationError, AnswerInvalid, SchemaNotRenderable):
                # Another build kept a value that no longer fits this one's type: it is made anew.
                continue
        return None

    def remember(self, node: Node, value: Any) -> None:
        """Keep what a `once` node has computed.

        Raises:
            ValueNotStorable: It has no JSON form.
        """
        try:
            plain = _adapter(node).dump_python(value, mode="json", by_alias=True, warnings="error")
        except (PydanticSerializationError, PydanticUserError, ValueError) as error:
            # Without its cause, which quotes the value in the traceback.
            raise ValueNotStorable(node.key, reason=without_value(error)) from None
        self._fix(node.key, plain)

    def is_fresh(self, key: str) -> bool:
        """Whether an answer was accepted on this leg's round, and not restored."""
        return key in self._fresh

    def revise(self, changed: Mapping[str, Mapping[str, Any]], *, stale: Iterable[str]) -> None:
        """Put other answers in the place of earlier ones, and forget what depended on those."""
        self._due = self.newly_computed()
        self.kept |= self.computed.keys()
        self._revision += 1
        for key, content in changed.items():
            self.entries[key] = self.entries[key]._replace(data=dict(content))
        for name in stale:
            self._revised.add(name)
            self.entries.pop(name, None)
            for computed in (name, _STAND_IN + name):
                self.computed.pop(computed, None)
                self.kept.discard(computed)
            self._asked.pop(name, None)
            self._responses.pop(name, None)
        self._take_noted()

    def with_unread(self) -> dict[str, Entry]:
        """The entries, and the answers of this round that nothing has read, pinned to what they answer.

        Their question may belong to another build, have another wording here, or wait behind one that came back. On a
        later leg they count like any other entry, so nobody is asked twice for what they have said. Those of `once`
        nodes do not: an entry of theirs is final without another look at the wording, so it must have been read under
        that wording.
        """
        if not self._responses:
            return self.entries
        entries = dict(self.entries)
        for key, response in self._responses.items():
            if response is None or self._is_once(key):
                continue
            wire = response.model_dump(mode="json", by_alias=True, exclude_none=True)
            data = wire.get("content") if "action" in wire else wire
            asked = self._asked[key]
            if isinstance(response, ElicitResult) is is_by_software(asked.pin):
                # The answer to another kind of question: kept, it could count as consent.
                continue
            action = _ACTIONS.get(wire.get("action", ""), Action.ACCEPT)
            entries[key] = Entry(action, asked.pin, data)
        return entries

    def still_asked(self) -> dict[str, Asked]:
        """The questions that are out: this leg's, and those of another build whose answers this one carries on unread.

        As long as such a question counts as out, a `once` node of that build looks at the wording before it takes it.
        """
        if not self._asked:
            return {key: waiting.asked for key, waiting in self.open.items()}
        unread = self.entries.keys() | self._responses.keys()
        known = self._plan.names.keys() | self._seen
        foreign = {key: asked for key, asked in self._asked.items() if key in unread and key not in known}
        return foreign | {key: waiting.asked for key, waiting in self.open.items()}

    def unused_seeds(self) -> Mapping[str, Entry]:
        """The answers of an expired call to what has not been answered in this one."""
        return {key: entry for key, entry in self._seeds.items() if key not in self.entries} if self._seeds else {}

    def _is_once(self, name: str) -> bool:
        """Whether a name is that of a node whose first outcome is final."""
        index = self._plan.names.get(name)
        return index is not None and self._plan.nodes[index].once

    def _leave_new(self, names: tuple[str, ...], question: Question, *, decisive: bool) -> None:
        key = names[0]
        discards = 0
        if key.startswith(UNNAMED) and self._same_build and not question.volatile_ok:
            # Its wording is its name, so an answer lost to a change shows as one to a name that nobody asks any more.
            lost = [name for name in self._responses if name.startswith(UNNAMED)]
            discards = max((self._asked[name].discards + 1 for name in lost), default=0)
        asked = Asked(self._pin(question), discards=discards)
        if self.entries or self._asked or self._revised:
            reason, changed, former = self._why_new(names, question)
        else:
            reason, changed, former = Reason.NEW, (), None
        self._leave_open(
            PendingQuestion(
                key,
                question,
                asked,
                reason,
                changed,
                former,
                decisive=decisive,
                lost=("message",) if discards else (),
            )
        )

    def _why_new(self, names: tuple[str, ...], question: Question) -> tuple[Reason, tuple[str, ...], str | None]:
        """Why a question is put that is not out, in a call that has answers already."""
        if any(name in self._revised for name in names):
            return Reason.REVISED, (), None
        entry = next((self.entries[name] for name in names if name in self.entries), None)
        if entry is not None:
            changed = self._changes(entry, question)
            if changed:
                return _reworded(changed), changed, None
            # An answer that once fitted this very form, and does not now.
            return (Reason.OTHER_BUILD if self._other_build else Reason.INVALID), (), None
        if not self._other_build:
            return Reason.NEW, (), None
        known: dict[str, Entry | Asked] = {**self._asked, **self.entries}
        for name, pinned in known.items():
            if name not in self._plan.names and name not in self._seen and not self._changes(pinned, question):
                return Reason.RENAMED, (), name
        return (Reason.OTHER_BUILD if self._was_in_reach(names[0]) else Reason.NEW), (), None

    def _was_in_reach(self, key: str) -> bool:
        """Whether the leg before would have put a resolver's question, had its build known of it."""
        index = self._plan.names.get(key)
        if index is None or not self._other_plan:
            return False
        out = (self._plan.names[name] for name in self._asked if name in self._plan.names)
        return not any(index in self._plan.downstream(place) for place in out)

    def _tell_reused(self, key: str) -> None:
        if self._watch is not None and key not in self._fresh:
            self._watch(AnswerReused(key))

    def _tell_read(self, key: str, response: InputResponse | None, how: Literal["taken", "invalid", "lost"]) -> None:
        if self._watch is None:
            return
        if response is None:
            self._watch(AnswerRead(key, None, how))
        elif isinstance(response, ElicitResult):
            self._watch(AnswerRead(key, response.action, how, response.content))
        else:
            self._watch(AnswerRead(key, "accept", how, response))

    def _leave_open(self, waiting: PendingQuestion) -> None:
        if waiting.key in self.guarded:
            # A form that shows the valid fields of what was sent before would tell which are.
            self.open[waiting.key] = waiting
            return
        seed = self._seeds.get(waiting.key) if waiting.seed is None else None
        # Another wording may mean another thing by the same words.
        if seed is not None and not self._changes(seed, waiting.question):
            waiting.seed = seed.data
        self.open[waiting.key] = waiting

    def _read(self, question: Question, response: InputResponse | None) -> tuple[Outcome, Any]:
        if response is None:
            raise AnswerInvalid("it was malformed")
        return question.read(response)

    async def stand_in(self, waiting: PendingQuestion) -> None:
        """Give an open question the value that its author wants where the client cannot be asked.

        Raises:
            ValueNotStorable: The value has no JSON form.
        """
        value = waiting.question.otherwise
        if callable(value):
            value = value()
            if inspect.isawaitable(value):
                value = await value
        self.keep(waiting, value, source="otherwise=")

    def keep(self, waiting: PendingQuestion, value: Any, *, source: str) -> None:
        """Fix the value of an open question for the rest of the call, as the client will not give it.

        Raises:
            ValueNotStorable: The value has no JSON form.
        """
        try:
            plain = waiting.question.plain(value)
            waiting.question.restore(Action.ACCEPT, plain)
        except (AnswerInvalid, AttributeError, PydanticSerializationError, ValueError):
            reason = f"{source} gave {type(value).__name__}, which is no answer to the question"
            cure = "Give otherwise= what a client could have answered; for a Sample or ListRoots that is a whole result"
            cure = cure if source == "otherwise=" else None
            raise ValueNotStorable(waiting.key, reason=reason, cure=cure) from None
        self._fix(_STAND_IN + waiting.key, plain)

    def _fix(self, name: str, plain: Any) -> None:
        self.computed[name] = Computed(plain)
        if self._watch is not None:
            self._watch(Fixed(name, plain))

    def _restore(self, names: tuple[str, ...], question: Question) -> Outcome | None:
        for name in names:
            kept = self.computed.get(_STAND_IN + name) if question.otherwise is not NOTHING else None
            if kept is not None:
                try:
                    return question.restore(Action.ACCEPT, kept.value)
                except AnswerInvalid:
                    del self.computed[_STAND_IN + name]
            entry = self.entries.get(name)
            # An entry for another wording stays: a later leg may land on the build that has that wording.
            if entry is None or self._changes(entry, question):
                continue
            try:
                outcome = question.restore(entry.action, entry.data)
            except AnswerInvalid:
                continue
            if name != names[0]:
                self.entries[names[0]] = self.entries.pop(name)
            self._renew(names[0], question)
            return outcome
        return None

    def _fits(self, node: Node, question: Question) -> bool:
        """Whether another open node asks this very question."""
        waiting = self.open.get(node.key)
        return waiting is not None and not self._changes(waiting.asked, question)

    def _pin(self, question: Question) -> bytes:
        return self._pinner.pin(self._pinned_for, question.message, question.schema)

    def _renew(self, name: str, question: Question) -> None:
        """Pin an answer with the newest key, so that it still counts when the key of its pin has left the ring."""
        if self._pinner.rotates:
            self.entries[name] = self.entries[name]._replace(pin=self._pin(question))

    def _changes(self, known: Entry | Asked, question: Question) -> tuple[str, ...]:
        """Return what differs from when the client was shown the question: its message, its schema, or only the key."""
        return self._pinner.changes(known.pin, self._pinned_for, question.message, question.schema)


def seeds_of(journal: Journal, responses: Mapping[str, object]) -> dict[str, Entry]:
    """What was answered in a call that has expired, and what was sent when it had: for defaults, never for answers.

    Args:
        journal: What the call remembered.
        responses: What came with the leg that was too late, as the client sent it.
    """
    seeds = {key: entry for key, entry in {**journal.seeds, **journal.entries}.items() if entry.action is Action.ACCEPT}
    for key, asked in journal.asked.items():
        try:
            response = ElicitResult.model_validate(responses.get(key))
        except ValidationError:
            continue
        if response.action == "accept" and response.content:
            seeds[key] = Entry(Action.ACCEPT, asked.pin, response.content)
    return {key: entry for key, entry in seeds.items() if isinstance(entry.data, dict) and has_form(entry.pin)}


_UNKNOWN: Final = (Reason.NEW, Reason.RENAMED, Reason.OTHER_BUILD)
"""Why a question may be put of which this call has no answer under its name."""


_KEY_GONE: Final = ("key",)
"""Of a pin that no key verifies, and that shows no other difference."""


def _reworded(changed: tuple[str, ...]) -> Reason:
    if changed == _KEY_GONE:
        return Reason.KEY_GONE
    return Reason.SCHEMA_CHANGED if "schema" in changed else Reason.REWORDED


def _is_of_kind(question: Question, response: InputResponse | None) -> bool:
    """Return True for an answer to this kind of question, valid or not."""
    if isinstance(response, ElicitResult | ListRootsResult):
        return isinstance(response, question.result_type)
    return question.result_type not in (ElicitResult, ListRootsResult)


def _adapter(node: Node) -> TypeAdapter[Any]:
    return node.computed if node.computed is not None else TypeAdapter(Any)


def _check_restorable(node: Node, marker: Marker) -> None:
    """A `once` answer is restored without running the function, so its annotation must say what it asks."""
    if isinstance(marker, SdkElicit) and marker.schema != node.asked:
        name = getattr(marker.schema, "__name__", repr(marker.schema))
        raise ValueNotStorable(
            node.key,
            reason=f"{node.label} asks with once=True, and its return annotation does not say so: Elicit[{name}]",
        )


def _asks(node: Node, kind: type[Any]) -> bool:
    """Whether a node's annotation says that it asks such a question."""
    return isinstance(node.asked, type) and issubclass(node.asked, kind)


def _form_asked_by(node: Node) -> Form | None:
    """The form that a node's annotation says it asks."""
    if node.asked is None or _asks(node, SdkListRoots) or _asks(node, SdkSample):
        return None
    return form_of(node.asked)


def _restore_answer(node: Node, entry: Entry) -> Any:
    if _asks(node, SdkListRoots):
        return ListRootsResult.model_validate(entry.data)
    form = _form_asked_by(node)
    if form is not None:
        return form.parse(entry.data)
    kind = CreateMessageResultWithTools if may_use_tools(entry.pin) else CreateMessageResult
    return kind.model_validate(entry.data)


def without_value(error: Exception) -> str:
    """Why a value cannot be kept, in words that do not hold it: what the server computed is for nobody to read."""
    if isinstance(error, ValidationError):
        errors = error.errors(include_input=False, include_url=False, include_context=False)
        return "; ".join(": ".join([*(str(part) for part in entry["loc"]), entry["msg"]]) for entry in errors)
    text = str(error)
    if text.startswith("Unable to serialize unknown type"):
        return text
    return "it is not what its annotation says"
