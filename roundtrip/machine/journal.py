"""Provide the journal, the memory of a call between legs; `journal_bytes` has its binary form inside the token."""

import base64
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Literal, NamedTuple

UNNAMED: Final = "unnamed-"
"""The prefix of generated names, for questions without a name."""

_SEALED_BLOCK_BYTES: Final = 64
"""Sizes of sealed values are rounded up to this in errors."""


class Action(IntEnum):
    """A user's reaction to a question, by the number that the journal writes."""

    ACCEPT = 0
    DECLINE = 1
    CANCEL = 2

    @property
    def word(self) -> Literal["accept", "decline", "cancel"]:
        """Return the protocol's word."""
        return _ACTION_WORDS[self]


_ACTION_WORDS: Final = ("accept", "decline", "cancel")

ACTIONS: Final = {"accept": Action.ACCEPT, "decline": Action.DECLINE, "cancel": Action.CANCEL}
"""Actions by the protocol's words."""

OUTCOMES: Final = {"accept": "accepted", "decline": "declined", "cancel": "cancelled"}
"""Outcomes of questions, for people, by the protocol's words for the actions."""


class Entry(NamedTuple):
    """Answer of the client, with the pin of the wording that it saw (`roundtrip.machine.pins`).

    `data` is exactly the value that the client sent, so that restoring validates the same value again.
    """

    action: Action
    pin: bytes
    data: Any = None


class Asked(NamedTuple):
    """Open question: the pin of the wording that the client saw, and its counters.

    `attempts` counts invalid answers, and `discards` consecutive legs with an answer to another wording.
    """

    pin: bytes
    attempts: int = 0
    discards: int = 0


class Computed(NamedTuple):
    """Value that the server fixed for the call, in JSON form; sealed, as the client must not read it."""

    value: Any


# Not frozen, as that takes four times as long to make, once or twice a leg. Only its maker sets its fields. Without a
# representation, as that would show answers.
@dataclass(slots=True, repr=False)
class Journal:
    """Memory of one call, written by each leg that ends with questions.

    `born`, `deadline`, `end` and `written` are seconds since the epoch. The next leg must arrive before `deadline`, and
    every leg before `end`. The build that began the call sets `end`, and no other build changes it.
    `fingerprint` identifies the plan of the leg that wrote the journal, and `build` its application. `authored` is the
    `request_state` of an author who asks by hand.
    `traceparent` names the span of the leg that wrote the journal, if it had one, as W3C Trace Context does.
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
        """Return each entry's key and size in bytes, largest first; sealed values in whole blocks."""
        sizes = {key: len(to_json([key, entry.data])) for key, entry in self.entries.items()}
        for key, kept in self.computed.items():
            sizes[key] = sizes.get(key, 0) + _in_blocks(len(to_json([key, kept.value])))
        if self.authored is not None:
            sizes["request_state"] = _in_blocks(len(self.authored))
        return sorted(sizes.items(), key=lambda item: (-item[1], item[0]))


def _in_blocks(size: int) -> int:
    # The length of a short secret is a secret, also in an error.
    return -(-size // _SEALED_BLOCK_BYTES) * _SEALED_BLOCK_BYTES


def to_text(raw: bytes) -> str:
    """Return bytes as unpadded base64url."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def from_text(text: str) -> bytes:
    """Return the bytes of `to_text`, from its one spelling only.

    Raises:
        ValueError: `to_text` does not write this text.
    """
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if to_text(raw) != text:
        raise ValueError("not canonical base64url")
    return raw


_encode: Final[Callable[[Any], str]] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def to_json(value: Any) -> bytes:
    """Return compact JSON. Values of a client may hold lone surrogates, which strict UTF-8 does not have."""
    return _encode(value).encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True, repr=False)
class Limits:
    """Time limits of a call, in seconds: the time for the questions of a leg, and the age of the whole call."""

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
