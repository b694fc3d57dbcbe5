"""`roundtrip doctor`: check that the instances of a service fit together."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from functools import partial
from typing import Final

from roundtrip.cli.command import Command, CommandFailed
from roundtrip.cli.parsing import add_header, add_json, add_timeout, positive_seconds

__all__ = ["COMMAND"]

_TIMEOUT_SECONDS: Final = 10.0

_DESCRIPTION: Final = """\
Probe the instances of a service, and report in plain words if they fit together: if they share keys, audience,
build, clock and ledger, and if a call that begins on one can end on another."""

_EPILOG: Final = """\
URL is the address of an instance (http://10.0.0.1:8000/mcp), or of a balancer: then the doctor sends requests
until it meets no more instances. The servers must allow the probe: ROUNDTRIP_PROBE=1 in their environment, or
Server(..., probe=True). The doctor asks no person and runs none of the service's tools.

headers:
  Keep secrets out of the command line: --header 'Authorization: Bearer ${TOKEN}', in single quotes, reads the
  value from the environment. Headers go to every URL.

exit codes:
  0  no problems; there may be notes      2  wrong usage, or no instance answered the probe
  1  problems were found                  130  interrupted"""


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("urls", nargs="+", metavar="URL", help="an instance, or a balancer")
    add_header(parser)
    add_timeout(parser, _TIMEOUT_SECONDS, "time limit of one request", type=positive_seconds)
    parser.add_argument(
        "--expect", type=_instance_count, metavar="N", help="the number of instances; meeting fewer is a problem"
    )
    add_json(parser)


def _instance_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"the number of instances must be at least 1, got {text!r}")
    return int(text)


def _run(arguments: Namespace) -> int:
    # Imported here, so that other commands do not wait for it.
    import anyio

    from roundtrip.cli.trace.sources import json_text
    from roundtrip.cli.trace.terminal import Screen
    from roundtrip.client.failures import CallFailed
    from roundtrip.client.targets import target_of
    from roundtrip.doctor.findings import Level, findings_of
    from roundtrip.doctor.probing import observe
    from roundtrip.doctor.telling import as_data, as_lines

    urls = list(dict.fromkeys(arguments.urls))
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
