"""Run `roundtrip serve`."""

import os
import signal
import socket
import sys
from argparse import Namespace
from collections.abc import Mapping
from contextlib import ExitStack
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import anyio
from mcp.server.stdio import stdio_server

from roundtrip.adapters.finding import is_fastmcp
from roundtrip.cli.command import CommandFailed, report_errors
from roundtrip.cli.commands.serve import SWITCHES
from roundtrip.cli.running.loading import load_any_server, load_served
from roundtrip.cli.running.starting import NO_WORKERS, exit_code_of, listen_for, require_fork, supervise
from roundtrip.doctor.local import PROBE_IGNORED
from roundtrip.on_demand import load_on_use
from roundtrip.server.key_files import KEYS_VARIABLE
from roundtrip.server.probe import Identity
from roundtrip.serving.agreement import caution_for_older_clients, cautions
from roundtrip.serving.process import logger, serve, set_up_logging, work
from roundtrip.serving.reloading import ReloadingSupervisor, folders_of, prepare_processes
from roundtrip.serving.settings import BadSettings, ServeSettings, misspelled_variables, read_settings
from roundtrip.serving.supervisor import Supervisor, WorkerPlan
from roundtrip.switches import PROBE_VARIABLE, is_on
from roundtrip.text import printable

if TYPE_CHECKING:
    from roundtrip.serving import relay

load_on_use(globals(), "roundtrip.serving.relay")

_NOT_SETTINGS: Final = ("target", "command", "config", "folder", *SWITCHES)
_STDIO_SETTINGS: Final = ("log_level",)


def run(arguments: Namespace) -> int:
    """Run the command and return its exit code."""
    for variable, suggestion in misspelled_variables(os.environ).items():
        print(f"roundtrip: {variable} is ignored; did you mean {suggestion}?", file=sys.stderr, flush=True)
    if arguments.folder is not None:
        with report_errors(OSError, about=f"cannot change to --folder {arguments.folder!r}: "):
            os.chdir(arguments.folder)
    flags = {name: value for name, value in vars(arguments).items() if name not in _NOT_SETTINGS}
    if arguments.stdio:
        _check_stdio(arguments, flags)
    with report_errors(BadSettings):
        settings = read_settings(ServeSettings, flags, file=arguments.config)
    if arguments.stdio:
        return _serve_stdio(arguments.target, settings)
    if hasattr(signal, "SIGHUP"):
        # Ignore SIGHUP during startup, because the signal would end the process.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if arguments.reload:
        return _serve_and_reload(arguments.target, settings)
    return _serve_one(arguments.target, settings) if settings.workers == 1 else _serve_many(arguments.target, settings)


def _check_stdio(arguments: Namespace, flags: dict[str, Any]) -> None:
    """Reject flags that have no effect with `--stdio`."""
    if arguments.reload:
        raise CommandFailed(
            "--reload needs HTTP: a host holds the pipes of the process that it starts, so replacing the process would "
            "end the session. Serve over HTTP, and give the host the address; see docs/hosts.md"
        )
    if http_flags := [name for name, value in flags.items() if value is not None and name not in _STDIO_SETTINGS]:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in http_flags)
        raise CommandFailed(f"--stdio serves one host without HTTP; remove {options}")


def _serve_stdio(target: str, settings: ServeSettings) -> int:
    server = load_any_server(target)
    set_up_logging(settings)
    if hasattr(server, "run_stdio_async"):
        server.run("stdio", **({"show_banner": False} if is_fastmcp(server) else {}))
        return 0

    async def serve() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    anyio.run(serve)
    return 0


def _serve_and_reload(target: str, settings: ServeSettings) -> int:
    if settings.workers > 1:
        raise CommandFailed("--reload replaces one process, but --workers starts several; remove --workers")
    has_key = prepare_processes(os.environ)
    require_fork("--reload needs os.fork, which this system lacks")
    settings = settings.model_copy(update={"drain": 0.0})
    plan, listening = _prepare_workers(target, settings)

    def announce(identity: Identity) -> None:
        _announce(identity, settings, listening)
        print("roundtrip: the server reloads when Python files change", file=sys.stderr, flush=True)

    try:
        return supervise(ReloadingSupervisor(plan, on_ready=announce, folders=folders_of(target)))
    except CommandFailed as failure:
        message, newline, frames = str(failure).partition("\n")
        if not has_key and f"keys from {KEYS_VARIABLE}" in message:
            hint = f" (--reload sets {KEYS_VARIABLE} to a new key)"
            raise CommandFailed(f"{message}{hint}{newline}{frames}") from failure
        raise


def _serve_one(target: str, settings: ServeSettings) -> int:
    server = load_served(target)
    set_up_logging(settings)
    identity = server.identity()
    listening = listen_for(settings, cure="--port or --host")
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, _cannot_roll)
    return exit_code_of(serve(server, settings, listening, on_ready=lambda: _announce(identity, settings, listening)))


def _cannot_roll(number: int, frame: FrameType | None) -> None:
    # Use the log, because a print would fail if the terminal has just closed.
    logger.warning("a single worker cannot be replaced while it serves; see --workers")


def _serve_many(target: str, settings: ServeSettings) -> int:
    require_fork(NO_WORKERS)
    obstacle = None
    with ExitStack() as stack:
        if settings.keeps_sessions:
            try:
                stack.enter_context(relay.session_folder(os.environ))
            except OSError as error:
                obstacle = error.strerror or str(error)
                settings = settings.model_copy(update={"sessions": False})
        plan, listening = _prepare_workers(target, settings)
        return supervise(Supervisor(plan, on_ready=lambda served: _announce(served, settings, listening, obstacle)))


def _prepare_workers(target: str, settings: ServeSettings) -> tuple[WorkerPlan, socket.socket]:
    """Return the supervisor's plan, and the socket that its workers share."""
    set_up_logging(settings)
    command = [sys.executable, "-m", "roundtrip.cli.running.serve", target, settings.model_dump_json()]
    listening = listen_for(settings, cure="--port or --host")
    return WorkerPlan(command, settings, listening), listening


def _announce(
    identity: Identity, settings: ServeSettings, listening: socket.socket, obstacle: str | None = None
) -> None:
    if settings.workers == 1:
        for caution in cautions(identity):
            logger.warning("%s", caution)
    host, port = listening.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}{settings.path}"
    workers = "one worker" if settings.workers == 1 else f"{settings.workers} workers"
    notes = [PROBE_IGNORED] if not identity.takes_probe and _wants_probe(os.environ) else []
    notes.append(f"{printable(identity.name)} serves on {url} with {workers}")
    if (caution := caution_for_older_clients(identity, settings, obstacle=obstacle)) is not None:
        notes.append(caution)
    if not settings.is_loopback and not settings.allowed_hosts:
        notes.append(
            "requests with any Host are accepted; restrict them with --allowed-host, or silence this warning with "
            "--allowed-host '*'"
        )
    for line in notes:
        print(f"roundtrip: {line}", file=sys.stderr, flush=True)


def _wants_probe(environment: Mapping[str, str]) -> bool:
    try:
        return is_on(None, PROBE_VARIABLE, environment=environment, default=False)
    except ValueError:
        return True


def _serve_as_worker() -> int:
    """Serve as a worker process. Its arguments are the target, the settings, and the channel and socket descriptors."""
    target, settings, channel, listening = sys.argv[1:]
    serve_settings = ServeSettings.model_validate_json(settings)
    own_relay = None
    if serve_settings.workers > 1 and serve_settings.keeps_sessions:
        own_relay = relay.inherited_relay(os.environ)
        if own_relay is None:
            # The supervisor runs an earlier roundtrip version.
            serve_settings = serve_settings.model_copy(update={"sessions": False})
    server_socket = socket.socket(fileno=int(listening))
    return work(
        lambda: load_served(target),
        serve_settings,
        channel=socket.socket(fileno=int(channel)),
        run=lambda server, on_ready: serve(server, serve_settings, server_socket, on_ready=on_ready, relay=own_relay),
    )


if __name__ == "__main__":
    sys.exit(_serve_as_worker())
