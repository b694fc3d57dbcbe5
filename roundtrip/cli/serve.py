"""`roundtrip serve`: a server over HTTP, with one process or several, or over stdio for the host that starts it."""

import os
import signal
import sys
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from roundtrip.cli.command import Command, CommandFailed
from roundtrip.cli.listening import listen_for
from roundtrip.cli.loading import TARGET, TARGET_HELP, load_any_server, load_served
from roundtrip.server.key_files import KEYS_VARIABLE
from roundtrip.server.switches import PROBE_VARIABLE, is_on

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from roundtrip.server.probe import Identity
    from roundtrip.serving.settings import ServeSettings
    from roundtrip.serving.supervisor import Supervisor

__all__ = ["COMMAND"]

_DESCRIPTION: Final = """\
Serve a server over Streamable HTTP, with one process or several. Several processes share one port, so they
must share a key (ROUNDTRIP_KEYS, ROUNDTRIP_KEY_FILE; see `roundtrip keys`), and a ledger if tools run exactly once:
otherwise they do not start. With --stdio, serve the host that starts this command."""

_EPILOG: Final = """\
settings:
  Each flag but --config, --folder, --reload and --stdio is also a variable of the environment, ROUNDTRIP_PORT for
  --port, and a key in the [serve] table of roundtrip.toml or of the --config file. Flags win over variables, and
  those over the file. There, flags that may be repeated are allowed_hosts and allowed_origins: a list in the file,
  separated by commas in a variable.

  While you develop (--reload): a change of a Python file in this folder, or in the folder of the server's file,
  replaces the process. If the changed code fails, the code before it serves on. Calls of 2026-07-28 go on: if
  neither ROUNDTRIP_KEYS nor ROUNDTRIP_KEY_FILE is set, the processes get one key, which is not written to disk.
  Sessions of older clients end. It needs HTTP: a host holds the pipes of a process that it starts, and its session
  ends with the process.

  One response or a stream (--json-response): `auto` answers a request of 2026-07-28 that wants neither progress nor
  log messages with one JSON body, which costs less, and streams all others. `always` drops progress and log
  messages, and does not notice clients that leave. A JSON body sends nothing while a tool works: if a proxy
  closes silent responses before your tools finish, use `never`.

health:
  /health/live   200 as soon as the process serves
  /health/ready  200 if it accepts requests; 503 while it starts or stops, or while tools that run exactly once
                 cannot reach the ledger

signals:
  SIGTERM  report not ready for --drain seconds while still serving, finish running requests, and exit with 0
  SIGINT   finish running requests; a second one aborts them
  SIGHUP   replace the workers one after another, with code and keys as they are now (several workers only)

exit codes:
  0  stopped by a signal
  1  running requests were aborted
  2  not started; standard error has the reason"""


_FLAGS: Final = {
    "--reload": "replace the process when Python files of the project change; see below",
    "--stdio": "serve on standard input and output, for a host that starts this command",
    "--folder FOLDER": "change to this folder first; hosts start commands elsewhere",
    "--config FILE": "settings; default: roundtrip.toml, if there is one",
    "--host HOST": "the address to listen on; default: 127.0.0.1",
    "--port N": "the port to listen on, 0 for one that is free; default: 8000",
    "--workers N": "processes that serve; default: 1",
    "--path PATH": "the path of the MCP endpoint; default: /mcp",
    "--sessions": "keep sessions for clients on 2025-11-25 and before, which can then be asked; one worker only; "
    "default: yes with one worker, no with several",
    "--json-response WHEN": "auto, always or never; see below; default: auto",
    "--allowed-host NAME ...": "accept requests to this name (Host), and from its pages (Origin); may be repeated; "
    "'*' for any; loopback names are always accepted on a loopback address; default: any name on other addresses, "
    "with a warning",
    "--allowed-origin ORIGIN ...": "accept requests from pages of this origin, such as https://app.example.com; may be "
    "repeated; '*' for any; with this flag every Origin is checked, even with --allowed-host '*'",
    "--show-errors": "send clients the texts of uncaught exceptions, unless the server decides itself "
    "(mask_error_details=); default: no",
    "--limit-connections N": "connections of each worker at a time; beyond it, a new one closes an idle one, or gets "
    "503 if none is idle, except for health checks; default: 1000, or as many as open files allow",
    "--max-body BYTES": "the size limit of a request; default: 4194304",
    "--timeout-request SECONDS": "the time limit for a client to send a whole request; default: 30",
    "--drain SECONDS": "the time to go on serving after SIGTERM while not ready; default: 1",
    "--timeout-graceful-shutdown SECONDS": "the time limit for running requests to finish after that; default: 30",
    "--timeout-keep-alive SECONDS": "the time that an idle connection stays open; default: 75",
    "--timeout-start SECONDS": "the time limit for a worker to start; default: 60",
    "--access-log": "log every request; default: no",
    "--log-level LEVEL": "debug, info, warning or error; default: info",
}
"""Flags with their help. Settings without a value can be negated; `...` marks lists, whose settings are plurals."""

_SWITCHES: Final = ("reload", "stdio")
_NO_SETTINGS: Final = ("target", "command", "config", "folder", *_SWITCHES)
_SETTINGS_OF_STDIO: Final = ("log_level",)


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("target", metavar=TARGET, help=TARGET_HELP)
    for usage, text in _FLAGS.items():
        flag, *value = usage.split()
        negatable = {"action": "store_true" if flag[2:] in _SWITCHES else BooleanOptionalAction}
        options: dict[str, Any] = {"metavar": value[0]} if value else negatable
        if value[1:]:
            options |= {"action": "append", "dest": f"{flag[2:].replace('-', '_')}s"}
        parser.add_argument(flag, help=text, **options)


def _run(arguments: Namespace) -> int:
    from roundtrip.serving.settings import BadSettings, ServeSettings, misspelled_variables, read_settings

    for written, meant in misspelled_variables(os.environ).items():
        print(f"roundtrip: {written} is not read; did you mean {meant}?", file=sys.stderr, flush=True)
    if arguments.folder is not None:
        _enter(arguments.folder)
    flags = {name: value for name, value in vars(arguments).items() if name not in _NO_SETTINGS}
    if arguments.stdio:
        _check_stdio(arguments, flags)
    try:
        file = Path(arguments.config) if arguments.config is not None else None
        settings = read_settings(ServeSettings, flags, file=file)
    except BadSettings as error:
        raise CommandFailed(str(error)) from error
    if arguments.stdio:
        return _serve_stdio(arguments.target, settings)
    if hasattr(signal, "SIGHUP"):
        # Ignore SIGHUP while starting, as it would end the process.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if settings.sessions and settings.workers > 1:
        raise CommandFailed(
            "--sessions keeps sessions in one process, and --workers shares connections between several. Serve with "
            "one worker, and several of those behind a balancer that sends a session's requests to the same one"
        )
    if arguments.reload:
        return _serve_and_reload(arguments.target, settings)
    return _serve_alone(arguments.target, settings) if settings.workers == 1 else _serve(arguments.target, settings)


def _enter(folder: str) -> None:
    try:
        os.chdir(folder)
    except OSError as error:
        raise CommandFailed(f"--folder {folder!r} cannot be entered: {error.strerror}") from error


def _check_stdio(arguments: Namespace, flags: dict[str, Any]) -> None:
    """Reject flags that have no meaning on stdio."""
    if arguments.reload:
        raise CommandFailed(
            "--reload needs HTTP: a host holds the pipes of the process that it starts, and its session ends with that "
            "process. Serve over HTTP, and give the host the address: see docs/hosts.md"
        )
    if over_http := [name for name, value in flags.items() if value is not None and name not in _SETTINGS_OF_STDIO]:
        named = ", ".join(f"--{name.replace('_', '-')}" for name in over_http)
        raise CommandFailed(f"--stdio serves one host without HTTP; leave {named} out")


def _serve_stdio(target: str, settings: "ServeSettings") -> int:
    from roundtrip.server.adapters.finding import is_fastmcp
    from roundtrip.serving.process import set_up_logging

    server = load_any_server(target)
    set_up_logging(settings)
    if hasattr(server, "run_stdio_async"):
        server.run("stdio", **({"show_banner": False} if is_fastmcp(server) else {}))
        return 0
    import anyio
    from mcp.server.stdio import stdio_server

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(serve)
    return 0


def _serve_and_reload(target: str, settings: "ServeSettings") -> int:
    from roundtrip.serving.agreement import cautions
    from roundtrip.serving.process import logger
    from roundtrip.serving.reloading import ReloadingSupervisor, folders_of, prepare_processes

    if settings.workers > 1:
        raise CommandFailed("--reload replaces one process, and --workers starts several; leave --workers out")
    has_key = prepare_processes(os.environ)

    def supervisor(command: list[str], listening: "socket.socket") -> ReloadingSupervisor:
        def announce(identity: "Identity") -> None:
            for caution in cautions(identity):
                logger.warning("%s", caution)
            _announce(identity, settings, listening)
            print("roundtrip: it reloads when Python files change", file=sys.stderr, flush=True)

        return ReloadingSupervisor(command, settings, listening, on_ready=announce, folders=folders_of(target))

    settings = settings.model_copy(update={"drain": 0.0})
    try:
        return _supervise(target, settings, supervisor, why="--reload needs os.fork, which this system lacks")
    except CommandFailed as failure:
        said, newline, places = str(failure).partition("\n")
        if not has_key and f"keys from {KEYS_VARIABLE}" in said:
            hint = f" (--reload gives the server a key, by {KEYS_VARIABLE})"
            raise CommandFailed(f"{said}{hint}{newline}{places}") from failure
        raise


def _serve_alone(target: str, settings: "ServeSettings") -> int:
    from roundtrip.serving.agreement import cautions
    from roundtrip.serving.process import Ended, logger, serve, set_up_logging

    server = load_served(target)
    set_up_logging(settings)
    identity = server.identity()
    for caution in cautions(identity):
        logger.warning("%s", caution)
    listening = listen_for(settings, cure="--port or --host")
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, _cannot_roll)
    ended = serve(server, settings, listening, on_ready=lambda: _announce(identity, settings, listening))
    if ended is Ended.NOT_BEGUN:
        raise CommandFailed("the server could not be started; its log is above")
    return 0 if ended is Ended.IN_TIME else 1


def _cannot_roll(number: int, frame: FrameType | None) -> None:
    from roundtrip.serving.process import logger

    del number, frame
    # Logged, not printed: printing fails if the terminal has just closed.
    logger.warning("a single worker cannot be replaced while it serves; see --workers")


def _serve(target: str, settings: "ServeSettings") -> int:
    from roundtrip.serving.supervisor import Supervisor

    def supervisor(command: list[str], listening: "socket.socket") -> Supervisor:
        return Supervisor(
            command, settings, listening, on_ready=lambda identity: _announce(identity, settings, listening)
        )

    why = "several workers need os.fork, which this system lacks; use --workers 1"
    return _supervise(target, settings, supervisor, why=why)


def _supervise(
    target: str,
    settings: "ServeSettings",
    supervisor: "Callable[[list[str], socket.socket], Supervisor]",
    *,
    why: str,
) -> int:
    import asyncio

    from roundtrip.serving.process import set_up_logging
    from roundtrip.serving.supervisor import WorkerFailed

    if not hasattr(os, "fork"):
        raise CommandFailed(why)
    set_up_logging(settings)
    listening = listen_for(settings, cure="--port or --host")
    command = [sys.executable, "-m", "roundtrip.cli.serve", target, settings.model_dump_json()]

    async def supervise() -> bool:
        return await supervisor(command, listening).run()

    try:
        return 0 if asyncio.run(supervise()) else 1
    except WorkerFailed as error:
        raise CommandFailed(str(error)) from error


def _announce(identity: "Identity", settings: "ServeSettings", listening: "socket.socket") -> None:
    from roundtrip.doctor.local import PROBE_IGNORED
    from roundtrip.safe_text import printable

    host, port = listening.getsockname()[:2]
    place = f"http://{f'[{host}]' if ':' in host else host}:{port}{settings.path}"
    workers = "one worker" if settings.workers == 1 else f"{settings.workers} workers"
    said = [PROBE_IGNORED] if not identity.takes_probe and _wants_probe(os.environ) else []
    said.append(f"{printable(identity.name)} serves on {place} with {workers}")
    if not settings.asks_older_clients:
        said.append(_older_clients(settings))
    if not settings.is_loopback and not settings.allowed_hosts:
        said.append(
            "requests with any Host are accepted; name the server's own with --allowed-host, or any with "
            "--allowed-host '*'"
        )
    for line in said:
        print(f"roundtrip: {line}", file=sys.stderr, flush=True)


def _wants_probe(environment: "Mapping[str, str]") -> bool:
    try:
        return is_on(None, PROBE_VARIABLE, environment=environment, default=False)
    except ValueError:
        return True


def _older_clients(settings: "ServeSettings") -> str:
    if settings.workers > 1:
        why, fix = "several workers keep no sessions", "serve with --workers 1, several of those behind a balancer"
    elif not settings.keeps_sessions:
        why, fix = "--no-sessions keeps no sessions", "leave it out"
    else:
        why, fix = "--json-response always cannot carry questions", "use --json-response auto"
    return (
        f"clients on 2025-11-25 and before, still the majority, cannot be asked by form, as {why}: a tool that asks "
        "them gives them a link with Pages(authenticate=...), or the question with the rung 'model', and otherwise "
        f"fails with an error, which is logged each time; to ask them by form, {fix}"
    )


def _work() -> int:
    """Serve as a worker. Its arguments are the target, the settings, and descriptors of its channel and the socket."""
    import socket

    from roundtrip.serving.process import serve, work
    from roundtrip.serving.settings import ServeSettings

    target, settings, channel, listening = sys.argv[1:]
    read, accepts = ServeSettings.model_validate_json(settings), socket.socket(fileno=int(listening))
    return work(
        lambda: load_served(target),
        read,
        channel=socket.socket(fileno=int(channel)),
        run=lambda server, on_ready: serve(server, read, accepts, on_ready=on_ready),
    )


COMMAND = Command(_DESCRIPTION, _configure, _run, _EPILOG)

if __name__ == "__main__":
    sys.exit(_work())
