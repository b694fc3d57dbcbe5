"""Sub-commands: definition, lookup, help text and failure."""

import re
import shutil
import textwrap
from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Final, NamedTuple

from roundtrip.cli.parsing import OptionsAnywhere

_PACKAGE: Final = __name__.rpartition(".")[0]
_WRAPPED_LINE_CHARS: Final = 90
"""If a line of a help text has at least this length, the next line continues it."""


def load_and_run(arguments: Namespace) -> int:
    """Run the chosen command from its module in `running`. Return the exit code."""
    return import_module(f"{_PACKAGE}.running.{arguments.command}").run(arguments)


class Command(NamedTuple):
    """One sub-command: its arguments, and the function that runs it."""

    description: str
    configure: Callable[[OptionsAnywhere], None]
    epilog: str = ""
    """Text that the help shows below the arguments. If there is an epilog, the help keeps the paragraphs and tables in
    the epilog and the description.
    """
    run: Callable[[Namespace], int] = load_and_run
    """The function that runs the command, and returns the exit code."""


class CommandFailed(Exception):
    """The command cannot run. The message gives the reason and a fix."""

    exit_code = 2


@contextmanager
def report_errors(*errors: type[Exception], about: str = "") -> Generator[None]:
    """Turn errors in the block into a `CommandFailed`. The message omits the number of an `OSError`.

    Args:
        errors: The exception types to convert.
        about: Text to put before the reason in the message.

    Raises:
        CommandFailed: The block raised one of the errors.
    """
    try:
        yield
    except errors as error:
        raise CommandFailed(f"{about}{getattr(error, 'strerror', None) or error}") from error


def load_command(name: str) -> Command:
    """Import a command's module and return its `COMMAND`."""
    return import_module(f"{_PACKAGE}.commands.{name}").COMMAND


def prepare(parser: OptionsAnywhere, *, name: str) -> None:
    """Configure a parser for the named command."""
    command = load_command(name)
    parser.description = command.description
    if command.epilog:
        width = shutil.get_terminal_size().columns - 2
        parser.description, parser.epilog = wrap_text(command.description, width), wrap_text(command.epilog, width)
        parser.formatter_class = RawDescriptionHelpFormatter
    command.configure(parser)


def wrap_text(text: str, width: int) -> str:
    """Wrap a text to a width. Keep its paragraphs, indentation and tables."""
    lines = text.splitlines()
    if all(len(line) <= width for line in lines):
        return text
    paragraphs: list[str] = []
    last = ""
    for line in lines:
        if len(last) >= _WRAPPED_LINE_CHARS and line.strip() and len(line) - len(line.lstrip()) == _column(last):
            paragraphs[-1] += " " + line.strip()
        else:
            paragraphs.append(line)
        last = line
    return "\n".join(
        textwrap.fill(
            paragraph,
            width,
            subsequent_indent=" " * _column(paragraph),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for paragraph in paragraphs
    )


def _column(line: str) -> int:
    """Return the column at which a line's text begins. In a table, this is the beginning of the second column."""
    match = re.match(r" *(?:\S+(?: \S+)? {2,})?", line)
    return match.end() if match is not None else 0
