"""A parser of command lines that takes options anywhere, and what its options take."""

import math
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from typing import Any, Final

__all__ = ["OptionsAnywhere", "seconds", "some_seconds"]

_LONGEST: Final = 10 * 365 * 86400.0


def seconds(text: str) -> float:
    """A number of seconds, which may be 0.

    Raises:
        ArgumentTypeError: It is none.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= _LONGEST:
        raise ArgumentTypeError(f"{text!r} is no number of seconds up to ten years")
    return number


def some_seconds(text: str) -> float:
    """A number of seconds above 0.

    Raises:
        ArgumentTypeError: It is none.
    """
    number = seconds(text)
    if not number:
        raise ArgumentTypeError(f"{text!r} is no time at all")
    return number


class OptionsAnywhere(ArgumentParser):
    """Options may stand between positional arguments, where argparse by itself expects no more of those."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._apart = False

    def add_subparsers(self, **options: Any) -> Any:
        """As argparse does. A parser with sub-commands leaves it to theirs."""
        self._apart = True
        return super().add_subparsers(**options)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse options and positional arguments apart, as `parse_intermixed_args` does for a whole command."""
        if self._apart:
            return super().parse_known_args(args, namespace)
        self._apart = True
        try:
            return self.parse_known_intermixed_args(args or (), namespace or Namespace())
        finally:
            self._apart = False
