"""Which values a transcript keeps, and what stands in the place of the others. All come out as JSON text."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, cast, get_args

from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from roundtrip.machine.journal import UNNAMED
from roundtrip.questions.wire import TICKET, TICKET_SHOWN

__all__ = ["REVEALABLE", "Redaction", "Reveal", "Revealable", "dumps", "read_reveal"]

Revealable = Literal["arguments", "answers", "questions", "results", "steps", "errors"]
REVEALABLE: Final[tuple[Revealable, ...]] = get_args(Revealable)

Reveal = Literal["all"] | Revealable | Iterable[Revealable]

_DIGEST_BYTES: Final = 8
_KNOWN: Final = 256
_STEP: Final = 64
"""What sizes are rounded up to."""
_LEVELS: Final = 100
"""How deeply a value may be nested; readers of JSON have limits of their own."""
_TICKET_BEGINS: Final = "rt1."
_UNNAMED: Final = re.compile(rf"{UNNAMED}[A-Za-z0-9_-]+")

dumps: Final[Callable[[Any], str]] = json.JSONEncoder(separators=(",", ":")).encode


def read_reveal(reveal: Reveal) -> frozenset[Revealable]:
    """The kinds of values to keep.

    Raises:
        ValueError: One of them is unknown.
    """
    names: Iterable[str] = (reveal,) if isinstance(reveal, str) else reveal
    chosen: frozenset[str] = frozenset(names)
    if chosen == frozenset(("all",)):
        return frozenset(REVEALABLE)
    unknown = chosen - set(REVEALABLE)
    if unknown:
        raise ValueError(
            f"reveal= takes 'all' or some of {', '.join(REVEALABLE)}; unknown: {', '.join(sorted(map(str, unknown)))}"
        )
    return frozenset(name for name in REVEALABLE if name in chosen)


class Redaction:
    """Puts values as a transcript may hold them: revealed, or as a digest that only the key's holders can try out."""

    __slots__ = ("_key", "_known", "_revealed")

    def __init__(self, key: bytes, revealed: frozenset[Revealable]) -> None:
        self._key = key
        self._revealed = revealed
        self._known: dict[bytes, str] = {}

    def put(self, kind: Revealable, value: Any) -> str:
        """A value of some kind."""
        if kind in self._revealed:
            text = _text_of(value)
            # Whoever has a ticket can open its page, so it is a secret wherever it is shown.
            return f'{{"value":{TICKET.sub(TICKET_SHOWN, text) if _TICKET_BEGINS in text else text}}}'
        raw = _bytes_of(value)
        # The length of a short secret is a secret.
        return f'{{"digest":"{self._digest(raw)}","bytes":{-(-len(raw) // _STEP) * _STEP}}}'

    def name(self, key: str) -> str:
        """The name of a question. One without a name is called by a digest of its text, which could be guessed at."""
        if key.startswith(UNNAMED) and "questions" not in self._revealed:
            return f"{UNNAMED}{self.fingerprint(key)}"
        return key

    def names_in(self, text: str) -> str:
        """A text that names questions."""
        return _UNNAMED.sub(lambda found: self.name(found[0]), text) if UNNAMED in text else text

    def put_known(self, kind: Revealable, name: bytes, value: Any) -> str:
        """As `put`, for a value that comes often and has a name of its own, such as a form's schema."""
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            known = self._known[name] = self.put(kind, value)
        return known

    def fingerprint(self, text: str) -> str:
        """What stands for somebody, never for what they said."""
        return self._digest(text.encode("utf-8", "surrogatepass"))

    def _digest(self, raw: bytes) -> str:
        # Of the keyed hashes the one that costs a leg least.
        return hashlib.blake2b(raw, digest_size=_DIGEST_BYTES, key=self._key).hexdigest()


def _bytes_of(value: Any) -> bytes:
    try:
        return to_json(value, by_alias=True, exclude_none=True, fallback=_named)
    except (PydanticSerializationError, ValueError, RecursionError):
        return _text_of(value).encode()


def _text_of(value: Any) -> str:
    """A value as JSON that readers can read."""
    try:
        plain = _plain(value)
        return dumps(plain if _is_shallow(plain, _LEVELS) else _named(value))
    except (ValueError, RecursionError):
        # Such as a number of more digits than Python writes.
        return dumps(_named(value))


def _is_shallow(value: Any, levels: int) -> bool:
    if isinstance(value, dict):
        return levels > 0 and all(_is_shallow(one, levels - 1) for one in cast("dict[Any, Any]", value).values())
    if isinstance(value, list):
        return levels > 0 and all(_is_shallow(one, levels - 1) for one in cast("list[Any]", value))
    return True


def _plain(value: Any) -> Any:
    """A value in JSON form; what has none is named by its type."""
    try:
        return to_jsonable_python(value, by_alias=True, exclude_none=True, fallback=_named, inf_nan_mode="strings")
    except (PydanticSerializationError, ValueError, RecursionError):
        try:
            # Text of clients may hold lone surrogates, which the other way refuses.
            return json.loads(json.dumps(value, default=_named))
        except (TypeError, ValueError, RecursionError):
            return _named(value)


def _named(value: object) -> str:
    return f"({type(value).__name__})"
