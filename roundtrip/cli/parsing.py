"""A parser of command lines that takes options anywhere, and what its options take."""

import math
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from roundtrip.recording.variables import TRACE_VARIABLE

__all__ = ["OptionsAnywhere", "add_call", "add_files", "add_json", "add_output", "seconds", "some_seconds"]

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


def add_call(parser: ArgumentParser) -> None:
    """Take the name of a call."""
    parser.add_argument("call", metavar="ID", help="a call, or the beginning of its name that no other call has")


def add_files(parser: ArgumentParser) -> None:
    """Take transcripts, named last."""
    # Without a default argparse takes them for required where it tells what is missing.
    parser.add_argument(
        "files",
        nargs="*",
        default=[],
        metavar="FILE",
        help=f"transcripts, or directories of them; by default ${TRACE_VARIABLE}",
    )


def add_json(parser: ArgumentParser) -> None:
    """Take `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def add_output(parser: ArgumentParser) -> None:
    """Take `--output`."""
    parser.add_argument("--output", metavar="PATH", type=Path, help="write to this file, not to standard output")


class OptionsAnywhere(ArgumentParser):
    """Options may stand between positional arguments, where argparse by itself expects no more of those."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._apart = False
        self._prepare: Callable[[ArgumentParser], None] | None = None

    def when_chosen(self, prepare: Callable[[ArgumentParser], None]) -> None:
        """Take the arguments that `prepare` adds, which is called if there is anything to parse."""
        self._prepare = prepare

    def add_subparsers(self, **options: Any) -> Any:
        """As argparse does. A parser with sub-commands leaves it to theirs."""
        self._apart = True
        return super().add_subparsers(**options)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse options and positional arguments apart, as `parse_intermixed_args` does for a whole command."""
        if self._prepare is not None:
            prepare, self._prepare = self._prepare, None
            prepare(self)
        if self._apart:
            return super().parse_known_args(args, namespace)
        self._apart = True
        try:
            parsed, unknown = self.parse_known_intermixed_args(args or (), namespace or Namespace())
        finally:
            self._apart = False
        if unknown:
            # Left to the parser of the whole command, the usage shown would not be that of this one.
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, []
