"""One leg's questions: a valid answer settles a question, and all other questions stay open.

`KnownAnswers` holds the answers. `ComputedValues` holds values that the server computed.
"""

import inspect
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from mcp_types import (
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitResult,
    InputResponse,
    ListRootsResult,
)
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from roundtrip.engine.computed import STAND_IN, ComputedValues, adapter_of
from roundtrip.engine.known import KEY_GONE, KnownAnswers, wording_reason
from roundtrip.engine.leg import Leg
from roundtrip.errors import AnswerRejected, QuestionVolatile, SchemaNotRenderable, ValueNotStorable
from roundtrip.machine.facts import AnswerRead, AnswerReused, AnswersIgnored, Reason
from roundtrip.machine.journal import UNNAMED, Action, Asked, Entry, to_text
from roundtrip.machine.pins import digest, is_page, may_use_tools
from roundtrip.questions.forms import AnswerInvalid, Form, form_of
from roundtrip.questions.markers import NOTHING, ExternalMarker, Marker, SdkElicit, SdkListRoots, SdkSample
from roundtrip.questions.outcomes import Outcome
from roundtrip.questions.reviews import Review
from roundtrip.questions.wire import ExternalQuestion, FormQuestion, PendingQuestion, Question, UrlQuestion, question_of
from roundtrip.resolvers.node_outcomes import NodeOutcomes
from roundtrip.resolvers.plan import Node

_VOLATILE_AFTER_LEGS: Final = 2
"""A question is volatile once this many legs in a row have discarded its answer because the wording changed."""

_ELICITATION_ID_BYTES: Final = 12
_NOT_PINNED: Final = Asked(b"")
"""Placeholder for a pin. A question that is settled at once never needs a real pin."""


class Answers(NodeOutcomes):
    """One call's answers on one leg, and the questions that are still open."""

    def __init__(self, leg: Leg) -> None:
        self.leg = leg
        self.known = KnownAnswers(leg)
        self.entries = self.known.entries
        """The answers that have been read, by question name."""
        self._watch = leg.call.watch
        computed = {} if leg.journal is None else dict(leg.journal.computed)
        self.computed = ComputedValues(computed, set(computed), self._watch)
        self.guarded: set[str] = set()
        """Names of questions whose answers the ledger counts as guesses."""
        self.open: dict[str, PendingQuestion] = {}
        self.words: dict[str, str] = {}
        """The texts of this leg's unnamed questions, by their generated names."""
        self.forms: dict[str, Form] = {}
        """The forms of this leg's questions, for a review of their answers."""
        self.for_anyone: set[str] = set()
        """Names of this leg's questions that may also be answered by the model that called the tool."""
        self.by_model = set(leg.ports.by_model)
        """Names of questions that a model answered and that no human has reviewed."""
        self.fresh: set[str] = set()
        """Names of questions whose answers arrived on this leg. Answers from the journal are not included."""
        self._counted: set[tuple[str, str]] = set()
        """Answers that the ledger has counted as guesses, each with its question name."""

    # Receiving the answers from a round.

    def deliver(self, responses: Mapping[str, InputResponse | None], asked: Mapping[str, Asked]) -> None:
        """Take one round's answers, and ignore answers to questions that were not asked (S8). A malformed answer is
        None.
        """
        known = self.known
        known.asked = dict(asked)
        known.responses = {key: response for key, response in responses.items() if key in asked}
        if self._watch is not None and len(known.responses) < len(responses):
            self._watch(AnswersIgnored(len(responses) - len(known.responses)))
        self.fresh = set()
        self.open = {}

    # Settling a question.

    def settle(self, node: Node, marker: Marker) -> Outcome | None:
        """Return the outcome of a node's question. If the question has no valid answer, leave it in `open` and return
        None.

        Raises:
            AnswerRejected: The last permitted answer was invalid.
            SchemaNotRenderable: The protocol cannot show the question.
            ValueNotStorable: A remembered node's annotation does not name the node's question, so the answer cannot be
                restored.
        """
        if node.remember:
            _check_restorable(node, marker)
        return self.settle_question(node.names, marker, decisive=node.consumer is not None)

    def settle_question(
        self, names: tuple[str, ...], marker: Marker | Review, *, decisive: bool = False
    ) -> Outcome | None:
        """Settle a question, given its current name and its former names. See `settle`."""
        key, known = names[0], self.known
        known.seen.update(names)
        try:
            question = question_of(marker)
        except SchemaNotRenderable as error:
            raise SchemaNotRenderable(f"question {key!r}: {error}", field=error.field) from error
        waiting = PendingQuestion(key, question, _NOT_PINNED, decisive=decisive, names=names)
        if isinstance(question, FormQuestion):
            if isinstance(question.form, Form):
                self.forms[key] = question.form
            if question.is_for_anyone:
                self.for_anyone.add(key)
            if question.guesses is not None:
                self.guarded.add(key)
                waiting.guess = self._uncounted(names, question)
                if waiting.guess is not NOTHING:
                    return self._leave_open(waiting, Reason.MISSING)
        elif isinstance(question, UrlQuestion):
            if not question.elicitation_id:
                named = digest(f"{self.leg.call.id}/{key}")[:_ELICITATION_ID_BYTES]
                question.elicitation_id = to_text(named)
            if question.done is not None:
                return self._settle_page(names, question, waiting)
        elif isinstance(question, ExternalQuestion):
            return self._settle_external(question, waiting)
        if self.entries or self.computed.values:
            restored = self._restore(names, question)
            if restored is not None:
                return self.reuse(key, restored)
        name = next((name for name in names if name in known.asked), None) if known.asked else None
        if name is None:
            return self._leave_new(names, waiting)
        asked, answered = known.asked[name], name in known.responses
        changed = self.known.changes(asked.pin, question)
        if changed:
            waiting.changed = changed
            if answered:
                self._tell_read(key, known.responses[name], "lost")
                if known.same_build and not question.volatile_ok and changed != KEY_GONE:
                    waiting.lost = changed
            return self._leave_open(
                waiting, wording_reason(changed), discards=asked.discards + 1 if waiting.lost else 0
            )
        if not answered:
            return self._leave_open(waiting, Reason.MISSING, attempts=asked.attempts)
        response = known.responses.pop(name)
        try:
            outcome, data = _read(question, response)
        except AnswerInvalid as error:
            return self._leave_invalid(waiting, asked, response, error)
        self._take(names, response)
        self.fresh.add(key)
        self.entries[key] = Entry(outcome.action, asked.pin, data)
        self._renew(key, question)
        self.open.pop(key, None)
        return outcome

    def _settle_external(self, question: ExternalQuestion, waiting: PendingQuestion) -> Outcome | None:
        """Settle an external question, which no client answers."""
        stand_in = self.stand_in_for(waiting.names, question)
        if stand_in is not None:
            return self.reuse(waiting.key, stand_in)
        settler = self.leg.ports.settlers.get(type(question))
        outcome = settler.settle(waiting, self.computed) if settler is not None else None
        self.open.pop(waiting.key, None)
        if outcome is None:
            self.open[waiting.key] = waiting
        return outcome

    def _settle_page(self, names: tuple[str, ...], question: UrlQuestion, waiting: PendingQuestion) -> Outcome | None:
        """Settle a page's question. After the user has agreed to visit the page, `done` returns the value."""
        key, known = names[0], self.known
        stand_in = self.stand_in_for(names, question)
        if stand_in is not None:
            return self.reuse(key, stand_in)
        name = next((name for name in names if name in known.asked), key)
        asked = known.asked.get(name, _NOT_PINNED)
        changed = self.known.changes(asked.pin, question) if asked is not _NOT_PINNED else ()
        answered = next((name for name in names if name in self.entries), key)
        if name in known.responses and changed:
            self._tell_read(key, known.responses[name], "lost")
        elif name in known.responses:
            response = known.responses.pop(name)
            try:
                outcome, _ = _read(question, response)
            except AnswerInvalid as error:
                entry = self.entries.get(answered)
                waiting.consented = entry is not None and not self.known.changes(entry.pin, question)
                return self._leave_invalid(waiting, asked, response, error)
            self._take(names, response)
            # If the user agrees a second time, nothing changes, because the page is still unfinished.
            if outcome.action is not Action.ACCEPT or key not in self.entries:
                self.fresh.add(key)
            self.entries[key] = Entry(outcome.action, self.known.pin(question))
            answered = key
        entry = self.entries.get(answered)
        differences = self.known.changes(entry.pin, question) if entry is not None else ()
        if entry is not None and not differences:
            if entry.action is not Action.ACCEPT:
                self.open.pop(key, None)
                return Outcome(action=entry.action)
            self._renew(answered, question)
            waiting.consented = True
            return self._leave_open(waiting, Reason.UNFINISHED)
        if name not in known.asked:
            return self._leave_new(names, waiting)
        waiting.changed = changed or differences
        return self._leave_open(waiting, wording_reason(waiting.changed) if waiting.changed else Reason.MISSING)

    def _restore(self, names: tuple[str, ...], question: Question) -> Outcome | None:
        """Return the outcome that an earlier leg recorded for exactly this wording, or None."""
        for name in names:
            stand_in = self.stand_in_for((name,), question) if question.fallback is not NOTHING else None
            if stand_in is not None:
                return stand_in
            entry = self.entries.get(name)
            # An entry for another wording stays in the journal: a build with that wording may serve a later leg.
            if entry is None or self.known.changes(entry.pin, question):
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

    def reuse(self, key: str, outcome: Outcome) -> Outcome:
        """Close the question and return its outcome from an earlier leg."""
        self.open.pop(key, None)
        self._tell_reused(key)
        return outcome

    def _take(self, names: tuple[str, ...], response: InputResponse | None) -> None:
        """Record that an answer was read. It replaces the answers under the question's former names."""
        self._tell_read(names[0], response, "taken")
        for former in names[1:]:
            self.entries.pop(former, None)

    def _renew(self, name: str, question: Question) -> None:
        """Pin an answer with the newest key, so that the answer still counts after the old key has left the ring."""
        if self.known.pinner.rotates:
            self.entries[name] = self.entries[name]._replace(pin=self.known.pin(question))

    # Leaving a question open.

    def _leave_new(self, names: tuple[str, ...], waiting: PendingQuestion) -> None:
        known, discards, reason = self.known, 0, Reason.NEW
        if names[0].startswith(UNNAMED) and known.same_build and not waiting.question.volatile_ok:
            # A generated name contains a digest of the wording, so an answer to an earlier wording has another name.
            lost = [name for name in known.responses if name.startswith(UNNAMED)]
            discards = max((known.asked[name].discards + 1 for name in lost), default=0)
            waiting.lost = ("message",) if discards else ()
        if self.entries or known.asked or known.revised:
            reason, waiting.changed, waiting.former = known.reason_to_ask(names, waiting.question)
        self._leave_open(waiting, reason, discards=discards)

    def _leave_invalid(
        self, waiting: PendingQuestion, asked: Asked, response: InputResponse | None, error: AnswerInvalid
    ) -> None:
        """Leave a question open, so that it is asked again with the reason. Raise AnswerRejected after the last
        permitted answer.
        """
        is_of_kind = _is_of_kind(waiting.question, response)
        self._tell_read(waiting.key, response if is_of_kind else None, "invalid")
        attempts = asked.attempts + 1
        if attempts >= waiting.question.attempts:
            raise AnswerRejected(waiting.key, attempts=attempts, reason=str(error)) from error
        waiting.complaint = str(error)
        waiting.invalid_answer = response.content if isinstance(response, ElicitResult) else None
        self._leave_open(waiting, Reason.INVALID, attempts=attempts)

    def _leave_open(self, waiting: PendingQuestion, reason: Reason, *, attempts: int = 0, discards: int = 0) -> None:
        waiting.reason = reason
        waiting.asked = Asked(self.known.pin(waiting.question), attempts, discards)
        self.open[waiting.key] = waiting

    # Using a value in place of an answer.

    def stand_in_for(self, names: Iterable[str], question: Question) -> Outcome | None:
        """Given a question's names, return the value that replaces its answer, or None."""
        values = self.computed.values
        for name in [f"{STAND_IN}{name}" for name in names]:
            if name in values:
                try:
                    return question.restore(Action.ACCEPT, values[name].value)
                except AnswerInvalid:
                    # The value was computed by another build and does not fit this build's type, so call `done` or
                    # `fallback` again.
                    del values[name]
        return None

    async def use_fallback(self, waiting: PendingQuestion) -> None:
        """Answer an open question with the author's `fallback=`, because the client cannot be asked. See `keep`."""
        value = waiting.question.fallback
        if callable(value):
            value = value()
            if inspect.isawaitable(value):
                value = await value
        self.keep(waiting, value, source="fallback=")

    def keep(self, waiting: PendingQuestion, value: Any, *, source: str) -> None:
        """Answer an open question with a value that stays the same for the rest of the call.

        Raises:
            ValueNotStorable: The value cannot be converted to JSON.
        """
        try:
            plain = waiting.question.plain(value)
            waiting.question.restore(Action.ACCEPT, plain)
        except (AnswerInvalid, AttributeError, PydanticSerializationError, ValueError):
            reason = f"{source} gave a value of type {type(value).__name__}, which is not an answer to the question"
            cure = "Give fallback= a value that a client could send; for a Sample or ListRoots, give a whole result"
            cure = cure if source == "fallback=" else None
            raise ValueNotStorable(waiting.key, reason=reason, cure=cure) from None
        self.computed.fix(f"{STAND_IN}{waiting.key}", plain)

    # Counting guesses in the ledger.

    def count(self, key: str, guess: Any) -> None:
        """Note that the ledger has counted an answer. The answer may now be read."""
        self._counted.add((key, json.dumps(guess, sort_keys=True)))

    def _uncounted(self, names: tuple[str, ...], question: FormQuestion) -> Any:
        """Return the next answer that the ledger must count before it is read; NOTHING if there is none."""
        if any(f"{STAND_IN}{name}" in self.computed.values for name in names):
            return NOTHING
        for entry in [self.entries[name] for name in names if name in self.entries]:
            accepted = entry.action is Action.ACCEPT and not self.known.changes(entry.pin, question)
            if accepted and (names[0], json.dumps(entry.data, sort_keys=True)) not in self._counted:
                return entry.data
        known = self.known
        name = next((name for name in names if name in known.asked), None)
        if name is None or self.known.changes(known.asked[name].pin, question):
            return NOTHING
        response = known.responses.get(name)
        if not isinstance(response, ElicitResult) or response.action != "accept":
            return NOTHING
        counted = (names[0], json.dumps(response.content, sort_keys=True)) in self._counted
        return NOTHING if counted else response.content

    # Recalling the nodes that keep their first outcome for the call.

    def can_recall(self, node: Node) -> bool:
        """Return True only if `recall` will return a value for a remembered node. A declined outcome has no value."""
        if not self.known.same_build or not self.known.asked.keys().isdisjoint(node.names):
            return False
        entry = self.entries.get(node.key)
        if entry is None:
            return node.key in self.computed.values
        return entry.action is Action.ACCEPT and not is_page(entry.pin)

    def recall(self, node: Node) -> Outcome | None:
        """Return the outcome that a remembered node computed or received on an earlier leg, or None."""
        if any(name in self.known.asked for name in node.names):
            # The node's question is still open, so an answer under one of its names belongs to another question.
            return None
        computed = self.computed.values
        for name in node.names:
            try:
                if name in computed:
                    kept = computed.pop(name)
                    value = adapter_of(node).validate_python(kept.value)
                    computed[node.key] = kept
                    return Outcome(value)
                if name in self.entries:
                    entry = self.entries[name]
                    if is_page(entry.pin):
                        # The entry only says that the user agreed to visit the page. The page's outcome is not known,
                        # so the function must run again.
                        continue
                    value = _restore_answer(node, entry) if entry.action is Action.ACCEPT else None
                    self.entries[node.key] = self.entries.pop(name)
                    self._tell_reused(node.key)
                    return Outcome(value, entry.action)
            except (ValidationError, AnswerInvalid, SchemaNotRenderable):
                # The value was kept by another build and does not fit this build's type, so compute it again.
                continue
        return None

    def remember(self, node: Node, value: Any) -> None:
        """Keep a remembered node's value. See `ComputedValues.remember`."""
        self.computed.remember(node, value)

    # Reviewing answers.

    def form_of(self, key: str) -> Form | None:
        """Return the form that the user filled in for one of this call's questions, so that a review can show it."""
        form = self.forms.get(key)
        plan = self.leg.plan
        index = plan.names.get(key) if form is None else None
        if index is None or not plan.nodes[index].remember:
            return form
        # The function has not run on this leg, so the form comes from its annotation.
        return _form_asked_by(plan.nodes[index])

    def revise(self, changed: Mapping[str, Mapping[str, Any]], *, stale: Iterable[str]) -> None:
        """Replace the answers that a review has changed, and forget all answers that depended on a changed answer."""
        stale = list(stale)
        for settler in self.leg.ports.settlers.values():
            settler.void(stale, self.computed)
        for key, content in changed.items():
            self.entries[key] = self.entries[key]._replace(data=dict(content))
        for name in stale:
            self.known.revise(name)
        self.computed.revise(stale)

    def judge_volatile(self) -> None:
        """Raise QuestionVolatile if a question's wording changed on several legs in a row, and these legs read no other
        answer.
        """
        for waiting in self.open.values():
            if not waiting.lost:
                continue
            if self.fresh:
                waiting.asked = waiting.asked._replace(discards=0)
            elif waiting.asked.discards >= _VOLATILE_AFTER_LEGS:
                raise QuestionVolatile(waiting.key, changed=waiting.lost)
            else:
                waiting.reason = Reason.VOLATILE

    # Reporting facts to the watcher.

    def _tell_reused(self, key: str) -> None:
        if self._watch is not None and key not in self.fresh:
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


def _read(question: Question, response: InputResponse | None) -> tuple[Outcome, Any]:
    if response is None:
        raise AnswerInvalid("it was malformed")
    return question.read(response)


def _is_of_kind(question: Question, response: InputResponse | None) -> bool:
    """Return True if a response has the type that this kind of question expects, even if its value is invalid."""
    if isinstance(response, ElicitResult | ListRootsResult):
        return isinstance(response, question.result_type)
    return question.result_type not in (ElicitResult, ListRootsResult)


def _check_restorable(node: Node, marker: Marker) -> None:
    """Check that a remembered node's annotation names the node's question.

    Later legs do not call the function, so they restore the answer with the annotation's type.
    """
    if isinstance(marker, SdkElicit) and marker.schema != node.asked:
        name = getattr(marker.schema, "__name__", repr(marker.schema))
        raise ValueNotStorable(
            node.key,
            reason=f"{node.label} asks with remember=True, so its return annotation must be Elicit[{name}]",
        )


def _is_asking(node: Node, *kinds: type[Any]) -> bool:
    """Return True if a node's annotation names one of these kinds of questions."""
    return isinstance(node.asked, type) and issubclass(node.asked, kinds)


def _form_asked_by(node: Node) -> Form | None:
    """Return the form of the question in a node's annotation; None if that question has no form."""
    if node.asked is None or node.asks_page or _is_asking(node, SdkListRoots, SdkSample, ExternalMarker):
        return None
    return form_of(node.asked)


def _restore_answer(node: Node, entry: Entry) -> Any:
    if _is_asking(node, SdkListRoots):
        return ListRootsResult.model_validate(entry.data)
    form = _form_asked_by(node)
    if form is not None:
        return form.parse(entry.data)
    kind = CreateMessageResultWithTools if may_use_tools(entry.pin) else CreateMessageResult
    return kind.model_validate(entry.data)
