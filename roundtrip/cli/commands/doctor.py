"""`roundtrip doctor`: check that a service's instances fit together, or report a client's capabilities."""

from argparse import Namespace
from typing import Final

from roundtrip.cli.command import Command, load_and_run
from roundtrip.cli.parsing import PORT, OptionsAnywhere, add_header, add_json, add_timeout, whole_number

_TIMEOUT_SECONDS: Final = 10.0
_PORT: Final = 8765

_DESCRIPTION: Final = """\
Probe the instances of a service, and report in plain words whether they fit together: whether they share keys,
audience, build, clock and ledger, and whether a call that begins on one can end on another. With --client, serve one
tool that reports what a client can be asked: forms, URLs, its model, its roots and tasks."""

_EPILOG: Final = """\
URL is the address of an instance (http://10.0.0.1:8000/mcp) or of a balancer. With a balancer, the doctor sends
requests until no new instance answers. For MODULE:SERVER, or a file with one server, the doctor starts two instances on
this machine, with this environment, and checks whether they fit together. Running servers must allow the probe:
ROUNDTRIP_PROBE=1 in their environment, or Server(..., probe=True). Only a roundtrip.Server can be probed. FastMCP and
SDK servers cannot, even after install(). The doctor asks no user and runs none of the service's tools.

clients:
  roundtrip doctor --client
      Print how to add this server to a client, serve it over HTTP on this machine, and report each connecting client.
  roundtrip doctor --client --stdio
      The command for a client to start.

headers:
  Keep secrets out of the command line: in single quotes, --header 'Authorization: Bearer ${TOKEN}' reads the value
  from the environment. Headers go to every URL.

exit codes:
  0    no problems; there may be notes
  1    problems were found
  2    wrong usage, or no instance answered the probe
  130  interrupted"""


def _configure(parser: OptionsAnywhere) -> None:
    parser.add_argument(
        "urls", nargs="*", metavar="URL", help="an instance, a balancer, or MODULE:SERVER to start two instances"
    )
    add_header(parser)
    add_timeout(parser, _TIMEOUT_SECONDS, "time limit for one request")
    parser.add_option("--expect", "N", "the expected number of instances; fewer is a problem", type=whole_number(1))
    parser.add_switch("--client", "report what a client can be asked; takes no URL")
    parser.add_switch("--stdio", "with --client: serve on standard input and output")
    parser.add_option("--port", "N", "with --client: the port, 0 for a free port", type=PORT, default=_PORT)
    add_json(parser)
    parser.set_defaults(reject=parser.error)


def _run(arguments: Namespace) -> int:
    if arguments.client and arguments.urls:
        arguments.reject("argument --client: not allowed with URL")
    if arguments.stdio and not arguments.client:
        arguments.reject("argument --stdio: requires --client")
    if not arguments.client and not arguments.urls:
        arguments.reject("the following arguments are required: URL, or --client")
    return load_and_run(arguments)


COMMAND = Command(_DESCRIPTION, _configure, _EPILOG, _run)
