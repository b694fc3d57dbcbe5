"""`roundtrip check`: check recorded calls against the present code, before it is deployed."""

import importlib
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any, Final, cast

from roundtrip.cli.command import Command, CommandFailed
from roundtrip.cli.loading import TARGET, TARGET_HELP
from roundtrip.cli.parsing import add_json, add_timeout, positive_seconds
from roundtrip.cli.rehearsing import LEG_SECONDS, load_for_rehearsal, rehearse

if TYPE_CHECKING:
    from roundtrip.checking.reports import Checked
    from roundtrip.server.adapters.installation import Installation
    from roundtrip.server.server import Server

__all__ = ["COMMAND"]

_ASKS_AGAIN, _NOT_CHECKED = "asks-again", "not-checked"
_EXIT_CODES: Final = """\
exit codes:
  0  all calls are compatible, or what they do is allowed
  1  a call asks again or diverges
  2  no call could be checked, or the command could not do its work; standard error has the reason
  3  no call asks again or diverges, but some could not be checked, or not to their last question"""


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("target", metavar=TARGET, help=TARGET_HELP)
    parser.add_argument("--tool", metavar="NAME", help="check calls of this tool (prompt, template) only")
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        choices=[_ASKS_AGAIN, _NOT_CHECKED],
        help="do not fail if users are asked again, for example after a deliberate change of a question, or if calls "
        "could not be checked; may be repeated",
    )
    parser.add_argument(
        "--overrides",
        metavar="MODULE:NAME",
        help="a mapping of functions to replacements, as for server.overrides, for example for resolvers that call "
        "other systems",
    )
    add_timeout(parser, LEG_SECONDS, "per leg", type=positive_seconds)
    add_json(parser)
    parser.add_argument("files", nargs="+", metavar="TRANSCRIPT", help="transcripts, or directories of them")


def _run(arguments: Namespace) -> int:
    import time

    from roundtrip.checking.checking import check_calls
    from roundtrip.checking.reports import Verdict, as_data, as_text, summary
    from roundtrip.cli.trace.sources import json_text, load
    from roundtrip.server.probe import PROBE_TOOL

    if arguments.target.endswith(".jsonl"):
        raise CommandFailed("the server comes first: roundtrip check MODULE:SERVER TRANSCRIPT ...")
    traced = load(arguments)
    calls = [call for call in traced.calls.values() if arguments.tool in (None, call.tool)]
    if not calls:
        of = "" if arguments.tool is None else f" of {arguments.tool!r}"
        raise CommandFailed(f"these transcripts have no call{of}")
    server = _load(arguments.target, arguments.overrides)
    if server.plan_of(PROBE_TOOL) is None:
        # Transcripts of earlier versions have calls of the probe.
        calls = [call for call in calls if call.tool != PROBE_TOOL]
    found: list[Checked] = []
    output = sys.stdout

    def report(checked: "Checked") -> None:
        found.append(checked)
        if not arguments.json:
            print(as_text(checked), file=output, flush=True)

    async def check() -> None:
        await check_calls(server, calls, report, now=time.time(), seconds=arguments.timeout)

    # What the server prints is no part of the report.
    with redirect_stdout(sys.stderr):
        rehearse(check)
    if arguments.json:
        print(json_text([as_data(checked) for checked in found]))
    else:
        print(summary(found))
    verdicts = {checked.verdict for checked in found}
    if verdicts <= {Verdict.NOT_CHECKED}:
        raise CommandFailed("no call could be checked to its last question; the report has the reasons")
    if Verdict.DIVERGES in verdicts or (Verdict.ASKS_AGAIN in verdicts and _ASKS_AGAIN not in arguments.allow):
        return 1
    return 3 if _NOT_CHECKED not in arguments.allow and any(one.not_checked is not None for one in found) else 0


def _load(target: str, overrides: str | None) -> "Server[Any] | Installation[Any]":
    from roundtrip.errors import RoundtripError

    server = load_for_rehearsal(target)
    if overrides is None:
        return server
    name, colon, attribute = overrides.rpartition(":")
    if not colon or not name or not attribute:
        raise CommandFailed(f"--overrides must be MODULE:NAME, got {overrides!r}")
    try:
        given: object = getattr(importlib.import_module(name), attribute)
        if not isinstance(given, Mapping):
            raise CommandFailed(f"--overrides {overrides!r} must be a mapping of functions to functions")
        server.overrides.update_all(cast("Mapping[Callable[..., Any], Callable[..., Any]]", given))
    except (ImportError, AttributeError, KeyError, RoundtripError) as error:
        raise CommandFailed(f"--overrides {overrides!r}: {error.args[0] if error.args else error}") from error
    return server


COMMAND = Command(
    "Replay recorded calls, and report answers that no longer count and calls that ask or end differently. The "
    "transcripts must be recorded with reveal: Server(trace=Recorder(path, reveal='all')), or "
    "ROUNDTRIP_TRACE_REVEAL=all. Resolvers run, without an authenticated user. A body that asked runs up to its last "
    "recorded question, with the recorded results of its steps; no step runs, and no body that must run once.",
    _configure,
    _run,
    _EXIT_CODES,
)
