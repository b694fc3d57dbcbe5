"""Run `roundtrip doctor`."""

import json
import sys
from argparse import Namespace
from contextlib import ExitStack
from functools import partial

import anyio

from roundtrip.cli.command import CommandFailed, reported
from roundtrip.cli.running.loading import names_server
from roundtrip.cli.running.starting import listen_for
from roundtrip.cli.trace.sources import present
from roundtrip.client.failures import CallFailed
from roundtrip.client.targets import target_of
from roundtrip.doctor.client_report import ClientReport
from roundtrip.doctor.client_server import NAME, TOOL, make_server
from roundtrip.doctor.findings import Level, findings_of
from roundtrip.doctor.local import InstanceNotStarted, instances_of
from roundtrip.doctor.probing import observe
from roundtrip.doctor.telling import as_data, as_lines
from roundtrip.serving.process import Ended, serve, set_up_logging
from roundtrip.serving.settings import ServeSettings


def run(arguments: Namespace) -> int:
    """Run the command with its arguments, and return its exit code."""
    if arguments.client:
        return _serve_stdio() if arguments.stdio else _serve_http(arguments.port, as_json=arguments.json)
    return _compare(arguments)


def _serve_stdio() -> int:
    make_server().run("stdio")
    return 0


def _serve_http(port: int, *, as_json: bool) -> int:
    def tell(report: ClientReport) -> None:
        lines = [json.dumps(report.as_data())] if as_json else ["", *report.lines()]
        print(*lines, sep="\n", flush=True)

    settings = ServeSettings(port=port, drain=0, log_level="warning")
    set_up_logging(settings)
    listening = listen_for(settings)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}{settings.path}"
    if not as_json:
        started = {"command": sys.executable, "args": ["-m", "roundtrip", "doctor", "--client", "--stdio"]}
        print(
            f"Add this server to your client, by its address ({url}) or by its command:",
            json.dumps({"mcpServers": {NAME: started}}, indent=2),
            f"Each client that connects here is reported below. Then ask the model: call {TOOL} with try_a_form=true.",
            sep="\n",
            flush=True,
        )
    ended = serve(make_server(tell), settings, listening)
    return CommandFailed.exit_code if ended is Ended.NOT_BEGUN else 0


def _compare(arguments: Namespace) -> int:
    with ExitStack() as started:
        urls: list[str] = []
        for url in dict.fromkeys(arguments.urls):
            with reported(InstanceNotStarted):
                urls += started.enter_context(instances_of(url)) if names_server(url) else [url]
        return _compare_running(urls, arguments)


def _compare_running(urls: list[str], arguments: Namespace) -> int:
    with reported(CallFailed):
        targets = [target_of(url, arguments.header) for url in urls]
    for url, target in zip(urls, targets, strict=True):
        if target.url is None:
            raise CommandFailed(f"{url!r} is not an address of http(s); a command over stdio is a single process")

    seen = anyio.run(partial(observe, targets, patience=arguments.timeout, expected=arguments.expect))
    findings = findings_of(seen)
    present(arguments, lambda: as_data(seen, findings), lambda screen: screen.lines(as_lines(seen, findings)))
    if not seen.instances:
        return CommandFailed.exit_code
    return 1 if any(finding.level is Level.PROBLEM for finding in findings) else 0
