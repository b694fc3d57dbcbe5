"""Every store of tasks does what a model does, whatever holders, clients and late writers do in any order.

Writers keep what they have loaded, and some write it long after others have changed the task.
`tests/exhaustive` plays workers that die between their operations.
"""

import random
from pathlib import Path
from typing import Any, Final

import pytest

from roundtrip.ledger.machines import StoredEvent, StoredState
from roundtrip.ledger.tasks import CallEntry, CallStore, EntrySummary, summary_of
from roundtrip.testing import Clock
from tests.kit.stores import KINDS, Servers, clock_ledger
from tests.kit.tiers import examples

pytestmark = pytest.mark.anyio

LEASE: Final = 30.0
LIFE: Final = 3000.0
CALLS: Final = ("a", "b", "c")
HOLDERS: Final = ("one", "two")
LABELS: Final = ("all", "red", "blue")
TURNS: Final = 150
ENDS: Final = (StoredEvent.FINISH, StoredEvent.CANCEL)


class ModelStore:
    """The contract, in the fewest words: entries by their calls."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.entries: dict[str, CallEntry] = {}

    def add(self, entry: CallEntry) -> bool:
        if entry.call_id in self.entries:
            return False
        self.entries[entry.call_id] = entry.copy()
        return True

    def save(self, entry: CallEntry, *, version: int) -> bool:
        stored = self.entries.get(entry.call_id)
        if stored is None or stored.version != version:
            return False
        if entry.is_over(self.clock()):
            del self.entries[entry.call_id]
        else:
            self.entries[entry.call_id] = entry.copy()
        return True

    def load(self, call_id: str) -> CallEntry | None:
        return self.entries.get(call_id)

    def due(self, limit: int) -> list[str]:
        found = [entry for entry in self.entries.values() if entry.due <= self.clock()]
        return [entry.call_id for entry in sorted(found, key=lambda one: one.due)[:limit]]

    def labelled(self, label: str) -> list[EntrySummary]:
        found = [entry for entry in self.entries.values() if label in entry.labels]
        return [summary_of(entry) for entry in sorted(found, key=lambda one: (one.created, one.call_id))]


class Stage:
    """The store and the model, which must answer alike, and the entries that late writers have loaded."""

    def __init__(self, store: CallStore, clock: Clock, rng: random.Random) -> None:
        self.store, self.clock, self.rng = store, clock, rng
        self.model = ModelStore(clock)
        self.loaded: list[CallEntry] = []

    async def add(self) -> None:
        now = self.clock()
        labels = tuple(self.rng.sample(LABELS, self.rng.randrange(3)))
        call_id = self.rng.choice(CALLS)
        entry = CallEntry(call_id, "ship", now, now + LIFE, due=now, updated=now, content="new", labels=labels)
        assert await self.store.add(entry.copy()) == self.model.add(entry)

    async def load(self) -> None:
        call_id = self.rng.choice(CALLS)
        entry, now = await self.store.load(call_id)
        assert (entry, now) == (self.model.load(call_id), self.clock())
        if entry is not None:
            self.loaded = [*self.loaded[-3:], entry]

    async def write(self) -> None:
        """Change one of the loaded entries, which may be older than the stored one, and save it."""
        if not self.loaded:
            return
        entry = self.rng.choice(self.loaded)
        version = entry.version
        entry = entry.copy()
        entry.advance(self.clock())
        self.change(entry)
        entry.version += 1
        saved = self.model.save(entry, version=version)
        assert await self.store.save(entry.copy(), version=version) == saved

    def change(self, entry: CallEntry) -> None:
        now = self.clock()
        if entry.has_ended:
            return
        if entry.state is not StoredState.RUNNING:
            match self.rng.randrange(6):
                case 0:
                    entry.labels = tuple(self.rng.sample(LABELS, self.rng.randrange(3)))
                case 1:
                    entry.apply(StoredEvent.WAKE, now)
                case 2:
                    entry.apply(StoredEvent.CANCEL, now)
                case _:
                    entry.claim(self.rng.choice(HOLDERS), now, lease=LEASE)
            return
        match self.rng.randrange(6):
            case 0:
                entry.content = f"parked at {now}"
                entry.park(self.rng.choice((StoredEvent.ASK, StoredEvent.WAIT)), now, due=now + 20)
            case 1:
                entry.notes.clear()
                entry.apply(self.rng.choice(ENDS), now)
            case 2:
                entry.renew(now, lease=LEASE)
            case _:
                entry.note(str(now), now, lease=LEASE)

    async def find(self) -> None:
        limit = self.rng.randrange(1, 4)
        found, _ = await self.store.due(limit)
        # Tasks that are due at the same time have no order.
        due = [self.model.entries[call_id].due for call_id in self.model.due(limit)]
        assert sorted(self.model.entries[call_id].due for call_id in set(found)) == due
        label = self.rng.choice(LABELS)
        assert list(await self.store.labelled(label, limit=10)) == self.model.labelled(label)
        listed = sorted(await self.store.list(limit=10))
        assert listed == sorted(summary_of(entry) for entry in self.model.entries.values())

    async def wait(self) -> None:
        self.clock.advance(self.rng.choice([1.0, LEASE / 2, LEASE + 1]))

    async def end(self) -> None:
        """Let time end everything, and take it away."""
        self.clock.advance(LIFE)
        for _ in range(2):
            for call_id in CALLS:
                entry, now = await self.store.load(call_id)
                if entry is not None:
                    version = entry.version
                    entry.advance(now)
                    entry.version += 1
                    assert await self.store.save(entry, version=version)
        assert await self.store.due(10) == ([], None)
        assert not await self.store.list(limit=10)
        assert not await self.store.scan(after="", limit=10)
        assert [label for label in LABELS if await self.store.labelled(label, limit=10)] == []


async def _play(store: CallStore, clock: Clock, rng: random.Random) -> None:
    stage = Stage(store, clock, rng)
    for _ in range(TURNS):
        turn = rng.choices([stage.add, stage.load, stage.write, stage.find, stage.wait], [1, 5, 6, 1, 1])[0]
        await turn()
    await stage.end()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
async def test_store_does_what_the_model_does(kind: str, started: Servers, tmp_path: Path) -> None:
    for seed in range(examples(12)):
        clock = Clock()
        # Redis tells microseconds, so times of the test have no more digits.
        clock.now = float(int(clock.now))
        async with clock_ledger(kind, started, tmp_path, clock) as ledger:
            try:
                await _play(ledger.tasks, clock, random.Random(seed))
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
