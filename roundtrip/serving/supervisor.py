"""Supervisor of several workers: starts them if they agree, replaces dead ones, rolls and stops them.

All workers accept from one listening socket. A retiring worker goes on accepting for a while, and each of its responses
closes its connection. The other workers then accept the rest of the queue, so that no request is lost.
"""

import asyncio
import contextlib
import json
import logging
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from roundtrip.server.probe import Identity
from roundtrip.serving.agreement import objection, objection_to_newcomer
from roundtrip.serving.settings import ServeSettings
from roundtrip.serving.worker import FAILED, IDENTITY, READY, SERVE, identity_from

__all__ = ["Supervisor", "WorkerFailed"]

logger = logging.getLogger("roundtrip")

_MARGIN: Final = 5.0
"""Seconds that a worker may exceed its time to end."""
_SHORT_LIFE: Final = 5.0
_LONGEST_PAUSE: Final = 30.0


class WorkerFailed(Exception):
    """A worker cannot serve; the text says why."""


@dataclass(eq=False, slots=True)
class _Worker:
    process: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    since: float
    identity: Identity | None = None
    ended: asyncio.Task[int] = field(init=False)
    replaced: asyncio.Future[None] = field(init=False)

    def __post_init__(self) -> None:
        self.ended = asyncio.ensure_future(self.process.wait())
        self.replaced = asyncio.get_running_loop().create_future()

    @property
    def lives(self) -> bool:
        return self.process.returncode is None

    def signal(self, number: int) -> None:
        if self.lives:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)


class Supervisor:
    """Parent process of the workers: SIGTERM and SIGINT end them, SIGHUP replaces them one after another.

    Args:
        command: Command of a worker, to which the descriptors of its channel and of the socket are appended.
        settings: Settings of the service.
        listening: Socket from which the workers accept.
        on_ready: Called once all workers serve.
    """

    def __init__(
        self,
        command: Sequence[str],
        settings: ServeSettings,
        listening: socket.socket,
        *,
        on_ready: Callable[[Identity], None],
    ) -> None:
        self._command = command
        self._settings = settings
        self._listening = listening
        self._on_ready = on_ready
        self._slots: list[_Worker] = []
        self._leaving: set[_Worker] = set()
        self._changing = asyncio.Lock()
        self._stop = asyncio.Event()
        self._rolling: asyncio.Task[None] | None = None
        self._roll_again = False
        self._started = False

    async def run(self) -> bool:
        """Serve until a signal arrives; return True if every worker finished its requests.

        Raises:
            WorkerFailed: Workers cannot start, or must not serve together.
        """
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self._on_hang_up)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop, number)
        starting = asyncio.ensure_future(self._start())
        stopped = asyncio.ensure_future(self._stop.wait())
        keepers: list[asyncio.Task[None]] = []
        try:
            await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                self._started = True
                if self._roll_again:
                    self._on_hang_up()
                keepers = [asyncio.ensure_future(self._keep(slot)) for slot in range(len(self._slots))]
                await self._stop.wait()
        finally:
            tasks: list[asyncio.Task[Any]] = [starting, stopped, *keepers]
            if self._rolling is not None:
                tasks.append(self._rolling)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            # The workers keep their own descriptors of it.
            self._listening.close()
            in_time = all(await asyncio.gather(*(self._retire(one) for one in {*self._slots, *self._leaving})))
        return in_time

    def _on_stop(self, number: int) -> None:
        again = self._stop.is_set()
        self._stop.set()
        for worker in {*self._slots, *self._leaving}:
            # `_retire` sends the first SIGTERM; an interrupt does not wait.
            if again or number == signal.SIGINT:
                worker.signal(number)

    def _on_hang_up(self) -> None:
        if not self._started or (self._rolling is not None and not self._rolling.done()):
            self._roll_again = True
        else:
            self._rolling = asyncio.ensure_future(self._roll())

    # Starting.

    async def _start(self) -> None:
        started = await asyncio.gather(
            *(self._introduced() for _ in range(self._settings.workers)), return_exceptions=True
        )
        workers = [one for one in started if isinstance(one, _Worker)]
        self._slots = workers
        for one in started:
            if isinstance(one, BaseException):
                await self._discard(workers)
                raise one
        identities = [worker.identity for worker in workers if worker.identity is not None]
        if (why := objection(identities)) is not None:
            await self._discard(workers)
            raise WorkerFailed(why)
        try:
            await asyncio.gather(*(self._set_to_work(worker) for worker in workers))
        except WorkerFailed:
            await self._discard(workers)
            raise
        self._on_ready(identities[0])

    async def _introduced(self) -> _Worker:
        """Start a worker, and wait until it has sent its identity."""
        try:
            mine, its = socket.socketpair()
        except OSError as error:
            raise WorkerFailed(f"no worker can be started: {error.strerror}") from error
        # Block SIGHUP until the worker ignores it: before, the signal would end it.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        try:
            descriptors = [its.fileno(), self._listening.fileno()]
            process = await asyncio.create_subprocess_exec(
                *self._command,
                *map(str, descriptors),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=descriptors,
                # Signals from the terminal are for the supervisor alone.
                start_new_session=True,
            )
        except OSError as error:
            mine.close()
            raise WorkerFailed(f"no worker can be started: {error.strerror}") from error
        except BaseException:
            mine.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
            its.close()
        reader, writer = await asyncio.open_connection(sock=mine)
        worker = _Worker(process, reader, writer, asyncio.get_running_loop().time())
        try:
            worker.identity = identity_from(await self._heard(worker, IDENTITY))
        except BaseException:
            await self._discard([worker])
            raise
        return worker

    async def _set_to_work(self, worker: _Worker) -> None:
        worker.writer.write(SERVE)
        await self._heard(worker, READY)

    async def _heard(self, worker: _Worker, kind: str) -> Any:
        """Read one message of the given kind from a worker.

        Raises:
            WorkerFailed: The worker reports a failure, or ends.
        """
        try:
            line = await asyncio.wait_for(worker.reader.readline(), self._settings.timeout_start)
        except TimeoutError:
            raise WorkerFailed(f"a worker was not ready within {self._settings.timeout_start:g} s") from None
        except (OSError, ValueError):
            line = b""
        if not line:
            raise WorkerFailed("a worker ended before it served; what it logged is above")
        told = json.loads(line)
        if FAILED in told:
            raise WorkerFailed(told[FAILED])
        return told[kind]

    async def _brought_up(self) -> _Worker:
        """A worker that serves, in addition to those that do.

        Raises:
            WorkerFailed: It cannot, or must not.
        """
        worker = await self._introduced()
        try:
            running = [one.identity for one in self._slots if one.lives and one.identity is not None]
            if worker.identity is None:
                raise WorkerFailed("a worker sent no identity")
            if (why := objection_to_newcomer(worker.identity, running)) is not None:
                raise WorkerFailed(why)
            await self._set_to_work(worker)
        except BaseException:
            await self._discard([worker])
            raise
        return worker

    # Keeping up.

    async def _keep(self, slot: int) -> None:
        """Replace the worker of a slot each time it dies."""
        pause = 0.0
        loop = asyncio.get_running_loop()
        while True:
            worker = self._slots[slot]
            await asyncio.wait([worker.ended, worker.replaced], return_when=asyncio.FIRST_COMPLETED)
            lived = loop.time() - worker.since
            pause = min(max(1.0, pause * 2), _LONGEST_PAUSE) if lived < _SHORT_LIFE else 0.0
            while self._slots[slot] is worker:
                await asyncio.sleep(pause)
                async with self._changing:
                    if self._slots[slot] is not worker:
                        break
                    logger.warning("worker %d ended (%s), and is replaced", worker.process.pid, _end_text(worker))
                    try:
                        self._slots[slot] = await self._brought_up()
                    except WorkerFailed as error:
                        pause = min(max(1.0, pause * 2), _LONGEST_PAUSE)
                        logger.error("a worker cannot be replaced, and is tried again in %g s: %s", pause, error)
                worker.writer.close()

    async def _roll(self) -> None:
        """Replace all workers one after another, each once its successor serves."""
        while True:
            self._roll_again = False
            logger.info("replacing %d workers, one after another", len(self._slots))
            for slot in range(len(self._slots)):
                async with self._changing:
                    old = self._slots[slot]
                    try:
                        self._slots[slot] = await self._brought_up()
                    except WorkerFailed as error:
                        logger.error("stopped replacing workers; the remaining ones serve on unchanged: %s", error)
                        return
                    old.replaced.set_result(None)
                await self._retire(old)
            logger.info("replaced all workers")
            if not self._roll_again:
                return

    # Ending.

    async def _retire(self, worker: _Worker) -> bool:
        """Have a worker finish its requests; return False if it was killed."""
        if not worker.lives:
            return True
        self._leaving.add(worker)
        worker.signal(signal.SIGTERM)
        patience = self._settings.drain + self._settings.timeout_graceful_shutdown + _MARGIN
        try:
            await asyncio.wait_for(asyncio.shield(worker.ended), patience)
        except TimeoutError:
            logger.error("worker %d did not end within %g s, and is killed", worker.process.pid, patience)
            await self._discard([worker])
            return False
        finally:
            worker.writer.close()
            # If this was cancelled, the worker is retired again at the end.
            if not worker.lives:
                self._leaving.discard(worker)
        # A worker that does not serve yet dies of the signal itself.
        return worker.process.returncode in (0, -signal.SIGTERM)

    async def _discard(self, workers: Sequence[_Worker]) -> None:
        """Kill workers that serve no request."""
        for worker in workers:
            worker.signal(signal.SIGKILL)
            worker.writer.close()
        await asyncio.gather(*(asyncio.shield(worker.ended) for worker in workers))


def _end_text(worker: _Worker) -> str:
    code = worker.process.returncode
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
