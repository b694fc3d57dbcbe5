"""What came of a tool's paths: one by one, as a table, and which edges of the machine they went along."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from roundtrip.client.legs import Era
from roundtrip.machine.table import CALL_MACHINE, CallArrow, Event, State
from roundtrip.safe_text import printable
from roundtrip.testing.conversations import AskedQuestion, Conversation

__all__ = ["Coverage", "Explored", "Path", "PathAction", "PathOutcome"]

_WIDTH: Final = 120
_ROOM_FOR_QUESTIONS: Final = 74
_NAMES: Final = range(40, 7, -1)
"""How long the names of questions may be, from what is best to what is still of use."""
_SHORTEST_TEXT: Final = 24
_LONGEST_CYCLE: Final = 8


class PathAction(StrEnum):
    """What a path does about a question: what the protocol knows, and what a client may get wrong."""

    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"
    INVALID = "invalid"
    """Accept, with content that the form refuses."""
    MISSING = "missing"
    """Say nothing, and send the request again."""


class PathOutcome(StrEnum):
    """How a path ended."""

    COMPLETED = "completed"
    DECLINED = "declined"
    """The user said no, and the tool did not want to know."""
    FAILED = "failed"
    """The result is an error that the tool foresaw."""
    REJECTED = "rejected"
    ERROR = "error"
    """An error of the protocol."""
    CRASHED = "crashed"
    """An exception that nobody foresaw, or an internal error."""
    BREACH = "breach"
    """The server did what it must not on a hostile network."""
    UNFINISHED = "unfinished"
    """It still asked, or still ran, when the path was broken off."""


_NOWHERE: Final = frozenset((PathOutcome.FAILED, PathOutcome.ERROR, PathOutcome.REJECTED))


@dataclass(frozen=True, slots=True)
class Path:
    """One call from its start to its end."""

    choices: tuple[tuple[str, PathAction], ...]
    """What was done about each question, by its name, or by its message where it has none."""
    outcome: PathOutcome
    text: str
    """The text of the result, or what the error says."""
    states: tuple[State, ...] | None
    """The states it went through; None where nobody tells."""
    questions: tuple[AskedQuestion, ...]
    conversation: Conversation | None = None
    """The call, if it came to a result."""
    error: BaseException | None = None
    """What ended it: the server's own exception where that is told, else the error that the client was given."""

    @property
    def value(self) -> Any:
        """What the tool returned; None if there is no result."""
        return None if self.conversation is None else self.conversation.value

    def __str__(self) -> str:
        return ", ".join(_chosen(self)) or "nothing asked"


@dataclass(frozen=True, slots=True)
class Coverage:
    """Which edges of the machine were gone along."""

    gone: tuple[CallArrow, ...]
    not_gone: tuple[CallArrow, ...]

    @classmethod
    def of(cls, gone: Iterable[CallArrow]) -> "Coverage":
        """What these leave."""
        taken = set(gone)
        return cls(
            tuple(arrow for arrow in CALL_MACHINE.arrows if arrow in taken),
            tuple(arrow for arrow in CALL_MACHINE.arrows if arrow not in taken),
        )

    def __str__(self) -> str:
        lines = [f"edges of the machine: {len(self.gone)} of {len(CALL_MACHINE.arrows)} gone along"]
        if self.not_gone:
            lines.append("not gone along:")
        for event in Event:
            edges = [f"{arrow.source} > {arrow.target}" for arrow in self.not_gone if arrow.event is event]
            if edges:
                lines += _wrapped(event, ", ".join(edges), len(Event.EXECUTE))
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Explored:
    """The paths of a tool that were gone, in the order of their choices, and what was left out."""

    name: str
    """Of the tool, the prompt or the resource."""
    era: Era
    depth: int
    limit: int
    paths: tuple[Path, ...]
    left_out: int
    """How many paths were known and not gone, as the limit was reached; each may have had further branches."""
    strayed: int
    """How many paths met another question than the path that they branch off, though they answered the same."""
    coverage: Coverage | None
    """None where nobody tells: the server is not roundtrip's, or in another process."""

    @property
    def outcomes(self) -> Counter[PathOutcome]:
        """How many paths ended how."""
        return Counter(path.outcome for path in self.paths)

    @property
    def crashed(self) -> tuple[Path, ...]:
        """The paths that ended in an exception that nobody foresaw, an internal error, or a breach."""
        return tuple(path for path in self.paths if path.outcome in (PathOutcome.CRASHED, PathOutcome.BREACH))

    @property
    def deeper(self) -> int:
        """How many paths had more questions than the depth; those beyond were accepted."""
        return sum(len(path.choices) > self.depth for path in self.paths)

    def assert_no_crash(self) -> None:
        """Fail with the paths that crashed or came to no end, and where no path got anywhere.

        Raises:
            AssertionError: There are some.
        """
        if self.paths and all(path.outcome in _NOWHERE and not path.questions for path in self.paths):
            raise AssertionError(f"{self.name!r} got nowhere on any path: {printable(self.paths[0].text)}")
        crashed = [*self.crashed, *(path for path in self.paths if path.outcome is PathOutcome.UNFINISHED)]
        if crashed:
            lines = [f"{len(crashed)} of {_number(len(self.paths))} of {self.name!r} crashed, or came to no end:"]
            lines += [f"  {path}\n    {printable(path.text)}" for path in crashed]
            raise AssertionError("\n".join(lines)) from crashed[0].error

    def table(self) -> str:
        """A line for each path, and under them the states that they went through."""
        ways = list(dict.fromkeys(path.states for path in self.paths if path.states is not None))
        rows = [("#", "questions", "outcome", *(("states",) if ways else ()), "text")]
        for number, (path, questions) in enumerate(zip(self.paths, self._questions(), strict=True), 1):
            way = () if not ways else ("" if path.states is None else f"s{ways.index(path.states) + 1}",)
            # What every failure begins with tells nothing apart.
            text = path.text.removeprefix(f"Error executing tool {self.name}: ")
            rows.append((str(number), questions, path.outcome, *way, text))
        lines = _aligned(rows)
        if ways:
            lines += ["", "states"]
            label = len(f"s{len(ways)}")
            for number, way in enumerate(ways, 1):
                lines += _wrapped(f"s{number}", _folded(way), label)
        return "\n".join(lines)

    def _questions(self) -> list[str]:
        columns: list[str] = []
        for longest in _NAMES:
            columns = _in_columns([_chosen(path, self.depth, longest) for path in self.paths])
            if max(map(len, columns)) <= _ROOM_FOR_QUESTIONS:
                break
        return columns

    def __str__(self) -> str:
        counted = ", ".join(f"{number} {outcome}" for outcome, number in sorted(self.outcomes.items(), key=_by_outcome))
        lines = [
            f"{_number(len(self.paths))} of {printable(self.name)!r}, {self.era.name.lower()} era, "
            f"branching at the first {_number(self.depth, 'question')}: {counted}"
        ]
        lines += self._omitted()
        lines += ["", self.table(), ""]
        if self.coverage is None:
            lines.append("states and edges of the machine: not told by this server; its crashes may look like failures")
        else:
            lines.append(str(self.coverage))
        return "\n".join(lines)

    def _omitted(self) -> list[str]:
        lines: list[str] = []
        if self.left_out:
            lines.append(f"left out: {_number(self.left_out)} or more, as limit={self.limit} was reached")
        if self.deeper:
            lines.append(
                f"left out: other answers beyond depth={self.depth}, where {_number(self.deeper)} only accepted"
            )
        if self.strayed:
            lines.append(f"{_number(self.strayed)} met other questions than before after the same answers")
        return lines


def _by_outcome(counted: tuple[PathOutcome, int]) -> int:
    return list(PathOutcome).index(counted[0])


def _number(number: int, noun: str = "path") -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _chosen(path: Path, depth: int | None = None, longest: int = _NAMES[0]) -> list[str]:
    told = [f"{_cut(printable(name), longest)} {action}" for name, action in path.choices[:depth]]
    beyond = len(path.choices) - len(told)
    return [*told, f"and {beyond} more"] if beyond else told


def _in_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows if place < len(row)) for place in range(max(map(len, rows)))]
    return ["   ".join(part.ljust(width) for part, width in zip(row, widths, strict=False)).rstrip() for row in rows]


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    *widths, _ = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = max(_WIDTH - sum(widths) - 2 * len(widths), _SHORTEST_TEXT)
    return [
        "  ".join(
            [*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), _cut(printable(row[-1]), room)]
        ).rstrip()
        for row in rows
    ]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _wrapped(label: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=f"  {label.ljust(width)}  ", subsequent_indent=" " * (width + 4))


def _folded(states: Sequence[State]) -> str:
    """States in a line, with what repeats written once."""
    parts: list[str] = []
    place = 0
    while place < len(states):
        size, times = max(
            ((size, _times(states[place:], size)) for size in range(1, _LONGEST_CYCLE + 1)),
            key=lambda cycle: (cycle[0] * cycle[1] if cycle[1] > 1 else 1, -cycle[0]),
        )
        if times > 1:
            parts.append(f"({' > '.join(states[place : place + size])}) x{times}")
            place += size * times
        else:
            parts.append(states[place])
            place += 1
    return " > ".join(parts)


def _times(states: Sequence[State], size: int) -> int:
    """How often the first so many follow each other."""
    times = 1
    while states[:size] == states[times * size : (times + 1) * size]:
        times += 1
    return times
