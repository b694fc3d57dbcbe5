"""What a sub-command is made of, how it is found, and how it fails."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

__all__ = ["Command", "CommandFailed", "command_in", "prepare"]


class Command(NamedTuple):
    """One sub-command: which arguments it takes, and what it does with them."""

    description: str
    configure: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]
    """Gives the exit code."""


class CommandFailed(Exception):
    """The command cannot do what it was told; the message says why, and what would help."""

    exit_code = 2


def command_in(module: str) -> Command:
    """The `COMMAND` of a module, which is imported for it."""
    return import_module(module).COMMAND


def prepare(parser: ArgumentParser, *, module: str) -> None:
    """Have a parser take the arguments of the command in a module."""
    command = command_in(module)
    parser.description = command.description
    command.configure(parser)
