"""Docket engine: run a server's tasks with Docket, a distributed task queue on Redis.

Docket only delivers legs; the server's store is the source of truth. Each write that makes a task due also adds a
message with the call id to Docket's stream. The worker that reads the message claims the task in the store. A lost,
late or duplicate message does no harm, because a sweep resends tasks that stay due, and only one claim succeeds.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any, ClassVar, Final, cast

from typing_extensions import override

from roundtrip.errors import InvalidSignature, RoundtripError
from roundtrip.ledger.machines import StoredState
from roundtrip.ledger.tasks import CallEntry, CallStore
from roundtrip.stored.book import CallBook
from roundtrip.stored.sweep import CallDelivery, Sweep, begin_work
from roundtrip.stored.worker import CallWorker
from roundtrip.system import System

try:
    from docket import Docket, Worker
    from docket.dependencies import Dependency
    from docket.execution import Disposition
except ImportError as error:
    raise ImportError("DocketEngine needs Docket: pip install 'mcp-roundtrip[docket]'") from error

_SCHEMES: Final = ("redis://", "rediss://", "unix://", "redis+cluster://", "rediss+cluster://", "redis+sentinel://")

logger = logging.getLogger("roundtrip")

_FUNCTION: Final = "roundtrip_leg"
"""The only function that is registered with Docket. Docket workers drop messages for unknown functions."""
_BATCH: Final = 200
_LOST_SECONDS: Final = 3.0
"""If a task is still due after this many seconds, its message counts as lost. If the message is not lost after all,
Docket drops the duplicate.
"""
_RESEND_SECONDS: Final = 10.0
_SPREAD_SECONDS: Final = 0.25
_SEND_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 2.0
_DRAIN_SECONDS: Final = 10.0
"""Seconds that running legs may take to finish when `docket worker` stops."""

TaskFunction = Callable[..., Awaitable[None]]
WorkedBy = Callable[[], AbstractAsyncContextManager[CallWorker]]


class DocketEngine:
    """Task engine for fleets: Docket delivers a server's tasks to workers. Use it as
    `Server(task_engine=DocketEngine(url))`.

    The server's ledger still stores the tasks, and all workers must reach it. Docket receives only call ids. Docket
    unpickles what it reads from its Redis server. So anyone who can write to this Redis server can run any code in all
    processes that use it.

    Args:
        url: URL of Docket's Redis server, such as `redis://redis.internal:6379/1`.
        name: The docket's name. Servers with different ledgers need different names.
        redelivery: If a worker has died, Docket redelivers its leg after this many seconds.
        **options: More options for `docket.Docket`, such as `credential_provider`.

    Raises:
        ImportError: Docket is not installed.
        ValueError: Other processes cannot reach a Redis server at this URL, or `redelivery` is not positive.

    Example:
        ```python
        engine = DocketEngine("redis://redis.internal:6379/1", name="shop")
        server = Server("shop", keys=keys, ledger=RedisLedger("redis://redis.internal:6379/0"), task_engine=engine)
        tasks = engine.tasks  # docket worker --tasks shop:tasks --docket shop --url redis://redis.internal:6379/1
        ```
    """

    def __init__(self, url: str, *, name: str = "roundtrip", redelivery: float = 20.0, **options: Any) -> None:
        if url.startswith("memory:"):
            raise ValueError(
                f"url must be the URL of a Redis server, got {url!r}: no other process or event loop could reach it; "
                "leave out task_engine= to run tasks in the server's processes"
            )
        if not url.startswith(_SCHEMES):
            raise ValueError(f"url must begin with redis://, rediss:// or unix://, got {url!r}")
        if not redelivery > 0:
            raise ValueError(f"redelivery must be a number of seconds greater than 0, got {redelivery!r}")
        self.url = url
        self.name = name
        self.redelivery = timedelta(seconds=redelivery)
        # Docket's own records of finished legs are not stored, because nothing reads them.
        self._options: dict[str, Any] = {"execution_ttl": timedelta(0), **options}
        self._binding: tuple[WorkedBy, CallBook, System] | None = None
        self._senders: dict[asyncio.AbstractEventLoop, _Sender] = {}

    @property
    def tasks(self) -> tuple[TaskFunction, ...]:
        """Return the task collection for Docket's own command line: `docket worker --tasks MODULE:NAME`."""

        class Legs(Dependency[CallWorker]):
            """The server inside a Docket worker. It starts and stops with the worker."""

            running: ClassVar[CallWorker | None] = None

            async def __aenter__(self) -> CallWorker:
                if Legs.running is None:
                    raise RoundtripError("the worker is not running")
                return Legs.running

            @classmethod
            @asynccontextmanager
            async def worker_lifecycle(cls, docket: Docket, worker: Worker) -> AsyncGenerator[None]:
                """Run the server while the worker runs. Docket calls this function for each dependency."""
                async with engine.serve_docket(docket) as cls.running:
                    yield

        engine, worker_dependency = self, cast("CallWorker", Legs())

        async def roundtrip_leg(call_id: str, legs: CallWorker = worker_dependency) -> None:
            await legs.run(call_id)

        return (roundtrip_leg,)

    def open(self) -> Docket:
        """Return a connection to Docket. Enter it as a context manager, on the event loop that uses it."""
        return Docket(name=self.name, url=self.url, **self._options)

    def bind(self, worked_by: WorkedBy, book: CallBook, system: System) -> None:
        """Implement `DistributedEngine.bind`."""
        if self._binding is not None:
            raise InvalidSignature("a DocketEngine belongs to one server; create an engine for each server")
        self._binding = worked_by, book, system
        book.store = _SendingCalls(book.store, self._report_write)

    def start(self) -> None:
        """Implement `DistributedEngine.start`."""
        loop = asyncio.get_running_loop()
        if loop not in self._senders and self._binding is not None:
            _, book, system = self._binding
            self._senders[loop] = _Sender(self, book, system)

    async def stop(self) -> None:
        """Implement `DistributedEngine.stop`."""
        sender = self._senders.pop(asyncio.get_running_loop(), None)
        if sender is not None:
            await sender.stop()

    def _report_write(self, entry: CallEntry) -> None:
        """Tell this event loop's sender that a write happened. If the loop has no sender, the sweep of another process
        will find the task.
        """
        sender = self._senders.get(asyncio.get_running_loop())
        if sender is not None:
            sender.report_write(entry)

    def deliver(self, engine: CallWorker) -> CallDelivery:
        """Implement `DistributedEngine.deliver`."""
        return _Receiver(self, engine)

    @asynccontextmanager
    async def serve_docket(self, docket: Docket) -> AsyncGenerator[CallWorker]:
        """Run the server in a worker that was started by Docket's own command line.

        Raises:
            RoundtripError: The worker reads another docket, or the server has no tasks.
        """
        if docket.name != self.name:
            raise RoundtripError(f"the worker must read the docket {self.name!r}, got {docket.name!r}; pass --docket")
        if self._binding is None:
            raise RoundtripError(
                "no server runs tasks on this DocketEngine; pass it as task_engine= to a server that has a task= tool"
            )
        async with self._binding[0]() as engine:
            try:
                yield engine
            finally:
                # Otherwise, Docket would wait for the legs without a limit. A second signal ends the wait.
                await engine.drain(_DRAIN_SECONDS)


class _SendingCalls:
    """Task store that tells a sender about each write in this process. The sender tells Docket about each task that
    becomes due.
    """

    def __init__(self, store: CallStore, report_write: Callable[[CallEntry], None]) -> None:
        self._store = store
        self._report_write = report_write
        self.load = store.load
        self.due = store.due
        self.list = store.list
        self.labelled = store.labelled
        self.scan = store.scan
        self.listen = store.listen

    async def add(self, entry: CallEntry) -> bool:
        """Implement `CallStore.add`."""
        if not await self._store.add(entry):
            return False
        self._report_write(entry)
        return True

    async def save(self, entry: CallEntry, *, version: int) -> bool:
        """Implement `CallStore.save`."""
        if not await self._store.save(entry, version=version):
            return False
        self._report_write(entry)
        return True


class _DocketLink:
    """A connection from one event loop to Docket's Redis server. It reconnects after an outage, and logs each outage
    once.
    """

    def __init__(
        self, engine: DocketEngine, purpose: str, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._engine = engine
        self._purpose = purpose
        self._sleep = sleep
        self._is_down = False
        self._is_stopping = False

    async def _use(self, docket: Docket) -> None:
        """Use a connection until the connection is lost or this link stops."""
        raise NotImplementedError

    async def _use_forever(self) -> None:
        while not self._is_stopping:
            try:
                async with self._engine.open() as docket:
                    await self._use(docket)
            except Exception as error:  # noqa: BLE001 - whatever it is, the work must begin again
                if not self._is_down:
                    self._is_down = True
                    logger.error(
                        "Docket cannot %s; this error is not logged again until Docket recovers: %s: %s",
                        self._purpose,
                        type(error).__name__,
                        error,
                    )
                await self._sleep(_RETRY_SECONDS)


class _Sender(_DocketLink):
    """One event loop's sender. It sends due tasks to Docket, and resends tasks that stay due."""

    def __init__(self, engine: DocketEngine, book: CallBook, system: System) -> None:
        super().__init__(engine, "receive tasks", system.sleep)
        self._book = book
        self._system = system
        self._due: dict[str, int] = {}
        """Epochs of the tasks to send, keyed by call id."""
        self._wake_event = asyncio.Event()
        self._sweep = Sweep(book.store, self._check_tasks, system, room=lambda: _BATCH, spread=_SPREAD_SECONDS)
        self._work = begin_work(self._use_forever(), "send due tasks to Docket")

    def report_write(self, entry: CallEntry) -> None:
        """Send a task if it is due. If the task becomes due later, check it again then."""
        if entry.state is StoredState.DUE:
            self._due[entry.call_id] = entry.epoch
            self._wake_event.set()
        elif entry.state is StoredState.WAITING:
            self._sweep.expect(entry.call_id, entry.due - entry.updated)

    async def stop(self) -> None:
        """Send all due tasks, and then stop."""
        self._sweep.pause()
        self._is_stopping = True
        self._wake_event.set()
        await asyncio.wait([self._work], timeout=_STOP_SECONDS)
        self._work.cancel()
        await asyncio.wait([self._work])
        await self._sweep.close()

    async def _check_tasks(self, calls: Sequence[str]) -> None:
        """Make waiting tasks due when their time has come. Resend due tasks if their message was lost."""
        is_more = False
        # Start at a random task, because other processes look at the same tasks.
        start = int.from_bytes(self._system.entropy(2)) % max(1, len(calls))
        for call_id in [*calls[start:], *calls[:start]]:
            entry, now = await self._book.store.load(call_id)
            if entry is None:
                continue
            if entry.state is not StoredState.DUE:
                # The write marks the task as due, and also sends it to Docket. If several processes try this, only one
                # write succeeds.
                await self._book.change(call_id, lambda entry, now: None)
                is_more = True
            elif now - entry.due >= _LOST_SECONDS:
                self.report_write(entry)
                self._sweep.skip(call_id, _RESEND_SECONDS)
            else:
                self._sweep.skip(call_id, _LOST_SECONDS)
        if is_more and len(calls) >= _BATCH:
            self._sweep.look_soon()

    @override
    async def _use(self, docket: Docket) -> None:
        docket.register(_placeholder, [_FUNCTION])
        while self._due or not self._is_stopping:
            await self._wake_event.wait()
            self._wake_event.clear()
            await self._send_due(docket)

    async def _send_due(self, docket: Docket) -> None:
        due, self._due = self._due, {}
        # The key contains the epoch. Without it, Docket could drop the message while it still runs an earlier leg of
        # the call.
        calls = [docket.call(_FUNCTION, key=f"{call_id}.{epoch}")(call_id) for call_id, epoch in due.items()]
        if not calls:
            return
        async with asyncio.timeout(_SEND_SECONDS):
            sent = await docket.add_many(calls)
        failed = next(
            (execution.schedule_exception for execution in sent if execution.disposition is Disposition.FAILED), None
        )
        if isinstance(failed, Exception):
            raise failed
        self._is_down = False


async def _placeholder(call_id: str) -> None:
    """Placeholder with the name of the function that workers run."""


class _Receiver(_DocketLink, CallDelivery):
    """Receiver that runs a Docket worker in this process, and gets tasks from it for this event loop's `CallWorker`.

    Docket delivers each task, and redelivers a task that this worker skipped. So the receiver need not look for tasks.
    """

    def __init__(self, engine: DocketEngine, worker: CallWorker) -> None:
        super().__init__(engine, "deliver tasks")
        self._worker = worker
        self._work = begin_work(self._use_forever(), "receive tasks from Docket")

    def pause(self) -> None:
        """Implement `CallDelivery.pause`. Docket's worker waits for the legs that are running."""
        if not self._is_stopping:
            self._is_stopping = True
            self._work.cancel()

    async def close(self) -> None:
        """Implement `CallDelivery.close`."""
        self.pause()
        _, late = await asyncio.wait([self._work], timeout=_STOP_SECONDS)
        if late:
            self._work.cancel()
            await asyncio.wait([self._work], timeout=_STOP_SECONDS)

    @override
    async def _use(self, docket: Docket) -> None:
        async def roundtrip_leg(call_id: str) -> None:
            await self._worker.run(call_id)

        docket.register(roundtrip_leg)
        # Several workers in one process need different names.
        name = f"{socket.gethostname()}#{os.getpid()}#{self._worker.holder[-8:]}"
        most, redelivery = self._worker.most, self._engine.redelivery
        async with Worker(docket, name=name, concurrency=most, redelivery_timeout=redelivery) as worker:
            self._is_down = False
            await worker.run_forever()
