"""`roundtrip audit`: attack a multi-round server over its protocol, and report clause by clause."""

import json
import logging
import re
import shlex
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from roundtrip.cli.command import Command, CommandFailed
from roundtrip.cli.parsing import OptionsAnywhere, add_header, add_json, add_timeout, positive_seconds

if TYPE_CHECKING:
    from roundtrip.audit.auditing import AuditPlan
    from roundtrip.audit.findings import AuditReport
    from roundtrip.audit.sessions import AuditedTool, AuditLimits
    from roundtrip.audit.wires import AuditWire
    from roundtrip.client.targets import Target

__all__ = ["COMMAND"]

_TIMEOUT_SECONDS: Final = 10.0
_MAX_SECONDS: Final = 600.0
_MAX_REQUESTS: Final = 2000
_MAX_ROUNDS: Final = 10
_BODY_MIB: Final = 8
_LEVELS: Final = ("must", "should", "advice")
_MODULE: Final = re.compile(r"(?!https?:)[^\s]+:[A-Za-z_]\w*")

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


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("server", nargs="?", metavar="SERVER", help="an address, MODULE:SERVER, or a command in quotes")
    if isinstance(parser, OptionsAnywhere):
        parser.words_after_dashes = "command_words"
    parser.add_argument("--tool", action="append", default=[], metavar="NAME", help="a tool to call; see below")
    parser.add_argument("--args", metavar="FILE", help="the arguments by tool, as a JSON object")
    parser.add_argument("--answers", metavar="FILE", help="answer from a JSON file, or from standard input (-)")
    add_header(parser)
    parser.add_argument(
        "--other-header", action="append", default=[], metavar="'NAME: VALUE'", help="a header of another user"
    )
    parser.add_argument(
        "--stale",
        type=positive_seconds,
        metavar="SECONDS",
        help="wait so long, and require that a state is rejected then",
    )
    parser.add_argument("--once", action="append", default=[], metavar="NAME", help="a tool that promises to act once")
    parser.add_argument(
        "--secret", action="append", default=[], metavar="TEXT", help="a text that must not be readable in a state"
    )
    parser.add_argument(
        "--fail-on", choices=_LEVELS, default="must", help="the lowest level that counts; default: %(default)s"
    )
    add_timeout(parser, _TIMEOUT_SECONDS, "time limit of one request", type=positive_seconds)
    parser.add_argument(
        "--max-seconds",
        type=positive_seconds,
        default=_MAX_SECONDS,
        metavar="N",
        help="seconds in all, not counting --stale; default: %(default)g",
    )
    for option, default, what in (
        ("--max-requests", _MAX_REQUESTS, "requests in all"),
        ("--max-rounds", _MAX_ROUNDS, "rounds of one call"),
        ("--body-size", _BODY_MIB, "size of an oversized request, in MiB"),
    ):
        parser.add_argument(option, type=_count, default=default, metavar="N", help=f"{what}; default: %(default)s")
    add_json(parser)
    parser.add_argument("--junit", metavar="PATH", type=Path, help="write JUnit's XML to this file too")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} must be a whole number of at least 1")
    return int(text)


def _run(arguments: Namespace) -> int:
    # Imported here, so that other commands do not wait for it.
    import anyio

    from roundtrip.audit.auditing import AuditFailed
    from roundtrip.audit.clauses import ClauseLevel
    from roundtrip.audit.telling import as_data, as_junit, as_lines
    from roundtrip.cli.trace.sources import json_text
    from roundtrip.cli.trace.terminal import Screen
    from roundtrip.client.failures import CallFailed
    from roundtrip.safe_text import printable

    try:
        report = anyio.run(_audit, arguments)
    except (AuditFailed, CallFailed) as failure:
        raise CommandFailed(printable(f"{failure}")) from failure
    level = ClauseLevel[arguments.fail_on.upper()]
    if arguments.junit is not None:
        try:
            arguments.junit.write_text(as_junit(report, level), encoding="utf-8")
        except OSError as error:
            raise CommandFailed(f"cannot write {str(arguments.junit)!r}: {error.strerror or error}") from error
    if arguments.json:
        print(json_text(as_data(report, level).model_dump(mode="json")))
    else:
        screen = Screen()
        for indent, parts in as_lines(report, level):
            screen.line(*parts, indent=indent)
    return 1 if report.failures(level) else 0


async def _audit(arguments: Namespace) -> "AuditReport":
    from roundtrip.audit.auditing import audit
    from roundtrip.audit.sessions import AuditLimits
    from roundtrip.client.legs import within

    limits = AuditLimits(
        requests=arguments.max_requests,
        seconds=arguments.max_seconds,
        timeout=arguments.timeout,
        rounds=arguments.max_rounds,
        body_bytes=arguments.body_size * 2**20,
    )
    plan = _plan(arguments, limits)
    return await within(_connected(arguments, limits), partial(audit, plan))


def _plan(arguments: Namespace, limits: "AuditLimits") -> "AuditPlan":
    from roundtrip.audit.auditing import AuditPlan
    from roundtrip.client.answers import NO_ANSWERS, read_answers

    if arguments.server is None and not arguments.command_words:
        raise CommandFailed("there is no server; name an address, MODULE:SERVER, or a command after `--`")
    if arguments.server is not None and arguments.command_words:
        raise CommandFailed(f"there are two servers, {arguments.server!r} and the command after `--`; name one")
    tools = _tools(arguments.tool, _arguments_in(arguments.args))
    named = {tool.name for tool in tools}
    for name in arguments.once:
        if name not in named:
            raise CommandFailed(f"--once {name}: name the tool with --tool too")
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


def _tools(written: Sequence[str], listed: Mapping[str, Any]) -> "tuple[AuditedTool, ...]":
    from roundtrip.audit.sessions import AuditedTool

    if not written:
        raise CommandFailed("no tool is named; the audit calls only those that you name with --tool NAME")
    tools: dict[str, AuditedTool] = {}
    for word in written:
        name, equals, text = word.partition("=")
        given = _object(text, f"--tool {name}") if equals else listed.get(name, {})
        if not isinstance(given, Mapping):
            raise CommandFailed(f"--args: the arguments of {name!r} must be a JSON object")
        if name in tools:
            raise CommandFailed(f"--tool {name} is given twice")
        tools[name] = AuditedTool(name, cast("Mapping[str, Any]", given))
    unknown = [name for name in listed if name not in tools]
    if unknown:
        raise CommandFailed(f"--args has arguments of {unknown[0]!r}, which no --tool names")
    return tuple(tools.values())


def _arguments_in(file: str | None) -> Mapping[str, Any]:
    if file is None:
        return {}
    try:
        return _object(Path(file).read_text(encoding="utf-8"), f"--args {file}")
    except OSError as error:
        raise CommandFailed(f"cannot read {file!r}: {error.strerror or error}") from error


def _object(text: str, where: str) -> Mapping[str, Any]:
    try:
        value: Any = json.loads(text)
    except ValueError as error:
        raise CommandFailed(f"{where}: the arguments are not JSON: {error}") from error
    if not isinstance(value, Mapping):
        raise CommandFailed(f"{where}: the arguments must be a JSON object")
    return cast("Mapping[str, Any]", value)


@asynccontextmanager
async def _connected(arguments: Namespace, limits: "AuditLimits") -> "AsyncGenerator[AuditWire]":
    """Connect to an address, a command, or a server of a module, which is served on this machine."""
    from roundtrip.audit.wires import stdio_wire
    from roundtrip.client.targets import Target, target_of
    from roundtrip.client.terminal import Terminal

    named: str | None = arguments.server
    if named is not None and (_MODULE.fullmatch(named) or re.fullmatch(r"\S+\.py", named)):
        from roundtrip.cli.loading import load_any_server, running_own_tasks
        from roundtrip.testing.hosting import served

        with running_own_tasks():
            server = load_any_server(named)
        with _without_log():
            async with (
                served(server) as url,
                _http(target_of(url, arguments.header), url, arguments, limits) as wire,
            ):
                yield wire
        return
    target = target_of(named, arguments.header) if named is not None else Target(command=(*arguments.command_words,))
    if target.url is not None:
        async with _http(target, target.url, arguments, limits) as wire:
            yield wire
        return
    if arguments.header or arguments.other_header:
        raise CommandFailed("--header and --other-header are for addresses; a command has no headers")
    async with stdio_wire(target, Terminal(listen=False), patience=limits.timeout) as wire:
        yield wire


@contextmanager
def _without_log() -> "Generator[None]":
    """Log nothing: a server under attack logs much. To see it, serve the server, and audit its address."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@asynccontextmanager
async def _http(target: "Target", url: str, arguments: Namespace, limits: "AuditLimits") -> "AsyncGenerator[AuditWire]":
    from roundtrip.audit.wires import HttpWire
    from roundtrip.client.targets import target_of

    other = target_of(url, arguments.other_header or arguments.header)
    async with HttpWire(url, limits.timeout, (target.headers, other.headers)).connect() as wire:
        yield wire


COMMAND = Command(_DESCRIPTION, _configure, _run, _EPILOG)
