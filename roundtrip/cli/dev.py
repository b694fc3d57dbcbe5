"""`roundtrip dev`: a playground in the browser, for a server that is being written."""

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from roundtrip.cli.command import Command, CommandFailed
from roundtrip.cli.listening import listen_at, listen_for
from roundtrip.cli.loading import find_any_server, names_server
from roundtrip.cli.parsing import add_header
from roundtrip.server.key_files import keys_of
from roundtrip.trace.writing.names import REVEAL_VARIABLE, TRACE_VARIABLE

if TYPE_CHECKING:
    from roundtrip.playground.inbox import PlayedInbox
    from roundtrip.server.server import Server
    from roundtrip.serving.others import OtherServer
    from roundtrip.serving.settings import ServeSettings

__all__ = ["COMMAND"]

_PATH_VARIABLE: Final = "ROUNDTRIP_DEV_PATH"
"""The secret in the path of the server's endpoint. Other users can see command lines, but no environments."""
_PLACE_VARIABLE: Final = "ROUNDTRIP_DEV_PLACE"
"""The file to which a process of the server writes its place."""
_SECRET_BYTES: Final = 16
_MAX_PORT: Final = 65535

_DESCRIPTION: Final = """\
Open a playground for a server: a page in the browser on which you call its tools, and answer its questions as a user
of a client would. Beside it the page shows the call's states, its token, the messages on the wire and the trace."""

_EPILOG: Final = """\
SERVER is a file with one server (cinema.py) or MODULE:SERVER, of roundtrip, of the SDK or of FastMCP; an http(s)
address; or a command that serves stdio, in quotes: "python server.py". Only servers with roundtrip that this
command starts show states and a trace.

while you edit:
  A change of a Python file in this folder, or in the folder of the server's file, replaces the process of the server.
  An open call of 2026-07-28 goes on, with the same token. If the changed code fails, the code before it serves on.

secrets:
  The page shows everything that the server records of its calls. It is served to this machine and your user only, and
  the address that this command prints is a secret. The trace is in a temporary folder, which is removed at the end."""


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "server", metavar="SERVER", help="MODULE:SERVER or a file, an http(s) address, or a command that serves stdio"
    )
    parser.add_argument("--port", type=int, default=0, metavar="N", help="the port of the page; default: a free one")
    parser.add_argument(
        "--server-port",
        type=int,
        metavar="N",
        help="the port of the server itself, for Pages(base_url=...); default: a free one",
    )
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    add_header(parser)
    parser.add_argument(
        "--approver",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="decide approvals on the page as another person than the caller, who logs in by this HTTP header",
    )


def _run(arguments: Namespace) -> int:
    import anyio

    from roundtrip.client.failures import CallFailed

    for name, port in (("--port", arguments.port), ("--server-port", arguments.server_port or 0)):
        if not 0 <= port <= _MAX_PORT:
            raise CommandFailed(f"{name} must be from 1 to {_MAX_PORT}, or 0 for a free one, got {port}")
    try:
        if not names_server(arguments.server):
            if arguments.server_port is not None:
                raise CommandFailed("--server-port is for a server that this command starts; leave it out")
            return anyio.run(_play_with, arguments)
        if not hasattr(os, "fork"):
            raise CommandFailed("a file or MODULE:SERVER needs os.fork, which this system lacks; name an address")
        with TemporaryDirectory(prefix="roundtrip-dev-") as folder:
            return anyio.run(_play_and_reload, arguments, Path(folder))
    except CallFailed as failure:
        raise CommandFailed(str(failure)) from failure


async def _play_with(arguments: Namespace) -> int:
    """Open the playground of a server that runs elsewhere, or that a command starts for each call."""
    import signal

    import anyio

    from roundtrip.client.targets import target_of
    from roundtrip.playground.playground import ServedFacts
    from roundtrip.playground.running import RunningPage, run_page
    from roundtrip.trace.page.loopback import HOST

    target = target_of(arguments.server, arguments.header)
    page = RunningPage(target, ServedFacts(arguments.server), listen_at(HOST, arguments.port))
    if arguments.approver:
        if target.url is None:
            raise CommandFailed("--approver is for servers over HTTP; a command that serves stdio has no inbox")
        page.inbox = _inbox(target.url.rstrip("/").removesuffix("/mcp"), arguments)
    page.opener = dict(os.environ) if arguments.open else None

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
    """Open the playground of a server that runs in a process of its own."""
    import anyio

    from roundtrip.client.targets import target_of
    from roundtrip.playground.hosting import WatchedSupervisor
    from roundtrip.playground.playground import ServedFacts
    from roundtrip.playground.running import RunningPage, run_page
    from roundtrip.playground.writing import TestWriter
    from roundtrip.server.switches import RUN_TASKS_VARIABLE
    from roundtrip.server.tasks.choice import OWN
    from roundtrip.serving.reloading import folders_of, prepare_processes
    from roundtrip.serving.settings import ServeSettings
    from roundtrip.serving.supervisor import WorkerFailed
    from roundtrip.trace.page.loopback import HOST

    environment = dict(os.environ)
    transcripts, place, secret = folder / "trace", folder / "place.json", os.urandom(_SECRET_BYTES).hex()
    transcripts.mkdir()
    prepare_processes(os.environ)
    # A fleet may have the store of this server, too: its tasks are not for this process.
    os.environ.setdefault(RUN_TASKS_VARIABLE, OWN)
    os.environ |= {
        _PATH_VARIABLE: secret,
        _PLACE_VARIABLE: str(place),
        TRACE_VARIABLE: f"{transcripts}/",
        REVEAL_VARIABLE: "all",
    }
    settings = ServeSettings(port=arguments.server_port or 0, show_errors=True, drain=0.0, log_level="warning")
    listening = listen_for(settings, cure="--server-port")
    port = listening.getsockname()[1]
    page = RunningPage(
        target_of(f"http://{settings.host}:{port}/{secret}/mcp", arguments.header),
        ServedFacts(arguments.server, is_traced=True, reloads=True),
        listen_at(HOST, arguments.port),
        opener=environment if arguments.open else None,
        folder=transcripts,
        keys=_keys(),
        writer=TestWriter(place, environment),
        inbox=_inbox(f"http://{settings.host}:{port}", arguments),
    )
    failure: WorkerFailed | None = None
    in_time = True
    async with anyio.create_task_group() as tasks:
        ready = anyio.Event()
        supervisor = WatchedSupervisor(
            [sys.executable, "-m", "roundtrip.cli.dev", arguments.server, settings.model_dump_json()],
            settings,
            listening,
            folders=folders_of(arguments.server),
            on_ready=ready.set,
            on_reload=page.reloaded,
            on_failure=page.not_reloaded,
            on_end=page.end,
        )

        async def supervise() -> None:
            nonlocal failure, in_time
            try:
                in_time = await supervisor.run()
            except WorkerFailed as error:
                failure = error
            tasks.cancel_scope.cancel()

        with page.logged():
            tasks.start_soon(supervise)
            await ready.wait()
            await run_page(page, _announce)
            # The page ends at a signal, and the server then does.
            await anyio.sleep_forever()
    if failure is not None:
        raise CommandFailed(str(failure))
    return 0 if in_time else 1


def _keys() -> list[bytes]:
    try:
        found = keys_of(os.environ)
    except ValueError as error:
        raise CommandFailed(str(error)) from error
    return [] if found is None else [key.encode() for key in found.keys]


def _inbox(base: str, arguments: Namespace) -> "PlayedInbox":
    from roundtrip.client.targets import target_of
    from roundtrip.playground.inbox import PlayedInbox

    return PlayedInbox(base, target_of(base, arguments.approver).headers or None)


def _announce(url: str) -> None:
    print(f"{url}\n(the playground is there until Ctrl-C; the address is a secret)", flush=True)


def _work() -> int:
    """Serve as a worker. Its arguments are the target, the settings, and descriptors of its channel and the socket."""
    import socket

    from roundtrip.playground.writing import ServerPlace
    from roundtrip.server.server import Server
    from roundtrip.serving.others import OtherServer, as_served
    from roundtrip.serving.process import serve, work
    from roundtrip.serving.settings import ServeSettings

    target, text, channel, listening = sys.argv[1:]
    settings = ServeSettings.model_validate_json(text)
    settings = settings.model_copy(update={"path": f"/{os.environ.pop(_PATH_VARIABLE)}/mcp"})
    place = Path(os.environ.pop(_PLACE_VARIABLE))
    accepts = socket.socket(fileno=int(listening))

    def load() -> Server[Any] | OtherServer:
        found = find_any_server(target)
        is_ours, module = isinstance(found.server, Server), found.module
        is_file = module.__name__.startswith("roundtrip_target_")
        ServerPlace.of(module.__name__, str(module.__file__), found.attribute, is_file=is_file, is_ours=is_ours).write(
            place
        )
        served = as_served(found.server)
        if isinstance(served, Server):
            # Only this machine reaches it, by a path that is a secret.
            served.trust_readers_of_errors()
        return served

    return work(
        load,
        settings,
        channel=socket.socket(fileno=int(channel)),
        run=lambda server, on_ready: serve(server, _settings_for(server, settings), accepts, on_ready=on_ready),
    )


def _settings_for(server: "Server[Any] | OtherServer", settings: "ServeSettings") -> "ServeSettings":
    """Return the settings for a server; one that masks the texts of exceptions is not asked for them."""
    from roundtrip.server.server import Server

    masks = isinstance(server, Server) and not server.shows_error_details
    return settings.model_copy(update={"show_errors": False}) if masks else settings


COMMAND = Command(_DESCRIPTION, _configure, _run, _EPILOG)

if __name__ == "__main__":
    sys.exit(_work())
