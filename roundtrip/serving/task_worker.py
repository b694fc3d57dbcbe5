"""Run the tasks of a server in a process that serves no requests: what `roundtrip worker` does."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable
from typing import Any, Final

from roundtrip.ledger.contract import Reach
from roundtrip.server.server import Server
from roundtrip.serving.process import Ended, break_off_after
from roundtrip.serving.settings import WorkerSettings

logger = logging.getLogger("roundtrip")

_CUT: Final = "ended with work still running; another worker continues it when its lease has ended"
_MARGIN: Final = 15.0
"""Seconds after which a stopping process exits, even if a body still runs in a thread."""


def objection_to_worker(server: Server[Any]) -> str | None:
    """Return the reason why a server's tasks cannot be run apart from it, with the fix; None if they can."""
    if server.task_service is None:
        return "the server has no tool that runs as a task; declare one with @server.tool(task=True)"
    if server.ledger.reach is Reach.PROCESS:
        return (
            "the tasks of a MemoryLedger are in the memory of the process that made them; give the server a "
            "SqliteLedger, a RedisLedger or a PostgresLedger"
        )
    return None


def run_tasks(server: Server[Any], settings: WorkerSettings, *, on_ready: Callable[[], None]) -> Ended:
    """Run tasks until a signal arrives."""
    return asyncio.run(_run(server, settings, on_ready))


async def _run(server: Server[Any], settings: WorkerSettings, on_ready: Callable[[], None]) -> Ended:
    service = server.task_service
    if service is None:
        return Ended.NOT_BEGUN
    stop, hurry = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    seen: set[int] = set()

    def stopped(number: int) -> None:
        # The first signal lets bodies end, a repeated one does not. For one interrupt, a supervisor sends both.
        (hurry if number in seen else stop).set()
        seen.add(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, ValueError):
            loop.add_signal_handler(number, stopped, number)
    try:
        async with server.own_lifespan(), service.working(settings.concurrency) as engine:
            on_ready()
            await stop.wait()
            break_off_after(settings.timeout_graceful_shutdown + _MARGIN, _CUT)
            draining = asyncio.ensure_future(engine.drain(settings.timeout_graceful_shutdown))
            hurried = asyncio.ensure_future(hurry.wait())
            await asyncio.wait([draining, hurried], return_when=asyncio.FIRST_COMPLETED)
            draining.cancel()
            hurried.cancel()
            broken_off = engine.is_busy
    except Exception:
        if stop.is_set():
            raise
        logger.exception("the server could not be started")
        return Ended.NOT_BEGUN
    return Ended.BROKEN_OFF if broken_off else Ended.IN_TIME
