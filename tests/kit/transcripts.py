"""Transcript lines for tests, with defaults for all other fields."""

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, cast

from roundtrip.cli.trace.showing import show
from roundtrip.cli.trace.terminal import Screen
from roundtrip.errors import RejectionReason
from roundtrip.machine.facts import Reason
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.reading.joining import join
from roundtrip.trace.writing.lines import (
    LINE,
    ActedLine,
    AnsweredLine,
    AskedLine,
    BeganLine,
    EndedLine,
    HandedLine,
    Line,
    ReadAnswer,
    RejectedLine,
    ShownQuestion,
    StoppedLine,
)

__all__ = [
    "AT",
    "acted",
    "answer",
    "answered",
    "asked",
    "began",
    "call_of",
    "ended",
    "handed",
    "question",
    "rejected",
    "revealed",
    "show_call",
    "stopped",
    "write",
]

AT: Final = 1_795_000_000.0
"""The first line's time."""


def revealed(value: Any) -> dict[str, Any]:
    """Return a value as a recorder writes it with `reveal="all"`. Return a digest unchanged."""
    if isinstance(value, dict) and "digest" in value:
        return cast("dict[str, Any]", value)
    return {"value": value}


def question(key: str = "format", reason: Reason = Reason.NEW, **fields: Any) -> dict[str, Any]:
    for name in ("message", "form", "url", "complaint"):
        if name in fields:
            fields[name] = revealed(fields[name])
    return ShownQuestion.model_validate({"key": key, "kind": "form", "reason": reason, **fields}).model_dump()


def answer(key: str = "format", action: str | None = "accept", how: str = "taken", **fields: Any) -> dict[str, Any]:
    if "data" in fields:
        fields["data"] = revealed(fields["data"])
    return ReadAnswer.model_validate({"key": key, "action": action, "how": how, **fields}).model_dump()


def _line(event: str, at: float, fields: dict[str, Any]) -> Any:
    """Create a line. `at` counts from the first line, and each leg on an instance is one request."""
    head = {"v": 1, "event": event, "at": AT + at, "instance": "a", "serving": fields.get("leg") or 1}
    return LINE.validate_python({**head, **fields})


def _call_line(event: str, at: float, fields: dict[str, Any]) -> Any:
    return _line(event, at, {"call": "call-1", "leg": 1, "round": 0, **fields})


def began(at: float = 0.0, **fields: Any) -> BeganLine:
    head = {"method": "tools/call", "tool": "order", "era": "retry", "build": "1", "plan": "p"}
    return _call_line("began", at, {**head, **fields})


def asked(at: float = 1.0, *questions: dict[str, Any], **fields: Any) -> AskedLine:
    return _call_line(
        "asked", at, {"round": 1, "ms": 2.0, "by": "resolvers", "questions": questions or (question(),), **fields}
    )


def answered(at: float = 2.0, **fields: Any) -> AnsweredLine:
    return _call_line("answered", at, {"round": 1, "ms": 1002.0, "keys": ("format",), "waited": 1000.0, **fields})


def ended(at: float = 3.0, **fields: Any) -> EndedLine:
    return _call_line("ended", at, {"ms": 3.0, "state": "completed", **fields})


def handed(at: float = 3.0, **fields: Any) -> HandedLine:
    return _call_line("handed", at, {"ms": 3.0, **fields})


def rejected(at: float = 4.0, reason: RejectionReason = RejectionReason.EXPIRED, **fields: Any) -> RejectedLine:
    return _line("rejected", at, {"reason": reason, "method": "tools/call", "tool": "order", **fields})


def acted(at: float = 5.0, action: str = "cancel", **fields: Any) -> ActedLine:
    return _bare_line("acted", at, {"instance": "command", "action": action, "by": "ana", "outcome": "done", **fields})


def stopped(at: float = 5.0, how: str = "cancelled", **fields: Any) -> StoppedLine:
    return _bare_line("stopped", at, {"instance": "a", "how": how, **fields})


def _bare_line(event: str, at: float, fields: dict[str, Any]) -> Any:
    """Create a line that belongs to no request."""
    return LINE.validate_python({"v": 1, "event": event, "at": AT + at, "call": "call-1", "tool": "order", **fields})


def call_of(*lines: Line) -> TracedCall:
    """Return the only call in these lines."""
    (call,) = join(lines).calls.values()
    return call


def show_call(*lines: Line, now: float = AT + 310) -> str:
    """Return what `roundtrip trace show` prints for the only call in these lines."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    show(call_of(*lines), Screen(out), now=now)
    out.seek(0)
    return out.read()


def write(path: Path, lines: Iterable[Line | str]) -> Path:
    """Write lines to a transcript, and texts unchanged."""
    texts = [line if isinstance(line, str) else line.model_dump_json(exclude_unset=True) for line in lines]
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{text}\n" for text in texts)
    return path
