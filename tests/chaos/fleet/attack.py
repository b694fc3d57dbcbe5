"""Make many calls at once on a fleet whose instances die, and judge each call afterwards."""

import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio
import httpx

from tests.chaos.fleet.client import PATIENCE, Asked, Client, Completed, Ended, Heard, Leg, Reply, Unknown
from tests.chaos.fleet.instance import BODIES, PREFIX, done_key, ids_key, opened
from tests.chaos.fleet.processes import Fleet, Instance, suspended, until

__all__ = ["Plan", "Report", "Turns", "attack", "script"]

AT_ONCE: Final = 32
_THINKS: Final = 0.6
_DOWN: Final = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Size and conditions of an attack."""

    calls: int
    kills: int
    seed: int
    skew: float = 45.0
    """By how many seconds the clocks of some instances are ahead, once they have been started again."""


@dataclass
class Report:
    """Result of an attack."""

    plan: Plan
    seconds: float = 0.0
    counted: Counter[str] = field(default_factory=Counter[str])
    wrong: list[str] = field(default_factory=list[str])
    """Whatever must not have happened."""

    def text(self) -> str:
        """Return the report as lines, the seed in the first."""
        lines = [f"{self.plan.calls} calls, seed {self.plan.seed}, {self.seconds:.0f} s"]
        lines += [f"{count:>7}  {what}" for what, count in sorted(self.counted.items())]
        return "\n".join([*lines, f"{len(self.wrong):>7}  wrong", *self.wrong])


async def attack(plan: Plan, target: Fleet) -> Report:
    """Play all calls to their ends while instances are killed, and judge each call."""
    report = Report(plan)
    began = time.monotonic()
    dead: set[int] = set()
    books = opened(target.redis)
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=AT_ONCE)
    async with httpx.AsyncClient(base_url=target.url, timeout=90, limits=limits) as http:
        client = Client(http, seed=plan.seed)
        calls = Turns(plan, partial(_call, client, random.Random(plan.seed + 1)), at_once=AT_ONCE)
        async with anyio.create_task_group() as killing:
            killing.start_soon(_kill, plan, calls, target.instances, books, dead)
            await calls.play()
    report.counted += client.counted
    report.counted["instances killed"] = len(dead)
    for number in range(plan.calls):
        ids = await books.smembers(ids_key(number))
        states = [await books.hget(f"{PREFIX}:{{{call_id}}}", "state") for call_id in ids]
        did = await books.hgetall(done_key(number))
        _judge(number, client.heard[number], did, states, dead, report)
    await books.aclose()
    report.seconds = time.monotonic() - began
    return report


class Turns:
    """The calls of a plan, some of them at once."""

    def __init__(
        self, plan: Plan, play: Callable[[int, anyio.abc.TaskGroup], Awaitable[None]], *, at_once: int
    ) -> None:
        self._play = play
        self._at_once = at_once
        self._numbers = iter(range(plan.calls))
        self.begun = 0
        self.done = False

    async def play(self) -> None:
        async with anyio.create_task_group() as later, anyio.create_task_group() as playing:
            for _ in range(self._at_once):
                playing.start_soon(self._some, later)
        self.done = True

    async def _some(self, later: anyio.abc.TaskGroup) -> None:
        for number in self._numbers:
            self.begun += 1
            await self._play(number, later)


async def _call(client: Client, chance: random.Random, number: int, later: anyio.abc.TaskGroup) -> None:
    leg = Leg(number)
    for key, question, answer in script(number):
        asked = await client.leg(leg, later)
        if asked == Unknown():
            return
        if not isinstance(asked, Asked) or asked.questions != ((key, question),):
            raise AssertionError(f"call {number} should be asked {question!r}, and got {asked}")
        await anyio.sleep(chance.uniform(0, _THINKS))
        leg = Leg(number, asked.state, ((key, answer),), last=key == "sure")
    await client.leg(leg, later)


def script(number: int) -> list[tuple[str, str, Any]]:
    """Return the questions of a call with their answers, each unique to this call."""
    euros = 10_000 + number
    return [
        ("payer", f"Who pays no. {number}?", f"payer {number}"),
        ("euros", f"How much does payer {number} pay?", euros),
        ("sure", f"Really {euros} euros?", number % 2 == 0),
    ]


async def _kill(plan: Plan, calls: Turns, instances: Sequence[Instance], books: Any, dead: set[int]) -> None:
    """Kill instances, evenly over all calls and otherwise at random, every other one inside a body."""
    chance = random.Random(plan.seed + 2)
    moments = sorted(chance.sample(range(plan.calls), plan.kills))
    async with anyio.create_task_group() as restarting:
        for turn, moment in enumerate(moments):
            await until(lambda moment=moment: calls.begun > moment or calls.done, "calls go on", seconds=PATIENCE)
            await until(lambda: any(instance.pid for instance in instances), "an instance is up")
            victim = chance.choice([instance for instance in instances if instance.pid])
            if turn % 2:
                victim = await _inside_a_body(instances, books, calls) or victim
            dead.add(victim.kill())
            restarting.start_soon(_restart, victim, chance.uniform(0, _DOWN), chance.choice([0.0, plan.skew]))


async def _inside_a_body(instances: Sequence[Instance], books: Any, calls: Turns) -> Instance | None:
    """Return a suspended instance that is inside a body, or None."""

    async def is_there(instance: Instance) -> bool:
        return bool(await books.scard(f"{BODIES}:{instance.pid}"))

    return await suspended(lambda: instances, is_there, over=lambda: calls.done)


async def _restart(instance: Instance, after: float, skew: float) -> None:
    await anyio.sleep(after)
    instance.start("--skew", str(skew))


def _judge(
    number: int, heard: Heard, did: dict[str, str], states: list[str | None], dead: set[int], report: Report
) -> None:
    """Compare the replies to the client with the runs of the body and with the ledger."""
    counted, wrong = report.counted, report.wrong
    begun, ended = int(did.get("begun", 0)), int(did.get("ended", 0))
    told: set[Reply] = set(heard.last)
    if len(states) != 1:
        wrong.append(f"call {number}: it is {len(states)} calls")
    if begun > 1:
        wrong.append(f"call {number}: its body ran {begun} times")
    if Unknown() in heard.early:
        told.add(Unknown())
    for reply in heard.early:
        if isinstance(reply, Completed) or (isinstance(reply, Ended) and not heard.last):
            wrong.append(f"call {number}: an early leg got {reply}")
    if len(told) != 1:
        wrong.append(f"call {number}: got {sorted(map(str, told))}")
        return
    (end,) = told
    if isinstance(end, Completed):
        counted["completed"] += 1
        (_, _, payer), (_, _, euros), (_, _, sure) = script(number)
        right = {"number": number, "payer": payer, "euros": euros, "sure": sure, "receipt": did.get("receipt")}
        got = {name: value for name, value in end.result if name in right}
        if got != right:
            wrong.append(f"call {number}: got {got} instead of {right}")
        if (begun, ended) != (1, 1):
            wrong.append(f"call {number}: completed, but its body began {begun} times and ended {ended} times")
    elif isinstance(end, Unknown):
        counted["unknown"] += 1
        if states != ["running"]:
            wrong.append(f"call {number}: unknown, but the ledger says {states}")
        elif not begun and not int(did.get("near", 0)):
            wrong.append(f"call {number}: unknown, but its body was not even near")
        elif not begun:
            # What the ledger hears and what a body does first are two writes, as is what it does last.
            counted["unknown: its process died just before the body's first line"] += 1
        elif int(did["by"]) not in dead:
            wrong.append(f"call {number}: unknown, but the process of its body lives")
        elif ended:
            counted["unknown: its process died just after the body's last line"] += 1
        else:
            counted["unknown: its process died inside the body"] += 1
    else:
        wrong.append(f"call {number}: ended with {end}")
