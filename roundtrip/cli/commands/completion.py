"""`roundtrip completion`: print a shell's completion script."""

from argparse import Namespace
from collections.abc import Iterator
from typing import Any, Final, cast

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import OptionsAnywhere

_SHELLS: Final = ("bash", "zsh", "fish")
_FILES: Final = frozenset({"FILE", "PATH", "TRANSCRIPT", "MODULE:SERVER", "SERVER"})
"""Metavars of the arguments that may name a file."""
_FOLDERS: Final = frozenset({"FOLDER"})

_DESCRIPTION: Final = """\
Print a script for bash, zsh or fish that completes roundtrip's commands, options and choices. The script matches this
version of roundtrip."""

_EPILOG: Final = """\
shells:
  bash  roundtrip completion bash > ~/.roundtrip-completion.bash
        then add this line to ~/.bashrc: source ~/.roundtrip-completion.bash
  zsh   roundtrip completion zsh > ~/.roundtrip-completion.zsh
        then add this line to ~/.zshrc, after `compinit`: eval "$(cat ~/.roundtrip-completion.zsh)"
  fish  roundtrip completion fish > ~/.config/fish/completions/roundtrip.fish

  Repeat this after an upgrade. Or let each new shell generate the script, which takes a second:
  eval "$(roundtrip completion bash)"        the same for zsh
  roundtrip completion fish | source"""


def _configure(parser: OptionsAnywhere) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=_SHELLS, help=", ".join(_SHELLS))


def _run(arguments: Namespace) -> int:
    import shtab

    from roundtrip.cli import make_parser

    parser = make_parser()
    parser.prepare_all()
    for subparser in _all_parsers(parser):
        for action in subparser.arguments():
            # The `complete` attribute tells shtab how to complete an argument.
            if action.metavar in _FILES:
                cast("Any", action).complete = shtab.FILE
            elif action.metavar in _FOLDERS:
                cast("Any", action).complete = shtab.DIRECTORY
    print(shtab.complete(parser, shell=arguments.shell))
    return 0


def _all_parsers(parser: OptionsAnywhere) -> Iterator[OptionsAnywhere]:
    """Yield a parser and all parsers of its sub-commands, each with a one-line description."""
    yield parser
    summaries = parser.summaries()
    for name, command in parser.commands().items():
        command.description = summaries[name]
        yield from _all_parsers(command)


COMMAND = Command(_DESCRIPTION, _configure, _EPILOG, _run)
