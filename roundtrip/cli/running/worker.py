"""Run `roundtrip worker`."""

import asyncio
import os
import signal
import socket
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roundtrip.cli.command import CommandFailed
from roundtrip.cli.running.loading import load_server
from roundtrip.safe_text import printable
from roundtrip.serving.process import Ended, set_up_logging, work
from roundtrip.serving.settings import BadSettings, WorkerSettings, read_settings
from roundtrip.serving.supervisor import Supervisor, WorkerFailed
from roundtrip.serving.task_worker import objection_to_worker, run_tasks

if TYPE_CHECKING:
    from roundtrip.server.server import Server

__all__ = ["run"]


def run(arguments: Namespace) -> int:
    """Run the command with its arguments, and return its exit code."""
    flags = {name: value for name, value in vars(arguments).items() if name not in ("target", "config", "command")}
    try:
        file = Path(arguments.config) if arguments.config is not None else None
        settings = read_settings(WorkerSettings, flags, file=file)
    except BadSettings as error:
        raise CommandFailed(str(error)) from error
    set_up_logging(settings)
    return _work_alone(arguments.target, settings) if settings.workers == 1 else _supervise(arguments.target, settings)


def _load(target: str) -> "Server[Any]":
    server = load_server(target)
    if (why := objection_to_worker(server)) is not None:
        raise CommandFailed(why)
    return server


def _work_alone(target: str, settings: "WorkerSettings") -> int:
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    server = _load(target)
    ended = run_tasks(server, settings, on_ready=lambda: _announce(server.name, settings))
    if ended is Ended.NOT_BEGUN:
        raise CommandFailed("the server could not be started; its log is above")
    return 0 if ended is Ended.IN_TIME else 1


def _supervise(target: str, settings: "WorkerSettings") -> int:
    if not hasattr(os, "fork"):
        raise CommandFailed("several workers need os.fork, which this system lacks; use --workers 1")
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    command = [sys.executable, "-m", "roundtrip.cli.running.worker", target, settings.model_dump_json()]

    async def supervise() -> bool:
        return await Supervisor(
            command, settings, None, on_ready=lambda identity: _announce(identity.name, settings)
        ).run()

    try:
        return 0 if asyncio.run(supervise()) else 1
    except WorkerFailed as error:
        raise CommandFailed(str(error)) from error


def _announce(name: str, settings: "WorkerSettings") -> None:
    processes = "one process" if settings.workers == 1 else f"{settings.workers} processes"
    print(f"roundtrip: {printable(name)} runs its tasks in {processes}", file=sys.stderr, flush=True)


def _work() -> int:
    """Work as one of several. Its arguments are the target, the settings, and the descriptor of its channel."""
    target, given, channel = sys.argv[1:]
    settings = WorkerSettings.model_validate_json(given)
    return work(
        lambda: _load(target),
        settings,
        channel=socket.socket(fileno=int(channel)),
        run=lambda server, on_ready: run_tasks(server, settings, on_ready=on_ready),
    )


if __name__ == "__main__":
    sys.exit(_work())
