"""The `roundtrip` command. Each sub-command is one module with a `COMMAND`; `main` lists them.

A module is imported when its sub-command is chosen, so that help and mistakes are told without waiting for the others.
"""

import os
import sys
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from roundtrip.cli.command import CommandFailed, command_in, prepare
from roundtrip.cli.parsing import OptionsAnywhere

__all__ = ["main"]

_COMMANDS: Final = {
    "call": "call a tool from the terminal, and answer what it asks",
    "check": "hold recorded calls against the code as it is now",
    "demo": "watch one call hop between instances that share only a key",
    "doctor": "check whether the instances of a service fit together",
    "graph": "draw the machine, or what a server's tools depend on",
    "keys": "make the keys of a server, and replace them while calls go on",
    "serve": "serve over HTTP, with one process or several",
    "trace": "see what happened to calls, and why",
}

_INTERRUPTED = 130
_PIPE_CLOSED = 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with some arguments, by default the process's own, and give its exit code.

    Raises:
        SystemExit: The arguments are wrong, or only help was asked for.
    """
    parser = OptionsAnywhere(prog="roundtrip", description="Look at, and try out, MCP servers that ask.")
    parser.add_argument("--version", action=_Version, nargs=0, help="show program's version number and exit")
    chosen = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="command", required=True, parser_class=OptionsAnywhere
    )
    for name, summary in _COMMANDS.items():
        chosen.add_parser(name, help=summary).when_chosen(partial(prepare, module=f"{__name__}.{name}"))
    parsed = parser.parse_args(arguments)
    try:
        return command_in(f"{__name__}.{parsed.command}").run(parsed)
    except CommandFailed as failure:
        print(f"roundtrip {parsed.command}: {failure}", file=sys.stderr)
        return failure.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read along has seen enough (`| head`). What is still buffered must not fail at exit again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED


class _Version(Action):
    """Looks the version up only where it is asked for: that takes longer than all else."""

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option_string: Any = None) -> None:
        from importlib.metadata import version

        del namespace, values, option_string
        print(f"roundtrip {version('roundtrip')}")
        parser.exit()
