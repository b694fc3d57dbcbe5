"""`roundtrip doctor`: whether the instances of a service fit together."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from functools import partial
from typing import Final

from roundtrip.cli.command import Command, CommandFailed
from roundtrip.cli.parsing import positive_seconds

__all__ = ["COMMAND"]

_SECONDS: Final = 10.0

_DESCRIPTION: Final = """\
Probe the instances of a service, and tell in plain words whether they fit together: whether they share keys,
audience, build, clock and ledger, and whether a call that begins on one is finished on another."""

_MORE: Final = """\
URL is the address of an instance (http://10.0.0.1:8000/mcp), or of a balancer: then requests are sent until no
more instances are met behind it. The servers have to allow it: ROUNDTRIP_PROBE=1 in their environment, or
Server(..., probe=True). It asks no person anything, and runs none of the service's tools.

headers:
  Keep secrets out of the command line: --header 'Authorization: Bearer ${TOKEN}', in single quotes, reads the
  value from the environment. Headers go to every URL.

exit codes:
  0  no problems; there may be notes      2  wrong usage, or no instance answered the probe
  1  problems were found                  130  interrupted"""


def _configure(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _MORE
    parser.add_argument("urls", nargs="+", metavar="URL", help="an instance, or a balancer")
    parser.add_argument("--header", action="append", default=[], metavar="'NAME: VALUE'", help="send an HTTP header")
    parser.add_argument(
        "--timeout",
        type=positive_seconds,
        default=_SECONDS,
        metavar="SECONDS",
        help="how long one request may take; default: %(default)g",
    )
    parser.add_argument(
        "--expect", type=_number, metavar="N", help="how many instances there are; to meet fewer is a problem"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is no number of instances")
    return int(text)


def _run(arguments: Namespace) -> int:
    # Other commands need none of this, and should not wait for it.
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
            raise CommandFailed(f"{url!r} is no address of http(s); a command that serves stdio is one process alone")

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


COMMAND = Command(
    description=_DESCRIPTION,
    configure=_configure,
    run=_run,
)
