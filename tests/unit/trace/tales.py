"""Build calls line by line, as a recorder could have written them."""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.reading.joining import join
from roundtrip.trace.writing.lines import LINE, Line

__all__ = ["HOSTILE", "Tale", "long_call", "question", "write_tales"]

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)><!-- \u2028\u2029 &lt;b&gt; ${1} `\\ "
    "\x1b[31m \u202e \x00 javascript:alert(3) ]]> {{7*7}} \" '"
)
"""A text with the special characters of all output formats."""

_START = 1_790_000_000.0


class Tale:
    """Lines of one call. Each method adds a line, a second after the one before."""

    def __init__(self, call: str = "Abc123-_xyz0", *, tool: str = "order", era: str = "retry") -> None:
        self.lines: list[Line] = []
        self._call, self._tool, self._era = call, tool, era
        self._seconds = itertools.count()
        self._servings = itertools.count(1)
        self._serving: dict[str, Any] = {}
        self._round = 0

    def _add(self, event: str, **line: Any) -> "Tale":
        head = {"v": 1, "event": event, "at": _START + next(self._seconds)}
        self.lines.append(LINE.validate_python({**head, **line}))
        return self

    def began(self, leg: int, instance: str = "ash", **line: Any) -> "Tale":
        self._serving = {"instance": instance, "serving": next(self._servings), "call": self._call, "leg": leg}
        told: dict[str, Any] = {
            "method": "tools/call",
            "tool": self._tool,
            "era": self._era,
            "build": "b1",
            "plan": "p1",
        }
        if leg > 1:
            told["token_bytes"] = 300
        return self._add("began", **{**self._serving, "round": self._round, **told, **line})

    def asked(self, *questions: dict[str, Any], **line: Any) -> "Tale":
        self._round += 1
        told: dict[str, Any] = {"by": "resolvers", "questions": questions, "ms": 2.5}
        told["moves"] = [*self._way(), ("ask", "awaiting_input", 2)]
        return self._add("asked", **{**self._serving, "round": self._round, **told, **line})

    def answered(self, *keys: str, **line: Any) -> "Tale":
        told: dict[str, Any] = {"keys": keys, "waited": 1000, "ms": 1002.5, "moves": [("resume", "resumed", 1002)]}
        return self._add("answered", **{**self._serving, "round": self._round, **told, **line})

    def ended(self, state: str = "completed", **line: Any) -> "Tale":
        told: dict[str, Any] = {"state": state, "ms": 3}
        told["moves"] = [*self._way(), ("execute", "executing", 1), ("finish", "completed", 2)]
        return self._add("ended", **{**self._serving, "round": self._round, **told, **line})

    def rejected(self, reason: str = "expired", instance: str = "birch", **line: Any) -> "Tale":
        told = {"method": "tools/call", "tool": self._tool, "call": self._call, "leg": self._serving.get("leg", 0) + 1}
        told |= {"instance": instance, "serving": next(self._servings), "reason": reason}
        return self._add("rejected", **{**told, **line})

    def _way(self) -> list[tuple[str, str, float]]:
        if self._serving["leg"] == 1:
            return [("begin", "resolving", 0.1)]
        return [("resume", "resumed", 0.1), ("resolve", "resolving", 0.2)]

    def call(self) -> TracedCall:
        (call,) = join(self.lines).calls.values()
        return call

    def write(self) -> str:
        return "".join(f"{line.model_dump_json(exclude_unset=True)}\n" for line in self.lines)


def write_tales(path: Path, *tales: Tale) -> None:
    path.write_text("".join(tale.write() for tale in tales), encoding="utf-8")


def question(key: str, reason: str = "new", **more: Any) -> dict[str, Any]:
    return {"key": key, "kind": "form", "reason": reason, **more}


def long_call(legs: int) -> Tale:
    """Return a call of many legs; each asks a new question and reuses all earlier answers."""
    tale = Tale("long")
    keys: list[str] = []
    for leg in range(1, legs + 1):
        tale.began(leg, f"instance-{leg % 3}")
        answers: Iterable[dict[str, Any]] = [{"key": keys[-1], "action": "accept", "how": "taken"}] if keys else []
        reused: Sequence[str] = keys[:-1]
        if leg == legs:
            tale.ended(answers=answers, reused=reused)
            break
        keys.append(f"question-{leg}")
        shown = question(keys[-1], message={"value": f"How about number {leg}?"}, form={"value": {"type": "object"}})
        tale.asked(shown, answers=answers, reused=reused, token={"bytes": 200 + leg, "added": [f"answer:{keys[-1]}"]})
    return tale
