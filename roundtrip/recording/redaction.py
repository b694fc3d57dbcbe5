"""Which values a transcript keeps, and what stands in the place of the others. All come out as JSON text."""

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, get_args

from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

__all__ = ["REVEALABLE", "Redaction", "Reveal", "Revealable", "dumps", "read_reveal"]

Revealable = Literal["arguments", "answers", "questions", "results", "steps", "errors"]
REVEALABLE: Final[tuple[Revealable, ...]] = get_args(Revealable)

Reveal = Literal["all"] | Revealable | Iterable[Revealable]

_DIGEST_BYTES: Final = 8
_KNOWN: Final = 256

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
        self._known: dict[str, str] = {}

    def put(self, kind: Revealable, value: Any) -> str:
        """A value of some kind."""
        if kind in self._revealed:
            return f'{{"value":{dumps(_plain(value))}}}'
        raw = _bytes_of(value)
        return f'{{"digest":"{self._digest(raw)}","bytes":{len(raw)}}}'

    def put_known(self, kind: Revealable, name: str, value: Any) -> str:
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
        return dumps(_plain(value)).encode()


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
