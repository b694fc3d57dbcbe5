"""`roundtrip trace fork`: replay a recorded call on the current code, with new answers from a chosen round on."""

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
from roundtrip.cli.parsing import LEG_SECONDS, OptionsAnywhere, add_server, add_timeout, whole_number
from roundtrip.cli.running.rehearsing import load_for_rehearsal, rehearse
from roundtrip.cli.trace.calls import find_call
from roundtrip.cli.trace.sources import json_text, view
from roundtrip.machine.journal import Action
from roundtrip.text import printable

_DESCRIPTION: Final = """\
Replay a recorded call on the current code up to a round, and continue from there with different answers. Before
that round, all questions get their recorded answers. From that round on, --answer gives new answers; other questions
get their recorded answers if they have not changed.
Resolvers run. A body that can ask also runs, with its recorded steps. The fork stops at a step without a recorded
result, before a body that cannot ask, and before the end of a body that must run once. --run goes past these
points, with all side effects. Code in the body outside of steps always runs, as in every leg.
The call must be recorded with reveal: Server(trace=Recorder(path, reveal='all')), or ROUNDTRIP_TRACE_REVEAL=all. The
fork is not saved. The exit code is 1 if the current code does not reach that round as recorded, or if an --answer was
not used."""


def _options(parser: OptionsAnywhere) -> None:
    add_server(parser)
    parser.add_option(
        "--at", "ROUND", "the number of the round to fork from; the first is 1", type=whole_number(1), required=True
    )
    parser.add_option(
        "--answer",
        "NAME=VALUE",
        "a new answer: JSON or text, `:accept`, `:decline` or `:cancel`; for an approval, `:approve` or "
        "`:reject REASON`; may be repeated",
        repeats=True,
    )
    parser.add_switch("--run", "also run steps that were not recorded, to the end of the call")
    add_timeout(parser, LEG_SECONDS, "time limit for each leg")


def _fork(arguments: Namespace) -> int:
    replies = dict(_reply(text) for text in arguments.answer)
    call = find_call(arguments)
    server = load_for_rehearsal(arguments.server)
    fork = partial(fork_call, server, call, at=arguments.at, replies=replies, run=arguments.run)
    try:
        # Keep the server's own output out of the result.
        with redirect_stdout(sys.stderr):
            result = rehearse(partial(fork, now=time.time(), seconds=arguments.timeout))
    except NotReplayable as error:
        raise CommandFailed(f"cannot fork call {printable(call.id)}: {printable(str(error))}") from error
    print(json_text(fork_data(result)) if arguments.json else fork_text(result))
    return 1 if result.differs or result.unused else 0


def _reply(text: str) -> tuple[str, OwnAnswer]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise CommandFailed(f"--answer must be NAME=VALUE, got {text!r}")
    actions: dict[str, Action] = {
        **{":accept": Action.ACCEPT, ":approve": Action.ACCEPT, ":decline": Action.DECLINE},
        **{":cancel": Action.CANCEL, ":reject": Action.DECLINE},
    }
    word, _, reason = value.partition(" ")
    if word in actions:
        return name, OwnAnswer(actions[word], reason or None)
    try:
        data: Any = json.loads(value)
    except (ValueError, RecursionError):
        data = value
    return name, OwnAnswer(Action.ACCEPT, data, value)


COMMANDS: Final = {"fork": view(_DESCRIPTION, _fork, call=True, options=_options, json=True)}
