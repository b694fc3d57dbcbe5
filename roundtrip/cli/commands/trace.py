"""`roundtrip trace`: inspect recorded calls. Each module in `cli.trace` lists its views in `COMMANDS`."""

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
    "explain": ("reports", "explain why a call asked again, failed or was rejected"),
    "tail": ("tailing", "follow events live"),
    "diff": ("reports", "compare two calls"),
    "token": ("token", "show a token's content"),
    "fork": ("forking", "replay a recorded call on the current code with other answers"),
    "to-test": ("export", "write a test that repeats a call"),
    "export": ("export", "write one call as a page or a diagram"),
    "index": ("keeping", "index transcripts, to find calls quickly among millions"),
    "prune": ("keeping", "delete old transcripts"),
}
"""Each view, mapped to its module and its summary. The module is imported only when the user chooses the view."""

_CORRECTIONS: Final = {"page": "export --html", "html": "export --html", "list": "ls", "test": "to-test"}
"""Wrong view names that users are likely to type, mapped to the correct names."""


def _configure(parser: OptionsAnywhere) -> None:
    views = parser.add_subparsers(title="views", metavar="VIEW", dest="view", required=True)
    parser.corrections = _CORRECTIONS
    for name, (_, summary) in _VIEWS.items():
        view = views.add_parser(name, help=summary, allow_abbrev=False)
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
        "Give transcript files or directories as the last arguments; by default, ROUNDTRIP_TRACE names them."
    ),
    configure=_configure,
    run=_run,
)
