"""The promises that every simulated history must keep."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, Final

from roundtrip.ledger.entry import LedgerEntry
from roundtrip.ledger.machines import TASK_MACHINE, StoredState
from roundtrip.ledger.tasks import CallEntry
from roundtrip.machine.call import Transition
from roundtrip.machine.facts import Watch
from roundtrip.machine.journal import Journal
from roundtrip.machine.table import CALL_MACHINE
from roundtrip.tracing import Beginning, TokenRejection, Wrote
from tests.simulation.clients import ONCE, Client
from tests.simulation.fleet import Json
from tests.simulation.loop import Process
from tests.simulation.shop import Diary, error_of

__all__ = ["Judge"]


_CALL_TARGETS: Final = dict(CALL_MACHINE.targets)
_FINAL: Final = TASK_MACHINE.final
_FAILING: Final = ONCE | {"report"}
"""The tools whose bodies fail for some answers."""
_READABLE: Final = re.compile(r"order\d")
"""The name of an order, which is in all arguments, answers, results and steps."""
_WITHOUT_RESULT: Final = ("unknown", "timed out")
_ANSWERED_OTHERWISE: Final = "ended with other answers"
_ASKED_AGAIN: Final = "asked again"
_BY_WORKERS: Final = (StoredState.COMPLETED, StoredState.ASKING, StoredState.WAITING)
"""The states that a task which runs gets from its worker alone."""


def _reachable() -> dict[StoredState, set[StoredState]]:
    """Return the states that a write can reach from each: time passes, and then one event happens."""
    once = {
        state: {target for (source, _), target in TASK_MACHINE.targets.items() if source is state}
        for state in StoredState
    }
    return {state: once[state].union(*(once[other] for other in once[state])) for state in StoredState}


_REACHABLE: Final = _reachable()


class Judge:
    """Watches a fleet as its tracer, and notes each promise that it breaks."""

    def __init__(self, diary: Diary) -> None:
        self._diary = diary
        self.broken: list[str] = []
        self.transitions = 0
        self.troubled: Collection[str] = ()
        """The calls whose process has died, stood still or was asked to end, or whose messages the store has lost."""
        self._calls: dict[str, set[str]] = defaultdict(set[str])
        """The ids of the calls of each order."""
        self.open_note: Callable[[str, str], tuple[str, str]] = lambda call_id, note: ("", "")
        """Returns the key and the value of a stored step."""
        self._steps: dict[tuple[str, str], str] = {}
        """The results of steps that the store has, by their call and key."""
        self._claimed: dict[tuple[str, int], Process] = {}
        """The processes that claimed tasks, by their calls and epochs."""

    def begin(self, beginning: Beginning) -> Watch:
        """Return the watch of one leg."""
        self._calls[beginning.arguments["order"]].add(beginning.call_id)
        brought = _facts_of(beginning.journal)

        def note(fact: Any) -> None:
            if isinstance(fact, Transition):
                self.transitions += 1
                if _CALL_TARGETS.get((fact.source, fact.event)) is not fact.target:
                    self.broken.append(f"the table has no {fact}")
            elif isinstance(fact, Wrote):
                lost = brought - _facts_of(fact.journal)
                if lost:
                    self.broken.append(f"a leg of {beginning.tool} forgot {sorted(lost)}")

        return note

    def reject(self, rejection: TokenRejection) -> None:
        """Ignore it: clients try tokens that are not theirs."""

    def kept(self, entry: LedgerEntry | CallEntry) -> None:
        """Check that readers of the store learn nothing of a call's content."""
        # No store of a fleet keeps the account of a task.
        stored = repr(replace(entry, account=None))
        if found := _READABLE.search(stored):
            self.broken.append(f"the store has readable text: ...{stored[max(0, found.start() - 60) : found.end()]}")

    def wrote(self, before: CallEntry | None, after: CallEntry, writer: Process) -> None:
        """Check a write to the store."""
        if before is None:
            return
        name, call_id = f"a task of {after.tool}", after.call_id
        if after.version != before.version + 1:
            self.broken.append(f"{name} went from version {before.version} to {after.version}")
        if after.epoch < before.epoch:
            self.broken.append(f"{name} went back to epoch {after.epoch}")
        if after.state is not before.state and after.state not in _REACHABLE[before.state]:
            self.broken.append(f"{name} went from {before.state} to {after.state}")
        if before.state in _FINAL:
            self.broken.append(f"{name} was written after its end")
        if after.epoch > before.epoch:
            self._claimed[call_id, after.epoch] = writer
        elif before.state is StoredState.RUNNING and after.state in _BY_WORKERS:
            self._require_claimed(call_id, after.epoch, writer, f"{name} became {after.state}")
        # An ended task keeps only the names of its last steps.
        for note in () if after.has_ended else after.new_notes:
            key, value = self.open_note(call_id, note)
            self._require_claimed(call_id, after.epoch, writer, f"{name} got a step")
            if self._steps.setdefault((call_id, key), value) != value:
                self.broken.append(f"{name}: step {key!r} was stored twice, with different results")

    def _require_claimed(self, call_id: str, epoch: int, writer: Process, what: str) -> None:
        if self._claimed[call_id, epoch] is not writer:
            self.broken.append(f"{what}, by a process that has not claimed it")

    def judge(self, client: Client) -> None:
        """Judge a call after its end."""
        self.broken += client.broken
        judged = f"{client.tool} of {client.order}"
        if not client.ends:
            self.broken.append(f"{judged} was lost")
            return
        ends = [_end_of(end) for end in client.ends]
        is_troubled = any(call_id in self.troubled for call_id in self._calls[client.order])
        is_cut_short = is_troubled or bool(self._diary.of(client.order, "timeout"))
        if client.tool in ("pay", "ship") and is_cut_short:
            # The ledger may have been out of reach of the one process that knew the result, until that died. And the
            # outcome of a body that timed out is unknown to all copies of its request but one.
            # A body that was silent for too long may yet ask.
            dropped = (*_WITHOUT_RESULT, _ASKED_AGAIN) if ends[0] == "unknown" else _WITHOUT_RESULT
            ends = [end for end in ends if end not in dropped] or ends[:1]
        if len(set(ends)) != 1:
            self.broken.append(f"{judged} ended differently: {ends}")
        end = ends[0]
        bodies = len(self._diary.of(client.order, "body"))
        if client.tool in ONCE and bodies > 1:
            self.broken.append(f"{judged}: the body ran {bodies} times")
        if self._diary.of(client.order, "label done")[1:] and not (is_troubled or client.has_wavered):
            self.broken.append(f"{judged}: a leg that came again ran its step again")
        self._judge_others(client, ends, judged, is_troubled=is_troubled)
        if end in _WITHOUT_RESULT:
            # A process may die after it has noted that the body begins, and before it begins.
            if client.tool not in ONCE or not is_cut_short:
                self.broken.append(f"{judged}: {end}, and nothing went wrong")
        elif end.startswith("failed: "):
            if client.tool not in _FAILING or end != f"failed: {error_of(client.order, client.answers['seats'])}":
                self.broken.append(f"{judged}: {end}")
        elif end == "declined":
            if not client.declines or bodies:
                self.broken.append(f"{judged}: declined, with {bodies} bodies")
        elif end == "cancelled":
            if not client.has_asked_to_cancel:
                self.broken.append(f"{judged}: cancelled by no client")
        elif end.startswith(f"{client.order} "):
            self._judge_text(client, end.split(" ")[1:], judged)
        elif end != _ANSWERED_OTHERWISE:
            self.broken.append(f"{judged} ended with {end}")

    def _judge_others(self, client: Client, ends: list[str], judged: str, *, is_troubled: bool) -> None:
        """Judge what came of other answers to the questions of a leg: one set of answers has a result."""
        has_result = any(_is_result(client, end) for end in ends)
        results = [end for end in map(_end_of, client.other_ends) if _is_result(client, end)]
        if results and has_result:
            self.broken.append(f"{judged}: two sets of answers got results, {ends[0]} and {results[0]}")
        if ends[0] == _ANSWERED_OTHERWISE and not results:
            self.broken.append(f"{judged}: ended by other answers, which got no result")
        if client.late_end is None or not has_result:
            return
        late = _end_of(client.late_end)
        if late != _ANSWERED_OTHERWISE and not (late == "unknown" and is_troubled):
            self.broken.append(f"{judged}: other answers got {late} after its end")

    def _judge_text(self, client: Client, words: list[str], judged: str) -> None:
        answers = client.answers
        given = {
            "book": ["seats", "where", "row", "sure"],
            "pay": ["seats"],
            "ship": ["seats", "sure"],
            "report": ["seats", "where", "row"],
            "transfer": ["seats"],
            "collect": ["seats"],
        }[client.tool]
        expected = [str(answers[name]) for name in given]
        if words[: len(expected)] != expected:
            self.broken.append(f"{judged}: {words} does not begin with {expected}")
        if client.tool in _FAILING and error_of(client.order, answers["seats"]):
            self.broken.append(f"{judged}: it had to fail, and got a result")
        if client.declines and client.tool != "collect":
            self.broken.append(f"{judged}: it was declined, and went on")
        if client.tool in ("book", "ship"):
            computed = words[len(expected) : -1] if client.tool == "ship" else words[len(expected) :]
            shown = [message for message in client.asked if "which row" in message or "sure" in message]
            if not all(any(value in message for value in computed) for message in shown):
                self.broken.append(f"{judged}: {computed} was not shown in {shown}")


def _facts_of(journal: Journal | None) -> set[str]:
    """Return what a journal remembers, so that two can be compared."""
    if journal is None:
        return set()
    return {f"{key}={value.value!r}" for key, value in journal.computed.items()} | {
        f"answer {key}" for key in journal.entries
    }


def _is_result(client: Client, end: str) -> bool:
    """Return True for an end that came from a body."""
    return end.startswith((f"{client.order} ", "failed: "))


def _end_of(end: Json) -> str:
    """Return how a call ended, as one text."""
    if end.get("status") == "cancelled":
        return "cancelled"
    result = end.get("result", {})
    if "inputRequests" in result:
        return _ASKED_AGAIN
    if "content" in result:
        text = result["content"][0]["text"]
        if not result.get("isError"):
            return text
    else:
        text = str(end.get("error", end))
    if "outcome" in text and "unknown" in text:
        return "unknown"
    if "elicitation was" in text or "The user declined" in text or "The user cancelled" in text:
        return "declined"
    if "ended already, with other answers" in text:
        return _ANSWERED_OTHERWISE
    if "timed out" in text:
        return "timed out"
    if result.get("isError"):
        return f"failed: {text.partition(': ')[2]}"
    return f"{text} ({json.dumps(end)[:300]})"
