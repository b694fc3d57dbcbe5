"""`roundtrip audit`: attack a multi-round server over its protocol, and report clause by clause."""

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
Attack a server that asks in several rounds (2026-07-28), over its protocol alone, and report clause by clause of the
specification. Only the named tools are called, many times each: audit a server whose tools may be called."""

_EPILOG: Final = """\
SERVER is an http(s) address, MODULE:SERVER, or a command that serves stdio, which may come after `--`:
  roundtrip audit http://127.0.0.1:8000/mcp --tool 'book={"film": "Dune"}'
  roundtrip audit --tool greet -- python server.py
No request goes to another host: the audit follows no redirect, and uses no proxy.

tools:
  --tool NAME or --tool 'NAME={"argument": 1}', once for each. --args FILE has a JSON object with the arguments by tool.
  A second tool lets the audit send the state of one to the other.

answers:
  --answers FILE has the answers, as for `roundtrip call`; others are made from the form's schema.

users:
  --header is sent with each request. --other-header, with credentials of another user, lets the audit send the state
  of one user as the other. Keep secrets out of the command line: --header 'Authorization: Bearer ${TOKEN}', in single
  quotes, reads the value from the environment.

verdicts:
  passed, failed, fact (the clause leaves it to the server), and could not be tried, with the reason. Levels are those
  of the specification; ADVICE is roundtrip's.

exit codes:
  0    no MUST failed; see --fail-on
  1    a MUST failed
  2    wrong usage, or the server did not answer
  130  interrupted"""


def _configure(parser: OptionsAnywhere) -> None:
    parser.add_argument("server", nargs="?", metavar="SERVER", help="an address, MODULE:SERVER, or a command in quotes")
    parser.words_after_dashes = "command_words"
    parser.add_option("--tool", "NAME", "a tool to call; see below", repeats=True)
    parser.add_option("--args", "FILE", "the arguments by tool, as a JSON object")
    parser.add_option("--answers", "FILE", "answer from a JSON file, or from standard input (-)")
    add_header(parser)
    parser.add_option("--other-header", "'NAME: VALUE'", "a header of another user", repeats=True)
    parser.add_option(
        "--stale", "SECONDS", "wait so long, and require that a state is rejected then", type=positive_seconds
    )
    parser.add_option("--once", "NAME", "a tool that promises to act once", repeats=True)
    parser.add_option("--secret", "TEXT", "a text that must not be readable in a state", repeats=True)
    parser.add_argument(
        "--fail-on", choices=_LEVELS, default="must", help="the lowest level that counts; default: %(default)s"
    )
    add_timeout(parser, _TIMEOUT_SECONDS, "time limit of one request")
    for option, type, default, what in (
        ("--max-seconds", positive_seconds, _MAX_SECONDS, "seconds in all, not counting --stale"),
        ("--max-requests", whole_number(1), _MAX_REQUESTS, "requests in all"),
        ("--max-rounds", whole_number(1), _MAX_ROUNDS, "rounds of one call"),
        ("--body-size", whole_number(1), _BODY_MIB, "size of an oversized request, in MiB"),
    ):
        parser.add_option(option, "N", f"{what}; default: %(default)g", type=type, default=default)
    add_json(parser)
    parser.add_option("--junit", "PATH", "write JUnit's XML to this file too", type=Path)


COMMAND = Command(_DESCRIPTION, _configure, _EPILOG)
