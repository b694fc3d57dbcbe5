"""The journal: what a call remembers between legs. `journal_bytes` defines its binary form inside the token."""

import base64
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Literal, NamedTuple

UNNAMED: Final = "unnamed-"
"""Prefix for the names that are generated for questions without a name."""

_SEALED_BLOCK_BYTES: Final = 64
"""In error messages, the sizes of sealed values are rounded up to a multiple of this size."""


class Action(IntEnum):
    """A user's reaction to a question, with the number that the journal writes."""

    ACCEPT = 0
    DECLINE = 1
    CANCEL = 2

    @property
    def word(self) -> Literal["accept", "decline", "cancel"]:
        """Return the protocol's word for the action."""
        return _ACTION_WORDS[self]


_ACTION_WORDS: Final = ("accept", "decline", "cancel")

ACTIONS: Final = {"accept": Action.ACCEPT, "decline": Action.DECLINE, "cancel": Action.CANCEL}
"""Actions, keyed by their protocol words."""

OUTCOMES: Final = {"accept": "accepted", "decline": "declined", "cancel": "cancelled"}
"""Question outcomes in readable form, by protocol word."""


class Chain(IntEnum):
    """How a chain of requests relates to the intent of its call, with the number that the journal writes."""

    NONE = 0
    """The tool has no `once_per=`."""
    FIRST = 1
    """The chain of requests began the call."""
    AGAIN = 2
    """The chain of requests began again: its first request joined a call that had begun before."""


class Entry(NamedTuple):
    """A client's answer, with the pin of the wording that the client saw (`roundtrip.machine.pins`).

    `data` is exactly the value that the client sent, so that a later leg validates the same value again.
    """

    action: Action
    pin: bytes
    data: Any = None


class Asked(NamedTuple):
    """An open question: the pin of the wording that the client saw, and its counters.

    `attempts` counts invalid answers. `discards` counts consecutive legs that brought an answer to another wording.
    """

    pin: bytes
    attempts: int = 0
    discards: int = 0


class Computed(NamedTuple):
    """A value that stays the same for the whole call, in JSON form. The journal seals it, because the client must not
    read it.
    """

    value: Any


# Not frozen: freezing makes construction four times slower, and a leg makes one or two journals. Only the code that
# makes a journal sets its fields. There is no repr, because it would show answers.
@dataclass(slots=True, repr=False)
class Journal:
    """A call's memory between its legs. Each leg that ends with questions writes a journal.

    `born`, `deadline`, `end` and `written` are seconds since the epoch. The next leg must arrive before `deadline`, and
    every leg before `end`. The build that began the call sets `end`, and no other build changes it. `fingerprint`
    identifies the plan that the writing leg used, and `build` identifies the application build. `authored` is the
    `request_state` from an author who asks by hand. `traceparent` names the writing leg's span in W3C Trace Context
    form, if it had a span. `chain` is not `NONE` only for a tool with `once_per=`.
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
    chain: Chain = Chain.NONE
    skipped: int = 0
    """How many of the rounds were not this chain's own. Clients limit their own rounds."""

    @property
    def own_rounds(self) -> int:
        """Return how many rounds the chain of requests has had."""
        return self.round - self.skipped

    def sizes(self) -> list[tuple[str, int]]:
        """Return each entry's key and size in bytes, largest first. The size of a sealed value is rounded up to whole
        blocks.
        """
        sizes = {key: len(to_json([key, entry.data])) for key, entry in self.entries.items()}
        for key, kept in self.computed.items():
            sizes[key] = sizes.get(key, 0) + _in_blocks(len(to_json([key, kept.value])))
        if self.authored is not None:
            sizes["request_state"] = _in_blocks(len(self.authored))
        return sorted(sizes.items(), key=lambda item: (-item[1], item[0]))


def _in_blocks(size: int) -> int:
    # The length of a short secret is itself a secret, even in an error message.
    return -(-size // _SEALED_BLOCK_BYTES) * _SEALED_BLOCK_BYTES


def to_text(raw: bytes) -> str:
    """Return bytes as unpadded base64url."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def from_text(text: str) -> bytes:
    """Decode text that `to_text` wrote. Each value has only one accepted spelling.

    Raises:
        ValueError: The text is not one that `to_text` could have written.
    """
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if to_text(raw) != text:
        raise ValueError("not canonical base64url")
    return raw


_encode: Final[Callable[[Any], str]] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def to_json(value: Any) -> bytes:
    """Return compact JSON. Values from clients may contain lone surrogates, which strict UTF-8 rejects."""
    return _encode(value).encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True, repr=False)
class Limits:
    """Time limits for a call, in seconds: how long the client may take for one leg's questions, and how old the whole
    call may become.
    """

    ttl: float
    max_age: float

    def __post_init__(self) -> None:
        for name in ("ttl", "max_age"):
            given: object = getattr(self, name)
            if isinstance(given, bool) or not isinstance(given, int | float):
                raise ValueError(f"{name}= must be a number of seconds, got {given!r}")
        if not 0 < self.ttl <= self.max_age < math.inf:
            raise ValueError(
                "ttl= and max_age= must be finite numbers of seconds with 0 < ttl <= max_age, got "
                f"ttl={self.ttl} and max_age={self.max_age}"
            )
