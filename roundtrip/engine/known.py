"""The answers with which a leg begins, from the call's journal and from the request.

An answer counts only for the wording that the user saw. If several functions share a name, their questions' names
include the functions' paths. `KnownAnswers.adopt` then finds answers that another build stored under another path.
"""

from collections.abc import Callable, Mapping
from typing import Final

from mcp_types import ElicitResult, InputResponse

from roundtrip.engine.leg import Leg
from roundtrip.machine.facts import Reason
from roundtrip.machine.journal import ACTIONS, Action, Asked, Entry
from roundtrip.machine.pins import Pinner, is_by_software
from roundtrip.questions.wire import PendingQuestion, Question

KEY_GONE: Final = ("key",)
"""Reported as the difference if none of the server's keys can verify a pin."""

_UNANSWERED: Final = (Reason.NEW, Reason.RENAMED, Reason.OTHER_BUILD)
"""Reasons to ask a question when no answer is stored under the question's name."""


class KnownAnswers:
    """One call's answers, with the pins of the wordings that the user saw."""

    def __init__(self, leg: Leg) -> None:
        journal = leg.journal
        self.plan = leg.plan
        self.pinner = leg.ports.pinner or Pinner()
        self._call = leg.call.id
        self.entries = {} if journal is None else dict(journal.entries)
        """The answers that have been read, by question name."""
        self.same_build = journal is not None and journal.build == leg.build
        """True if this build wrote the journal."""
        self.other_build = journal is not None and not self.same_build
        """True if another build wrote the journal."""
        self.other_plan = self.other_build and journal is not None and journal.fingerprint != leg.plan.fingerprint
        """True if another build, with another plan, wrote the journal."""
        self.asked: dict[str, Asked] = {}
        """The questions that this round asked."""
        self.responses: dict[str, InputResponse | None] = {}
        """Responses to this round that have not been read; None for a malformed response."""
        self.seen: set[str] = set()
        """Current and former names of the questions that this leg has settled."""
        self.revised: set[str] = set()
        """Names of questions that may depend on an answer that a review has changed."""

    def pin(self, question: Question) -> bytes:
        """Return a question's pin."""
        return self.pinner.pin(self._call, question.message, question.schema)

    def changes(self, pin: bytes, question: Question) -> tuple[str, ...]:
        """Return how a question differs from the pinned question. See `Pinner.changes`."""
        return self.pinner.changes(pin, self._call, question.message, question.schema)

    def adopt(self, pending: Mapping[str, PendingQuestion], is_blocked: Callable[[int], bool]) -> bool:
        """Rename another build's answers to the question names of this build.

        The other build may have stored an answer under the question's bare name or under another path. The wording must
        match, and exactly one node and one answer must fit. Two closures from the same factory must never get each
        other's answers. `is_blocked` returns True for a node that cannot run yet. The answer might belong to such a
        node.

        Returns:
            True if an answer was moved, so that the questions can be settled again.
        """
        plan = self.plan
        if plan.names.keys() >= self.entries.keys() | self.asked.keys():
            return False
        found = False
        for waiting in [waiting for waiting in pending.values() if waiting.reason in _UNANSWERED]:
            if waiting.key not in plan.names:
                continue  # a question of the body
            node = plan.nodes[plan.names[waiting.key]]
            rivals = [rival for rival in plan.nodes if rival.bare_key == node.bare_key and rival is not node]
            if any(
                is_blocked(rival.index)
                or (rival.key in pending and not self.changes(pending[rival.key].asked.pin, waiting.question))
                for rival in rivals
            ):
                continue
            for known in (self.entries, self.asked):
                names = [
                    name
                    for name, pinned in known.items()
                    if name.partition("@")[0] == node.bare_key
                    and name not in plan.names
                    and not self.changes(pinned.pin, waiting.question)
                ]
                if len(names) == 1:
                    known[node.key] = known.pop(names[0])  # type: ignore[assignment]
                    if known is self.asked and names[0] in self.responses:
                        self.responses[node.key] = self.responses.pop(names[0])
                    found = True
        return found

    def revise(self, stale: str) -> None:
        """Forget an answer after a review has changed another answer on which it depended."""
        self.revised.add(stale)
        self.entries.pop(stale, None)
        self.asked.pop(stale, None)
        self.responses.pop(stale, None)

    def reason_to_ask(self, names: tuple[str, ...], question: Question) -> tuple[Reason, tuple[str, ...], str | None]:
        """For a question that the last round did not ask, return the reason to ask it, the parts that changed, and its
        former name.
        """
        if any(name in self.revised for name in names):
            return Reason.REVISED, (), None
        entry = next((self.entries[name] for name in names if name in self.entries), None)
        if entry is not None:
            changed = self.changes(entry.pin, question)
            if changed:
                return wording_reason(changed), changed, None
            # The answer was valid for the same form earlier, but is no longer valid.
            return (Reason.OTHER_BUILD if self.other_build else Reason.INVALID), (), None
        if not self.other_build:
            return Reason.NEW, (), None
        known: dict[str, Entry | Asked] = {**self.asked, **self.entries}
        for name, pinned in known.items():
            if name not in self.plan.names and name not in self.seen and not self.changes(pinned.pin, question):
                return Reason.RENAMED, (), name
        return (Reason.OTHER_BUILD if self._was_in_reach(names[0]) else Reason.NEW), (), None

    def _was_in_reach(self, key: str) -> bool:
        """Return True if another plan asked the last round, and a resolver's question needs no answer from
        that round.
        """
        index = self.plan.names.get(key)
        if index is None or not self.other_plan:
            return False
        out = (self.plan.names[name] for name in self.asked if name in self.plan.names)
        return not any(index in self.plan.downstream(place) for place in out)

    def entries_to_write(self) -> dict[str, Entry]:
        """Return the entries and this round's unread responses, each with the pin of the wording that it answers.

        A response may be unread because its question belongs to another build, has another wording in this build, or
        depends on a question that is asked again. On a later leg, the response counts like any other entry, so users
        answer only once.

        Responses to remembered nodes are left out, because a remembered node's entry is never checked again. The
        wording must be checked before such a response becomes an entry.
        """
        entries = dict(self.entries)
        kept = {name for node in self.plan.nodes if node.remember for name in node.names}
        for key, response in self.responses.items():
            if response is None or key in kept:
                continue
            wire = response.model_dump(mode="json", by_alias=True, exclude_none=True)
            data = wire.get("content") if "action" in wire else wire
            pin = self.asked[key].pin
            if isinstance(response, ElicitResult) is is_by_software(pin):
                # The response answers another kind of question. If it were kept, it could be mistaken for consent.
                continue
            entries[key] = Entry(ACTIONS.get(wire.get("action", ""), Action.ACCEPT), pin, data)
        return entries

    def foreign_asked(self) -> dict[str, Asked]:
        """Return another build's questions whose answers this build passes on unread.

        The journal lists them as asked, so that the other build checks their wording before its remembered nodes use
        the answers.
        """
        return {
            key: asked
            for key, asked in self.asked.items()
            if (key in self.entries or key in self.responses) and key not in self.plan.names and key not in self.seen
        }


def wording_reason(changed: tuple[str, ...]) -> Reason:
    """Return the reason to ask again after a wording has changed."""
    if changed == KEY_GONE:
        return Reason.KEY_GONE
    return Reason.SCHEMA_CHANGED if "schema" in changed else Reason.REWORDED
