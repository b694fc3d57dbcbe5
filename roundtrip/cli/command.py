"""What a sub-command is made of, and how it fails."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Command", "CommandFailed"]


@dataclass(frozen=True, slots=True)
class Command:
    """One sub-command: what it is called, which arguments it takes, and what it does with them."""

    name: str
    summary: str
    configure: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]
    """Gives the exit code."""
    description: str | None = None


class CommandFailed(Exception):
    """The command cannot do what it was told; the message says why, and what would help."""

    exit_code = 2
