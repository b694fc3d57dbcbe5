"""`roundtrip audit`: attack a multi-round server through its protocol, and report on each clause."""

from pathlib import Path
from typing import Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import OptionsAnywhere, add_header, add_json, add_timeout, positive_seconds, whole_number

_TIMEOUT_SECONDS: Final = 10.0
_MAX_SECONDS: Final = 600.0
_MAX_REQUESTS: Final = 2000
_MAX_ROUNDS: Final = 10
_BODY_MIB: Final = 8
_LEVELS: Final = ("must", "should", "advice")

_DESCRIPTION: Final = """\
Attack a server that asks questions in several rounds (2026-07-28). The audit uses only the protocol, and reports on
each clause of the specification. It calls each named tool many times, and no other tool. Audit only a server whose
tools are safe to call repeatedly."""

_EPILOG: Final = """\
SERVER is an http(s) address, MODULE:SERVER, or a command that serves stdio, which may come after `--`:
  roundtrip audit http://127.0.0.1:8000/mcp --tool 'book={"film": "Dune"}'
  roundtrip audit --tool greet -- python server.py
The audit follows no redirects and uses no proxy, so no request goes to another host.

tools:
  --tool NAME or --tool 'NAME={"argument": 1}', once per tool. --args FILE has a JSON object that maps each
  tool to its arguments.
  With a second tool, the audit also tries to use one tool's state with the other.

answers:
  --answers FILE has the answers, as for `roundtrip call`. The audit makes up all other answers from the form's schema.

users:
  --header is sent with each request. With --other-header and another user's credentials, the audit also tries to use
  one user's state as the other user. Keep secrets out of the command line: in single quotes,
  --header 'Authorization: Bearer ${TOKEN}' reads the value from the environment.

verdicts:
  passed, failed, fact (the clause lets the server decide), or could not be tried, with the reason. Levels come from
  the specification, except for roundtrip's own ADVICE.

exit codes:
  0    no MUST failed; see --fail-on
  1    a MUST failed
  2    wrong usage, or the server did not answer
  130  interrupted"""


def _configure(parser: OptionsAnywhere) -> None:
    parser.add_argument("server", nargs="?", metavar="SERVER", help="an address, MODULE:SERVER, or a command in quotes")
    parser.words_after_dashes = "command_words"
    parser.add_option("--tool", "NAME", "a tool to call; see below", repeats=True)
    parser.add_option("--args", "FILE", "a JSON file that maps each tool to its arguments")
    parser.add_option("--answers", "FILE", "read answers from a JSON file, or from standard input (-)")
    add_header(parser)
    parser.add_option("--other-header", "'NAME: VALUE'", "a header that authenticates another user", repeats=True)
    parser.add_option(
        "--stale", "SECONDS", "wait this long, then require the server to reject the old state", type=positive_seconds
    )
    parser.add_option("--once", "NAME", "a tool that promises to act only once", repeats=True)
    parser.add_option("--secret", "TEXT", "a text that must not be readable in a state", repeats=True)
    parser.add_argument(
        "--fail-on", choices=_LEVELS, default="must", help="the lowest level that counts; default: %(default)s"
    )
    add_timeout(parser, _TIMEOUT_SECONDS, "time limit for one request")
    for option, type, default, help in (
        ("--max-seconds", positive_seconds, _MAX_SECONDS, "total time limit in seconds, not counting --stale"),
        ("--max-requests", whole_number(1), _MAX_REQUESTS, "maximum number of requests in total"),
        ("--max-rounds", whole_number(1), _MAX_ROUNDS, "maximum number of rounds in one call"),
        ("--body-size", whole_number(1), _BODY_MIB, "size of an oversized request, in MiB"),
    ):
        parser.add_option(option, "N", f"{help}; default: %(default)g", type=type, default=default)
    add_json(parser)
    parser.add_option("--junit", "PATH", "also write a JUnit XML report to this file", type=Path)


COMMAND = Command(_DESCRIPTION, _configure, _EPILOG)
