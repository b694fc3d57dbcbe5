"""Networks for tasks, on which workers die, the task store fails, or a client cancels."""

from collections.abc import Callable
from typing import Any, Final, cast

import anyio
from mcp.shared.exceptions import MCPError

from roundtrip.adapters.finding import attached
from roundtrip.client.legs import Era, LegRequest
from roundtrip.client.tasks import RemoteTask, TaskRequests
from roundtrip.errors import CallTakenOver
from roundtrip.ledger.contract import LedgerDown
from roundtrip.ledger.machines import ENDED, StoredState
from roundtrip.ledger.tasks import CallEntry, CallStore
from roundtrip.stored.service import CallService
from roundtrip.testing.networks.deliveries import Breach, Inapplicable, LegDelivery
from roundtrip.testing.networks.network import Route
from roundtrip.testing.question_pages import urls_in

# Hide this module's frames in the tracebacks of failing tests.
__tracebackhide__ = True

_TRY_AGAIN: Final = "try again later"
_SETTLE_SECONDS: Final = 10.0
_PAUSE_SECONDS: Final = 0.01


class Kill:
    """A network on which workers die before and after they write to the task store. Other workers must then continue
    the task.

    If a step's result was not stored, the step runs again. Once the body of an `exactly_once=` task has begun,
    its worker is not killed.
    """

    name = "kill"

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send the leg while workers die."""
        _install_faulty_store(route, _KillingStore)
        return await route.onward(leg)


class Outage:
    """A network on which the task store fails once per leg. The client then sends the leg again."""

    name = "outage"

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Send the leg while the store fails. If the leg failed, send it again."""
        store = _install_faulty_store(route, _FailingStore)
        store.is_down = True
        try:
            failed = await route.onward(leg)
        finally:
            store.is_down = False
        if failed.error is None:
            return failed
        if _TRY_AGAIN not in failed.error.error.message:
            raise Breach(f"the task store failed, so the server must answer {_TRY_AGAIN!r}, got {failed.told}")
        return await route.onward(leg)


class Abort:
    """A network that also starts a copy of the user's task. It cancels the copy while the copy's answers arrive.

    The cancelled task must end only once, either as cancelled or with its result. The user's own task must continue.
    """

    name = "abort"

    async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
        """Cancel the copy, and send the leg."""
        _require_task_era(route)
        if leg.task_id is not None:
            other = None
            for one in [one.leg for one in route.history(leg)]:
                # Stop if the copy shows a page, because no user visits its pages.
                if other is not None and (other.asks is None or urls_in(other.asks)):
                    break
                other = await route.aside(
                    one if other is None or other.asks is None else one.answering(other.asks, one.answers)
                )
            if other is not None and other.asks is not None and other.task_id is not None:
                await self._cancel(route.fleet.requests_to(other.task_id), leg)
        return await route.onward(leg)

    async def _cancel(self, requests: TaskRequests, leg: LegRequest) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(_require_success, lambda: requests.update(leg.answers or {}))
            group.start_soon(_require_success, requests.cancel)
        first = await _wait_for_end(requests)
        again = await requests.get()
        if again.status != first.status or again.result != first.result:
            raise Breach(f"a task must end once, but it ended as {first.status} and later as {again.status}")


async def _require_success(request: Callable[[], Any]) -> None:
    try:
        await request()
    except MCPError as error:
        raise Breach(f"a task was answered and cancelled at the same time, and the response was {error}") from error


async def _wait_for_end(requests: TaskRequests) -> RemoteTask:
    with anyio.move_on_after(_SETTLE_SECONDS):
        while True:
            task = await requests.get()
            if task.status in ("completed", "failed", "cancelled"):
                return task
            await anyio.sleep(_PAUSE_SECONDS)
    raise Breach(f"a cancelled task must end, but it is still running after {_SETTLE_SECONDS:g} s")


def _require_task_era(route: Route) -> None:
    if route.fleet.era is not Era.TASK:
        raise Inapplicable("this network needs tasks: @pytest.mark.roundtrip(eras='task'), or User(era=Era.TASK)")


class _FaultyStore:
    """A task store that fails on purpose. It fails only for the calls on one route.

    Args:
        inner: The real store.
        route: The route.
        service: The server's stored-call service.
    """

    def __init__(self, inner: CallStore, route: Route, service: CallService) -> None:
        self.inner = inner
        self.service = service
        self._route = route

    def is_affected(self, call_id: str) -> bool:
        """Return True if the store must fail for this call."""
        return self._route.fleet.has_task(call_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class _FailingStore(_FaultyStore):
    is_down = False

    async def add(self, entry: CallEntry) -> bool:
        self._fail(entry.call_id)
        return await self.inner.add(entry)

    async def load(self, call_id: str) -> tuple[CallEntry | None, float]:
        self._fail(call_id)
        return await self.inner.load(call_id)

    async def save(self, entry: CallEntry, *, version: int) -> bool:
        self._fail(entry.call_id)
        return await self.inner.save(entry, version=version)

    def _fail(self, call_id: str) -> None:
        if self.is_down and self.is_affected(call_id):
            raise LedgerDown("roundtrip.testing: the task store is down")


class _KillingStore(_FaultyStore):
    _writes = 0

    async def save(self, entry: CallEntry, *, version: int) -> bool:
        is_deadly = self.is_affected(entry.call_id) and await self._completes_work(entry)
        if is_deadly:
            self._writes += 1
        if is_deadly and self._writes % 2:
            await self._kill_worker(entry.call_id)
        saved = await self.inner.save(entry, version=version)
        if is_deadly and saved:
            await self._kill_worker(entry.call_id)
        return saved

    async def _completes_work(self, entry: CallEntry) -> bool:
        """Return True if a worker is writing a step's result or the end of a leg."""
        stored, _ = await self.inner.load(entry.call_id)
        if stored is None or stored.state is not StoredState.RUNNING or stored.epoch != entry.epoch:
            return False
        if stored.runs_once and stored.has_begun:
            return False
        return len(entry.notes) > len(stored.notes) or entry.state in (StoredState.ASKING, StoredState.WAITING, *ENDED)

    async def _kill_worker(self, call_id: str) -> None:
        """Expire the worker's lease, and then stop the worker. After this, the worker must not await anything."""
        entry, now = await self.inner.load(call_id)
        if entry is not None and entry.state is StoredState.RUNNING:
            version, entry.due = entry.version, now
            entry.version += 1
            await self.inner.save(entry, version=version)
        self.service.abandon(call_id)
        raise CallTakenOver("roundtrip.testing: the worker died")


def _install_faulty_store(route: Route, kind: type[Any]) -> Any:
    """Return the route's faulty store for the current instance. If there is no such store yet, install it."""
    _require_task_era(route)
    instance = route.fleet.at
    ours = attached(instance)
    service = ours.call_service if ours is not None else None
    if service is None:
        if ours is not None:
            raise Inapplicable("this network needs a tool with task=, and the server has none")
        raise Inapplicable("the task store can fail only for roundtrip servers in this process")
    stores: dict[int, Any] = route.notes.setdefault("stores", {})
    store = stores.get(id(service))
    if store is None:
        store = stores[id(service)] = kind(service.book.store, route, service)
        service.book.store = cast("CallStore", store)
        route.fleet.stack.callback(_remove, service, store)
    return store


def _remove(service: CallService, store: _FaultyStore) -> None:
    """Remove a faulty store from the server's chain of stores, in which each store wraps the next one."""
    holder: Any = service.book
    name = "store"
    while (current := getattr(holder, name)) is not store:
        holder, name = current, "inner"
    setattr(holder, name, store.inner)
