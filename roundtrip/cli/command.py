"""Sub-commands: their parts, lookup and failure."""

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
_FULL: Final = 90
"""Length from which on a line of a text is one that its author has filled, so that the next line continues it."""


def load_and_run(arguments: Namespace) -> int:
    """Run the chosen command by the module in `running` that has its name, and return the exit code."""
    return import_module(f"{_PACKAGE}.running.{arguments.command}").run(arguments)


class Command(NamedTuple):
    """One sub-command: its arguments, and the function that runs it."""

    description: str
    configure: Callable[[OptionsAnywhere], None]
    epilog: str = ""
    """Text below the help of the arguments; with one, both texts keep their paragraphs and tables."""
    run: Callable[[Namespace], int] = load_and_run
    """Function that returns the exit code."""


class CommandFailed(Exception):
    """A command that cannot be carried out; the message has the reason and the fix."""

    exit_code = 2


@contextmanager
def reported(*errors: type[Exception], about: str = "") -> Generator[None]:
    """Report errors as the failure of the command, with a text before the reason; of an `OSError` without its number.

    Raises:
        CommandFailed: One of the errors was raised within the block.
    """
    try:
        yield
    except errors as error:
        raise CommandFailed(f"{about}{getattr(error, 'strerror', None) or error}") from error


def command_in(name: str) -> Command:
    """Import the module of a command and return its `COMMAND`."""
    return import_module(f"{_PACKAGE}.commands.{name}").COMMAND


def prepare(parser: OptionsAnywhere, *, name: str) -> None:
    """Add the arguments of the command of this name to a parser."""
    command = command_in(name)
    parser.description = command.description
    if command.epilog:
        width = shutil.get_terminal_size().columns - 2
        parser.description, parser.epilog = filled(command.description, width), filled(command.epilog, width)
        parser.formatter_class = RawDescriptionHelpFormatter
    command.configure(parser)


def filled(text: str, width: int) -> str:
    """Return a text whose lines fit a width. Its paragraphs, indentations and tables stay."""
    lines = text.splitlines()
    if all(len(line) <= width for line in lines):
        return text
    paragraphs: list[str] = []
    last = ""
    for line in lines:
        if len(last) >= _FULL and line.strip() and len(line) - len(line.lstrip()) == _column(last):
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
    """Return where the text of a line begins; in a table, that of its second column."""
    found = re.match(r" *(?:\S+(?: \S+)? {2,})?", line)
    return found.end() if found is not None else 0
