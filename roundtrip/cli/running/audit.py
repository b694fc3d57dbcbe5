"""Run `roundtrip audit`."""

import json
import re
import shlex
from argparse import Namespace
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import anyio

from roundtrip.audit.auditing import AuditFailed, AuditPlan, audit
from roundtrip.audit.clauses import ClauseLevel
from roundtrip.audit.findings import AuditReport
from roundtrip.audit.report import as_data, as_junit, as_lines
from roundtrip.audit.sessions import AuditedTool, AuditLimits
from roundtrip.audit.wires import AuditWire, http_wire, stdio_wire
from roundtrip.cli.command import CommandFailed, report_errors
from roundtrip.cli.running.loading import load_any_server, running_own_tasks, without_log
from roundtrip.cli.trace.sources import present
from roundtrip.client.answers import NO_ANSWERS, read_answers
from roundtrip.client.failures import CallFailed
from roundtrip.client.legs import within
from roundtrip.client.targets import Target, target_of
from roundtrip.client.terminal import Terminal
from roundtrip.testing.hosting import served
from roundtrip.text import printable

_MODULE: Final = re.compile(r"(?!https?:)[^\s]+:[A-Za-z_]\w*")


def run(arguments: Namespace) -> int:
    """Run the command and return its exit code."""
    try:
        report = anyio.run(_audit, arguments)
    except (AuditFailed, CallFailed) as failure:
        raise CommandFailed(printable(f"{failure}")) from failure
    level = ClauseLevel[arguments.fail_on.upper()]
    if arguments.junit is not None:
        with report_errors(OSError, about=f"cannot write {str(arguments.junit)!r}: "):
            arguments.junit.write_text(as_junit(report, level), encoding="utf-8")
    present(arguments, lambda: as_data(report, level), lambda screen: screen.lines(as_lines(report, level)))
    return 1 if report.failures(level) else 0


async def _audit(arguments: Namespace) -> AuditReport:
    limits = AuditLimits(
        requests=arguments.max_requests,
        seconds=arguments.max_seconds,
        timeout=arguments.timeout,
        rounds=arguments.max_rounds,
        body_bytes=arguments.body_size * 2**20,
    )
    plan = _plan(arguments, limits)
    return await within(_connected(arguments, limits), partial(audit, plan))


def _plan(arguments: Namespace, limits: AuditLimits) -> AuditPlan:
    if arguments.server is None and not arguments.command_words:
        raise CommandFailed("no server was given; add an address, MODULE:SERVER, or a command after `--`")
    if arguments.server is not None and arguments.command_words:
        raise CommandFailed(f"there are two servers, {arguments.server!r} and the command after `--`; give only one")
    tools = _tools(arguments.tool, _arguments_in(arguments.args))
    tool_names = {tool.name for tool in tools}
    for name in arguments.once:
        if name not in tool_names:
            raise CommandFailed(f"--once {name} must also be given as a --tool; add --tool {name}")
    return AuditPlan(
        target=arguments.server or shlex.join(arguments.command_words),
        tools=tools,
        answers=NO_ANSWERS if arguments.answers is None else read_answers(arguments.answers),
        limits=limits,
        has_other=bool(arguments.other_header),
        stale=arguments.stale,
        once=frozenset(arguments.once),
        secrets=tuple(arguments.secret),
    )


def _tools(options: Sequence[str], arguments_by_tool: Mapping[str, Any]) -> tuple[AuditedTool, ...]:
    if not options:
        raise CommandFailed("no tool was given; add --tool NAME for each tool that the audit may call")
    tools: dict[str, AuditedTool] = {}
    for word in options:
        name, equals, text = word.partition("=")
        values = _object(text, f"--tool {name}") if equals else arguments_by_tool.get(name, {})
        if not isinstance(values, Mapping):
            raise CommandFailed(f"--args: the arguments for {name!r} must be a JSON object")
        if name in tools:
            raise CommandFailed(f"--tool {name} is given twice; give it once")
        tools[name] = AuditedTool(name, cast("Mapping[str, Any]", values))
    unknown = [name for name in arguments_by_tool if name not in tools]
    if unknown:
        raise CommandFailed(f"--args has arguments for {unknown[0]!r}, but no --tool names it; add --tool {unknown[0]}")
    return tuple(tools.values())


def _arguments_in(file: str | None) -> Mapping[str, Any]:
    if file is None:
        return {}
    with report_errors(OSError, about=f"cannot read {file!r}: "):
        return _object(Path(file).read_text(encoding="utf-8"), f"--args {file}")


def _object(text: str, where: str) -> Mapping[str, Any]:
    with report_errors(ValueError, about=f"{where}: the arguments are not JSON: "):
        value: Any = json.loads(text)
    if not isinstance(value, Mapping):
        raise CommandFailed(f"{where}: the arguments must be a JSON object")
    return cast("Mapping[str, Any]", value)


@asynccontextmanager
async def _connected(arguments: Namespace, limits: AuditLimits) -> AsyncGenerator[AuditWire]:
    """Connect to an address, a command, or a `MODULE:SERVER`. A `MODULE:SERVER` is served in this process."""
    name: str | None = arguments.server
    async with AsyncExitStack() as stack:
        if name is not None and (_MODULE.fullmatch(name) or re.fullmatch(r"\S+\.py", name)):
            with running_own_tasks():
                server = load_any_server(name)
            # A server under attack logs a lot. To see its log, run `roundtrip serve`, and audit that server's address.
            stack.enter_context(without_log())
            name = await stack.enter_async_context(served(server))
        target = Target(command=(*arguments.command_words,)) if name is None else target_of(name, arguments.header)
        if target.url is not None:
            other = target_of(target.url, arguments.other_header or arguments.header)
            wire = http_wire(target.url, limits.timeout, (target.headers, other.headers))
        elif arguments.header or arguments.other_header:
            raise CommandFailed("--header and --other-header need an HTTP server, got a command; remove them")
        else:
            wire = stdio_wire(target, Terminal(listen=False), patience=limits.timeout)
        yield await stack.enter_async_context(wire)
