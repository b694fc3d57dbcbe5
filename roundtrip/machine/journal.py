"""The journal, which a call remembers between legs; `journal_bytes` has its binary form inside the token."""

import base64
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Literal, NamedTuple

UNNAMED: Final = "unnamed-"
"""Prefix for generated names, which questions without a name get."""

_SEALED_BLOCK_BYTES: Final = 64
"""Errors round the sizes of sealed values up to this."""


class Action(IntEnum):
    """A user's reaction to a question, numbered as the journal writes it."""

    ACCEPT = 0
    DECLINE = 1
    CANCEL = 2

    @property
    def word(self) -> Literal["accept", "decline", "cancel"]:
        """Return the protocol's word."""
        return _ACTION_WORDS[self]


_ACTION_WORDS: Final = ("accept", "decline", "cancel")

ACTIONS: Final = {"accept": Action.ACCEPT, "decline": Action.DECLINE, "cancel": Action.CANCEL}
"""Each action by its protocol word."""

OUTCOMES: Final = {"accept": "accepted", "decline": "declined", "cancel": "cancelled"}
"""Question outcomes as people read them, by the protocol words for the actions."""


class Entry(NamedTuple):
    """Client's answer, with the pin of the wording that the client saw (`roundtrip.machine.pins`).

    `data` is exactly the value that the client sent, so that restoring validates the same value again.
    """

    action: Action
    pin: bytes
    data: Any = None


class Asked(NamedTuple):
    """Open question: the pin of the wording that the client saw, and its counters.

    `attempts` counts invalid answers. `discards` counts consecutive legs whose answer was to another wording.
    """

    pin: bytes
    attempts: int = 0
    discards: int = 0


class Computed(NamedTuple):
    """Value that the server fixed for the call, in JSON form. It is sealed, because the client must not read it."""

    value: Any


# Not frozen: freezing makes construction four times slower, and a leg makes one or two. Only its maker sets fields. It
# has no repr, which would show answers.
@dataclass(slots=True, repr=False)
class Journal:
    """State that one call remembers, written by each leg that ends with questions.

    `born`, `deadline`, `end` and `written` are seconds since the epoch. The next leg must arrive before `deadline`, and
    every leg before `end`. The build that began the call sets `end`, and no other build changes it. `fingerprint`
    identifies the plan of the leg that wrote the journal, and `build` its application. `authored` is the
    `request_state` from an author who asks by hand. `traceparent` names the span of the leg that wrote the journal, in
    W3C Trace Context form, if it had a span.
    """

    call_id: str
    born: float
    deadline: float
    end: float
    leg: int
    round: int
    fingerprint: str = ""
    build: str = ""
    version: str | None = None
    entries: Mapping[str, Entry] = field(default_factory=dict[str, Entry])
    asked: Mapping[str, Asked] = field(default_factory=dict[str, Asked])
    computed: Mapping[str, Computed] = field(default_factory=dict[str, Computed])
    authored: str | None = None
    traceparent: str | None = None
    written: float = 0.0

    def sizes(self) -> list[tuple[str, int]]:
        """Return each entry's key and size in bytes, largest first. Sealed values count in whole blocks."""
        sizes = {key: len(to_json([key, entry.data])) for key, entry in self.entries.items()}
        for key, kept in self.computed.items():
            sizes[key] = sizes.get(key, 0) + _in_blocks(len(to_json([key, kept.value])))
        if self.authored is not None:
            sizes["request_state"] = _in_blocks(len(self.authored))
        return sorted(sizes.items(), key=lambda item: (-item[1], item[0]))


def _in_blocks(size: int) -> int:
    # A short secret's length is itself secret, even in an error.
    return -(-size // _SEALED_BLOCK_BYTES) * _SEALED_BLOCK_BYTES


def to_text(raw: bytes) -> str:
    """Return bytes as unpadded base64url."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def from_text(text: str) -> bytes:
    """Decode text that `to_text` wrote, and accept only its one spelling.

    Raises:
        ValueError: `to_text` does not write this text.
    """
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if to_text(raw) != text:
        raise ValueError("not canonical base64url")
    return raw


_encode: Final[Callable[[Any], str]] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def to_json(value: Any) -> bytes:
    """Return compact JSON. Client values may hold lone surrogates, which strict UTF-8 rejects."""
    return _encode(value).encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True, repr=False)
class Limits:
    """Call time limits, in seconds: how long a leg's questions may take, and how old the whole call may get."""

    ttl: float
    max_age: float

    def __post_init__(self) -> None:
        for name in ("ttl", "max_age"):
            given: object = getattr(self, name)
            if isinstance(given, bool) or not isinstance(given, int | float):
                raise ValueError(f"{name}= must be a number of seconds, got {given!r}")
        if not 0 < self.ttl <= self.max_age < math.inf:
            raise ValueError(
                "ttl= and max_age= must be finite seconds, more than 0, and ttl no more than max_age, got "
                f"ttl={self.ttl} and max_age={self.max_age}"
            )
