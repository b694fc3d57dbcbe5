"""`roundtrip check`: replay recorded calls on the current code, before a deployment."""

from typing import Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import LEG_SECONDS, OptionsAnywhere, add_json, add_target, add_timeout

ASKS_AGAIN, NOT_CHECKED = "asks-again", "not-checked"
_EXIT_CODES: Final = """\
exit codes:
  0  all calls are compatible, or their differences are allowed
  1  a call asks again or diverges
  2  no call could be checked, or the command failed; standard error has the reason
  3  no call asks again or diverges, but some could not be checked to their last question"""


def _configure(parser: OptionsAnywhere) -> None:
    add_target(parser)
    parser.add_option("--tool", "NAME", "check only calls of this tool, prompt or template")
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        choices=[ASKS_AGAIN, NOT_CHECKED],
        help="do not fail if users are asked again, for example after a deliberate change of a question, or if calls "
        "could not be checked; may be repeated",
    )
    parser.add_option(
        "--overrides",
        "MODULE:NAME",
        "a mapping from functions to replacements, as for server.overrides, for example for resolvers that call "
        "other systems",
    )
    add_timeout(parser, LEG_SECONDS, "time limit for each leg")
    add_json(parser)
    parser.add_argument("files", nargs="+", metavar="TRANSCRIPT", help="transcript files or directories")


COMMAND = Command(
    "Replay recorded calls on the current code. Report answers that the code no longer accepts, and calls that ask or "
    "end differently. The transcripts must be recorded with reveal: Server(trace=Recorder(path, reveal='all')), or "
    "ROUNDTRIP_TRACE_REVEAL=all. Resolvers run, without an authenticated user. If a body asked questions, it runs up "
    "to the last recorded question, with the recorded results of its steps. Steps do not run, and neither do bodies "
    "that must run once.",
    _configure,
    _EXIT_CODES,
)
