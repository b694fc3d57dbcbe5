"""`roundtrip call`: call a tool from the terminal, and answer its questions."""

from typing import Final

from roundtrip.cli.command import Command
from roundtrip.cli.parsing import OptionsAnywhere, add_header, add_timeout, seconds

_TIMEOUT_SECONDS: Final = 300.0
_ERAS: Final = ("retry", "live", "auto")
_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")

_DESCRIPTION: Final = """\
Call a tool of any MCP server, and answer its questions. Without TOOL, list the tools and their parameters.
The result is printed on standard output, everything else on standard error."""

_EPILOG: Final = """\
SERVER is a file with one server (cinema.py) or MODULE:SERVER, which runs in this process; an http(s) address; or a
command that serves stdio, in quotes: "python server.py". The command gets this environment.

arguments:
  key=value    text; JSON if the tool's input schema does not allow text (3, true, [1, 2])
  key:=JSON    always JSON
  key@=FILE    as key=value, with the content of a file

questions:
  At a terminal you answer one field at a time. Enter takes a field's default or leaves it out. `:decline`
  declines the question, `:cancel` or the end of the input cancels it. A page is opened in the browser only
  if you agree, and only if its address is http(s). --answers FILE answers for scripts; for a question without an
  answer, you are asked, or without a terminal the call fails. The file is JSON, an object by the names of questions
      {"seat": {"row": "middle"}, "confirm:book": "decline"}
  or a list, with a name or a regular expression for the message, or neither for the next question
      [{"message": "Which seat", "answer": {"row": "middle"}}, {"answer": "decline"}]
  An answer is the form's content, or "accept" (with the form's defaults; for a page: go there), "decline" or
  "cancel"; for a model, {"text": "..."}. The live era has no names on the wire: entries with a name and without a
  message are taken in order there. A page that a file accepts is shown, not opened.

tasks:
  If the call becomes a task, its status is shown as it changes, and its questions are asked as they come. The task
  goes on if you leave; `--task ID` picks it up, and `--task ID --cancel` cancels it.

headers:
  Keep secrets out of the command line: --header 'Authorization: Bearer ${TOKEN}', in single quotes, reads the
  value from the environment.

exit codes:
  0    the call was completed
  1    the tool failed
  2    wrong usage, or no answer
  3    a question was declined or cancelled, and the call then failed
  4    the server answered with a protocol error
  5    no connection, or it was lost, or --timeout passed
  6    the call waits for its user or for others; its result has the handle for continue_call
  130  interrupted"""


def _configure(parser: OptionsAnywhere) -> None:
    parser.add_argument(
        "server", metavar="SERVER", help="MODULE:SERVER or a file, an http(s) address, or a command that serves stdio"
    )
    parser.add_argument("tool", nargs="?", metavar="TOOL", help="the tool to call")
    parser.add_argument("arguments", nargs="*", default=[], metavar="key=value", help="its arguments; see below")
    parser.add_switch("--list", "list the tools, as without TOOL")
    parser.add_option("--answers", "FILE", "answer from a JSON file, or from standard input (-)")
    parser.add_argument("--era", choices=_ERAS, default="auto", help="the era of the protocol; default: %(default)s")
    parser.add_switch("--no-tasks", "do not declare that the call may become a task")
    parser.add_option("--task", "ID", "go on with a task, without TOOL")
    parser.add_switch("--cancel", "cancel the task of --task")
    parser.add_switch("--step", "wait before every round, and show the state of the call")
    parser.add_switch("--json", "print the result, or the tools, as JSON")
    limit = "time limit for the server, not counting your time to answer; 0 for none"
    add_timeout(parser, _TIMEOUT_SECONDS, limit, type=seconds)
    add_header(parser)
    parser.add_option("--root", "PATH", "a folder that the server may know", repeats=True)
    level = f"the lowest level to show: {', '.join(_LEVELS[:-1])} or {_LEVELS[-1]}; default: %(default)s"
    parser.add_option("--log-level", "LEVEL", level, choices=_LEVELS, default="info")


COMMAND = Command(_DESCRIPTION, _configure, _EPILOG)
