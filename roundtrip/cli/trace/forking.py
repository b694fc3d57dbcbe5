"""Provide `roundtrip trace fork`: let a recorded call go another way, on the code as it is now."""

import json
import sys
import time
from argparse import Namespace
from contextlib import redirect_stdout
from functools import partial
from typing import Any, Final

from roundtrip.checking.fork_reports import fork_data, fork_text
from roundtrip.checking.forking import OwnAnswer, fork_call
from roundtrip.checking.recorded import NotReplayable
from roundtrip.cli.command import CommandFailed
from roundtrip.cli.parsing import LEG_SECONDS, OptionsAnywhere, add_server, add_timeout
from roundtrip.cli.running.rehearsing import load_for_rehearsal, rehearse
from roundtrip.cli.trace.calls import find_call
from roundtrip.cli.trace.sources import json_text, view
from roundtrip.machine.journal import Action
from roundtrip.text import printable

_DESCRIPTION: Final = """\
Replay a recorded call, on the code as it is now, up to a round, and let it go another way from there. The recorded
answers lead to that round, and --answer gives others; questions that stay the same are answered as recorded.
Resolvers run, and so does a body that can ask, with its recorded steps. The fork ends at a step without a result,
before a body that cannot ask, and before the end of a body that must run once: --run goes on, with all that they do.
Other code of a body outside of steps runs in any case, as in every leg.
The call must be recorded with reveal: Server(trace=Recorder(path, reveal='all')), or ROUNDTRIP_TRACE_REVEAL=all. The
fork is written nowhere. Exit code 1: the code as it is now does not come to that round as recorded, or an answer was
not asked for."""


def _options(parser: OptionsAnywhere) -> None:
    add_server(parser)
    parser.add_option("--at", "ROUND", "the number of the round, from 1", type=int, required=True)
    parser.add_option(
        "--answer",
        "NAME=VALUE",
        "an answer of this fork: JSON, or text; `:decline`, `:cancel`, `:accept`; for an approval `:approve`, or "
        "`:reject REASON`; may be repeated",
        repeats=True,
    )
    parser.add_switch("--run", "run steps that were not recorded, to the end of the call")
    add_timeout(parser, LEG_SECONDS, "per leg")


def _fork(arguments: Namespace) -> int:
    replies = dict(_reply(text) for text in arguments.answer)
    found = find_call(arguments)
    server = load_for_rehearsal(arguments.server)
    fork = partial(fork_call, server, found, at=arguments.at, replies=replies, run=arguments.run)
    try:
        # What the server prints is no part of the result.
        with redirect_stdout(sys.stderr):
            made = rehearse(partial(fork, now=time.time(), seconds=arguments.timeout))
    except NotReplayable as error:
        raise CommandFailed(f"cannot fork the call {printable(found.id)}: {printable(str(error))}") from error
    print(json_text(fork_data(made)) if arguments.json else fork_text(made))
    return 1 if made.differs or made.unused else 0


def _reply(text: str) -> tuple[str, OwnAnswer]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise CommandFailed(f"--answer must be NAME=VALUE, got {text!r}")
    words: dict[str, Action] = {
        **{":accept": Action.ACCEPT, ":approve": Action.ACCEPT, ":decline": Action.DECLINE},
        **{":cancel": Action.CANCEL, ":reject": Action.DECLINE},
    }
    word, _, reason = value.partition(" ")
    if word in words:
        return name, OwnAnswer(words[word], reason or None)
    try:
        data: Any = json.loads(value)
    except (ValueError, RecursionError):
        data = value
    return name, OwnAnswer(Action.ACCEPT, data, value)


COMMANDS: Final = {"fork": view(_DESCRIPTION, _fork, call=True, options=_options, json=True)}
