"""`roundtrip call`: call a tool from the terminal, and answer its questions."""

import sys
from argparse import ArgumentParser, Namespace
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from roundtrip.cli.command import Command, CommandFailed
from roundtrip.cli.loading import load_any_server, names_server, running_own_tasks
from roundtrip.cli.parsing import add_header, add_timeout, seconds

if TYPE_CHECKING:
    from mcp_types import Root
    from pydantic import BaseModel

    from roundtrip.client.failures import ExitCode
    from roundtrip.client.targets import Target

__all__ = ["COMMAND"]

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
  answer, you are asked, or without a terminal the call fails. The file is JSON, either an object by question key
      {"seat": {"row": "middle"}, "confirm:book": "decline"}
  or a list, with a key or a regular expression for the message, or neither for the next question
      [{"message": "Which seat", "answer": {"row": "middle"}}, {"answer": "decline"}]
  An answer is the form's content, or "accept" (with the form's defaults; for a page: go there), "decline" or
  "cancel"; for a model, {"text": "..."}. The live era has no keys on the wire: entries with a key and without a
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


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "server", metavar="SERVER", help="MODULE:SERVER or a file, an http(s) address, or a command that serves stdio"
    )
    parser.add_argument("tool", nargs="?", metavar="TOOL", help="the tool to call")
    parser.add_argument("arguments", nargs="*", default=[], metavar="key=value", help="its arguments; see below")
    parser.add_argument("--list", action="store_true", help="list the tools, as without TOOL")
    parser.add_argument("--answers", metavar="FILE", help="answer from a JSON file, or from standard input (-)")
    parser.add_argument("--era", choices=_ERAS, default="auto", help="the era of the protocol; default: %(default)s")
    parser.add_argument("--no-tasks", action="store_true", help="do not declare that the call may become a task")
    parser.add_argument("--task", metavar="ID", help="go on with a task, without TOOL")
    parser.add_argument("--cancel", action="store_true", help="cancel the task of --task")
    parser.add_argument("--step", action="store_true", help="wait before every round, and show the state of the call")
    parser.add_argument("--json", action="store_true", help="print the result, or the tools, as JSON")
    limit = "time limit for the server, not counting your time to answer; 0 for none"
    add_timeout(parser, _TIMEOUT_SECONDS, limit, type=seconds)
    add_header(parser)
    parser.add_argument("--root", action="append", default=[], metavar="PATH", help="a folder that the server may know")
    level = f"the lowest level to show: {', '.join(_LEVELS[:-1])} or {_LEVELS[-1]}; default: %(default)s"
    parser.add_argument("--log-level", choices=_LEVELS, default="info", metavar="LEVEL", help=level)


def _run(arguments: Namespace) -> int:
    from roundtrip.client.failures import CallFailed

    try:
        with running_own_tasks():
            return _call(arguments)
    except CallFailed as failure:
        failed = CommandFailed(str(failure))
        failed.exit_code = failure.ending
        raise failed from failure


def _call(arguments: Namespace) -> "ExitCode":
    import anyio

    from roundtrip.cli.trace.sources import json_text
    from roundtrip.client.answers import NO_ANSWERS, read_answers
    from roundtrip.client.call import Called, CallPlan, carry_out
    from roundtrip.client.failures import CallFailed, ExitCode
    from roundtrip.client.legs import Era
    from roundtrip.client.terminal import Terminal
    from roundtrip.client.tools import text_of_result, text_of_tools

    if arguments.list and arguments.tool is not None:
        raise CallFailed("--list calls no tool; leave the tool out")
    if arguments.task is not None and (arguments.tool is not None or arguments.list or arguments.no_tasks):
        raise CallFailed("--task goes on with a call; leave the tool, --list and --no-tasks out")
    if arguments.cancel and arguments.task is None:
        raise CallFailed("--cancel needs the task to cancel; give it with --task")
    terminal = Terminal(listen=arguments.answers != "-")
    if arguments.step and not terminal.has_person:
        raise CallFailed("--step needs a terminal to wait at")
    plan = CallPlan(
        target=_target(arguments.server, arguments.header),
        answers=NO_ANSWERS if arguments.answers is None else read_answers(arguments.answers),
        tool=arguments.tool,
        arguments=arguments.arguments,
        era=Era[arguments.era.upper()],
        step=arguments.step,
        timeout=arguments.timeout or None,
        roots=[_root(path) for path in arguments.root],
        log_level=arguments.log_level,
        has_tasks=not arguments.no_tasks,
        task_id=arguments.task,
        cancels=arguments.cancel,
    )
    # Standard output has the result alone, also if the server runs in this process and prints.
    with redirect_stdout(sys.stderr):
        done = anyio.run(carry_out, plan, terminal)
    if not isinstance(done, Called):
        _print(json_text([_data(tool) for tool in done]) if arguments.json else text_of_tools(done))
        return ExitCode.COMPLETED
    _print(json_text(_data(done.result)) if arguments.json else text_of_result(done.result))
    return done.ending


def _target(text: str, headers: list[str]) -> "Target":
    """Read the server; one that this process can import is loaded into it."""
    from roundtrip.client.failures import CallFailed
    from roundtrip.client.targets import Target, target_of

    if not names_server(text):
        return target_of(text, headers)
    if headers:
        raise CallFailed("--header is for addresses; a server in this process has no headers")
    from roundtrip.server.adapters.finding import is_fastmcp

    server = load_any_server(text)
    if is_fastmcp(server):
        # It enters its lifespan only where it runs.
        return Target(command=(sys.executable, "-m", "roundtrip", "serve", text, "--stdio"))
    return Target(server=server)


def _root(path: str) -> "Root":
    from mcp_types import Root
    from pydantic import FileUrl

    folder = Path(path).absolute()
    return Root(uri=FileUrl(folder.as_uri()), name=folder.name or None)


def _data(model: "BaseModel") -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _print(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)


COMMAND = Command(_DESCRIPTION, _configure, _run, _EPILOG)
