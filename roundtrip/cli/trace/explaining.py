"""`roundtrip trace explain`: why a call went as it did, one sentence for each thing that was not plain."""

import time
from argparse import ArgumentParser, Namespace
from typing import Any, Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import add_call, add_files, add_json
from roundtrip.cli.trace.sources import find_call, json_text, load, write_out
from roundtrip.cli.trace.terminal import Screen
from roundtrip.trace.explaining.explanations import ExplainedSubject, Explanation, explain
from roundtrip.trace.explaining.wording import clock_text

__all__ = ["COMMAND"]

_STYLES: Final = {
    ExplainedSubject.QUESTION: "yellow",
    ExplainedSubject.REJECTION: "bold red",
    ExplainedSubject.REPLAY: "yellow",
    ExplainedSubject.FAILURE: "bold red",
}


def _configure(parser: ArgumentParser) -> None:
    add_call(parser)
    parser.add_argument("--all", action="store_true", help="also the questions that were put for the first time")
    add_json(parser)
    add_files(parser)


def _run(arguments: Namespace) -> int:
    call = find_call(load(arguments), arguments.call)
    found = explain(call, now=time.time())
    told = [explanation for explanation in found if arguments.all or not explanation.is_plain]
    is_plain = all(explanation.is_plain for explanation in found)
    if arguments.json:
        write_out(arguments, json_text([_plain(explanation) for explanation in told]))
        return 0 if is_plain else 1
    screen = Screen()
    for explanation in told:
        title = (
            explanation.reason.value
            if explanation.reason is not None
            else explanation.error or explanation.subject.value
        )
        style = "cyan" if explanation.is_plain else _STYLES[explanation.subject]
        screen.line((clock_text(explanation.at), "dim"), "  ", (title, style))
        screen.line(explanation.text, indent=4)
    if not told:
        screen.line("Nothing to explain: every question was put once, no token was rejected, and no leg failed.")
    screen.flush()
    return 0 if is_plain else 1


def _plain(explanation: Explanation) -> dict[str, Any]:
    return {
        "subject": explanation.subject.value,
        "reason": explanation.reason.value if explanation.reason is not None else None,
        "key": explanation.key,
        "round": explanation.round,
        "leg": explanation.leg,
        "instance": explanation.instance,
        "error": explanation.error,
        "at": explanation.at,
        "text": explanation.text,
    }


COMMAND = Command(
    description=(
        "One sentence for each question that was put again, each token that was rejected, each leg that was served "
        "twice, each that failed and each call whose answers came too late: what it was about, why, and what would "
        "help. The exit code is 0 if there is nothing of that kind, and 1 if there is."
    ),
    configure=_configure,
    run=_run,
)
