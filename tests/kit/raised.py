"""The error that a call raises, for tables of what is rejected."""

from collections.abc import Callable

__all__ = ["raised"]


def raised(call: Callable[..., object], *arguments: object, **options: object) -> Exception | None:
    """Return the error of a call, or None if there is none."""
    try:
        call(*arguments, **options)
    except Exception as error:  # noqa: BLE001 - returned
        return error
    return None
