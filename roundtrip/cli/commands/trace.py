"""`roundtrip trace`: what happened to calls, and why. The modules of `cli.trace` have the `COMMANDS` of its views."""

from argparse import Namespace
from functools import partial
from importlib import import_module
from typing import Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import OptionsAnywhere

_PACKAGE: Final = "roundtrip.cli.trace"
_VIEWS: Final = {
    "ls": ("listing", "list the calls"),
    "show": ("showing", "show one call, round by round"),
    "explain": ("reports", "say why a call asked again, or was rejected"),
    "tail": ("tailing", "follow what happens, live"),
    "diff": ("reports", "compare two calls"),
    "token": ("token", "see what a token says"),
    "fork": ("forking", "let a recorded call go another way, on the code as it is now"),
    "to-test": ("export", "write a test that makes a call again"),
    "export": ("export", "write one call as a page or a diagram"),
    "index": ("keeping", "find calls quickly among millions"),
    "prune": ("keeping", "delete old transcripts"),
}
"""The module of each view, which is imported when the view is chosen, and its summary."""

_GUESSES: Final = {"page": "export --html", "html": "export --html", "list": "ls", "test": "to-test"}
"""Other names that users try."""


def _configure(parser: OptionsAnywhere) -> None:
    chosen = parser.add_subparsers(title="views", metavar="VIEW", dest="view", required=True)
    parser.guesses = _GUESSES
    for name, (_, summary) in _VIEWS.items():
        view = chosen.add_parser(name, help=summary, allow_abbrev=False)
        view.when_chosen(partial(_prepare, name=name))


def _command(view: str) -> Command:
    return import_module(f"{_PACKAGE}.{_VIEWS[view][0]}").COMMANDS[view]


def _prepare(parser: OptionsAnywhere, *, name: str) -> None:
    command = _command(name)
    parser.description = command.description
    command.configure(parser)


def _run(arguments: Namespace) -> int:
    return _command(arguments.view).run(arguments)


COMMAND = Command(
    description=(
        "Read the transcripts that servers write with Server(trace='calls.jsonl') or ROUNDTRIP_TRACE=calls.jsonl. "
        "Name files, or directories of them, last; without any, ROUNDTRIP_TRACE names them."
    ),
    configure=_configure,
    run=_run,
)
