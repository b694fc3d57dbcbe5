"""Worker supervisor: starts workers that agree with each other, replaces them when they die or on a signal, and stops
them.

All workers accept connections from one listening socket. A retiring worker continues to accept for a while, and each of
its responses closes the connection. The other workers then accept the connections that remain in the queue, so no
request is lost.
"""

import asyncio
import contextlib
import json
import logging
import signal
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from roundtrip.ledger.lease import MAX_BURIED
from roundtrip.server.probe import Identity
from roundtrip.serving.agreement import objection, objection_to_newcomer
from roundtrip.serving.process import DEAD, FAILED, IDENTITY, IDENTITY_FORMAT, READY, SERVE
from roundtrip.serving.settings import ProcessSettings

logger = logging.getLogger("roundtrip")

_END_MARGIN_SECONDS: Final = 5.0
"""Extra seconds that a worker may take to end before it is killed."""
_SHORT_LIFE_SECONDS: Final = 5.0
_MAX_PAUSE_SECONDS: Final = 30.0


class WorkerFailed(Exception):
    """A worker cannot serve. The message gives the reason."""


class WorkerPlan(NamedTuple):
    """Command, settings and socket of a supervisor's workers."""

    command: Sequence[str]
    """A worker's command; the supervisor appends the file descriptors of the channel and the socket."""
    settings: ProcessSettings
    listening: socket.socket | None
    """The socket from which the workers accept connections; None if they accept none."""


@dataclass(eq=False, slots=True)
class _WorkerProcess:
    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    started_at: float
    identity: Identity = field(init=False)
    name: str | None = None
    """The worker's name as a lease holder. It is None before the worker serves, and always None if the worker runs an
    earlier roundtrip version.
    """

    @property
    def is_alive(self) -> bool:
        return self.process.returncode is None

    def signal(self, number: int) -> None:
        if self.is_alive:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)


class Supervisor:
    """The workers' parent process. SIGTERM and SIGINT end the workers, and SIGHUP replaces them one by one.

    Args:
        plan: The workers to start.
        on_ready: A function to call when all workers serve.
    """

    def __init__(self, plan: WorkerPlan, *, on_ready: Callable[[Identity], None]) -> None:
        self._command, self._settings, self._listening = plan
        self._on_ready = on_ready
        self._slots: list[_WorkerProcess] = []
        self._retiring: set[_WorkerProcess] = set()
        self._dead = deque[str](maxlen=MAX_BURIED)
        """The names of reaped workers, kept for workers that start later."""
        self._changing = asyncio.Lock()
        self._stop = asyncio.Event()
        self._hung_up = asyncio.Event()

    async def run(self) -> bool:
        """Serve until a signal arrives; return True if every worker finished its requests.

        Raises:
            WorkerFailed: Workers cannot start, or must not serve together.
        """
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._hung_up.set)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop, number)
        serving = asyncio.ensure_future(self._serve())
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait([serving, stopped], return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                serving.result()
        finally:
            serving.cancel()
            stopped.cancel()
            await asyncio.gather(serving, stopped, return_exceptions=True)
            # The workers have their own file descriptors for this socket.
            if self._listening is not None:
                self._listening.close()
            in_time = all(await asyncio.gather(*(self._retire(one) for one in {*self._slots, *self._retiring})))
        return in_time

    def _on_stop(self, number: int) -> None:
        is_repeated = self._stop.is_set()
        self._stop.set()
        for worker in {*self._slots, *self._retiring}:
            # `_retire` sends each worker its first SIGTERM. Interrupts and repeated signals are passed on immediately.
            if is_repeated or number == signal.SIGINT:
                worker.signal(number)

    async def _serve(self) -> None:
        await self._start()
        async with asyncio.TaskGroup() as tasks:
            self._begin(tasks)
            for slot, worker in enumerate(self._slots):
                self._install_worker(tasks, slot, worker)
            while True:
                await self._hung_up.wait()
                self._hung_up.clear()
                await self._roll(tasks)

    def _begin(self, tasks: asyncio.TaskGroup) -> None:
        """Start additional asyncio tasks that run while the workers serve."""

    # Starting.

    async def _start(self) -> None:
        started = await asyncio.gather(
            *(self._start_worker() for _ in range(self._settings.workers)), return_exceptions=True
        )
        self._slots = [one for one in started if isinstance(one, _WorkerProcess)]
        try:
            for one in started:
                if isinstance(one, BaseException):
                    raise one
            identities = [worker.identity for worker in self._slots]
            if (reason := objection(identities)) is not None:
                raise WorkerFailed(reason)
            await asyncio.gather(*map(self._let_serve, self._slots))
        except WorkerFailed:
            await self._discard(self._slots)
            raise
        self._on_ready(identities[0])

    async def _start_worker(self) -> _WorkerProcess:
        """Start a worker, and wait for its identity."""
        with contextlib.ExitStack() as channel:
            try:
                own_end, worker_end = map(channel.enter_context, socket.socketpair())
                passed_sockets = [worker_end, *([self._listening] if self._listening is not None else [])]
                process = await self._spawn([one.fileno() for one in passed_sockets])
            except OSError as error:
                raise WorkerFailed(f"cannot start a worker: {error.strerror}") from error
            worker_end.close()
            channel.pop_all()
        reader, writer = await asyncio.open_connection(sock=own_end)
        worker = _WorkerProcess(process, reader, writer, asyncio.get_running_loop().time())
        try:
            worker.identity = IDENTITY_FORMAT.validate_python(await self._read_message(worker, IDENTITY))
        except BaseException:
            await self._discard([worker])
            raise
        return worker

    async def _spawn(self, descriptors: Sequence[int]) -> asyncio.subprocess.Process:
        # Start the worker with SIGHUP blocked, because the signal would end a worker that does not ignore it yet.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        try:
            return await asyncio.create_subprocess_exec(
                *self._command,
                *map(str, descriptors),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=descriptors,
                # Only the supervisor handles signals from the terminal.
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})

    async def _let_serve(self, worker: _WorkerProcess) -> None:
        worker.writer.write(SERVE)
        worker.name = await self._read_message(worker, READY)

    async def _read_message(self, worker: _WorkerProcess, kind: str) -> Any:
        """Read one message of the given kind from a worker."""
        try:
            message = json.loads(await asyncio.wait_for(worker.reader.readline(), self._settings.timeout_start))
        except TimeoutError:
            raise WorkerFailed(f"a worker was not ready within {self._settings.timeout_start:g} s") from None
        except (OSError, ValueError):
            raise WorkerFailed("a worker ended before it served; its log is above") from None
        if FAILED in message:
            raise WorkerFailed(message[FAILED])
        return message[kind]

    async def _add_worker(self) -> _WorkerProcess:
        """Start another worker, and wait until it serves."""
        worker = await self._start_worker()
        try:
            if reason := self._objection_to(worker.identity):
                raise WorkerFailed(reason)
            await self._let_serve(worker)
        except BaseException:
            await self._discard([worker])
            raise
        return worker

    def _objection_to(self, newcomer: Identity) -> str | None:
        """Return why a new worker must not serve beside the others; None if it may."""
        return objection_to_newcomer(newcomer, [one.identity for one in self._slots if one.is_alive])

    # Replacing.

    def _install_worker(self, tasks: asyncio.TaskGroup, slot: int, worker: _WorkerProcess, pause: float = 0.0) -> None:
        self._slots[slot] = worker
        # Report earlier deaths to this worker, which may be the only living worker that can take over the dead workers'
        # tasks.
        for name in self._dead:
            self._report_death(worker, name)
        tasks.create_task(self._keep_alive(tasks, slot, worker, pause))

    async def _keep_alive(self, tasks: asyncio.TaskGroup, slot: int, worker: _WorkerProcess, pause: float) -> None:
        """Replace a slot's worker when it dies. If successors are short-lived, wait longer before each replacement."""
        await worker.process.wait()
        if worker.name is not None:
            self._dead.append(worker.name)
            for other in {*self._slots, *self._retiring}:
                self._report_death(other, worker.name)
        lived = asyncio.get_running_loop().time() - worker.started_at
        pause = _longer_pause(pause) if lived < _SHORT_LIFE_SECONDS else 0.0
        while self._slots[slot] is worker:
            await asyncio.sleep(pause)
            async with self._changing:
                if self._slots[slot] is not worker:
                    break
                logger.warning("worker %d ended (%s); starting another", worker.process.pid, _end_text(worker))
                try:
                    self._install_worker(tasks, slot, await self._add_worker(), pause)
                except WorkerFailed as error:
                    pause = _longer_pause(pause)
                    logger.error("cannot replace a worker; the next attempt is in %g s: %s", pause, error)
            worker.writer.close()

    def _report_death(self, worker: _WorkerProcess, dead: str) -> None:
        """Report a dead worker to another worker, which then need not wait for the dead worker's leases to expire."""
        if worker.is_alive and worker.name is not None:
            worker.writer.write(json.dumps({DEAD: dead}).encode() + b"\n")

    async def _roll(self, tasks: asyncio.TaskGroup) -> None:
        """Replace all workers one by one. Retire each worker only when its successor serves."""
        logger.info("replacing %d workers, one by one", len(self._slots))
        for slot in range(len(self._slots)):
            async with self._changing:
                old = self._slots[slot]
                try:
                    self._install_worker(tasks, slot, await self._add_worker())
                except WorkerFailed as error:
                    logger.error("stopped replacing workers; the remaining workers keep serving unchanged: %s", error)
                    return
            await self._retire(old)
        logger.info("replaced all workers")

    # Ending.

    async def _retire(self, worker: _WorkerProcess) -> bool:
        """Let a worker finish its requests and end. Return False if the worker failed or had to be killed."""
        if not worker.is_alive:
            return True
        self._retiring.add(worker)
        worker.signal(signal.SIGTERM)
        timeout = self._settings.drain + self._settings.timeout_graceful_shutdown + _END_MARGIN_SECONDS
        try:
            await asyncio.wait_for(worker.process.wait(), timeout)
        except TimeoutError:
            logger.error("worker %d did not end within %g s; killing it", worker.process.pid, timeout)
            await self._discard([worker])
            return False
        finally:
            worker.writer.close()
            # If this coroutine was cancelled, the worker may still be alive. It is then retired again at the end.
            if not worker.is_alive:
                self._retiring.discard(worker)
        # If a worker is not serving yet, the signal itself ends it.
        return worker.process.returncode in (0, -signal.SIGTERM)

    async def _discard(self, workers: Sequence[_WorkerProcess]) -> None:
        """Kill workers that are not serving requests."""
        for worker in workers:
            worker.signal(signal.SIGKILL)
            worker.writer.close()
        await asyncio.gather(*(worker.process.wait() for worker in workers))


def _longer_pause(pause: float) -> float:
    return min(max(1.0, pause * 2), _MAX_PAUSE_SECONDS)


def _end_text(worker: _WorkerProcess) -> str:
    code = worker.process.returncode
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
