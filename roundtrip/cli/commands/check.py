"""`roundtrip check`: check recorded calls against the present code, before it is deployed."""

from typing import Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import LEG_SECONDS, OptionsAnywhere, add_json, add_target, add_timeout

ASKS_AGAIN, NOT_CHECKED = "asks-again", "not-checked"
_EXIT_CODES: Final = """\
exit codes:
  0  all calls are compatible, or what they do is allowed
  1  a call asks again or diverges
  2  no call could be checked, or the command could not do its work; standard error has the reason
  3  no call asks again or diverges, but some could not be checked, or not to their last question"""


def _configure(parser: OptionsAnywhere) -> None:
    add_target(parser)
    parser.add_option("--tool", "NAME", "check calls of this tool (prompt, template) only")
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
        "a mapping of functions to replacements, as for server.overrides, for example for resolvers that call "
        "other systems",
    )
    add_timeout(parser, LEG_SECONDS, "per leg")
    add_json(parser)
    parser.add_argument("files", nargs="+", metavar="TRANSCRIPT", help="transcripts, or directories of them")


COMMAND = Command(
    "Replay recorded calls, and report answers that no longer count and calls that ask or end differently. The "
    "transcripts must be recorded with reveal: Server(trace=Recorder(path, reveal='all')), or "
    "ROUNDTRIP_TRACE_REVEAL=all. Resolvers run, without an authenticated user. A body that asked runs up to its last "
    "recorded question, with the recorded results of its steps; no step runs, and no body that must run once.",
    _configure,
    _EXIT_CODES,
)
