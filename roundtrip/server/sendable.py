"""Check that every transport can carry a result and every client can read it, while its author is still known."""

from collections.abc import Iterable
from math import isfinite
from typing import Any

from pydantic import BaseModel

from roundtrip.errors import NotSendable

__all__ = ["require_sendable", "require_sendable_model", "require_sendable_text", "unsendable"]

_DEPTH = 180
"""Levels of nested data. Clients' parsers stop at 200, and a message adds a few levels of its own."""

_DIGITS = 4300
_TOO_LARGE = 10**_DIGITS


def require_sendable_text(text: str) -> None:
    """Reject text that cannot be encoded as UTF-8.

    Raises:
        NotSendable: The text has lone surrogates.
    """
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise unsendable(error) from error


def require_sendable(data: Any) -> None:
    """Reject JSON data that would not arrive as sent.

    Raises:
        NotSendable: A text is not valid Unicode, a number has no JSON form, or the data is nested too deeply.
    """
    _require_all([data], depth=-1)


def _require_all(values: Iterable[Any], *, depth: int) -> None:
    if depth == _DEPTH:
        raise NotSendable(f"a result is nested more than {_DEPTH} levels deep, and clients cannot read it; flatten it")
    # Exact types suffice for JSON data, and this runs over every value of every result.
    for value in values:
        kind: type = type(value)  # pyright: ignore[reportUnknownVariableType]
        if kind is str:
            if not value.isascii():
                require_sendable_text(value)
        elif kind is dict:
            _require_all(value, depth=depth)
            _require_all(value.values(), depth=depth + 1)
        elif kind is list:
            _require_all(value, depth=depth + 1)
        elif kind is float:
            if not isfinite(value):
                raise NotSendable(
                    f"a result has no JSON form: there is no number {value}; return None or a text for it"
                )
        elif kind is int and not -_TOO_LARGE < value < _TOO_LARGE:
            raise NotSendable(f"a result holds an integer of more than {_DIGITS} digits; return a text for it")


def require_sendable_model(model: BaseModel) -> None:
    """Reject a protocol model, such as a block or a result, that cannot be sent.

    Raises:
        NotSendable: A value in it cannot be sent.
    """
    try:
        data = model.model_dump(mode="json", by_alias=True, warnings=False)
    except ValueError as error:
        raise unsendable(error) from error
    require_sendable(data)


def unsendable(error: ValueError) -> NotSendable:
    """Explain a failed serialization to the tool's author."""
    text = str(error)
    if "integer string conversion" in text:
        return NotSendable(f"a result holds an integer of more than {_DIGITS} digits; return a text for it")
    if "surrogates not allowed" in text:
        return NotSendable("a result holds text that is not valid Unicode: it has lone surrogates in it")
    if isinstance(error, UnicodeDecodeError) or "invalid utf-8" in text:
        return NotSendable(
            "a result holds bytes that are not UTF-8 text; return them by themselves or as File(data=...), "
            "or encode them with base64"
        )
    reason = text.removeprefix("Error serializing to JSON: ").removeprefix("ValueError: ")
    return NotSendable(f"a result has no JSON form: {reason}")
