"""`roundtrip doctor`: check that the instances of a service fit together, or what a client can be asked."""

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from functools import partial
from typing import Final

from roundtrip.cli.command import Command, CommandFailed
from roundtrip.cli.listening import listen_for
from roundtrip.cli.loading import names_server
from roundtrip.cli.parsing import add_header, add_json, add_timeout, positive_seconds

__all__ = ["COMMAND"]

_TIMEOUT_SECONDS: Final = 10.0
_PORT: Final = 8765
_MAX_PORT: Final = 65535

_DESCRIPTION: Final = """\
Probe the instances of a service, and report in plain words if they fit together: if they share keys, audience,
build, clock and ledger, and if a call that begins on one can end on another. With --client, serve one tool that tells
what a client can be asked: by forms, URLs, its model, its roots and tasks."""

_EPILOG: Final = """\
URL is the address of an instance (http://10.0.0.1:8000/mcp), or of a balancer: then the doctor sends requests
until it meets no more instances. MODULE:SERVER, or a file with one server, is started twice on this machine, with this
environment, to see if its instances would fit together. Servers that run already must allow the probe:
ROUNDTRIP_PROBE=1 in their environment, or Server(..., probe=True). Only a roundtrip.Server can be probed, and no server
of FastMCP or the SDK, also after install(). The doctor asks no person and runs none of the service's tools.

clients:
  roundtrip doctor --client          print how to add this server to a client, serve it over HTTP on this machine, and
                                     report each client that connects
  roundtrip doctor --client --stdio  the command that a client starts

headers:
  Keep secrets out of the command line: --header 'Authorization: Bearer ${TOKEN}', in single quotes, reads the
  value from the environment. Headers go to every URL.

exit codes:
  0    no problems; there may be notes
  1    problems were found
  2    wrong usage, or no instance answered the probe
  130  interrupted"""


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "urls", nargs="*", metavar="URL", help="an instance, a balancer, or MODULE:SERVER to start two instances"
    )
    add_header(parser)
    add_timeout(parser, _TIMEOUT_SECONDS, "time limit of one request", type=positive_seconds)
    parser.add_argument(
        "--expect", type=_instance_count, metavar="N", help="the number of instances; meeting fewer is a problem"
    )
    parser.add_argument("--client", action="store_true", help="report what a client can be asked; takes no URL")
    parser.add_argument("--stdio", action="store_true", help="with --client: serve on standard input and output")
    parser.add_argument(
        "--port", type=_port, default=_PORT, metavar="N", help="with --client: the port, 0 for one that is free"
    )
    add_json(parser)
    parser.set_defaults(reject=parser.error)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > _MAX_PORT:
        raise ArgumentTypeError(f"the port must be a number from 0 to {_MAX_PORT}, got {text!r}")
    return int(text)


def _instance_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"the number of instances must be at least 1, got {text!r}")
    return int(text)


def _run(arguments: Namespace) -> int:
    if arguments.client:
        if arguments.urls:
            arguments.reject("argument --client: not allowed with URL")
        return _serve_stdio() if arguments.stdio else _serve_http(arguments.port, as_json=arguments.json)
    if arguments.stdio:
        arguments.reject("argument --stdio: requires --client")
    if not arguments.urls:
        arguments.reject("the following arguments are required: URL, or --client")
    return _compare(arguments)


def _serve_stdio() -> int:
    from roundtrip.doctor.client_server import make_server

    make_server().run("stdio")
    return 0


def _serve_http(port: int, *, as_json: bool) -> int:
    from roundtrip.doctor.client_report import ClientReport
    from roundtrip.doctor.client_server import NAME, TOOL, make_server
    from roundtrip.serving.process import Ended, serve, set_up_logging
    from roundtrip.serving.settings import ServeSettings

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
    from contextlib import ExitStack

    from roundtrip.doctor.local import InstanceNotStarted, instances_of

    with ExitStack() as started:
        urls: list[str] = []
        for url in dict.fromkeys(arguments.urls):
            try:
                urls += started.enter_context(instances_of(url)) if names_server(url) else [url]
            except InstanceNotStarted as failure:
                raise CommandFailed(str(failure)) from failure
        return _compare_running(urls, arguments)


def _compare_running(urls: list[str], arguments: Namespace) -> int:
    # Imported here, so that other commands do not wait for it.
    import anyio

    from roundtrip.cli.trace.sources import json_text
    from roundtrip.cli.trace.terminal import Screen
    from roundtrip.client.failures import CallFailed
    from roundtrip.client.targets import target_of
    from roundtrip.doctor.findings import Level, findings_of
    from roundtrip.doctor.probing import observe
    from roundtrip.doctor.telling import as_data, as_lines

    try:
        targets = [target_of(url, arguments.header) for url in urls]
    except CallFailed as failure:
        raise CommandFailed(str(failure)) from failure
    for url, target in zip(urls, targets, strict=True):
        if target.url is None:
            raise CommandFailed(f"{url!r} is not an address of http(s); a command over stdio is a single process")

    seen = anyio.run(partial(observe, targets, patience=arguments.timeout, expected=arguments.expect))
    findings = findings_of(seen)
    if arguments.json:
        print(json_text(as_data(seen, findings)))
    else:
        screen = Screen()
        for indent, parts in as_lines(seen, findings):
            screen.line(*parts, indent=indent)
    if not seen.instances:
        return CommandFailed.exit_code
    return 1 if any(finding.level is Level.PROBLEM for finding in findings) else 0


COMMAND = Command(_DESCRIPTION, _configure, _run, _EPILOG)
