"""`roundtrip trace`: what happened to calls, and why. Each sub-command is one module with a `COMMAND`."""

from argparse import ArgumentParser, Namespace
from functools import partial
from typing import Final

from roundtrip.cli.command import Command, command_in, prepare
from roundtrip.cli.parsing import OptionsAnywhere

__all__ = ["COMMAND"]

_VIEWS: Final = {
    "ls": ("listing", "list the calls"),
    "show": ("showing", "show one call, round by round"),
    "explain": ("explaining", "say why a call asked again, or was rejected"),
    "tail": ("tailing", "follow what happens, live"),
    "diff": ("comparing", "compare two calls"),
    "token": ("token", "see what a token says"),
    "to-test": ("to_test", "write a test that makes a call again"),
    "export": ("export", "write one call as a page, a diagram or spans"),
    "serve": ("serve", "show calls in a browser, while they happen"),
}


def _configure(parser: ArgumentParser) -> None:
    chosen = parser.add_subparsers(
        title="views", metavar="VIEW", dest="view", required=True, parser_class=OptionsAnywhere
    )
    for name, (module, summary) in _VIEWS.items():
        view = chosen.add_parser(name, help=summary, allow_abbrev=False)
        view.when_chosen(partial(prepare, module=f"{__name__}.{module}"))


def _run(arguments: Namespace) -> int:
    module, _ = _VIEWS[arguments.view]
    return command_in(f"{__name__}.{module}").run(arguments)


COMMAND = Command(
    description=(
        "Read the transcripts that servers write with Server(trace='calls.jsonl') or ROUNDTRIP_TRACE=calls.jsonl. "
        "Files, or directories of them, are named last; where none is named, ROUNDTRIP_TRACE says which to read."
    ),
    configure=_configure,
    run=_run,
)
