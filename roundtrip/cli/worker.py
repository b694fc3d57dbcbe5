"""`roundtrip worker`: the tasks of a server, in processes that serve no requests."""

import os
import signal
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from roundtrip.cli.command import Command, CommandFailed
from roundtrip.cli.loading import TARGET, TARGET_HELP, load_server

if TYPE_CHECKING:
    from roundtrip.server.server import Server
    from roundtrip.serving.settings import WorkerSettings

__all__ = ["COMMAND"]

_DESCRIPTION: Final = """\
Run the tasks of a server, and serve no requests. Workers and servers share a ledger and keys (ROUNDTRIP_KEYS,
ROUNDTRIP_KEY_FILE; see `roundtrip keys`). Servers run tasks, too, unless they have Server(run_tasks=False) or
ROUNDTRIP_RUN_TASKS=0."""

_EPILOG: Final = """\
settings:
  Each flag is also a variable of the environment, ROUNDTRIP_CONCURRENCY for --concurrency, and a key in the [worker]
  table of roundtrip.toml or of the --config file. Flags win over variables, and those over the file.

signals:
  SIGTERM, SIGINT  claim no more tasks, let the running legs end for --timeout-graceful-shutdown seconds, give the
                   others up, so that another worker continues them behind their stored steps, and exit; a second
                   one does not wait
  SIGHUP           replace the processes one after another, with code and keys as they are now (several only)

exit codes:
  0  stopped by a signal
  1  running legs were given up
  2  not started; standard error has the reason"""

_FLAGS: Final = {
    "--config FILE": "settings; default: roundtrip.toml, if there is one",
    "--workers N": "processes; default: 1",
    "--concurrency N": "tasks that each process runs at once; tasks that wait do not count; default: 100",
    "--timeout-graceful-shutdown SECONDS": "the time limit for running legs to end after a signal; default: 10",
    "--timeout-start SECONDS": "the time limit for a process to start; default: 60",
    "--log-level LEVEL": "debug, info, warning or error; default: info",
}


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("target", metavar=TARGET, help=TARGET_HELP)
    for usage, text in _FLAGS.items():
        flag, value = usage.split()
        parser.add_argument(flag, metavar=value, help=text)


def _run(arguments: Namespace) -> int:
    from roundtrip.serving.process import set_up_logging
    from roundtrip.serving.settings import BadSettings, WorkerSettings, read_settings

    flags = {name: value for name, value in vars(arguments).items() if name not in ("target", "config", "command")}
    try:
        file = Path(arguments.config) if arguments.config is not None else None
        settings = read_settings(WorkerSettings, flags, file=file)
    except BadSettings as error:
        raise CommandFailed(str(error)) from error
    set_up_logging(settings)
    return _work_alone(arguments.target, settings) if settings.workers == 1 else _supervise(arguments.target, settings)


def _load(target: str) -> "Server[Any]":
    from roundtrip.serving.task_worker import objection_to_worker

    server = load_server(target)
    if (why := objection_to_worker(server)) is not None:
        raise CommandFailed(why)
    return server


def _work_alone(target: str, settings: "WorkerSettings") -> int:
    from roundtrip.serving.process import Ended
    from roundtrip.serving.task_worker import run_tasks

    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    server = _load(target)
    ended = run_tasks(server, settings, on_ready=lambda: _announce(server.name, settings))
    if ended is Ended.NOT_BEGUN:
        raise CommandFailed("the server could not be started; its log is above")
    return 0 if ended is Ended.IN_TIME else 1


def _supervise(target: str, settings: "WorkerSettings") -> int:
    import asyncio

    from roundtrip.serving.supervisor import Supervisor, WorkerFailed

    if not hasattr(os, "fork"):
        raise CommandFailed("several workers need os.fork, which this system lacks; use --workers 1")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    command = [sys.executable, "-m", "roundtrip.cli.worker", target, settings.model_dump_json()]

    async def supervise() -> bool:
        return await Supervisor(
            command, settings, None, on_ready=lambda identity: _announce(identity.name, settings)
        ).run()

    try:
        return 0 if asyncio.run(supervise()) else 1
    except WorkerFailed as error:
        raise CommandFailed(str(error)) from error


def _announce(name: str, settings: "WorkerSettings") -> None:
    from roundtrip.safe_text import printable

    processes = "one process" if settings.workers == 1 else f"{settings.workers} processes"
    print(f"roundtrip: {printable(name)} runs its tasks in {processes}", file=sys.stderr, flush=True)


def _work() -> int:
    """Work as one of several. Its arguments are the target, the settings, and the descriptor of its channel."""
    import socket

    from roundtrip.serving.process import work
    from roundtrip.serving.settings import WorkerSettings
    from roundtrip.serving.task_worker import run_tasks

    target, given, channel = sys.argv[1:]
    settings = WorkerSettings.model_validate_json(given)
    return work(
        lambda: _load(target),
        settings,
        channel=socket.socket(fileno=int(channel)),
        run=lambda server, on_ready: run_tasks(server, settings, on_ready=on_ready),
    )


COMMAND = Command(_DESCRIPTION, _configure, _run, _EPILOG)

if __name__ == "__main__":
    sys.exit(_work())
