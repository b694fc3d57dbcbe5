"""Exploration reports: the paths, a table of the paths, and the state-machine edges that the paths cover."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from roundtrip.client.legs import Era
from roundtrip.machine.table import CALL_MACHINE, CallArrow, Event, State
from roundtrip.testing.conversations import AskedQuestion, Conversation
from roundtrip.text import printable
from roundtrip.trace.explaining.wording import count_text

_TABLE_CHARS: Final = 120
_QUESTIONS_CHARS: Final = 74
_NAME_CHARS: Final = range(40, 7, -1)
"""Lengths to which question names may be cut, from the longest to the shortest."""
_MIN_TEXT_CHARS: Final = 24
_MAX_CYCLE_STATES: Final = 8


class PathAction(StrEnum):
    """A valid or invalid reply to one question on a path."""

    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"
    INVALID = "invalid"
    """Accept a form, but with content that it rejects."""
    MISSING = "missing"
    """Send the request again without an answer."""


class PathOutcome(StrEnum):
    """The way in which a path ended."""

    COMPLETED = "completed"
    DECLINED = "declined"
    """The user declined a question, and the tool does not handle this."""
    FAILED = "failed"
    """The tool raised an error deliberately."""
    REJECTED = "rejected"
    ERROR = "error"
    """A protocol error."""
    CRASHED = "crashed"
    """An unexpected exception, or an internal error."""
    BREACH = "breach"
    """The server broke a rule on a hostile network."""
    UNFINISHED = "unfinished"
    """The call was still asking questions, or still running, when the path was stopped."""


_ENDS_WITHOUT_RESULT: Final = frozenset((PathOutcome.FAILED, PathOutcome.ERROR, PathOutcome.REJECTED))


@dataclass(frozen=True, slots=True)
class Path:
    """One call from its start to its end."""

    choices: tuple[tuple[str, PathAction], ...]
    """The name of each question, with the action that the user chose. A question without a name is listed by its
    message.
    """
    outcome: PathOutcome
    text: str
    """The text of the result or error."""
    states: tuple[State, ...] | None
    """The call's states; None if the server does not report them."""
    questions: tuple[AskedQuestion, ...]
    conversation: Conversation | None = None
    """The call, if it ended with a result."""
    error: BaseException | None = None
    """The server's exception, if the server reports it; otherwise the error that the client received."""

    @property
    def value(self) -> Any:
        """Return the tool's return value; None if the path has no result."""
        return None if self.conversation is None else self.conversation.value

    def __str__(self) -> str:
        return ", ".join(_choice_texts(self)) or "no questions"


@dataclass(frozen=True, slots=True)
class Coverage:
    """The state-machine edges that the paths took, and the edges that no path took."""

    gone: tuple[CallArrow, ...]
    """The edges that at least one path took."""
    not_gone: tuple[CallArrow, ...]
    """The edges that no path took."""

    @classmethod
    def of(cls, gone: Iterable[CallArrow]) -> "Coverage":
        """Split all edges into those that are in `gone` and those that are not."""
        taken, edges = set(gone), CALL_MACHINE.arrows
        return cls(tuple(one for one in edges if one in taken), tuple(one for one in edges if one not in taken))

    def __str__(self) -> str:
        lines = [f"state-machine edges: {len(self.gone)} of {len(CALL_MACHINE.arrows)} covered"]
        if self.not_gone:
            lines.append("not covered:")
        for event in Event:
            edges = [f"{arrow.source} > {arrow.target}" for arrow in self.not_gone if arrow.event is event]
            if edges:
                lines += _wrap(event, ", ".join(edges), len(Event.EXECUTE))
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Explored:
    """The paths that were played through a tool's questions, sorted by their choices."""

    name: str
    """The name of the tool, prompt or resource."""
    era: Era
    depth: int
    limit: int
    paths: tuple[Path, ...]
    left_out: int
    """The number of known paths that the limit left out. Each of these paths may branch further."""
    strayed: int
    """The number of paths on which the server asked a different question than on the parent path, despite equal
    answers.
    """
    coverage: Coverage | None
    """The edge coverage; None if the server is not a roundtrip server in this process."""

    @property
    def outcomes(self) -> Counter[PathOutcome]:
        """Return the number of paths per outcome."""
        return Counter(path.outcome for path in self.paths)

    @property
    def crashed(self) -> tuple[Path, ...]:
        """Return the paths that ended in an unexpected exception, an internal error, or a breach."""
        return tuple(path for path in self.paths if path.outcome in (PathOutcome.CRASHED, PathOutcome.BREACH))

    @property
    def deeper(self) -> int:
        """Return the number of paths that had more questions than `depth`. The user accepted all questions beyond that
        number.
        """
        return sum(len(path.choices) > self.depth for path in self.paths)

    def assert_no_crash(self) -> None:
        """Raise if a path crashed or did not end, or if every path failed before its first question.

        Raises:
            AssertionError: A path crashed or did not end, or every path failed before its first question.
        """
        if self.paths and all(path.outcome in _ENDS_WITHOUT_RESULT and not path.questions for path in self.paths):
            raise AssertionError(
                f"every path of {self.name!r} failed before its first question: {printable(self.paths[0].text)}"
            )
        crashed = [*self.crashed, *(path for path in self.paths if path.outcome is PathOutcome.UNFINISHED)]
        if crashed:
            lines = [
                f"{len(crashed)} of {count_text(len(self.paths), 'path')} of {self.name!r} crashed or did not end:"
            ]
            lines += [f"  {path}\n    {printable(path.text)}" for path in crashed]
            raise AssertionError("\n".join(lines)) from crashed[0].error

    def table(self) -> str:
        """Return one line per path, followed by the state sequences."""
        sequences = list(dict.fromkeys(path.states for path in self.paths if path.states is not None))
        rows = [("#", "questions", "outcome", *(("states",) if sequences else ()), "text")]
        for number, (path, questions) in enumerate(zip(self.paths, self._questions(), strict=True), 1):
            sequence = () if not sequences else ("" if path.states is None else f"s{sequences.index(path.states) + 1}",)
            # The SDK puts this text before every failure message.
            text = path.text.removeprefix(f"Error executing tool {self.name}: ")
            rows.append((str(number), questions, path.outcome, *sequence, text))
        lines = _align(rows)
        if sequences:
            lines += ["", "states"]
            label = len(f"s{len(sequences)}")
            for number, sequence in enumerate(sequences, 1):
                lines += _wrap(f"s{number}", _fold(sequence), label)
        return "\n".join(lines)

    def _questions(self) -> list[str]:
        columns: list[str] = []
        for longest in _NAME_CHARS:
            columns = _align_columns([_choice_texts(path, self.depth, longest) for path in self.paths], "   ")
            if max(map(len, columns)) <= _QUESTIONS_CHARS:
                break
        return columns

    def __str__(self) -> str:
        counts = self.outcomes
        counted = ", ".join(f"{counts[outcome]} {outcome}" for outcome in PathOutcome if outcome in counts)
        lines = [
            f"{count_text(len(self.paths), 'path')} of {printable(self.name)!r}, {self.era.name.lower()} era, "
            f"branching at the first {count_text(self.depth, 'question')}: {counted}"
        ]
        lines += [*self._omission_lines(), "", self.table(), ""]
        if self.coverage is None:
            lines.append("states and edges: not reported by this server, so its crashes may look like failures")
        else:
            lines.append(str(self.coverage))
        return "\n".join(lines)

    def _omission_lines(self) -> list[str]:
        lines: list[str] = []
        if self.left_out:
            count = count_text(self.left_out, "path")
            lines.append(f"left out: {count} or more, because limit={self.limit} was reached")
        if self.deeper:
            accepting = count_text(self.deeper, "path")
            lines.append(f"left out: other answers beyond depth={self.depth}; there, {accepting} only accepted")
        if self.strayed:
            lines.append(f"after the same answers, {count_text(self.strayed, 'path')} got different questions")
        return lines


def _choice_texts(path: Path, depth: int | None = None, longest: int = _NAME_CHARS[0]) -> list[str]:
    texts = [f"{_cut(printable(name), longest)} {action}" for name, action in path.choices[:depth]]
    beyond = len(path.choices) - len(texts)
    return [*texts, f"and {beyond} more"] if beyond else texts


def _align_columns(rows: Sequence[Sequence[str]], gap: str) -> list[str]:
    widths = [max(len(row[index]) for row in rows if index < len(row)) for index in range(max(map(len, rows)))]
    return [gap.join(part.ljust(width) for part, width in zip(row, widths, strict=False)).rstrip() for row in rows]


def _align(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Align all columns, and cut the last column to the table's width."""
    heads = _align_columns([row[:-1] for row in rows], "  ")
    width = max(map(len, heads))
    room = max(_TABLE_CHARS - width - 2, _MIN_TEXT_CHARS)
    texts = [_cut(printable(row[-1]), room) for row in rows]
    return [f"{head.ljust(width)}  {text}".rstrip() for head, text in zip(heads, texts, strict=True)]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _wrap(label: str, text: str, width: int) -> list[str]:
    first, others = f"  {label.ljust(width)}  ", " " * (width + 4)
    return textwrap.wrap(text, _TABLE_CHARS, initial_indent=first, subsequent_indent=others)


def _fold(states: Sequence[State]) -> str:
    """Join states on one line. Write a repeated cycle only once."""
    parts: list[str] = []
    index = 0
    while index < len(states):
        size, times = max(
            ((size, _count_repeats(states[index:], size)) for size in range(1, _MAX_CYCLE_STATES + 1)),
            key=lambda cycle: (cycle[0] * cycle[1] if cycle[1] > 1 else 1, -cycle[0]),
        )
        if times > 1:
            parts.append(f"({' > '.join(states[index : index + size])}) x{times}")
            index += size * times
        else:
            parts.append(states[index])
            index += 1
    return " > ".join(parts)


def _count_repeats(states: Sequence[State], size: int) -> int:
    """Count how many times the first `size` states are repeated in a row."""
    times = 1
    while states[:size] == states[times * size : (times + 1) * size]:
        times += 1
    return times
