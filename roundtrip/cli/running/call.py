"""Run `roundtrip call`."""

import logging
import sys
from argparse import Namespace
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import anyio
from mcp_types import Root
from pydantic import BaseModel, FileUrl

from roundtrip.adapters.finding import is_fastmcp
from roundtrip.cli.command import CommandFailed
from roundtrip.cli.running.loading import load_any_server, names_server, running_own_tasks
from roundtrip.cli.trace.sources import json_text
from roundtrip.client.answers import NO_ANSWERS, read_answers
from roundtrip.client.call import CallPlan, CallResult, carry_out
from roundtrip.client.failures import CallFailed, ExitCode
from roundtrip.client.legs import Era
from roundtrip.client.targets import Target, target_of
from roundtrip.client.terminal import Terminal
from roundtrip.client.tools import text_of_result, text_of_tools
from roundtrip.sdk import remove_log_handlers


def run(arguments: Namespace) -> int:
    """Run the command and return its exit code."""
    try:
        with running_own_tasks():
            return _call(arguments)
    except CallFailed as failure:
        failed = CommandFailed(str(failure))
        failed.exit_code = failure.ending
        raise failed from failure


def _call(arguments: Namespace) -> ExitCode:
    if arguments.list and arguments.tool is not None:
        raise CallFailed("--list does not call a tool; remove TOOL")
    if arguments.task is not None and (arguments.tool is not None or arguments.list or arguments.no_tasks):
        raise CallFailed("--task continues an existing call; remove TOOL, --list and --no-tasks")
    if arguments.cancel and arguments.task is None:
        raise CallFailed("--cancel needs a task to cancel; add --task ID")
    terminal = Terminal(listen=arguments.answers != "-")
    if arguments.step and not terminal.has_person:
        raise CallFailed("--step needs a terminal, where it waits for you")
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
    # Keep standard output free for the result, even if a server in this process prints something.
    with redirect_stdout(sys.stderr):
        outcome = anyio.run(carry_out, plan, terminal)
    if not isinstance(outcome, CallResult):
        _print(json_text([_data(tool) for tool in outcome]) if arguments.json else text_of_tools(outcome))
        return ExitCode.COMPLETED
    _print(json_text(_data(outcome.result)) if arguments.json else text_of_result(outcome.result))
    return outcome.ending


def _target(text: str, headers: list[str]) -> Target:
    """Return the server to call. A `MODULE:SERVER` is loaded into this process."""
    if not names_server(text):
        return target_of(text, headers)
    if headers:
        raise CallFailed("--header needs an HTTP server, got a server in this process; remove it")
    server = load_any_server(text)
    # Replace the SDK's log handler, which uses rich and writes narrow columns. The SDK's default level would also log
    # expected failures, which the result shows anyway.
    root = logging.getLogger()
    if remove_log_handlers():
        plain = logging.StreamHandler()
        plain.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        plain.setLevel(logging.WARNING if root.level == logging.INFO else logging.NOTSET)
        root.addHandler(plain)
    if is_fastmcp(server):
        # Serve a FastMCP server in a separate process. In this process, its lifespan would not be entered.
        return Target(command=(sys.executable, "-m", "roundtrip", "serve", text, "--stdio"))
    return Target(server=server)


def _root(path: str) -> Root:
    folder = Path(path).absolute()
    return Root(uri=FileUrl(folder.as_uri()), name=folder.name or None)


def _data(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def _print(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
