"""Render values for a transcript as JSON text: revealed, or as a keyed digest."""

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
"""The text of a value to reveal, or the bytes of a value for its digest."""

Reveal = Literal["all"] | Revealable | Iterable[Revealable]

_DIGEST_BYTES: Final = 8
_MAX_CACHED: Final = 256
_SIZE_STEP_BYTES: Final = 64
"""Sizes are rounded up to a multiple of this."""
_MAX_LEVELS: Final = 100
"""Nesting of a value; readers of JSON have limits of their own."""
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
    """Renderer of recorded values: revealed, or as a digest that cannot be guessed without the key."""

    __slots__ = ("_cached", "_keyed", "_revealed")

    def __init__(self, key: bytes, revealed: frozenset[Revealable]) -> None:
        # The fastest keyed hash, as measured. Copies of one are made faster than others with its key.
        self._keyed = hashlib.blake2b(digest_size=_DIGEST_BYTES, key=key)
        self._revealed = revealed
        self._cached: dict[bytes, str] = {}

    def take(self, kind: Revealable, value: Any) -> Taken:
        """Return what is needed of a value to render it later, when it may have changed."""
        if kind in self._revealed:
            text = _text_of(value)
            # A ticket may open its page for anyone who has it, so it is a secret wherever it appears.
            return TICKET.sub(TICKET_SHOWN, text) if _TICKET_BEGINS in text else text
        return _bytes_of(value)

    def show(self, taken: Taken) -> str:
        """Return the JSON of a value: its text, or a digest of its bytes."""
        if isinstance(taken, str):
            return f'{{"value":{taken}}}'
        # The length of a short secret is a secret, too.
        return f'{{"digest":"{self._digest(taken)}","bytes":{-(-len(taken) // _SIZE_STEP_BYTES) * _SIZE_STEP_BYTES}}}'

    def render(self, kind: Revealable, value: Any) -> str:
        """Return the JSON of a value that cannot change."""
        return self.show(self.take(kind, value))

    def name(self, key: str) -> str:
        """Return the name of a question, or a keyed digest of a generated name, which is a plain digest of its text."""
        if key.startswith(UNNAMED) and "questions" not in self._revealed:
            return f"{UNNAMED}{self.fingerprint(key)}"
        return key

    def names_in(self, text: str) -> str:
        """Return a text with the names of questions in it redacted."""
        return _UNNAMED.sub(lambda found: self.name(found[0]), text) if UNNAMED in text else text

    def render_cached(self, kind: Revealable, name: bytes, value: Any) -> str:
        """Return the JSON of a value that is recorded often and has a unique name, such as a form's schema."""
        rendered = self._cached.get(name)
        if rendered is None:
            if len(self._cached) >= _MAX_CACHED:
                self._cached.clear()
            rendered = self._cached[name] = self.render(kind, value)
        return rendered

    def fingerprint(self, text: str) -> str:
        """Return a keyed digest of an identity; values such as answers have `render`."""
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
    """Return JSON that every reader accepts."""
    try:
        plain = _plain(value)
        return dumps(plain if _is_shallow(plain, _MAX_LEVELS) else _named(value))
    except (ValueError, RecursionError):
        # For example a number with more digits than Python writes.
        return dumps(_named(value))


def _is_shallow(value: Any, levels: int) -> bool:
    if isinstance(value, dict):
        return levels > 0 and all(_is_shallow(one, levels - 1) for one in cast("dict[Any, Any]", value).values())
    if isinstance(value, list):
        return levels > 0 and all(_is_shallow(one, levels - 1) for one in cast("list[Any]", value))
    return True


def _plain(value: Any) -> Any:
    """Return a value in JSON form; objects without one become the name of their type."""
    try:
        return to_jsonable_python(value, by_alias=True, exclude_none=True, fallback=_named, inf_nan_mode="strings")
    except (PydanticSerializationError, ValueError, RecursionError):
        try:
            # Text of clients may have lone surrogates, which pydantic rejects.
            return json.loads(json.dumps(value, default=_named))
        except (TypeError, ValueError, RecursionError):
            return _named(value)


def _named(value: object) -> str:
    return f"({type(value).__name__})"
