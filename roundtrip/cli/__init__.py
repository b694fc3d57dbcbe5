"""The `roundtrip` command. Each sub-command is one module with a `COMMAND`; `main` lists them."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from roundtrip.cli import call, check, demo, doctor, graph, keys, serve, trace
from roundtrip.cli.command import Command, CommandFailed
from roundtrip.cli.parsing import OptionsAnywhere

__all__ = ["main"]

_COMMANDS: tuple[Command, ...] = (
    call.COMMAND,
    check.COMMAND,
    demo.COMMAND,
    doctor.COMMAND,
    graph.COMMAND,
    keys.COMMAND,
    serve.COMMAND,
    trace.COMMAND,
)

_INTERRUPTED = 130
_PIPE_CLOSED = 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with some arguments, by default the process's own, and give its exit code.

    Raises:
        SystemExit: The arguments are wrong, or only help was asked for.
    """
    parser = argparse.ArgumentParser(prog="roundtrip", description="Look at, and try out, MCP servers that ask.")
    parser.add_argument("--version", action="version", version=f"roundtrip {version('roundtrip')}")
    chosen = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="command", required=True, parser_class=OptionsAnywhere
    )
    by_name = {command.name: command for command in _COMMANDS}
    for command in _COMMANDS:
        command.configure(
            chosen.add_parser(command.name, help=command.summary, description=command.description or command.summary)
        )
    parsed = parser.parse_args(arguments)
    try:
        return by_name[parsed.command].run(parsed)
    except CommandFailed as failure:
        print(f"roundtrip {parsed.command}: {failure}", file=sys.stderr)
        return failure.exit_code
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read along has seen enough (`| head`). What is still buffered must not fail at exit again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
