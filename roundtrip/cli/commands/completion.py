"""`roundtrip completion`: print what completes commands, options and their choices in a shell."""

from argparse import Namespace
from collections.abc import Iterator
from typing import Any, Final, cast

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import OptionsAnywhere

_SHELLS: Final = ("bash", "zsh", "fish")
_FILES: Final = frozenset({"FILE", "PATH", "TRANSCRIPT", "MODULE:SERVER", "SERVER"})
"""Names of arguments that may be files."""
_FOLDERS: Final = frozenset({"FOLDER"})

_DESCRIPTION: Final = """\
Print what completes the commands of roundtrip, their options and the choices of these, in bash, zsh or fish. It is
made from the parser of this version."""

_EPILOG: Final = """\
shells:
  bash  roundtrip completion bash > ~/.roundtrip-completion.bash
        and this line in ~/.bashrc: source ~/.roundtrip-completion.bash
  zsh   roundtrip completion zsh > ~/.roundtrip-completion.zsh
        and this line in ~/.zshrc, after `compinit`: eval "$(cat ~/.roundtrip-completion.zsh)"
  fish  roundtrip completion fish > ~/.config/fish/completions/roundtrip.fish

  Do so again after an upgrade. Or let each shell make it, which takes a second:
  eval "$(roundtrip completion bash)"        the same for zsh
  roundtrip completion fish | source"""


def _configure(parser: OptionsAnywhere) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=_SHELLS, help=", ".join(_SHELLS))


def _run(arguments: Namespace) -> int:
    import shtab

    from roundtrip.cli import make_parser

    parser = make_parser()
    parser.prepare_all()
    for one in _with_commands(parser):
        for action in one.arguments():
            # shtab reads this attribute.
            if action.metavar in _FILES:
                cast("Any", action).complete = shtab.FILE
            elif action.metavar in _FOLDERS:
                cast("Any", action).complete = shtab.DIRECTORY
    print(shtab.complete(parser, shell=arguments.shell))
    return 0


def _with_commands(parser: OptionsAnywhere) -> Iterator[OptionsAnywhere]:
    """Yield a parser and those of its sub-commands, each with one line of description."""
    yield parser
    summaries = parser.summaries()
    for name, command in parser.commands().items():
        command.description = summaries[name]
        yield from _with_commands(command)


COMMAND = Command(_DESCRIPTION, _configure, _EPILOG, _run)
