"""The `roundtrip` command. Each sub-command is a module in `commands`, and is listed in `COMMANDS`.

Imports are lazy, so that help and usage errors are fast. When the user chooses a sub-command, its module in `commands`
is imported. When the sub-command runs, its implementation in `running` is imported.
"""

import os
import sys
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from roundtrip.cli.command import CommandFailed, load_command, prepare
from roundtrip.cli.parsing import OptionsAnywhere

COMMANDS: Final = {
    "audit": "attack a server that asks questions, and report on each clause",
    "call": "call a tool from the terminal and answer its questions",
    "calls": "list and show calls; cancel, retry, expire, remind, rekey or answer stored calls",
    "check": "replay recorded calls on the current code and report differences",
    "completion": "print a completion script for bash, zsh or fish",
    "demo": "watch one call hop between instances that share only a key",
    "dev": "call tools on a page in the browser while you write the server",
    "doctor": "check that instances fit together, or report what a client can be asked",
    "graph": "draw the state machine, or the dependencies of a server's tools",
    "inbox": "list, show, approve and reject the approvals that wait for you",
    "keys": "create and rotate a server's keys without losing calls",
    "new": "create a project: a server that asks questions, its tests, a key and a CI workflow",
    "serve": "serve over HTTP with one or more processes",
    "trace": "inspect and explain recorded calls",
    "ui": "watch and manage a fleet's calls in the browser",
    "worker": "run a server's tasks without serving requests",
}

_REPLACEMENTS: Final = {"tasks": "calls stored --server SERVER", "explain": "trace explain", "playground": "dev"}
"""Maps former commands, and words that users try, to commands."""
_INTERRUPTED = 130
_PIPE_CLOSED = 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return its exit code.

    Args:
        arguments: The command-line arguments; by default, `sys.argv[1:]`.

    Raises:
        SystemExit: The arguments are invalid, or request help.
    """
    parsed = make_parser().parse_args(arguments)
    try:
        return load_command(parsed.command).run(parsed)
    except CommandFailed as failure:
        print(f"roundtrip {parsed.command}: {failure}", file=sys.stderr)
        return failure.exit_code
    except PermissionError as error:
        print(f"roundtrip {parsed.command}: cannot open {error.filename!r}: {error.strerror}", file=sys.stderr)
        return CommandFailed.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The program that reads the output has closed the pipe, as `head` does. Redirect the output, so that the flush
        # at exit does not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED


def make_parser() -> OptionsAnywhere:
    """Return the `roundtrip` parser. A sub-command adds its arguments only when the user chooses it."""
    parser = OptionsAnywhere(prog="roundtrip", description="Build, run and inspect MCP servers that ask questions.")
    parser.add_argument("--version", action=_Version, nargs=0, help="show program's version number and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    parser.corrections = _REPLACEMENTS
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary).when_chosen(partial(prepare, name=name))
    return parser


class _Version(Action):
    """Action that prints the version. Looking up the version is slow, so it happens only when this option is used."""

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option_string: Any = None) -> None:
        from importlib.metadata import version

        print(f"roundtrip {version('mcp-roundtrip')}")
        parser.exit()
