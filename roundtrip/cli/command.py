"""Sub-commands: their parts, lookup and failure."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

__all__ = ["Command", "CommandFailed", "command_in", "prepare"]


class Command(NamedTuple):
    """One sub-command: its arguments, and the function that runs it."""

    description: str
    configure: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]
    """Function that returns the exit code."""
    epilog: str = ""
    """Text below the help of the arguments; with one, the lines of both texts are printed as they are."""


class CommandFailed(Exception):
    """A command that cannot be carried out; the message has the reason and the fix."""

    exit_code = 2


def command_in(module: str) -> Command:
    """Import a module and return its `COMMAND`."""
    return import_module(module).COMMAND


def prepare(parser: ArgumentParser, *, module: str) -> None:
    """Add the arguments of a module's command to a parser."""
    command = command_in(module)
    parser.description = command.description
    if command.epilog:
        parser.epilog, parser.formatter_class = command.epilog, RawDescriptionHelpFormatter
    command.configure(parser)
