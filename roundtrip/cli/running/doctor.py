"""Run `roundtrip doctor`, and render its report as text or JSON."""

import json
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from typing import Any, Final

import anyio

from roundtrip.cli.command import CommandFailed, report_errors
from roundtrip.cli.running.loading import names_server
from roundtrip.cli.running.starting import listen_for
from roundtrip.cli.trace.sources import present
from roundtrip.client.failures import CallFailed
from roundtrip.client.targets import target_of
from roundtrip.client.terminal import Line
from roundtrip.doctor.client_report import ClientReport
from roundtrip.doctor.client_server import NAME, TOOL, make_server
from roundtrip.doctor.facts import Facts, Observed
from roundtrip.doctor.findings import Finding, Level, builds_text, findings_of
from roundtrip.doctor.local import InstanceNotStarted, instances_of
from roundtrip.doctor.probing import observe
from roundtrip.serving.process import Ended, serve, set_up_logging
from roundtrip.serving.settings import ServeSettings

_STYLES: Final = {Level.OK: "green", Level.NOTE: "yellow", Level.PROBLEM: "bold red"}


def run(arguments: Namespace) -> int:
    """Run the command and return its exit code."""
    if arguments.client:
        if not arguments.stdio:
            return _serve_http(arguments.port, as_json=arguments.json)
        make_server().run("stdio")
        return 0
    with ExitStack() as stack:
        urls: list[str] = []
        for url in dict.fromkeys(arguments.urls):
            with report_errors(InstanceNotStarted):
                urls += stack.enter_context(instances_of(url)) if names_server(url) else [url]
        return _compare(urls, arguments)


def _serve_http(port: int, *, as_json: bool) -> int:
    def print_report(report: ClientReport) -> None:
        lines = [json.dumps(report.as_data())] if as_json else ["", *report.lines()]
        print(*lines, sep="\n", flush=True)

    settings = ServeSettings(port=port, drain=0, log_level="warning")
    set_up_logging(settings)
    listening = listen_for(settings)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}{settings.path}"
    if not as_json:
        command = {"command": sys.executable, "args": ["-m", "roundtrip", "doctor", "--client", "--stdio"]}
        print(
            f"Add this server to your client, by its address ({url}) or by its command:",
            json.dumps({"mcpServers": {NAME: command}}, indent=2),
            f"Each client that connects is reported below. Then tell the model to call {TOOL} with try_a_form=true.",
            sep="\n",
            flush=True,
        )
    ended = serve(make_server(print_report), settings, listening)
    return CommandFailed.exit_code if ended is Ended.NOT_BEGUN else 0


def _compare(urls: list[str], arguments: Namespace) -> int:
    with report_errors(CallFailed):
        targets = [target_of(url, arguments.header) for url in urls]
    for url, target in zip(urls, targets, strict=True):
        if target.url is None:
            raise CommandFailed(
                f"URL must be an http(s) address, got {url!r}; start the instances with roundtrip serve"
            )

    fleet = anyio.run(partial(observe, targets, patience=arguments.timeout, expected=arguments.expect))
    findings = findings_of(fleet)
    present(arguments, lambda: as_data(fleet, findings), lambda screen: screen.lines(as_lines(fleet, findings)))
    if not fleet.instances:
        return CommandFailed.exit_code
    return 1 if any(finding.level is Level.PROBLEM for finding in findings) else 0


# The report.


def as_lines(fleet: Observed, findings: Sequence[Finding]) -> Iterator[Line]:
    """Yield the report's lines. They contain text from servers, which is not escaped yet."""
    for instance in fleet.instances.values():
        facts = instance.facts
        urls = ", ".join(fleet.endpoints[number].url for number in sorted(instance.endpoints))
        yield 0, ((f"{fleet.label(facts.instance)}  {facts.name}", "bold"), f" at {urls} (instance {facts.instance})")
        keys = ", ".join(facts.keys) if facts.keys else "of a custom codec"
        remark = "" if facts.needs_ledger else " (not needed)"
        yield 4, (f"keys {keys}; audience {facts.audience}; {builds_text(facts)}; ledger {facts.ledger}{remark}",)
        clock = f"clock {instance.offset:+.1f} s (give or take {instance.uncertainty:.1f})"
        revisions = ", ".join(fleet.endpoints[min(instance.endpoints)].revisions)
        served = f"; served by {facts.transport}" if facts.transport is not None else ""
        yield 4, (f"{clock}; {facts.versions}; protocol {revisions}{served}",)
    if fleet.instances:
        yield 0, ()
    for finding in findings:
        yield 0, ((f"{finding.level.value:<9}", _STYLES[finding.level]), f"{finding.topic}: {finding.text}")
        if finding.advice:
            yield 9, (finding.advice,)
    yield 0, ()
    yield 0, ((_summary(fleet, findings), "bold"),)


def _summary(fleet: Observed, findings: Sequence[Finding]) -> str:
    problems = sum(finding.level is Level.PROBLEM for finding in findings)
    count = len(fleet.instances)
    count_text = f"{count} of {fleet.sought}" if count < fleet.sought else str(count)
    plural = "" if count_text == "1" else "s"
    return f"{count_text} instance{plural} met: {problems or 'no'} problem{'' if problems == 1 else 's'}"


def as_data(fleet: Observed, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the report as JSON data."""
    return {
        "met": len(fleet.instances),
        "sought": fleet.sought,
        "places": [
            {**asdict(endpoint), "instances": fleet.behind(number)} for number, endpoint in enumerate(fleet.endpoints)
        ],
        "instances": [
            {
                "label": fleet.label(instance.facts.instance),
                **instance.facts.model_dump(mode="json", include=set(Facts.model_fields)),
                "offset": round(instance.offset, 3),
                "uncertainty": round(instance.uncertainty, 3),
                "ledger_seen": instance.look,
            }
            for instance in fleet.instances.values()
        ],
        "journeys": [
            {**asdict(journey), "start": fleet.endpoints[journey.start].url, "end": fleet.endpoints[journey.end].url}
            for journey in fleet.journeys
        ],
        "findings": [asdict(finding) for finding in findings],
    }
