"""`roundtrip call`: call a tool from the terminal, and answer its questions."""

from typing import Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import OptionsAnywhere, add_header, add_timeout, seconds

_TIMEOUT_SECONDS: Final = 300.0
_ERAS: Final = ("retry", "live", "auto")
_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

_DESCRIPTION: Final = """\
Call a tool of any MCP server, and answer its questions. Without TOOL, list the tools and their parameters.
The result goes to standard output, everything else to standard error."""

_EPILOG: Final = """\
SERVER is a file with one server (cinema.py) or MODULE:SERVER, which runs in this process; an http(s) address; or a
command that serves stdio, in quotes: "python server.py". The command inherits this environment.

arguments:
  key=value    text; JSON if the tool's input schema does not allow text (3, true, [1, 2])
  key:=JSON    always JSON
  key@=FILE    as key=value, with the content of a file

questions:
  At a terminal, you answer one field at a time. Enter accepts a field's default or leaves the field out. `:decline`
  declines the question; `:cancel` or the end of the input cancels it. The command opens a page in the browser only
  if you agree, and only if its address is http(s).
  For scripts, --answers FILE has the answers. If it lacks an answer, you are asked; without a terminal, the
  call fails. The file is JSON: an object of answers by question name
      {"seat": {"row": "middle"}, "confirm:book": "decline"}
  or a list of entries, each with a name or a regular expression for the message, or neither for the next question
      [{"message": "Which seat", "answer": {"row": "middle"}}, {"answer": "decline"}]
  An answer is the form's content, "accept" (uses the form's defaults; for a page, prints its address), "decline" or
  "cancel"; for a model, {"text": "..."}. The live era sends no names. There, entries with a name and
  without a message are used in order, but "confirm:TOOL" answers only the confirmation of this tool.

tasks:
  If the call becomes a task, the command shows each change of its status, and asks its questions as they arrive. The
  task continues if you leave. `--task ID` resumes it, and `--task ID --cancel` cancels it.

headers:
  Keep secrets out of the command line: in single quotes, --header 'Authorization: Bearer ${TOKEN}' reads the value
  from the environment.

exit codes:
  0    the call was completed
  1    the tool failed
  2    wrong usage, or no answer
  3    a question was declined or cancelled, and the call then failed
  4    the server answered with a protocol error
  5    no connection, a lost connection, or --timeout passed
  6    the call waits for its user or for other people; its result has the handle for continue_call
  130  interrupted"""


def _configure(parser: OptionsAnywhere) -> None:
    parser.add_argument(
        "server", metavar="SERVER", help="MODULE:SERVER or a file, an http(s) address, or a command that serves stdio"
    )
    parser.add_argument("tool", nargs="?", metavar="TOOL", help="the tool to call")
    parser.add_argument("arguments", nargs="*", default=[], metavar="key=value", help="the arguments; see below")
    parser.add_switch("--list", "list the tools, as when TOOL is omitted")
    parser.add_option("--answers", "FILE", "read answers from a JSON file, or from standard input (-)")
    parser.add_argument("--era", choices=_ERAS, default="auto", help="the protocol era; default: %(default)s")
    parser.add_switch("--no-tasks", "do not allow the call to become a task")
    parser.add_option("--task", "ID", "resume a task, without TOOL")
    parser.add_switch("--cancel", "cancel the task that --task names")
    parser.add_switch("--step", "pause before every round, and show the call's state")
    parser.add_switch("--json", "print the result, or the list of tools, as JSON")
    limit = "time limit for the server, not counting your time to answer; 0 for no limit"
    add_timeout(parser, _TIMEOUT_SECONDS, limit, type=seconds)
    add_header(parser)
    parser.add_option("--root", "PATH", "a folder that the server may know about", repeats=True)
    level = f"the lowest level to show: {', '.join(_LEVELS[:-1])} or {_LEVELS[-1]}; default: %(default)s"
    parser.add_option("--log-level", "LEVEL", level, choices=_LEVELS, default="info")


COMMAND = Command(_DESCRIPTION, _configure, _EPILOG)
