"""One simulated history: a fleet, its clients, and everything that goes wrong, all decided by one number."""

from __future__ import annotations

import asyncio
import math
import random
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.agents import INTENTS, Agent, Wish
from tests.simulation.clients import TOOLS, Client
from tests.simulation.fleet import Instance, Json, Network
from tests.simulation.judging import Judge
from tests.simulation.loop import Process, SimulatedLoop, WorldStandsStill
from tests.simulation.shop import Diary, Order
from tests.simulation.store import WHOSE, SharedStore, StoreFaults
from tests.simulation.wishes import judge_wish

__all__ = ["History", "simulate"]

_INSTANCES: Final = 3
_CHAOS_SECONDS: Final = 150.0
"""Time after which nothing goes wrong any more, so that each call must come to its end."""
_END_SECONDS: Final = 3 * 3600.0


@dataclass
class History:
    """What a seed has led to."""

    seed: int
    broken: list[str] = field(default_factory=list[str])
    events: list[str] = field(default_factory=list[str])
    """Deaths, pauses and ends, with their times."""
    runs: list[str] = field(default_factory=list[str])
    """Runs of bodies and steps, with their times."""
    steps: int = 0
    """Callbacks that have run: each was a choice of the next process."""
    transitions: int = 0
    seconds: float = 0.0
    """Simulated time."""

    def text(self, *, whole: bool = False) -> str:
        """Return what happened, for a person; with the runs of bodies and steps if it should be whole."""
        events = sorted(self.events + self.runs) if whole else self.events
        return "\n".join([f"seed {self.seed}", *events, *(f"broken: {one}" for one in self.broken)])


def simulate(seed: int, *, calls: int = 4) -> History:
    """Run one history, and judge it.

    Args:
        seed: Decides everything.
        calls: The number of clients.
    """
    history = History(seed)
    loop = SimulatedLoop(random.Random(f"{seed}/order"), ends=_END_SECONDS)
    world = _World(seed, loop, history, calls)
    world.begin()
    try:
        loop.run_until_complete(world.run())
    except WorldStandsStill as error:
        history.broken.append(f"{error}; unfinished: {world.unfinished}")
    finally:
        loop.bury([loop.world, world.store.process, *world.processes])
        history.steps, history.seconds, history.transitions = loop.steps, loop.time(), world.judge.transitions
        history.broken += world.judge.broken
        history.broken += [f"not handled: {failure}" for failure in loop.failures]
        loop.close()
    return history


class _World:
    def __init__(self, seed: int, loop: SimulatedLoop, history: History, calls: int) -> None:
        self._loop = loop
        self._history = history
        self._chance = random.Random(f"{seed}/world")

        def watch(order: str, run: Order) -> None:
            history.runs.append(f"{loop.time():8.2f} {run.instance} {order}: {run.what}")
            self.store.log[WHOSE.get()].append(run.what)

        diary = self._diary = Diary(watch)
        self.judge = Judge(diary)
        self._faults = StoreFaults(random.Random(f"{seed}/store"))
        self.store = SharedStore(loop, self._faults, self.judge.wrote, self.judge.kept)
        self.judge.troubled = self.store.troubled
        tools = self._chance.sample((*TOOLS, *INTENTS), self._chance.choice([1, 1, 2, 3]))
        keys = random.Random(f"{seed}/keys")
        # Keys rotate in some histories. Then one instance has the new key, and others from their next process on.
        is_rotated = keys.random() < 0.3
        new = keys.randrange(_INSTANCES)
        self._instances = [
            Instance(
                f"i{number}",
                self.store,
                diary,
                tools,
                random.Random(f"{seed}/{number}"),
                self.judge,
                (1 if number == new else 2) if is_rotated else math.inf,
            )
            for number in range(_INSTANCES)
        ]
        self._network = Network(loop, self._instances, random.Random(f"{seed}/network"))
        seen: list[tuple[str, str, Json]] = []
        self._wishes: list[Wish] = []
        self._clients: list[Client | Agent] = []
        wishing = random.Random(f"{seed}/wishes")
        for number in range(calls):
            tool, chance = self._chance.choice(tools), random.Random(f"{seed}/client/{number}")
            if tool in INTENTS:
                self._clients.append(Agent(self._wish(number, tool, wishing), self._network, seen, chance))
            else:
                self._clients.append(Client(f"order{number}", tool, self._network, seen, chance))
        self._done: set[str] = set()

    def _wish(self, number: int, tool: str, chance: random.Random) -> Wish:
        """Return what an agent wants, perhaps the same as another one, or nearly the same."""
        alike = [wish for wish in self._wishes if wish.tool == tool]
        if alike and chance.random() < 0.7:
            return chance.choice(alike)
        order, user = f"order{number}", f"user {number}"
        if self._wishes and chance.random() < 0.6:
            near = chance.choice(self._wishes)
            order = near.order
            if near.tool != tool and chance.random() < 0.5:
                user = near.user
        for wish in self._wishes:
            if (wish.user, wish.order, wish.tool) == (user, order, tool):
                return wish
        wish = Wish(user, order, tool, 100 * (number + 1) + chance.randrange(90))
        self._wishes.append(wish)
        return wish

    @property
    def processes(self) -> list[Process]:
        """Return all processes that ever ran."""
        return [process for each in self._instances for process in (*each.dead, each.process)]

    @property
    def unfinished(self) -> list[str]:
        """Return the calls that have not ended."""
        return [client.name for client in self._clients if client.name not in self._done]

    def _note(self, what: str) -> None:
        self._history.events.append(f"{self._loop.time():8.2f} {what}")

    def begin(self) -> None:
        """Start the instances."""
        for instance in self._instances:
            instance.start()
        self.judge.open_note = self._instances[0].open_note

    async def run(self) -> None:
        """Play all calls to their ends."""
        chaos = asyncio.create_task(self._chaos())
        async with asyncio.TaskGroup() as group:
            for client in self._clients:
                group.create_task(self._play(client))
        await chaos
        for client in self._clients:
            if isinstance(client, Client):
                self.judge.judge(client)
        for wish in self._wishes:
            keys, store = self.store.keys[wish.name], self.store
            is_troubled = not keys.isdisjoint(store.troubled)
            self.judge.broken += judge_wish(wish, self._diary, store.log[wish.name], is_troubled=is_troubled)

    async def _play(self, client: Client | Agent) -> None:
        await client.run()
        self._done.add(client.name)
        self._note(f"{client.name} ended")

    async def _chaos(self) -> None:
        """Kill, pause and cut off, until the time for that is over."""
        chance, loop = self._chance, self._loop
        pace = chance.choice([5.0, 20.0, 60.0, math.inf])
        if pace == math.inf:
            self._faults.stop()
            await asyncio.sleep(_CHAOS_SECONDS)
            self._network.stop()
            return
        while loop.time() < _CHAOS_SECONDS:
            await asyncio.sleep(chance.expovariate(1 / pace))
            instance = chance.choice(self._instances)
            match chance.choice(["kill", "kill", "update", "pause", "cut"]):
                case "kill" if instance.process.is_alive:
                    self._note(f"{instance.process} dies")
                    instance.kill()
                    loop.call_later(chance.choice([0.1, chance.uniform(0, 60)]), self._start, instance)
                case "update" if instance.process.is_alive and not instance.process.is_paused:
                    self._note(f"{instance.process} is updated")
                    instance.update()
                case "pause" if instance.process.is_alive and not instance.process.is_paused:
                    seconds = chance.choice([1.0, 31.0, chance.uniform(0, 100)])
                    self._note(f"{instance.process} stands still for {seconds:.1f} s")
                    instance.pause(seconds)
                case "cut":
                    seconds = chance.choice([0.5, chance.uniform(0, 60)])
                    self._note(f"the store is down for {seconds:.1f} s")
                    self._faults.is_down = True
                    await asyncio.sleep(seconds)
                    self._faults.is_down = False
                case _:
                    pass
        self._faults.stop()
        self._network.stop()
        self._note("nothing goes wrong any more")

    def _start(self, instance: Instance) -> None:
        if not instance.process.is_alive:
            instance.start()
            self._note(f"{instance.process} starts")
