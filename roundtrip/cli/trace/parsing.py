"""A parser that takes options anywhere, and the names of calls whatever they begin with."""

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any, Final

__all__ = ["ViewParser"]

_CALL_WITH_DASH: Final = re.compile(r"-[A-Za-z0-9_][A-Za-z0-9_-]{10}")
"""The name of a call is 12 characters of base64url, and may look like an option."""


class ViewParser(ArgumentParser):
    """Options may stand between `ID` and `FILE…`, where argparse by itself takes the files to be missing."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._apart = False

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse options and positional arguments apart, as `parse_intermixed_args` does for a whole command."""
        if self._apart:
            return super().parse_known_args(args, namespace)
        self._apart = True
        try:
            # What begins with a space is no option to argparse.
            spelled = [f" {word}" if _CALL_WITH_DASH.fullmatch(word) else word for word in args or ()]
            return self.parse_known_intermixed_args(spelled, namespace or Namespace())
        finally:
            self._apart = False
