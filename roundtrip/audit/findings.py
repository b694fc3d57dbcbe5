"""An audit's observations, and the verdict on each clause."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from roundtrip.audit.clauses import CLAUSES, AuditClause, ClauseLevel

_MAX_TEXTS = 6


class ClauseVerdict(Enum):
    """Verdict on a clause."""

    FAILED = "failed"
    FACT = "fact"
    PASSED = "passed"
    UNTRIED = "could not be tried"


@dataclass(frozen=True, slots=True)
class ClauseFinding:
    """Verdict on a clause, either for one tool or for the whole server."""

    clause: AuditClause
    tool: str | None
    """The tool; None for the whole server."""
    verdict: ClauseVerdict
    attempts: int
    """How many times the clause was tried."""
    texts: tuple[str, ...]
    """The evidence, the observed behavior, or the reason that the clause could not be tried."""

    def counts(self, level: ClauseLevel) -> bool:
        """Return True if the clause failed and its level is the given level or a stricter one."""
        levels = list(ClauseLevel)
        return self.verdict is ClauseVerdict.FAILED and levels.index(self.clause.level) <= levels.index(level)


@dataclass(slots=True)
class _Attempts:
    attempts: int = 0
    failures: list[str] = field(default_factory=list[str])
    facts: list[str] = field(default_factory=list[str])
    reasons: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class ToolNotes:
    """Observations about one tool, or about the whole server."""

    tried: dict[str, _Attempts] = field(default_factory=dict[str, _Attempts])
    """The attempts to break each clause, by clause ID."""
    limit: str = ""
    """Why the remaining clauses could not be tried. Only the first reason is kept."""

    def passed(self, clause: str) -> None:
        """Record an attempt in which the server kept the clause."""
        self._of(clause).attempts += 1

    def failed(self, clause: str, text: str) -> None:
        """Record an attempt in which the server broke the clause."""
        tried = self._of(clause)
        tried.attempts += 1
        _add(tried.failures, text)

    def fact(self, clause: str, text: str) -> None:
        """Record how the server behaves where the clause allows several behaviors."""
        tried = self._of(clause)
        tried.attempts += 1
        _add(tried.facts, text)

    def untried(self, clause: str, reason: str) -> None:
        """Record why the clause could not be tried. This reason is not reported if the audit tried the clause in
        another way.
        """
        _add(self._of(clause).reasons, reason)

    def require(self, holds: bool, clause: str, text: str) -> None:
        """Record an attempt. `holds` is True if the server complied with the clause."""
        if holds:
            self.passed(clause)
        else:
            self.failed(clause, text)

    def has_failed(self, clause: str) -> bool:
        """Return True if the server broke the clause in any attempt."""
        return bool(self._of(clause).failures)

    def give_up(self, reason: str) -> None:
        """Record why the remaining clauses cannot be tried."""
        self.limit = self.limit or reason

    def withdraw(self, clause: str, reason: str) -> None:
        """Drop the attempts in which the server kept a clause. `reason` says why they prove nothing."""
        tried = self._of(clause)
        if tried.attempts and not tried.failures and not tried.facts:
            tried.attempts = 0
            _add(tried.reasons, reason)

    def _of(self, clause: str) -> _Attempts:
        return self.tried.setdefault(CLAUSES[clause].id, _Attempts())


AuditNotes = defaultdict[str | None, ToolNotes]
"""An audit's observations by tool. The key None stands for the whole server."""


def findings_in(notes: AuditNotes) -> Iterator[ClauseFinding]:
    """Yield the findings in clause order, at least one per clause."""
    limits = [tool_notes.limit for tool_notes in notes.values() if tool_notes.limit]
    for clause in CLAUSES.values():
        tried = {tool: each.tried[clause.id] for tool, each in notes.items() if clause.id in each.tried}
        if not any(attempts.attempts or attempts.reasons for attempts in tried.values()):
            tried = {None: _Attempts(reasons=list(dict.fromkeys(limits)) or [clause.untried])}
        yield from (_finding(clause, tool, attempts) for tool, attempts in tried.items())


def _add(texts: list[str], text: str) -> None:
    if text not in texts and len(texts) < _MAX_TEXTS:
        texts.append(text)


def _finding(clause: AuditClause, tool: str | None, tried: _Attempts) -> ClauseFinding:
    if tried.failures:
        return ClauseFinding(clause, tool, ClauseVerdict.FAILED, tried.attempts, tuple(tried.failures))
    if tried.facts:
        return ClauseFinding(clause, tool, ClauseVerdict.FACT, tried.attempts, tuple(tried.facts))
    if tried.attempts:
        return ClauseFinding(clause, tool, ClauseVerdict.PASSED, tried.attempts, ())
    reasons = tuple(tried.reasons) or (clause.untried,)
    return ClauseFinding(clause, tool, ClauseVerdict.UNTRIED, 0, reasons)


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Audit result."""

    server: str
    """The name and version that the server reports."""
    target: str
    tools: Sequence[str]
    findings: Sequence[ClauseFinding]
    requests: int
    seconds: float
    begun: Mapping[str, int]
    """The number of calls that the audit started, by tool."""
    ended: Mapping[str, int]
    """The number of calls that returned a result, by tool."""

    def failures(self, level: ClauseLevel) -> list[ClauseFinding]:
        """Return the failures whose level is the given level or a stricter one."""
        return [finding for finding in self.findings if finding.counts(level)]
