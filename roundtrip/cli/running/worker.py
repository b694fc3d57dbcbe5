"""Run `roundtrip worker`, whose processes run a server's tasks and serve no requests."""

import asyncio
import contextlib
import signal
import socket
import sys
from argparse import Namespace
from collections.abc import Callable
from typing import Final

from roundtrip.cli.command import CommandFailed, report_errors
from roundtrip.cli.running.loading import load_attached, require_shared_ledger
from roundtrip.cli.running.starting import NO_WORKERS, exit_code_of, require_fork, supervise
from roundtrip.server.attach import Attached
from roundtrip.serving.process import Ended, break_off_after, logger, set_up_logging, work
from roundtrip.serving.settings import BadSettings, WorkerSettings, read_settings
from roundtrip.serving.supervisor import Supervisor, WorkerPlan
from roundtrip.text import printable

_CUT_OFF_MESSAGE: Final = (
    "the process ended while work was still running; another worker continues it after the lease expires"
)
_MARGIN_SECONDS: Final = 15.0
"""If a body is still running in a thread this long after the graceful shutdown, the process is forced to exit."""


def run(arguments: Namespace) -> int:
    """Run the command and return its exit code."""
    flags = {name: value for name, value in vars(arguments).items() if name not in ("target", "config", "command")}
    with report_errors(BadSettings):
        settings = read_settings(WorkerSettings, flags, file=arguments.config)
    set_up_logging(settings)
    if settings.workers > 1:
        require_fork(NO_WORKERS)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if settings.workers > 1:
        command = [sys.executable, "-m", "roundtrip.cli.running.worker", arguments.target, settings.model_dump_json()]
        plan = WorkerPlan(command, settings, None)
        return supervise(Supervisor(plan, on_ready=lambda served: _announce(served.name, settings)))
    server = _load(arguments.target)
    return exit_code_of(asyncio.run(_run_tasks(server, settings, lambda: _announce(server.name, settings))))


def _load(target: str) -> Attached:
    """Load a server whose tasks can run in another process.

    Raises:
        CommandFailed: The server cannot be loaded, has no tasks, or keeps them in process memory.
    """
    server = load_attached(target)
    if server.call_service is None:
        raise CommandFailed("the server has no tool that runs as a task; declare one with task=True")
    require_shared_ledger(server)
    return server


def _announce(name: str, settings: WorkerSettings) -> None:
    processes = "one process" if settings.workers == 1 else f"{settings.workers} processes"
    print(f"roundtrip: {printable(name)} runs its tasks in {processes}", file=sys.stderr, flush=True)


async def _run_tasks(server: Attached, settings: WorkerSettings, on_ready: Callable[[], None]) -> Ended:
    """Run tasks until a signal arrives."""
    service = server.call_service
    if service is None:
        return Ended.NOT_BEGUN
    stop, abort = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    received: set[int] = set()

    def on_signal(number: int) -> None:
        # The first signal lets bodies finish, and a second signal of the same kind aborts them. A second signal of
        # another kind does nothing, because a supervisor may send both SIGINT and SIGTERM for one Ctrl-C.
        (abort if number in received else stop).set()
        received.add(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, ValueError):
            loop.add_signal_handler(number, on_signal, number)
    try:
        async with server.own_lifespan(), service.working(settings.concurrency) as engine:
            on_ready()
            await stop.wait()
            break_off_after(settings.timeout_graceful_shutdown + _MARGIN_SECONDS, _CUT_OFF_MESSAGE)
            draining = asyncio.ensure_future(engine.drain(settings.timeout_graceful_shutdown))
            aborting = asyncio.ensure_future(abort.wait())
            await asyncio.wait([draining, aborting], return_when=asyncio.FIRST_COMPLETED)
            draining.cancel()
            aborting.cancel()
            is_broken_off = engine.is_busy
    except Exception:
        if stop.is_set():
            raise
        logger.exception("the server could not start")
        return Ended.NOT_BEGUN
    return Ended.BROKEN_OFF if is_broken_off else Ended.IN_TIME


def _run_as_worker() -> int:
    """Run tasks as a worker process. Its arguments are the target, the settings, and the channel descriptor."""
    target, settings_text, channel = sys.argv[1:]
    settings = WorkerSettings.model_validate_json(settings_text)
    return work(
        lambda: _load(target),
        settings,
        channel=socket.socket(fileno=int(channel)),
        run=lambda server, on_ready: asyncio.run(_run_tasks(server, settings, on_ready)),
    )


if __name__ == "__main__":
    sys.exit(_run_as_worker())
