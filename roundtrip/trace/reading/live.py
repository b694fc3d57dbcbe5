"""The calls of transcripts that are still being written: what was appended is read, and joined to what is known."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from roundtrip.trace.reading.calls import TracedCall, join
from roundtrip.trace.reading.following import Follower
from roundtrip.trace.reading.transcripts import files_of
from roundtrip.trace.writing.lines import Line

__all__ = ["LiveCalls"]


@dataclass(slots=True)
class _Growing:
    """The lines of one call, joined when they are looked at."""

    lines: list[Line] = field(default_factory=list[Line])
    joined: TracedCall | None = None


class LiveCalls:
    """The calls of some transcripts, and directories of them, as far as they have been written.

    Args:
        names: Directories may be empty yet.

    Raises:
        NoTranscript: One of the files does not exist.
    """

    def __init__(self, names: Sequence[str | Path]) -> None:
        for name in names:
            if not Path(name).is_dir():
                files_of([name])
        self._follower = Follower(names)
        self._calls: dict[str, _Growing] = {}
        self.version = 0
        """It grows with every line that is read."""

    def refresh(self) -> None:
        """Read what was written since the last time."""
        for line in self._follower.poll():
            if line.call is not None:
                growing = self._calls.setdefault(line.call, _Growing())
                growing.lines.append(line)
                growing.joined = None
                self.version += 1

    def close(self) -> None:
        """Let go of all files."""
        self._follower.close()

    def find(self, id: str) -> tuple[TracedCall, int] | None:
        """A call by its whole name, with a number that grows with every line of it."""
        growing = self._calls.get(id)
        return None if growing is None else (_joined(id, growing), len(growing.lines))

    def newest_first(self) -> list[TracedCall]:
        """All calls, the one that began last first."""
        calls = [_joined(id, growing) for id, growing in self._calls.items()]
        return sorted(calls, key=lambda call: call.started_at, reverse=True)


def _joined(id: str, growing: _Growing) -> TracedCall:
    if growing.joined is None:
        growing.joined = join(growing.lines).calls[id]
    return growing.joined
