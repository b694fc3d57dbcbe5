"""A parser of command lines that takes options anywhere."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

__all__ = ["OptionsAnywhere"]


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
