"""Run `roundtrip dev`."""

import os
import signal
import socket
import sys
from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio

from roundtrip.cli.command import CommandFailed, report_errors
from roundtrip.cli.running.loading import find_any_server, names_server
from roundtrip.cli.running.starting import listen_at, listen_for, require_fork
from roundtrip.cli.trace.token import keys_of_environment
from roundtrip.client.failures import CallFailed
from roundtrip.client.targets import target_of
from roundtrip.playground.inbox import PlayedInbox
from roundtrip.playground.playground import Playground
from roundtrip.playground.running import RunningPage, WatchedSupervisor, run_page
from roundtrip.playground.writing import ServerPlace, TestWriter
from roundtrip.server.server import Server
from roundtrip.serving.foreign_servers import ForeignServer, adapt_server
from roundtrip.serving.process import serve, work
from roundtrip.serving.reloading import folders_of, prepare_processes
from roundtrip.serving.settings import ServeSettings
from roundtrip.serving.supervisor import WorkerFailed, WorkerPlan
from roundtrip.switches import OWN, RUN_TASKS_VARIABLE
from roundtrip.trace.page.loopback import HOST
from roundtrip.trace.writing.names import REVEAL_VARIABLE, TRACE_VARIABLE

_PATH_VARIABLE: Final = "ROUNDTRIP_DEV_PATH"
"""Environment variable with the secret part of the server's endpoint path. In a command-line argument, other users
could see the secret.
"""
_LOCATION_VARIABLE: Final = "ROUNDTRIP_DEV_PLACE"
"""Environment variable with the name of the file to which the server process writes its import path."""
_SECRET_BYTES: Final = 16


def run(arguments: Namespace) -> int:
    """Run the command and return its exit code."""
    with report_errors(CallFailed):
        if not names_server(arguments.server):
            if arguments.server_port is not None:
                raise CommandFailed("--server-port applies only to a server that this command starts; remove it")
            return anyio.run(_play_with, arguments)
        require_fork("a file or MODULE:SERVER needs os.fork, which this system lacks; give an address")
        with TemporaryDirectory(prefix="roundtrip-dev-") as folder:
            return anyio.run(_play_and_reload, arguments, Path(folder))


async def _play_with(arguments: Namespace) -> int:
    """Open the playground for a running server, or for a command that starts a server for each call."""
    target = target_of(arguments.server, arguments.header)
    inbox = None
    if arguments.approver:
        if target.url is None:
            raise CommandFailed("--approver needs an HTTP server; a command that serves stdio has no inbox")
        inbox = _inbox(target.url.rstrip("/").removesuffix("/mcp"), arguments)
    playground = Playground(target, arguments.server, inbox=inbox)
    browser_env = dict(os.environ) if arguments.open else None
    page = RunningPage(playground, listen_at(HOST, arguments.port), browser_env)

    async def end_at_signal(scope: anyio.CancelScope) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for _ in signals:
                scope.cancel()
                return

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end_at_signal, tasks.cancel_scope)
        await run_page(page, _announce)
    return 0


async def _play_and_reload(arguments: Namespace, folder: Path) -> int:
    """Open the playground for a server in a child process, and reload it when its code changes."""
    environment = dict(os.environ)
    transcripts, location, secret = folder / "trace", folder / "place.json", os.urandom(_SECRET_BYTES).hex()
    transcripts.mkdir()
    prepare_processes(os.environ)
    # Do not run the stored tasks of other processes here: a production fleet may share this server's store.
    os.environ.setdefault(RUN_TASKS_VARIABLE, OWN)
    os.environ |= {
        _PATH_VARIABLE: secret,
        _LOCATION_VARIABLE: str(location),
        TRACE_VARIABLE: f"{transcripts}/",
        REVEAL_VARIABLE: "all",
    }
    settings = ServeSettings(port=arguments.server_port or 0, show_errors=True, drain=0.0, log_level="warning")
    listening = listen_for(settings, cure="--server-port")
    port = listening.getsockname()[1]
    playground = Playground(
        target_of(f"http://{settings.host}:{port}/{secret}/mcp", arguments.header),
        arguments.server,
        folder=transcripts,
        keys=keys_of_environment(),
        inbox=_inbox(f"http://{settings.host}:{port}", arguments),
    )
    browser_env = environment if arguments.open else None
    page = RunningPage(playground, listen_at(HOST, arguments.port), browser_env, TestWriter(location, environment))
    failure: WorkerFailed | None = None
    ended_in_time = True
    async with anyio.create_task_group() as tasks:
        command = [sys.executable, "-m", "roundtrip.cli.running.dev", arguments.server, settings.model_dump_json()]
        plan = WorkerPlan(command, settings, listening)
        supervisor = WatchedSupervisor(plan, page, folders=folders_of(arguments.server))

        async def supervise() -> None:
            nonlocal failure, ended_in_time
            try:
                ended_in_time = await supervisor.run()
            except WorkerFailed as error:
                failure = error
            tasks.cancel_scope.cancel()

        with page.show_log():
            tasks.start_soon(supervise)
            await page.ready.wait()
            await run_page(page, _announce)
            # When a signal arrives, the page ends first, then the server.
            await anyio.sleep_forever()
    if failure is not None:
        raise CommandFailed(str(failure))
    return 0 if ended_in_time else 1


def _inbox(base: str, arguments: Namespace) -> PlayedInbox:
    return PlayedInbox(base, target_of(base, arguments.approver).headers or None)


def _announce(url: str) -> None:
    print(f"{url}\n(press Ctrl-C to stop the playground; keep this address secret)", flush=True)


def _serve_as_worker() -> int:
    """Serve as a worker process. Its arguments are the target, the settings, and the channel and socket descriptors."""
    target, text, channel, listening = sys.argv[1:]
    settings = ServeSettings.model_validate_json(text)
    settings = settings.model_copy(update={"path": f"/{os.environ.pop(_PATH_VARIABLE)}/mcp"})
    location = Path(os.environ.pop(_LOCATION_VARIABLE))
    server_socket = socket.socket(fileno=int(listening))

    def load() -> Server[Any] | ForeignServer:
        found = find_any_server(target)
        is_ours, module = isinstance(found.server, Server), found.module
        is_file = module.__name__.startswith("roundtrip_target_")
        ServerPlace.of(module.__name__, str(module.__file__), found.attribute, is_file=is_file, is_ours=is_ours).write(
            location
        )
        served = adapt_server(found.server)
        if isinstance(served, Server):
            # Error texts may be shown, because only this machine can reach the server, and only through a secret path.
            served.internals.warns_of_readable_errors = False
        return served

    return work(
        load,
        settings,
        channel=socket.socket(fileno=int(channel)),
        run=lambda server, on_ready: serve(server, _settings_for(server, settings), server_socket, on_ready=on_ready),
    )


def _settings_for(server: Server[Any] | ForeignServer, settings: ServeSettings) -> ServeSettings:
    """Return the settings for a server. If the server masks exception texts, they stay masked."""
    masks = isinstance(server, Server) and server.internals.masks_errors
    return settings.model_copy(update={"show_errors": False}) if masks else settings


if __name__ == "__main__":
    sys.exit(_serve_as_worker())
