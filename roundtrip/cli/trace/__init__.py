"""`roundtrip trace`: what happened to calls, and why. Each sub-command is one module with a `COMMAND`."""

from argparse import ArgumentParser, Namespace
from typing import Final

from roundtrip.cli.command import Command
from roundtrip.cli.trace import comparing, explaining, export, listing, serve, showing, tailing, to_test, token

__all__ = ["COMMAND"]

_VIEWS: Final[tuple[Command, ...]] = (
    listing.COMMAND,
    showing.COMMAND,
    explaining.COMMAND,
    tailing.COMMAND,
    comparing.COMMAND,
    token.COMMAND,
    to_test.COMMAND,
    export.COMMAND,
    serve.COMMAND,
)


def _configure(parser: ArgumentParser) -> None:
    chosen = parser.add_subparsers(title="views", metavar="VIEW", dest="view", required=True)
    for view in _VIEWS:
        view.configure(
            chosen.add_parser(
                view.name, help=view.summary, description=view.description or view.summary, allow_abbrev=False
            )
        )


def _run(arguments: Namespace) -> int:
    return next(view for view in _VIEWS if view.name == arguments.view).run(arguments)


COMMAND = Command(
    name="trace",
    summary="see what happened to calls, and why",
    description=(
        "Read the transcripts that servers write with Server(trace='calls.jsonl') or ROUNDTRIP_TRACE=calls.jsonl. "
        "Files, or directories of them, are named last; where none is named, ROUNDTRIP_TRACE says which to read."
    ),
    configure=_configure,
    run=_run,
)
