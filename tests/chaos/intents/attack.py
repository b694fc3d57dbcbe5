"""Play many intents by clients of a fault, while processes are disturbed, and judge each intent afterwards."""

from __future__ import annotations

import dataclasses
import math
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from signal import Signals
from typing import Final

import anyio
import httpx

from tests.chaos.fleet.attack import Plan, Report, Turns
from tests.chaos.fleet.processes import suspended, until
from tests.chaos.intents.client import Done, Gone, Intent, Post, Refused
from tests.chaos.intents.players import Play, Player
from tests.chaos.intents.processes import Field, Outlet, battlefield
from tests.chaos.intents.shop import PER_CALL, TOOLS, Line

__all__ = ["FAULTS", "LEDGERS", "attack_intents"]

LEDGERS: Final = ("memory", "sqlite", "redis", "postgres")
USERS: Final = ("ann", "bob")
_SIZE: Final = 3
_AT_ONCE: Final = 12
_DOWN: Final = 0.5
_SHOWN: Final = 20
_LONG: Final = 600.0
"""Seconds in which the next moment of an attack comes."""


@dataclass(eq=False)
class _Battle:
    """An attack under way."""

    plan: Plan
    fault: Fault
    intents: Sequence[Intent]
    field: Field
    player: Player
    turns: Turns
    chance: random.Random
    report: Report

    playing: set[int] = dataclasses.field(default_factory=set[int])
    gate: float = math.inf
    """The intents from this number on wait, so that the calls do not end before the harm."""

    async def reach(self, number: float) -> None:
        """Wait until so many intents have begun."""
        self.gate = number + _at_once(self.plan)
        await until(lambda: self.turns.begun >= number or self.turns.done, "intents begin", seconds=_LONG)

    async def reach_part(self, part: float) -> None:
        """Wait until a part of all intents has begun."""
        await self.reach(int(part * self.plan.calls))

    async def drain(self) -> None:
        """Wait until every call that is under way has ended, while few others begin."""
        self.gate = self.turns.begun + self.plan.calls // 20
        old = set(self.playing)
        await until(lambda: not old & self.playing, "calls end", seconds=_LONG)

    async def play(self, number: int) -> None:
        await until(lambda: number < self.gate, "the harm is done", seconds=_LONG)
        self.playing.add(number)
        await self.fault.play(self.player, self.intents[number])
        self.playing.discard(number)

    async def harm(self) -> None:
        """Do harm, and let all calls go on."""
        if self.fault.harm is not None:
            await self.fault.harm(self)
        self.gate = math.inf


Harm = Callable[[_Battle], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of trouble."""

    play: Play
    harm: Harm | None = None
    terms: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    old: int = 0
    """How many instances are of version 0.2.0."""
    size: int = _SIZE
    lease: float = 30.0
    slowest: float = 0.02
    tools: tuple[str, ...] = TOOLS
    ends: frozenset[str] = frozenset()
    """The documented errors with which calls may end."""
    in_memory: bool = True
    counts_steps: bool = True
    """False if steps may run again, because an instance knows no intents."""


async def _kill(battle: _Battle) -> None:
    """Kill instances, every other one inside a body or a step, and start them again."""
    kills = battle.plan.kills
    async with anyio.create_task_group() as restarting:
        for turn in range(kills):
            await battle.reach_part((turn + 0.5) / kills)
            await until(lambda: any(each.pid for each in battle.field.outlets), "an instance is up")
            victim = battle.chance.choice([each for each in battle.field.outlets if each.pid])
            if turn % 2 == 0:
                inside = await suspended(
                    lambda: battle.field.outlets, battle.field.is_inside, over=lambda: battle.turns.done
                )
                battle.report.counted["killed inside a body or step"] += inside is not None
                victim = inside or victim
            # The lines must be read before the process is forgotten.
            battle.field.lost[victim.kill()] = "killed"
            restarting.start_soon(_restart, victim, battle.chance.uniform(0, _DOWN))


async def _restart(victim: Outlet, after: float) -> None:
    await anyio.sleep(after)
    victim.serve()


async def _pause(battle: _Battle) -> None:
    """Stop instances inside a body or a step for longer than the lease, and let them go on."""
    field, pauses = battle.field, battle.plan.kills
    for turn in range(pauses):
        await battle.reach_part((turn + 0.5) / pauses)
        victim = await suspended(lambda: field.outlets, field.is_inside, over=lambda: battle.turns.done)
        if victim is None or victim.pid is None:
            continue
        if field.is_locked():
            # Others could not write, and would lose their leases, too.
            victim.signal(Signals.SIGCONT)
            continue
        field.lost[victim.pid] = "paused"
        battle.report.counted["paused inside a body or step"] += 1
        await anyio.sleep(1.6 * float(field.terms.lease))
        victim.signal(Signals.SIGCONT)


async def _roll_out(battle: _Battle, **terms: str) -> None:
    """Replace the instances one after another."""
    for outlet in battle.field.outlets:
        if await outlet.stop() is None:
            battle.report.wrong.append("a stopped instance did not end")
        outlet.serve(**terms)
        await outlet.ready()
    battle.report.counted["rollouts"] += 1


async def _rotate(battle: _Battle) -> None:
    """Roll out a new key, drop the old one when its tokens have expired, and give it back at last."""
    await battle.reach_part(0.1)
    await _roll_out(battle, keys="old,new")
    await battle.reach_part(0.3)
    await _roll_out(battle, keys="new,old")
    await battle.reach_part(0.6)
    await battle.drain()
    await _roll_out(battle, keys="new")
    await battle.reach_part(0.85)
    await _roll_out(battle, keys="new,old")


async def _learn_intents(battle: _Battle) -> None:
    """Roll out `once_per=` in place of `exactly_once=True`."""
    battle.player.covers_calls = False
    await battle.reach_part(0.3)
    await _roll_out(battle, once="intent")
    battle.player.covers_calls = True


async def _stay_mixed(battle: _Battle) -> None:
    battle.player.covers_calls = False


_DISCONNECTS: Final = re.compile(r"^\S*(?:ClientDisconnect|ClosedResourceError|BrokenResourceError)\S*$", re.MULTILINE)
"""Errors that the SDK logs when a client has left."""
_ERRORS: Final = re.compile(r"^[\w.]+(?:Error|Exception|Group)\b.*$", re.MULTILINE)
_UNKNOWN: Final = frozenset(("unknown",))
FAULTS: Final = {
    "lost-response": Fault(Player.loses_responses),
    "repeated-leg": Fault(Player.repeats_legs),
    "repeated-call": Fault(Player.repeats_call),
    "first-round": Fault(Player.begins_again),
    "two-clients": Fault(Player.is_two, ends=frozenset(("answered otherwise", "other arguments"))),
    "first-gone": Fault(Player.leaves),
    "killed": Fault(Player.endures, _kill, lease=2.5, slowest=0.2, ends=_UNKNOWN, in_memory=False),
    "paused": Fault(Player.endures, _pause, lease=2.5, slowest=0.2, ends=_UNKNOWN),
    "all-at-once": Fault(Player.suffers_everything, _kill, lease=2.5, slowest=0.2, ends=_UNKNOWN, in_memory=False),
    "rotated-key": Fault(Player.goes_on, _rotate, {"keys": "old"}, ends=frozenset(("unreadable",)), in_memory=False),
    "half-0.2": Fault(
        Player.repeats_legs_of_one_call,
        _stay_mixed,
        old=2,
        size=4,
        tools=PER_CALL,
        # A step may run at each version, and change the wording of a question behind it.
        ends=frozenset(("ended with other answers", "answered otherwise")),
        in_memory=False,
        counts_steps=False,
    ),
    "to-once-per": Fault(
        Player.repeats_legs_of_one_call,
        _learn_intents,
        {"once": "call"},
        tools=PER_CALL,
        ends=frozenset(("gone", "stopping", "ended with other answers", "answered otherwise")),
        in_memory=False,
        counts_steps=False,
    ),
}


async def attack_intents(plan: Plan, name: str, kind: str) -> Report:
    """Play all intents to their ends under a fault, and judge them."""
    fault = FAULTS[name]
    size = 1 if kind == "memory" else fault.size
    with battlefield(kind, size=size, old=fault.old, lease=fault.lease, slowest=fault.slowest, **fault.terms) as site:
        await site.ready()
        report = Report(plan)
        began = time.monotonic()
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=4 * _AT_ONCE)
        async with httpx.AsyncClient(timeout=60, limits=limits) as http:
            chance = random.Random(plan.seed)
            player = Player(Post(site.outlets, http, chance), chance)
            intents = [_intent(number, fault.tools) for number in range(plan.calls)]

            async def play(number: int, later: anyio.abc.TaskGroup) -> None:
                player.later = later
                await battle.play(number)

            turns = Turns(plan, play, at_once=_at_once(plan))
            battle = _Battle(plan, fault, intents, site, player, turns, random.Random(plan.seed + 2), report)
            try:
                with anyio.fail_after(120 + plan.calls):
                    async with anyio.create_task_group() as harming:
                        harming.start_soon(battle.harm)
                        await turns.play()
            except TimeoutError:
                report.wrong.append("calls hang")
        report.seconds = time.monotonic() - began
        site.read()
        _Judge(fault, site, player, report).judge(intents)
        logged = site.logged()
        report.counted["tracebacks of clients that left"] += len(_DISCONNECTS.findall(logged))
        report.wrong += [f"the log has {error}" for error in set(_ERRORS.findall(_DISCONNECTS.sub("", logged)))]
    return report


def _at_once(plan: Plan) -> int:
    """Return how many intents are played at once. Some must be left for each moment of the harm."""
    return max(4, min(_AT_ONCE, plan.calls // 8))


def _intent(number: int, tools: tuple[str, ...]) -> Intent:
    """Return an intent. All users have the same order numbers."""
    turn = number // len(USERS)
    return Intent(USERS[number % len(USERS)], tools[turn % len(tools)], str(turn))


class _Judge:
    """Comparison of what clients got with what bodies and steps did."""

    def __init__(self, fault: Fault, site: Field, player: Player, report: Report) -> None:
        self._fault = fault
        self._site = site
        self._player = player
        self._report = report
        self._lines: dict[tuple[str, str, str], list[Line]] = defaultdict(list)
        for line in site.lines:
            self._lines[line.user, line.tool, line.order].append(line)

    def judge(self, intents: list[Intent]) -> None:
        """Judge all intents and all ends of calls."""
        report, post = self._report, self._player.post
        report.counted += post.counted
        for what in ("bodies twice", "steps twice", "foreign results", "calls lost"):
            report.counted[what] += 0
        report.wrong += post.wrong
        ends: Counter[str] = Counter()
        played = {intent.key for intent, _ in self._player.ends}
        for intent in intents:
            if intent.key not in played:
                self._wrong("calls lost", intent.key, "no call of it ended")
            self._judge_runs(intent.key)
        for intent, reply in self._player.ends:
            ends[self._judge_end(intent, reply)] += 1
        for intent, replies in post.heard.items():
            for reply in replies:
                if isinstance(reply, Done):
                    self._judge_result(intent, reply)
        report.counted["calls"] = sum(ends.values())
        report.counted.update({f"end: {end}": count for end, count in ends.items()})

    def _judge_runs(self, key: tuple[str, str, str]) -> None:
        runs = [line for line in self._lines[key] if line.what == "begin"]
        if len(runs) > 1:
            # `rebook` runs again if the process of its body was lost. One that was paused ends its body late.
            if key[1] == "rebook" and sum(run.pid not in self._site.lost for run in runs) <= 1:
                self._report.counted["bodies that ran again, as on_unknown='rerun' says"] += 1
            else:
                self._wrong("bodies twice", key, f"its body ran {len(runs)} times")
        steps = [line for line in self._lines[key] if line.what == "step"]
        passed = {line.receipt for line in self._lines[key] if line.what == "pass"}
        if len(steps) <= 1:
            return
        if not self._fault.counts_steps:
            self._report.counted["steps of two versions"] += 1
        elif all(step.pid in self._site.lost and step.receipt not in passed for step in steps[:-1]):
            self._report.counted["steps that ran again, as their process was lost before they were stored"] += 1
        else:
            self._wrong("steps twice", key, f"its step ran {len(steps)} times")

    def _judge_end(self, intent: Intent, reply: object) -> str:
        """Return the name of a call's end, and note one that must not be."""
        if isinstance(reply, Done):
            return "recalled" if reply.is_recalled else "result"
        reason = reply.reason if isinstance(reply, Refused) else "gone" if isinstance(reply, Gone) else str(reply)
        if reason not in self._fault.ends:
            self._wrong("calls lost", intent.key, f"ended with {reason}")
        elif reason == "unknown" and not any(line.pid in self._site.lost for line in self._lines[intent.key]):
            if self._lines[intent.key]:
                self._wrong("calls lost", intent.key, "is unknown, but its processes live")
            else:
                # What the ledger hears and what a body does first are two writes.
                self._report.counted["unknown: its process was lost just before the body's first line"] += 1
        return reason

    def _judge_result(self, intent: Intent, done: Done) -> None:
        got = done.result
        bodies = {line.receipt for line in self._lines[intent.key] if line.what == "begin"}
        right: dict[str, object] = {
            "user": intent.user,
            "tool": intent.tool,
            "order": intent.order,
            "copies": intent.copies,
        }
        if intent.tool in ("book", "rebook"):
            right["second"] = intent.answer("second")
        wrong = {name for name, value in right.items() if got.get(name) != value}
        if "first" in got:
            plain = Intent(*intent.key).answer("first")
            if got["first"] not in (plain, plain + 50):
                wrong.add("first")
        if wrong or got.get("receipt") not in bodies:
            self._wrong("foreign results", intent.key, f"got {dict(got)}, and its bodies were {sorted(bodies)}")

    def _wrong(self, what: str, key: tuple[str, str, str], why: str) -> None:
        self._report.counted[what] += 1
        evidence = [f"    {line}" for line in self._lines[key][-_SHOWN:]]
        replies = [
            f"    {reply}" for intent, all_ in self._player.post.heard.items() if intent.key == key for reply in all_
        ]
        self._report.wrong += [f"{' '.join(key)}: {why}", *evidence, *replies[-_SHOWN:]]
