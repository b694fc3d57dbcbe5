"""A parser of command lines that takes options anywhere and suggests the word that was meant; types of options."""

import math
import sys
from argparse import Action, ArgumentError, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from roundtrip.trace.writing.names import TRACE_VARIABLE

__all__ = ["OptionsAnywhere", "add_call", "add_files", "add_json", "add_output", "positive_seconds", "seconds"]

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


def positive_seconds(text: str) -> float:
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
    parser.add_argument(
        "call", metavar="ID", help="a call, the beginning of its name that no other call has, or `last` for the newest"
    )


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
    """Parser that takes options between positional arguments, and names the command or option that was meant.

    A parser with sub-commands that is given nothing prints its help to standard error, and exits with 2.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._apart = False
        self._has_commands = False
        self._prepare: Callable[[ArgumentParser], None] | None = None

    def when_chosen(self, prepare: Callable[[ArgumentParser], None]) -> None:
        """Take the arguments that `prepare` adds, which is called if there is anything to parse."""
        self._prepare = prepare

    def add_subparsers(self, **options: Any) -> Any:
        """As argparse does. A parser with sub-commands leaves it to theirs."""
        self._apart = self._has_commands = True
        return super().add_subparsers(**options)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse options and positional arguments apart, as `parse_intermixed_args` does for a whole command."""
        if self._prepare is not None:
            prepare, self._prepare = self._prepare, None
            prepare(self)
        if args is None:
            args = sys.argv[1:]
        if self._has_commands and not args:
            self.print_help(sys.stderr)
            self.exit(2)
        if self._has_commands and self._is_unknown(args[0]):
            # argparse would say that the command is missing.
            self.error(f"unrecognized arguments: {args[0]}{self._meant_options(args[:1])}")
        if self._apart:
            parsed, unknown = super().parse_known_args(args, namespace)
        else:
            self._apart = True
            try:
                parsed, unknown = self.parse_known_intermixed_args(args, namespace or Namespace())
            finally:
                self._apart = False
        if unknown and (self._has_commands or not self._apart):
            # Left to the parser of the whole command, the usage shown would not be that of this one.
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._meant_options(unknown)}")
        return parsed, unknown

    def _check_value(self, action: Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except ArgumentError as error:
            error.message += _meant(str(value), map(str, action.choices or ()))
            raise

    def _meant_options(self, unknown: Sequence[str]) -> str:
        """End a complaint about options with the one that was meant; without dashes, as those are alike in all."""
        spellings = [spelling[2:] for spelling in self._option_string_actions if spelling.startswith("--")]
        named = (word[2:].partition("=")[0] for word in unknown if word.startswith("--"))
        return next(filter(None, (_meant(word, spellings, dashes="--") for word in named)), "")

    def _is_unknown(self, word: str) -> bool:
        """Return True for a long option that the parser does not take, in full or abbreviated."""
        name = word.partition("=")[0]
        return name.startswith("--") and not any(one.startswith(name) for one in self._option_string_actions)


def _meant(word: str, known: Iterable[str], *, dashes: str = "") -> str:
    """End a complaint about a word with the known one that is nearest to it, if one is near."""
    # Only mistakes need it.
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1)
    return f"; did you mean '{dashes}{near[0]}'?" if near else ""
