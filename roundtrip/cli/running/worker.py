"""Run `roundtrip worker`."""

import signal
import socket
import sys
from argparse import Namespace
from typing import Any

from roundtrip.cli.command import CommandFailed, reported
from roundtrip.cli.running.loading import load_server
from roundtrip.cli.running.starting import NO_WORKERS, exit_code_of, require_fork, supervise
from roundtrip.server.server import Server
from roundtrip.serving.process import set_up_logging, work
from roundtrip.serving.settings import BadSettings, WorkerSettings, read_settings
from roundtrip.serving.supervisor import Supervisor, WorkerPlan
from roundtrip.serving.task_worker import objection_to_worker, run_tasks
from roundtrip.text import printable


def run(arguments: Namespace) -> int:
    """Run the command with its arguments, and return its exit code."""
    flags = {name: value for name, value in vars(arguments).items() if name not in ("target", "config", "command")}
    with reported(BadSettings):
        settings = read_settings(WorkerSettings, flags, file=arguments.config)
    set_up_logging(settings)
    return _work_alone(arguments.target, settings) if settings.workers == 1 else _supervise(arguments.target, settings)


def _load(target: str) -> Server[Any]:
    server = load_server(target)
    if (why := objection_to_worker(server)) is not None:
        raise CommandFailed(why)
    return server


def _work_alone(target: str, settings: WorkerSettings) -> int:
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    server = _load(target)
    return exit_code_of(run_tasks(server, settings, on_ready=lambda: _announce(server.name, settings)))


def _supervise(target: str, settings: WorkerSettings) -> int:
    require_fork(NO_WORKERS)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    command = [sys.executable, "-m", "roundtrip.cli.running.worker", target, settings.model_dump_json()]
    plan = WorkerPlan(command, settings, None)
    return supervise(Supervisor(plan, on_ready=lambda served: _announce(served.name, settings)))


def _announce(name: str, settings: WorkerSettings) -> None:
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
