"""The `roundtrip` command. Each sub-command is one module of `commands`; `main` lists them.

Choosing a sub-command imports its module, so that help and mistakes do not wait for the others. What a sub-command
needs to run is in `running`, so that they do not wait for it either.
"""

import os
import sys
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from roundtrip.cli.command import CommandFailed, command_in, prepare
from roundtrip.cli.parsing import OptionsAnywhere

COMMANDS: Final = {
    "audit": "attack a server that asks, and report clause by clause",
    "call": "call a tool from the terminal, and answer what it asks",
    "calls": "list and show calls, and cancel, retry, expire, remind, rekey or answer stored ones",
    "check": "compare recorded calls with the present code",
    "completion": "print what completes commands and options in bash, zsh or fish",
    "demo": "watch one call hop between instances that share only a key",
    "dev": "call tools on a page in the browser, while you write the server",
    "doctor": "check that instances fit together, or what a client can be asked",
    "graph": "draw the state machine, or the dependencies of a server's tools",
    "inbox": "list, show, approve and reject what waits for your approval",
    "keys": "make the keys of a server, and replace them without losing calls",
    "new": "make a project: a server that asks, its tests, a key, and CI",
    "serve": "serve over HTTP, with one process or several",
    "trace": "look at recorded calls, and explain them",
    "ui": "see the calls of a fleet in the browser, and act on them",
    "worker": "run the tasks of a server, and serve no requests",
}

_FORMER: Final = {"tasks": "calls stored --server SERVER"}
"""What does now what former commands did."""
_INTERRUPTED = 130
_PIPE_CLOSED = 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with arguments, by default those of the process, and return its exit code.

    Raises:
        SystemExit: The arguments are wrong, or only request help.
    """
    parsed = make_parser().parse_args(arguments)
    try:
        return command_in(parsed.command).run(parsed)
    except CommandFailed as failure:
        print(f"roundtrip {parsed.command}: {failure}", file=sys.stderr)
        return failure.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader has left (`| head`). The rest of the buffer must not fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED


def make_parser() -> OptionsAnywhere:
    """Return the parser of the whole command line, whose commands get their arguments when they are chosen."""
    parser = OptionsAnywhere(prog="roundtrip", description="Look at, and try out, MCP servers that ask.")
    parser.add_argument("--version", action=_Version, nargs=0, help="show program's version number and exit")
    chosen = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    parser.guesses = _FORMER
    for name, summary in COMMANDS.items():
        chosen.add_parser(name, help=summary).when_chosen(partial(prepare, name=name))
    return parser


class _Version(Action):
    """Action that looks the version up on demand only, as that is slow."""

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option_string: Any = None) -> None:
        from importlib.metadata import version

        print(f"roundtrip {version('mcp-roundtrip')}")
        parser.exit()
