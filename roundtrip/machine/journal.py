"""What a call remembers between legs, and its compact text form.

The text is a JSON array by position, and, after a `~`, the sealed part in base64url: what the server computed, or what
an author put into a `request_state` of their own. The text travels inside the signed token; only the sealed part
needs a key here, so sealing is handed in as two functions.

Reading is tolerant where a rolling deploy needs it and strict everywhere else: entries under unknown keys are kept,
a text of another shape raises `ValueError`.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

__all__ = [
    "FORMAT",
    "Action",
    "Asked",
    "Computed",
    "Entry",
    "Journal",
    "SealedText",
    "digest",
    "from_text",
    "split_sealed",
    "to_text",
]

FORMAT: Final = 1
"""Version of the text form. A text of another version is refused, not guessed at."""

_DIGEST_BYTES: Final = 8
_DIGEST_CHARS: Final = 11
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_SEAL_MARK: Final = "~"
_ENTRY_LENGTHS: Final = (3, 4)
_TRACEPARENT: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)
"""Version 0 of the header of W3C Trace Context."""

SealedText = Callable[[bytes, bytes], bytes]
"""Seals or opens bytes; the second argument is what the seal is bound to."""


class Action(IntEnum):
    """What the user did with a question, as the journal writes it."""

    ACCEPT = 0
    DECLINE = 1
    CANCEL = 2


class Entry(NamedTuple):
    """One answer the client gave, pinned to the wording it was shown under.

    `data` is exactly what the client sent, so that restoring validates the same value again.
    """

    action: Action
    message: str
    schema: str
    data: Any = None


class Asked(NamedTuple):
    """One question that is out: the wording the client was shown, and how it went so far.

    `attempts` counts answers that were not valid, `discards` consecutive legs on which an answer came for another
    wording.
    """

    message: str
    schema: str
    attempts: int = 0
    discards: int = 0


@dataclass(frozen=True, slots=True)
class Computed:
    """One value the server fixed for the call, in JSON form; sealed, as the client must not read it."""

    value: Any


def _empty_entries() -> Mapping[str, Entry]:
    return MappingProxyType({})


def _empty_asked() -> Mapping[str, Asked]:
    return MappingProxyType({})


def _empty_computed() -> Mapping[str, Computed]:
    return MappingProxyType({})


# Not frozen, as that makes it four times as slow to make, once or twice a leg; nothing changes one all the same.
@dataclass(slots=True)
class Journal:
    """The memory of one call. A new one is written for each leg that ends with questions.

    `born` and `deadline` are seconds since the epoch; `fingerprint` is the plan's and `build` the application's,
    both of the leg that wrote it. `authored` is the `request_state` of an author who asks by hand. `traceparent` names
    the span of the leg that wrote it, where there was one, in the words of W3C Trace Context. `seeds` are answers of an
    expired call that this one takes the place of: its questions show them as defaults, and they answer nothing.
    """

    call_id: str
    born: float
    deadline: float
    leg: int
    round: int
    fingerprint: str = ""
    build: str = ""
    version: str | None = None
    entries: Mapping[str, Entry] = field(default_factory=_empty_entries)
    asked: Mapping[str, Asked] = field(default_factory=_empty_asked)
    computed: Mapping[str, Computed] = field(default_factory=_empty_computed)
    authored: str | None = None
    traceparent: str | None = None
    seeds: Mapping[str, Entry] = field(default_factory=_empty_entries)

    @property
    def has_secrets(self) -> bool:
        """Whether anything in it has to be sealed."""
        return bool(self.computed) or self.authored is not None

    def encode(self, seal: SealedText | None = None) -> str:
        """The compact text.

        Raises:
            ValueError: There is something to seal and no `seal` to do it.
        """
        # Milliseconds are plenty for deadlines, and shorter than a float's 17 digits.
        head: list[Any] = [
            FORMAT,
            self.call_id,
            int(self.born * 1000),
            int((self.deadline - self.born) * 1000),
            self.leg,
            self.round,
            self.fingerprint,
            self.build,
            self.version,
            [_write_entry(key, entry) for key, entry in self.entries.items()],
            [_write_asked(key, asked) for key, asked in self.asked.items()],
        ]
        if self.traceparent is not None or self.seeds:
            head.append(self.traceparent)
        if self.seeds:
            head.append([_write_entry(key, entry) for key, entry in self.seeds.items()])
        text = _dumps(head)
        if not self.has_secrets:
            return text
        if seal is None:
            raise ValueError("this journal holds values that must be sealed, and there is no key to seal with")
        secret = _dumps([[_write_computed(key, value) for key, value in self.computed.items()], self.authored])
        return text + _SEAL_MARK + to_text(seal(secret.encode(), self._binding()))

    @classmethod
    def decode(cls, text: str, unseal: SealedText | None = None) -> "Journal":
        """Read a text that `encode` wrote.

        Raises:
            ValueError: It is not such a text, is of another format version, or its sealed part cannot be opened
                (`unseal` may raise errors of its own).
        """
        open_part, mark, sealed_part = split_sealed(text)
        try:
            head: Any = json.loads(open_part)
            journal = cls._read_head(head)
            if not mark:
                return journal
            if unseal is None:
                raise ValueError("the text has a sealed part, and there is no key to open it with")
            secret: Any = json.loads(unseal(from_text(sealed_part), journal._binding()))
            rows, authored = secret
            if authored is not None and not isinstance(authored, str):
                raise ValueError("malformed sealed part")
            computed = dict(_read_computed(row) for row in rows)
        except (TypeError, KeyError, IndexError, OverflowError, RecursionError, binascii.Error) as error:
            raise ValueError("not a journal") from error
        return replace(journal, computed=MappingProxyType(computed), authored=authored)

    @classmethod
    def _read_head(cls, head: Any) -> "Journal":
        version, call_id, born, span, leg, round_, fingerprint, build, tool_version, entries, asked, *more = head
        if version != FORMAT:
            raise ValueError(f"unknown journal format {version!r}")
        if not (type(call_id) is type(fingerprint) is type(build) is str):
            raise ValueError("not a journal")
        if not (type(born) is type(span) is type(leg) is type(round_) is int):
            raise ValueError("not a journal")
        if tool_version is not None and not isinstance(tool_version, str):
            raise ValueError("not a journal")
        traceparent, seeds = _read_tail(more)
        return cls(
            call_id=call_id,
            born=born / 1000,
            deadline=(born + span) / 1000,
            leg=leg,
            round=round_,
            fingerprint=fingerprint,
            build=build,
            version=tool_version,
            entries=MappingProxyType(dict(_read_entry(row) for row in entries)),
            asked=MappingProxyType(dict(_read_asked(row) for row in asked)),
            traceparent=traceparent,
            seeds=seeds,
        )

    def _binding(self) -> bytes:
        # A sealed part must not open inside another call's journal.
        return b"roundtrip/journal/1/" + self.call_id.encode()

    def sizes(self) -> list[tuple[str, int]]:
        """Each entry's key and the bytes it takes, largest first."""
        sizes = {key: len(_dumps(_write_entry(key, entry))) for key, entry in self.entries.items()}
        for key, value in self.computed.items():
            sizes[key] = sizes.get(key, 0) + len(_dumps(_write_computed(key, value)))
        for key, entry in self.seeds.items():
            sizes[key] = sizes.get(key, 0) + len(_dumps(_write_entry(key, entry)))
        if self.authored is not None:
            sizes["request_state"] = len(self.authored)
        return sorted(sizes.items(), key=lambda item: (-item[1], item[0]))


def split_sealed(text: str) -> tuple[str, str, str]:
    """The open part of a journal's text, the mark if there is one, and the sealed part.

    A client's answer may contain the mark, but the open part ends in `]`, which base64url never contains.
    """
    return (text, "", "") if text.endswith("]") else text.rpartition(_SEAL_MARK)


def digest(text: str) -> str:
    """What a wording or a schema is pinned by: eight bytes of its SHA-256, as text."""
    return to_text(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:_DIGEST_BYTES])


def to_text(raw: bytes) -> str:
    """Bytes as unpadded base64url."""
    return binascii.b2a_base64(raw, newline=False).rstrip(b"=").translate(_URL_SAFE).decode()


def from_text(text: str) -> bytes:
    """The inverse of `to_text`, for its one spelling only.

    Raises:
        ValueError: The text is not exactly what `to_text` writes.
    """
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if to_text(raw) != text:
        raise ValueError("not canonical base64url")
    return raw


# ASCII output keeps lone surrogates in client text representable; stdlib json reads them back.
_dumps: Final[Callable[[Any], str]] = json.JSONEncoder(separators=(",", ":")).encode


def _read_tail(more: list[Any]) -> tuple[str | None, Mapping[str, Entry]]:
    """What only some journals have: the traceparent, then, with null where there is none, the seeds."""
    if not more:
        return None, _empty_entries()
    traceparent, *rest = more
    if traceparent is None and not rest:
        raise ValueError("not a journal")
    if traceparent is not None and (type(traceparent) is not str or _TRACEPARENT.fullmatch(traceparent) is None):
        raise ValueError("not a journal")
    if not rest:
        return traceparent, _empty_entries()
    (rows,) = rest
    if not rows:
        raise ValueError("not a journal")
    return traceparent, MappingProxyType(dict(_read_entry(row) for row in rows))


def _write_entry(key: str, entry: Entry) -> list[Any]:
    row: list[Any] = [key, int(entry.action), entry.message + entry.schema]
    if entry.data is not None:
        row.append(entry.data)
    return row


def _read_entry(row: Any) -> tuple[str, Entry]:
    if len(row) not in _ENTRY_LENGTHS:
        raise ValueError("not a journal entry")
    key, action, digests = row[:3]
    message, schema = _split(digests)
    return _key(key), Entry(Action(action), message, schema, row[3] if len(row) == _ENTRY_LENGTHS[1] else None)


def _write_asked(key: str, asked: Asked) -> list[Any]:
    row: list[Any] = [key, asked.message + asked.schema]
    if asked.attempts or asked.discards:
        row += [asked.attempts, asked.discards]
    return row


def _read_asked(row: Any) -> tuple[str, Asked]:
    key, digests, *counts = row
    message, schema = _split(digests)
    attempts, discards = cast("list[int]", counts) if counts else (0, 0)
    if type(attempts) is not int or type(discards) is not int:
        raise ValueError("not a journal entry")
    return _key(key), Asked(message, schema, attempts, discards)


def _write_computed(key: str, computed: Computed) -> list[Any]:
    return [key, computed.value]


def _read_computed(row: Any) -> tuple[str, Computed]:
    key, value = row
    return _key(key), Computed(value)


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError("not a journal key")
    return key


def _split(digests: Any) -> tuple[str, str]:
    if not isinstance(digests, str) or len(digests) != 2 * _DIGEST_CHARS:
        raise ValueError("not a pair of digests")
    return digests[:_DIGEST_CHARS], digests[_DIGEST_CHARS:]
