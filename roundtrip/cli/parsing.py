"""Command-line parser that accepts options anywhere and suggests corrections. This module also has shared options and
option types.
"""

import math
import sys
from argparse import Action, ArgumentError, ArgumentParser, ArgumentTypeError, BooleanOptionalAction, Namespace
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from roundtrip.text import suggestion
from roundtrip.trace.writing.names import OPERATOR_LOG_VARIABLE, TRACE_VARIABLE

TARGET: Final = "MODULE:SERVER"
TARGET_HELP: Final = (
    "a Python file with one server (cinema.py), or a module or file and the name of its server or of a function that "
    "makes one: shop.app:server, examples/shop.py:make_server"
)
LEG_SECONDS: Final = 30.0
"""Default time limit for a leg."""
_MAX_SECONDS: Final = 10 * 365 * 86400.0


def seconds(text: str) -> float:
    """Convert a text to a number of seconds, which may be 0.

    Raises:
        ArgumentTypeError: The text is not a number in the allowed range.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= _MAX_SECONDS:
        raise ArgumentTypeError(f"must be a number of seconds from 0 to ten years, got {text!r}")
    return number


def positive_seconds(text: str) -> float:
    """Convert a text to a number of seconds, which must be more than 0.

    Raises:
        ArgumentTypeError: The text is not a number in the allowed range.
    """
    number = seconds(text)
    if not number:
        raise ArgumentTypeError(f"must be greater than 0, got {text!r}")
    return number


def whole_number(minimum: int, maximum: int | None = None) -> Callable[[str], int]:
    """Return an option type for whole numbers from `minimum` to `maximum`."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < minimum or (maximum is not None and int(text) > maximum):
            limits = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
            raise ArgumentTypeError(f"must be a whole number {limits}, got {text!r}")
        return int(text)

    return read


PORT: Final = whole_number(0, 65535)
"""Option type for ports; 0 means a free port."""


def add_target(parser: "OptionsAnywhere", **options: Any) -> None:
    """Add the `MODULE:SERVER` argument."""
    parser.add_argument("target", metavar=TARGET, help=TARGET_HELP, **options)


def add_server(parser: "OptionsAnywhere", use: str = "", *, required: bool = True) -> None:
    """Add `--server`, with `use` as the first part of its help text."""
    parser.add_option("--server", TARGET, f"{use}{TARGET_HELP}", required=required)


def add_timeout(
    parser: "OptionsAnywhere", default: float, help: str, *, type: Callable[[str], float] = positive_seconds
) -> None:
    """Add `--timeout`."""
    parser.add_option("--timeout", "SECONDS", f"{help}; default: %(default)g", type=type, default=default)


def add_header(parser: "OptionsAnywhere") -> None:
    """Add `--header`."""
    parser.add_option("--header", "'NAME: VALUE'", "send an HTTP header", repeats=True)


def add_call(parser: "OptionsAnywhere") -> None:
    """Add the call ID argument."""
    parser.add_argument(
        "call", metavar="ID", help="a call's id, an unambiguous prefix of it, or `last` for the newest call"
    )


def add_files(parser: "OptionsAnywhere") -> None:
    """Add the transcript arguments, which must come last."""
    # Without a default, argparse would report the files as required.
    parser.add_argument(
        "files",
        nargs="*",
        default=[],
        metavar="FILE",
        help=f"transcript files or directories; default: ${TRACE_VARIABLE}",
    )


def add_json(parser: "OptionsAnywhere") -> None:
    """Add `--json`."""
    parser.add_switch("--json", "print JSON")


def add_output(parser: "OptionsAnywhere") -> None:
    """Add `--output`."""
    parser.add_option("--output", "PATH", "write to this file instead of standard output", type=Path)


def add_actions(parser: "OptionsAnywhere", summaries: Mapping[str, str]) -> "Iterator[tuple[str, OptionsAnywhere]]":
    """Add sub-commands, and yield each name with its parser."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action", required=True)
    for name, summary in summaries.items():
        yield name, actions.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")


def add_settings(parser: "OptionsAnywhere", flags: Mapping[str, str], *, switches: Container[str] = ()) -> None:
    """Add one option for each setting.

    Args:
        parser: The command's parser.
        flags: Maps each flag's usage to its help text. The usage is `--port N`, or `--name NAME ...` for a list. The
            parser stores a list under the flag's plural, `names`.
        switches: Flags that take no value and have no `--no-` form.
    """
    for usage, text in flags.items():
        flag, *value = usage.split()
        negatable = {"action": "store_true" if flag[2:] in switches else BooleanOptionalAction}
        options: dict[str, Any] = {"metavar": value[0]} if value else negatable
        if value[1:]:
            options |= {"action": "append", "dest": f"{flag[2:].replace('-', '_')}s"}
        parser.add_argument(flag, help=text, **options)


class OptionsAnywhere(ArgumentParser):
    """Parser that accepts options between positional arguments, and suggests corrections for commands and options.

    If a parser has sub-commands and the user gives no arguments, the parser prints its help to standard error and exits
    with 2.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._is_plain = False
        """True if this parser must parse as argparse does, without options between positional arguments."""
        self._commands: Any = None
        """The sub-command action, or None if the parser has no sub-commands."""
        self._prepare: Callable[[OptionsAnywhere], None] | None = None
        self.corrections: Mapping[str, str] = {}
        """Wrong words that users are likely to type, mapped to suggested corrections."""
        self.words_after_dashes: str | None = None
        """The name of the attribute that stores the words after `--`, which are meant for another program. If it is
        None, the parser reads these words as its own arguments.
        """

    def add_option(self, option: str, metavar: str, help: str, *, repeats: bool = False, **more: Any) -> None:
        """Add an option with a value. If `repeats` is true, the value is a list, which is empty by default."""
        repeated: dict[str, Any] = {"action": "append", "default": []} if repeats else {}
        self.add_argument(option, metavar=metavar, help=help, **repeated | more)

    def add_switch(self, option: str, help: str) -> None:
        """Add an option without a value. Its default is false."""
        self.add_argument(option, action="store_true", help=help)

    def when_chosen(self, prepare: "Callable[[OptionsAnywhere], None]") -> None:
        """Set the function that adds this parser's arguments. It is called when parsing begins."""
        self._prepare = prepare

    def prepare_all(self) -> None:
        """Add the arguments of this parser and of all its sub-commands now."""
        self._add_arguments()
        for command in self.commands().values():
            command.prepare_all()

    def commands(self) -> "Mapping[str, OptionsAnywhere]":
        """Return the sub-command parsers, by name."""
        return self._commands.choices if self._commands is not None else {}

    def summaries(self) -> Mapping[str, str]:
        """Return the sub-command help texts, by name."""
        listed: Iterable[Action] = self._commands._choices_actions if self._commands is not None else ()
        return {action.dest: action.help or "" for action in listed}

    def arguments(self) -> Sequence[Action]:
        """Return all options and positional arguments."""
        return self._actions

    def _add_arguments(self) -> None:
        if self._prepare is not None:
            prepare, self._prepare = self._prepare, None
            prepare(self)

    def add_subparsers(self, **options: Any) -> Any:
        """Add sub-commands as argparse does. Only the sub-commands' parsers accept options between positional
        arguments.
        """
        self._is_plain = True
        self._commands = super().add_subparsers(**options)
        return self._commands

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse options and positional arguments separately, as `parse_intermixed_args` does."""
        self._add_arguments()
        if args is None:
            args = sys.argv[1:]
        if self._commands is not None and not args:
            self.print_help(sys.stderr)
            self.exit(2)
        if self._commands is not None and self._is_unknown(args[0]):
            # Report the unknown option here. Otherwise, argparse would report a missing command.
            self.error(f"unrecognized arguments: {args[0]}{self._option_suggestion(args[:1])}")
        if self._is_plain:
            parsed, unknown = super().parse_known_args(args, namespace)
        else:
            self._is_plain = True
            namespace = namespace or Namespace()
            if self.words_after_dashes is not None:
                index = args.index("--") if "--" in args else len(args)
                setattr(namespace, self.words_after_dashes, list(args[index + 1 :]))
                args = args[:index]
            try:
                parsed, unknown = self.parse_known_intermixed_args(args, namespace)
            finally:
                self._is_plain = False
        if unknown and (self._commands is not None or not self._is_plain):
            # Fail here. Otherwise, the top-level parser would fail and print its own usage instead of this parser's.
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._option_suggestion(unknown)}")
        return parsed, unknown

    def _check_value(self, action: Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except ArgumentError as error:
            correction = self.corrections.get(str(value))
            near = suggestion(str(value), map(str, action.choices or ()))
            error.message += f"; did you mean '{correction}'?" if correction is not None else near
            raise

    def _option_suggestion(self, unknown: Sequence[str]) -> str:
        """Return a suggestion for misspelled options. Dashes are ignored in the comparison."""
        spellings = [spelling[2:] for spelling in self._option_string_actions if spelling.startswith("--")]
        named = (word[2:].partition("=")[0] for word in unknown if word.startswith("--"))
        return next(filter(None, (suggestion(word, spellings, before="--") for word in named)), "")

    def _is_unknown(self, word: str) -> bool:
        """Return True if a word is a long option that the parser does not know, even as an abbreviation."""
        name = word.partition("=")[0]
        return name.startswith("--") and not any(option.startswith(name) for option in self._option_string_actions)


def add_operator_log(parser: "OptionsAnywhere") -> None:
    """Add `--operator-log`."""
    parser.add_option(
        "--operator-log",
        "FILE",
        f"the operator log, which records each action; default: ${OPERATOR_LOG_VARIABLE}, else operators.jsonl "
        "beside the transcripts",
    )
