"""`roundtrip check`: check recorded calls against the present code, before it is deployed."""

import importlib
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
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

_ASKS_AGAIN: Final = "asks-again"


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("target", metavar=TARGET, help=TARGET_HELP)
    parser.add_argument("--tool", metavar="NAME", help="check calls of this tool (prompt, template) only")
    parser.add_argument(
        "--allow",
        choices=[_ASKS_AGAIN],
        help="do not fail if users are asked again, for example after a deliberate change of a question",
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

    def report(checked: "Checked") -> None:
        found.append(checked)
        if not arguments.json:
            print(as_text(checked), flush=True)

    async def check() -> None:
        await check_calls(server, calls, report, now=time.time(), seconds=arguments.timeout)

    rehearse(check)
    if arguments.json:
        print(json_text([as_data(checked) for checked in found]))
    else:
        print(summary(found))
    verdicts = {checked.verdict for checked in found}
    if verdicts == {Verdict.NOT_REPLAYED}:
        raise CommandFailed("nothing could be checked; the report has the reasons")
    failures = {Verdict.DIVERGES} if arguments.allow == _ASKS_AGAIN else {Verdict.DIVERGES, Verdict.ASKS_AGAIN}
    return 1 if verdicts & failures else 0


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
    "Replay recorded calls, without running the bodies of tools, and report answers that no longer count and "
    "calls that ask or end differently. The transcripts must be recorded with reveal: "
    "Server(trace=Recorder(path, reveal='all')), or ROUNDTRIP_TRACE_REVEAL=all. Resolvers do run, without an "
    "authenticated user. The exit code is 0 if all calls are compatible, 1 if one is not, 2 if nothing could be "
    "checked.",
    _configure,
    _run,
)
