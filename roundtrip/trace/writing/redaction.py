"""Transcript redaction: renders values as JSON, either in plain text or as keyed digests."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, cast, get_args

from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from roundtrip.machine.journal import UNNAMED
from roundtrip.questions.wire import TICKET, TICKET_SHOWN

Revealable = Literal["arguments", "answers", "questions", "results", "steps", "errors"]
REVEALABLE: Final[tuple[Revealable, ...]] = get_args(Revealable)

Taken = str | bytes
"""The captured form of a value: its JSON text if it is revealed, otherwise the bytes for its digest."""

Reveal = Literal["all"] | Revealable | Iterable[Revealable]

_DIGEST_BYTES: Final = 8
_MAX_CACHED: Final = 256
_SIZE_STEP_BYTES: Final = 64
"""Recorded sizes are rounded up to a multiple of this."""
_MAX_LEVELS: Final = 100
"""Maximum nesting in a recorded value, because JSON readers limit nesting."""
_TICKET_BEGINS: Final = "rt1."
_UNNAMED: Final = re.compile(rf"{UNNAMED}[A-Za-z0-9_-]+")

dumps: Final[Callable[[Any], str]] = json.JSONEncoder(separators=(",", ":")).encode


def read_reveal(reveal: Reveal) -> frozenset[Revealable]:
    """Return the kinds of values to reveal.

    Raises:
        ValueError: A kind is unknown.
    """
    names: Iterable[str] = (reveal,) if isinstance(reveal, str) else reveal
    chosen: frozenset[str] = frozenset(names)
    if chosen == frozenset(("all",)):
        return frozenset(REVEALABLE)
    unknown = chosen - set(REVEALABLE)
    if unknown:
        raise ValueError(
            f"reveal= must be 'all' or some of {', '.join(REVEALABLE)}, got {', '.join(sorted(map(repr, unknown)))}"
        )
    return frozenset(name for name in REVEALABLE if name in chosen)


class Redaction:
    """Renderer for recorded values. It reveals a value, or records a digest that cannot be guessed without the key."""

    __slots__ = ("_cached", "_keyed", "_revealed")

    def __init__(self, key: bytes, revealed: frozenset[Revealable]) -> None:
        # blake2b was the fastest keyed hash in measurements. Copying a keyed instance is faster than creating one.
        self._keyed = hashlib.blake2b(digest_size=_DIGEST_BYTES, key=key)
        self._revealed = revealed
        self._cached: dict[bytes, str] = {}

    def take(self, kind: Revealable, value: Any) -> Taken:
        """Capture a value now, because it may change before it is rendered."""
        if kind in self._revealed:
            text = _text_of(value)
            # A ticket may open its page for anyone who has the ticket, so hide tickets in every value.
            return TICKET.sub(TICKET_SHOWN, text) if _TICKET_BEGINS in text else text
        return _bytes_of(value)

    def show(self, taken: Taken) -> str:
        """Return a captured value as JSON: the text itself, or a digest of the bytes."""
        if isinstance(taken, str):
            return f'{{"value":{taken}}}'
        # Round the size, because a short secret's exact length must also stay secret.
        return f'{{"digest":"{self._digest(taken)}","bytes":{-(-len(taken) // _SIZE_STEP_BYTES) * _SIZE_STEP_BYTES}}}'

    def render(self, kind: Revealable, value: Any) -> str:
        """Return a value as JSON. The caller must not change the value later."""
        return self.show(self.take(kind, value))

    def name(self, key: str) -> str:
        """Return a question's name. A generated name is an unkeyed digest of the question's text, so return a keyed
        digest instead.
        """
        if key.startswith(UNNAMED) and "questions" not in self._revealed:
            return f"{UNNAMED}{self.fingerprint(key)}"
        return key

    def names_in(self, text: str) -> str:
        """Redact the question names in a text."""
        return _UNNAMED.sub(lambda found: self.name(found[0]), text) if UNNAMED in text else text

    def render_cached(self, kind: Revealable, name: bytes, value: Any) -> str:
        """Return a value as JSON, and cache it under a unique name. Use this for values that recur, such as form
        schemas.
        """
        rendered = self._cached.get(name)
        if rendered is None:
            if len(self._cached) >= _MAX_CACHED:
                self._cached.clear()
            rendered = self._cached[name] = self.render(kind, value)
        return rendered

    def fingerprint(self, text: str) -> str:
        """Return a keyed digest of an identity. For values such as answers, use `render`."""
        return self._digest(text.encode("utf-8", "surrogatepass"))

    def _digest(self, raw: bytes) -> str:
        keyed = self._keyed.copy()
        keyed.update(raw)
        return keyed.hexdigest()


def _bytes_of(value: Any) -> bytes:
    try:
        return to_json(value, by_alias=True, exclude_none=True, fallback=_named)
    except (PydanticSerializationError, ValueError, RecursionError):
        return _text_of(value).encode()


def _text_of(value: Any) -> str:
    """Return a value as JSON that every reader accepts."""
    try:
        plain = _plain(value)
        return dumps(plain if _is_shallow(plain, _MAX_LEVELS) else _named(value))
    except (ValueError, RecursionError):
        # For example, a number may have more digits than Python converts to text.
        return dumps(_named(value))


def _is_shallow(value: Any, levels: int) -> bool:
    if isinstance(value, dict):
        return levels > 0 and all(_is_shallow(one, levels - 1) for one in cast("dict[Any, Any]", value).values())
    if isinstance(value, list):
        return levels > 0 and all(_is_shallow(one, levels - 1) for one in cast("list[Any]", value))
    return True


def _plain(value: Any) -> Any:
    """Return a value in JSON form. An object without a JSON form becomes its type's name."""
    try:
        return to_jsonable_python(value, by_alias=True, exclude_none=True, fallback=_named, inf_nan_mode="strings")
    except (PydanticSerializationError, ValueError, RecursionError):
        try:
            # Text from clients may contain lone surrogates, which pydantic rejects.
            return json.loads(json.dumps(value, default=_named))
        except (TypeError, ValueError, RecursionError):
            return _named(value)


def _named(value: object) -> str:
    return f"({type(value).__name__})"
