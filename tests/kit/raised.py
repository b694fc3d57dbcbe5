"""The error that a call raises, for tables with rejected input."""

from collections.abc import Callable

__all__ = ["raised"]


def raised(call: Callable[..., object], *arguments: object, **options: object) -> Exception | None:
    """Return a call's error, or None if it succeeds."""
    try:
        call(*arguments, **options)
    except Exception as error:  # noqa: BLE001 - returned
        return error
    return None
