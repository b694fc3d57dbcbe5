"""Run `roundtrip check`."""

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from functools import partial
from typing import Any, cast

from roundtrip.checking.checking import check_calls
from roundtrip.checking.reports import CheckResult, Verdict, as_data, as_text, summary
from roundtrip.cli.command import CommandFailed
from roundtrip.cli.commands.check import ASKS_AGAIN, NOT_CHECKED
from roundtrip.cli.running.loading import load_module
from roundtrip.cli.running.rehearsing import load_for_rehearsal, rehearse
from roundtrip.cli.trace.sources import json_text, load
from roundtrip.errors import RoundtripError
from roundtrip.server.attach import Attached
from roundtrip.switches import PROBE_TOOL


def run(arguments: Namespace) -> int:
    """Run the command and return its exit code."""
    if arguments.target.endswith(".jsonl"):
        raise CommandFailed("the server must come first: roundtrip check MODULE:SERVER TRANSCRIPT ...")
    traced = load(arguments)
    calls = [call for call in traced.calls.values() if arguments.tool in (None, call.tool)]
    if not calls:
        suffix = "" if arguments.tool is None else f" of {arguments.tool!r}"
        raise CommandFailed(f"these transcripts contain no calls{suffix}")
    server = _load(arguments.target, arguments.overrides)
    if PROBE_TOOL not in server.plans:
        # Skip calls of the probe tool, which earlier versions recorded.
        calls = [call for call in calls if call.tool != PROBE_TOOL]
    results: list[CheckResult] = []
    output = sys.stdout

    def report(checked: CheckResult) -> None:
        results.append(checked)
        if not arguments.json:
            print(as_text(checked), file=output, flush=True)

    # Keep the server's own output out of the report.
    with redirect_stdout(sys.stderr):
        rehearse(partial(check_calls, server, calls, report, now=time.time(), seconds=arguments.timeout))
    if arguments.json:
        print(json_text([as_data(checked) for checked in results]))
    else:
        print(summary(results))
    verdicts = {checked.verdict for checked in results}
    if verdicts <= {Verdict.NOT_CHECKED}:
        raise CommandFailed("no call could be checked up to its last question; see the report for the reasons")
    if Verdict.DIVERGES in verdicts or (Verdict.ASKS_AGAIN in verdicts and ASKS_AGAIN not in arguments.allow):
        return 1
    return 3 if NOT_CHECKED not in arguments.allow and any(result.not_checked is not None for result in results) else 0


def _load(target: str, overrides: str | None) -> Attached:
    server = load_for_rehearsal(target)
    if overrides is None:
        return server
    name, colon, attribute = overrides.rpartition(":")
    if not colon or not name or not attribute:
        raise CommandFailed(f"--overrides must be MODULE:NAME or FILE.py:NAME, got {overrides!r}")
    try:
        replacements: object = getattr(load_module(name, reuses=True), attribute)
        if not isinstance(replacements, Mapping):
            raise CommandFailed("the value must map functions to functions")
        server.overrides.update_all(cast("Mapping[Callable[..., Any], Callable[..., Any]]", replacements))
    except (CommandFailed, AttributeError, KeyError, RoundtripError) as error:
        raise CommandFailed(f"--overrides {overrides!r}: {error.args[0] if error.args else error}") from error
    return server
