"""Every store of tasks does what a model does, whatever stops between two of its operations, and whatever comes late.

Workers and clients are asyncio tasks. Each operation waits for its turn, so that the test decides which one is next.
It may end a worker before an operation, or after it and before its reply, or leave it paused while time goes on.
"""

import asyncio
import itertools
import json
import random
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from roundtrip.ledger import LedgerDown
from roundtrip.ledger.tasks import SeenTask, TaskEntry, TaskStore, TaskSummary, change_task, summary_of
from roundtrip.machine.tasks import TaskEvent, TaskState
from roundtrip.testing import Clock
from tests.kit.programs import needs
from tests.kit.stores import Servers, servers, turned_ledger
from tests.kit.tiers import examples
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio

LEASE: Final = 30.0
LIFE: Final = 3000.0
STEPS: Final = 3
CALLS: Final = ("a", "b", "c")
TURNS: Final = 250


class ModelStore:
    """The contract, in the fewest words: entries by their calls."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.entries: dict[str, TaskEntry] = {}

    def add(self, entry: TaskEntry) -> bool:
        if entry.call_id in self.entries:
            return False
        self.entries[entry.call_id] = entry.copy()
        return True

    def save(self, entry: TaskEntry, *, version: int) -> bool:
        stored = self.entries.get(entry.call_id)
        if stored is None or stored.version != version:
            return False
        if entry.is_over(self.clock()):
            del self.entries[entry.call_id]
        else:
            self.entries[entry.call_id] = entry.copy()
        return True

    def load(self, call_id: str) -> TaskEntry | None:
        return self.entries.get(call_id)

    def due(self, limit: int) -> list[str]:
        found = [entry for entry in self.entries.values() if entry.due <= self.clock()]
        return [entry.call_id for entry in sorted(found, key=lambda one: one.due)[:limit]]

    def labelled(self, label: str) -> list[TaskSummary]:
        found = [entry for entry in self.entries.values() if label in entry.labels]
        return [summary_of(entry) for entry in sorted(found, key=lambda one: (one.created, one.call_id))]


class Turn(NamedTuple):
    """One operation of an actor, which waits for its turn."""

    actor: asyncio.Task[None]
    run: Callable[[], Awaitable[Any]]
    reply: "asyncio.Future[Any]"


@dataclass
class Stage:
    """The store, the model, and the actors that use them by turns."""

    store: TaskStore
    clock: Clock
    rng: random.Random
    model: ModelStore = field(init=False)
    turns: list[Turn] = field(default_factory=list[Turn])
    actors: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    ran: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """Every run of a step: its call and its number."""
    stored_at_run: list[bool] = field(default_factory=list[bool])
    """For each of them, True if the store had its result already."""

    def __post_init__(self) -> None:
        self.model = ModelStore(self.clock)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.actors.add(task)
        task.add_done_callback(self.actors.discard)

    async def take(self, run: Callable[[], Awaitable[Any]]) -> Any:
        actor = asyncio.current_task()
        assert actor is not None
        turn = Turn(actor, run, asyncio.get_running_loop().create_future())
        self.turns.append(turn)
        try:
            return await turn.reply
        finally:
            if turn in self.turns:
                self.turns.remove(turn)

    async def settle(self) -> None:
        """Wait until every actor waits for a turn, or has ended."""
        async with asyncio.timeout(WAIT):
            while len({turn.actor for turn in self.turns}) < len(self.actors):  # noqa: ASYNC110 - no event of all
                await asyncio.sleep(0)

    async def play(self, turn: Turn, fate: str) -> None:
        """Let an operation happen; or end its actor before it, or before the reply."""
        self.turns.remove(turn)
        if fate == "die before":
            turn.actor.cancel()
            return
        result = await turn.run()
        if fate == "die after":
            turn.actor.cancel()
        elif fate == "down":
            turn.reply.set_exception(LedgerDown("the reply was lost"))
        else:
            turn.reply.set_result(result)


class PlayedStore:
    """The store as actors see it: each operation waits for its turn, and is compared with the model's."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def add(self, entry: TaskEntry) -> bool:
        given = entry.copy()
        return await self._stage.take(lambda: self._add(given))

    async def _add(self, entry: TaskEntry) -> bool:
        expected = self._stage.model.add(entry)
        assert await self._stage.store.add(entry) == expected
        return expected

    async def load(self, call_id: str) -> tuple[TaskEntry | None, float]:
        return await self._stage.take(lambda: self._load(call_id))

    async def _load(self, call_id: str) -> tuple[TaskEntry | None, float]:
        entry, now = await self._stage.store.load(call_id)
        assert entry == self._stage.model.load(call_id)
        return entry, now

    async def save(self, entry: TaskEntry, *, version: int) -> bool:
        given = entry.copy()
        return await self._stage.take(lambda: self._save(given, version))

    async def _save(self, entry: TaskEntry, version: int) -> bool:
        model = self._stage.model
        before = model.load(entry.call_id)
        expected = model.save(entry, version=version)
        assert await self._stage.store.save(entry, version=version) == expected
        if expected and before is not None:
            _check_change(before, entry)
        return expected

    async def due(self, limit: int) -> tuple[list[str], float | None]:
        return await self._stage.take(lambda: self._due(limit))

    async def _due(self, limit: int) -> tuple[list[str], float | None]:
        found, following = await self._stage.store.due(limit)
        assert sorted(found) == sorted(self._stage.model.due(limit))
        return found, following

    async def labelled(self, label: str) -> Sequence[TaskSummary]:
        return await self._stage.take(lambda: self._labelled(label))

    async def _labelled(self, label: str) -> Sequence[TaskSummary]:
        found = list(await self._stage.store.labelled(label, limit=10))
        assert found == self._stage.model.labelled(label)
        return found


def _check_change(before: TaskEntry, after: TaskEntry) -> None:
    """Check that a write broke no promise."""
    assert not before.has_ended or after.state is before.state, "an ended task has changed"
    assert after.epoch in (before.epoch, before.epoch + 1)
    if after.epoch > before.epoch:
        assert before.holder == "" or before.state is not TaskState.RUNNING or before.due <= after.updated
    is_same_leg = before.state is after.state is TaskState.RUNNING and before.epoch == after.epoch
    if is_same_leg:
        assert after.notes[: len(before.notes)] == before.notes, "a stored step is lost"


async def _work(stage: Stage, name: str) -> None:
    """Claim what is due, run its next steps, and park or finish it, as workers do."""
    store: Any = PlayedStore(stage)
    holder = f"{name}-{stage.rng.random()}"
    while True:
        with suppress(LedgerDown):
            due, _ = await store.due(3)
            if due:
                await _serve(stage, store, stage.rng.choice(due), holder)


async def _serve(stage: Stage, store: Any, call_id: str, holder: str) -> None:
    def claim(entry: TaskEntry, now: float) -> tuple[TaskEntry, float] | None:
        return (entry, now) if entry.claim(holder, now, lease=LEASE) else None

    claimed = await change_task(store, call_id, claim)
    if claimed is None:
        return
    entry, now = claimed
    seen, epoch = SeenTask(entry, now, stage.clock), entry.epoch
    parked: list[int] = json.loads(entry.content)["steps"]
    done = [*parked, *(int(note) for note in entry.notes)]

    def fenced(work: Callable[[TaskEntry, float], None]) -> Callable[[TaskEntry, float], bool]:
        def run(entry: TaskEntry, now: float) -> bool:
            if not entry.is_held(holder, epoch):
                return False
            work(entry, now)
            return True

        return run

    async def write(work: Callable[[TaskEntry, float], None]) -> bool:
        for _ in range(5):
            try:
                return await change_task(store, call_id, fenced(work), seen=seen) or False
            except LedgerDown:
                continue
        return False

    for step in range(STEPS):
        if step in done:
            continue
        if stage.rng.random() < 0.3:
            steps = [*done]

            def park(entry: TaskEntry, now: float, steps: list[int] = steps) -> None:
                entry.content = json.dumps({"steps": steps})
                entry.park(TaskEvent.ASK if stage.rng.random() < 0.5 else TaskEvent.WAIT, now, due=now + 20)

            await write(park)
            return
        # A worker proves its lease before a step that must not run twice.
        if not await write(lambda entry, now: entry.renew(now, lease=LEASE)):
            return
        stored = stage.model.load(call_id)
        known = [] if stored is None else [*json.loads(stored.content)["steps"], *map(int, stored.notes)]
        stage.ran.append((call_id, step))
        stage.stored_at_run.append(step in known)
        if not await write(lambda entry, now, step=step: entry.note(str(step), now, lease=LEASE)):
            return
        done.append(step)

    def finish(entry: TaskEntry, now: float) -> None:
        entry.content = json.dumps({"steps": sorted(done)})
        entry.notes.clear()
        entry.apply(TaskEvent.FINISH, now)

    await write(finish)


async def _use(stage: Stage) -> None:
    """Add tasks, answer, signal, relabel and sometimes cancel them, as clients do."""
    store: Any = PlayedStore(stage)
    while True:
        call_id = stage.rng.choice(CALLS)
        with suppress(LedgerDown):
            match stage.rng.randrange(6):
                case 0:
                    now = stage.clock()
                    labels = ("all", f"of-{call_id}")
                    await store.add(
                        TaskEntry(
                            call_id,
                            "ship",
                            now,
                            now + LIFE,
                            due=now,
                            updated=now,
                            content='{"steps": []}',
                            labels=labels,
                        )
                    )
                case 1 | 2:
                    await change_task(store, call_id, lambda entry, now: entry.apply(TaskEvent.WAKE, now))
                case 3:
                    await store.labelled("all")
                case 4:

                    def relabel(entry: TaskEntry, now: float) -> None:
                        if not entry.has_ended:
                            entry.labels = tuple(stage.rng.sample(["all", "red", "blue"], stage.rng.randrange(3)))

                    await change_task(store, call_id, relabel)
                case _:
                    if stage.rng.random() < 0.2:
                        await change_task(store, call_id, lambda entry, now: entry.apply(TaskEvent.CANCEL, now))


async def _play(store: TaskStore, clock: Clock, seed: int) -> None:
    rng = random.Random(seed)
    stage = Stage(store, clock, rng)
    workers = itertools.count()
    for call_id in CALLS:
        stage.begin(_use(stage))
        stage.begin(_work(stage, f"{call_id}-{next(workers)}"))
    paused: list[asyncio.Task[None]] = []
    for _ in range(TURNS):
        await stage.settle()
        if rng.random() < 0.1:
            clock.advance(rng.choice([1.0, LEASE / 2, LEASE + 1]))
        if paused and rng.random() < 0.1:
            paused.pop()
        ready = [turn for turn in stage.turns if turn.actor not in paused]
        if not ready:
            paused.clear()
            continue
        turn = rng.choice(ready)
        fate = rng.choices(["go on", "die before", "die after", "down", "pause"], [40, 1, 1, 2, 2])[0]
        if fate == "pause":
            paused.append(turn.actor)
            continue
        await stage.play(turn, fate)
        if fate.startswith("die"):
            stage.begin(_work(stage, f"again-{next(workers)}"))
    for actor in [*stage.actors]:
        actor.cancel()
    await asyncio.gather(*stage.actors, return_exceptions=True)
    await _end(stage)
    assert not any(stage.stored_at_run), stage.ran


async def _end(stage: Stage) -> None:
    """Let an honest worker end everything, and time take everything away."""
    for _ in range(10 * len(CALLS)):
        due, _ = await stage.store.due(10)
        for call_id in due:
            entry, now = await stage.store.load(call_id)
            assert entry is not None
            entry.advance(now)

            def end(entry: TaskEntry, now: float) -> None:
                if entry.claim("honest", now, lease=LEASE):
                    entry.apply(TaskEvent.FINISH, now)

            await change_task(stage.store, call_id, end)
        stage.clock.advance(LEASE + 1)
    states = [summary.state for summary in await stage.store.list(limit=10)]
    assert set(states) <= {TaskState.COMPLETED, TaskState.CANCELLED, TaskState.FAILED, TaskState.ASKING}
    stage.clock.advance(LIFE)
    for _ in range(2):
        due, _ = await stage.store.due(10)
        for call_id in due:
            await change_task(stage.store, call_id, lambda entry, now: None)
    assert await stage.store.due(10) == ([], None)
    assert not await stage.store.list(limit=10)
    assert not await stage.store.scan(after="", limit=10)
    for label in ("all", "red", "blue", *(f"of-{call_id}" for call_id in CALLS)):
        assert not await stage.store.labelled(label, limit=10)


@pytest.fixture(scope="module")
def started() -> Generator[Servers]:
    with servers() as running:
        yield running


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "kind",
    [
        "memory",
        "sqlite",
        pytest.param("redis", marks=needs("redis")),
        pytest.param("postgres", marks=needs("postgres")),
    ],
)
async def test_store_does_what_the_model_does(kind: str, started: Servers, tmp_path: Path) -> None:
    for seed in range(examples(12)):
        clock = Clock()
        # Redis tells microseconds, so times of the test have no more digits.
        clock.now = float(int(clock.now))
        async with turned_ledger(kind, started, tmp_path, clock) as ledger:
            try:
                await _play(ledger.tasks, clock, seed)
            except Exception as error:
                error.add_note(f"seed {seed}")
                raise
            await _check_rest(kind, started, ledger)


async def _check_rest(kind: str, started: Servers, ledger: Any) -> None:
    """Check that nothing is left in the store but what it always has."""
    if kind == "redis":
        prefix = ledger._prefix
        assert started.redis.command("keys", f"{prefix}:*") == f"{prefix}:{{tasks}}:clock"
    elif kind == "postgres":
        schema = ledger._connections.schema
        counts = started.postgres.command(
            f"SELECT (SELECT count(*) FROM {schema}.tasks) + (SELECT count(*) FROM {schema}.task_labels)"
        )
        assert counts == "0"
