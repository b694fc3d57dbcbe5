"""Which values a transcript keeps, and what stands in the place of the others."""

import hmac
import json
from collections.abc import Iterable
from typing import Any, Final, Literal, get_args

from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from roundtrip.machine.journal import to_text

__all__ = ["REVEALABLE", "Redaction", "Reveal", "Revealable", "read_reveal"]

Revealable = Literal["arguments", "answers", "questions", "results", "steps", "errors"]
REVEALABLE: Final[tuple[Revealable, ...]] = get_args(Revealable)

Reveal = Literal["all"] | Revealable | Iterable[Revealable]

_DIGEST_BYTES: Final = 9
_KNOWN: Final = 256


def read_reveal(reveal: Reveal) -> frozenset[Revealable]:
    """The kinds of values to keep.

    Raises:
        ValueError: One of them is unknown.
    """
    if reveal == "all":
        return frozenset(REVEALABLE)
    names: Iterable[str] = (reveal,) if isinstance(reveal, str) else reveal
    chosen = frozenset(names)
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
        self._known: dict[str, dict[str, Any]] = {}

    def put(self, kind: Revealable, value: Any) -> dict[str, Any]:
        """A value of some kind."""
        if kind in self._revealed:
            return {"value": _plain(value)}
        raw = _bytes_of(value)
        return {"digest": self._digest(raw), "bytes": len(raw)}

    def put_known(self, kind: Revealable, name: str, value: Any) -> dict[str, Any]:
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
        return to_text(hmac.digest(self._key, raw, "sha256")[:_DIGEST_BYTES])


def _bytes_of(value: Any) -> bytes:
    try:
        return to_json(value, by_alias=True, exclude_none=True, fallback=_named)
    except (PydanticSerializationError, ValueError, RecursionError):
        return json.dumps(_plain(value)).encode()


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
