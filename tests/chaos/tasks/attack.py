"""Run many tasks while workers and instances die, and compare every run of a step with the store's history."""

import argparse
import logging
import random
import signal
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import anyio
import httpx

from roundtrip.ledger.machines import StoredState
from roundtrip.ledger.tasks import CallEntry, CallStore
from roundtrip.stored.book import CallBook
from tests.chaos.fleet.attack import Plan, Report, Turns
from tests.chaos.fleet.processes import Instance, suspended, until
from tests.chaos.tasks.client import POISON, Order, TaskClient, secrets_of
from tests.chaos.tasks.places import Place, Stored
from tests.chaos.tasks.processes import WorkerProcess, Worksite
from tests.chaos.tasks.shop import STEPS, Diary, Line, shop

__all__ = ["AT_ONCE", "TaskJudge", "attack_tasks", "read_options"]

AT_ONCE: Final = 48
_DOWN: Final = 1.0
_MISCHIEF: Final = 0.1
_PATIENCE: Final = 300.0
_KILLS_PER_PAUSE: Final = 8
_SHOWN: Final = 30
"""Lines of evidence for each task that went wrong."""


@dataclass
class _Steps:
    """Runs of steps, as the diary has them."""

    diary: Diary
    lines: list[Line] = field(default_factory=list[Line])
    inside: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set[str]))
    """The runs that have begun and not ended, by their processes."""
    storing: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set[str]))
    """The runs that have ended, and behind which no body went on, by their processes."""

    def read(self) -> None:
        """Take note of further lines."""
        for line in self.diary.further():
            self.lines.append(line)
            match line.what:
                case "begin":
                    self.inside[line.pid].add(line.receipt)
                case "end":
                    self.inside[line.pid].discard(line.receipt)
                    self.storing[line.pid].add(line.receipt)
                case _:
                    self.storing[line.pid].discard(line.receipt)

    def of(self, pid: int, where: str) -> bool:
        """Return True if a process is inside a step, or stores one."""
        return bool((self.inside if where == "inside a step" else self.storing)[pid])


def read_options(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None, *, tasks: int, kills: int
) -> argparse.Namespace:
    """Return the options of an attack as a program, with its `plan`."""
    parser.add_argument("--tasks", type=int, default=tasks)
    parser.add_argument("--kills", type=int, default=kills)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lease", type=float, default=5.0, help="seconds after which a worker counts as dead")
    options = parser.parse_args(arguments)
    if options.kills > options.tasks:
        parser.error("--kills must not be more than --tasks")
    logging.disable(logging.INFO)
    options.plan = Plan(options.tasks, options.kills, options.seed)
    return options


async def attack_tasks(plan: Plan, site: Worksite) -> Report:
    """Play all tasks to their ends while processes are killed, stop the fleet, and judge each task."""
    report = Report(plan)
    server = shop(site.terms)
    service = server.internals.storage.tasks
    if service is None:
        raise RuntimeError("the server has no tasks")
    store = service.book.store
    await store.list(limit=1)
    site.place.begin()
    for each in (*site.instances, *site.workers):
        site.start(each)
    await site.ready()
    began = time.monotonic()
    steps = _Steps(Diary(site.terms.diary))
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=AT_ONCE)
    async with httpx.AsyncClient(timeout=30, limits=limits) as http:
        client = TaskClient(http, site.url, seed=plan.seed, mischief=_MISCHIEF)
        ended: list[Order] = []

        async def play(number: int, later: anyio.abc.TaskGroup) -> None:
            ended.append(await client.play(number, later))

        orders = Turns(plan, play, at_once=AT_ONCE)
        attack = _Attack(plan, site, steps, orders)
        try:
            async with anyio.create_task_group() as killing:
                killing.start_soon(attack.run)
                await orders.play()
        except Exception as error:
            error.add_note(f"seed {plan.seed}, {orders.begun} tasks begun, on {site.terms.kind}\n{site.logged()}")
            raise
    report.counted += client.counted
    report.counted.update(attack.counted)
    report.seconds = time.monotonic() - began
    report.wrong += await site.stop()
    steps.read()
    judge = TaskJudge(report, service.book, steps.lines, attack.dead | attack.paused)
    await judge.judge(ended, site)
    await server.ledger.aclose()
    return report


class _Attack:
    """Deaths, evenly over all orders: of instances, and of workers inside a step, while they store one, or anywhere.

    A few workers are paused for longer than their leases, and go on.
    """

    def __init__(self, plan: Plan, site: Worksite, steps: _Steps, orders: Turns) -> None:
        self._plan = plan
        self._site = site
        self._steps = steps
        self._orders = orders
        self._chance = random.Random(plan.seed + 2)
        self.dead: set[int] = set()
        self.paused: set[int] = set()
        self.counted: dict[str, int] = defaultdict(int)

    async def run(self) -> None:
        chance = self._chance
        moments = sorted(chance.sample(range(self._plan.calls), self._plan.kills))
        aims = ["an instance", "inside a step", "inside a step", "storing a step", "a worker", "inside a step"]
        async with anyio.create_task_group() as restarting:
            restarting.start_soon(self._pause)
            for turn, moment in enumerate(moments):
                await self._reach(moment)
                victim = await self._victim(aims[turn % len(aims)])
                self.dead.add(victim.kill())
                restarting.start_soon(self._restart, victim, chance.uniform(0, _DOWN))

    async def _pause(self) -> None:
        """Pause workers inside a step until another one has their tasks, and let them go on."""
        if self._site.terms.kind == "sqlite":
            # One that is paused while it writes keeps the file locked, and others lose their leases, too.
            return
        chance = random.Random(self._plan.seed + 3)
        for moment in sorted(chance.sample(range(self._plan.calls), self._plan.kills // _KILLS_PER_PAUSE)):
            await self._reach(moment)
            worker = await self._inside("inside a step")
            if worker is None or worker.pid is None:
                continue
            self.paused.add(worker.pid)
            self.counted["paused inside a step for longer than a lease"] += 1
            await anyio.sleep(1.5 * float(self._site.terms.lease))
            worker.signal(signal.SIGCONT)

    async def _reach(self, moment: int) -> None:
        """Wait until so many tasks have begun."""
        await until(lambda: self._orders.begun > moment or self._orders.done, "tasks go on", seconds=_PATIENCE)

    async def _victim(self, aim: str) -> Instance | WorkerProcess:
        members: Sequence[Instance | WorkerProcess] = (
            self._site.instances if aim == "an instance" else self._site.workers
        )
        await until(lambda: any(each.pid for each in members), "a process is up")
        victim = self._chance.choice([each for each in members if each.pid])
        if aim in ("inside a step", "storing a step"):
            found = await self._inside(aim)
            aim = aim if found is not None else "a worker"
            victim = found or victim
        self.counted[f"killed: {aim}"] += 1
        return victim

    async def _inside(self, where: str) -> WorkerProcess | None:
        """Return a suspended worker that is inside a step or stores one, or None."""

        async def is_there(worker: WorkerProcess) -> bool:
            self._steps.read()
            return worker.pid is not None and worker.pid not in self.paused and self._steps.of(worker.pid, where)

        workers = self._site.workers
        return await suspended(
            lambda: self._chance.sample(workers, len(workers)), is_there, over=lambda: self._orders.done
        )

    async def _restart(self, victim: Instance | WorkerProcess, after: float) -> None:
        await anyio.sleep(after)
        self._site.start(victim)


class AnySite(Protocol):
    """The store of an attack, and the log of its processes."""

    @property
    def place(self) -> Place: ...

    def logged(self) -> str: ...


class TaskJudge:
    """Comparison of clients, the diary of all runs, and the store."""

    def __init__(self, report: Report, book: CallBook, lines: Sequence[Line], lost: set[int]) -> None:
        self._report = report
        self._book = book
        self._lost = lost
        self._lines: dict[int, list[Line]] = defaultdict(list)
        for line in lines:
            self._lines[line.number].append(line)

    async def judge(self, orders: Sequence[Order], site: AnySite) -> None:
        """Judge all tasks, and what is left behind."""
        report = self._report
        entries = {entry.call_id: entry for entry in await _all(self._book.store)}
        stored = self._stored(site.place.history())
        if len(orders) != report.plan.calls:
            report.wrong.append(f"{len(orders)} tasks ended")
        if len(entries) != report.plan.calls:
            report.wrong.append(f"the store has {len(entries)} tasks")
        for order in orders:
            self._judge(order, entries, stored)
        due, _ = await self._book.store.due(10)
        report.wrong += [f"call {call_id} is still due" for call_id in due]
        report.wrong += [f"left in the store: {what}" for what in site.place.left(set(entries))]
        logged = site.logged()
        if "Traceback" in logged:
            report.wrong.append(f"the log has a traceback: {logged[logged.index('Traceback') :][:3000]}")
        for word in ("hush", POISON, *(order.task_id.split(".")[1] for order in orders if len(order.handles) == 1)):
            if word in logged:
                report.wrong.append(f"the log has {word!r}")

    def _stored(self, history: Sequence[Stored]) -> Mapping[str, Mapping[str, set[str]]]:
        """Return the receipts that were ever stored, by their calls and their steps."""
        found: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for call_id, note in history:
            _, key, value = self._book.seal.open(note, call_id, "note")
            if value is None:
                # The name of a last step, which the ended task keeps.
                continue
            found[call_id][key].add(value)
        return found

    def _judge(
        self, order: Order, entries: Mapping[str, CallEntry], stored: Mapping[str, Mapping[str, set[str]]]
    ) -> None:
        counted, wrong = self._report.counted, list(order.wrong)
        entry: CallEntry | None = None
        receipts: dict[str, str] = {}
        if len(order.handles) != 1:
            wrong.append(f"has {len(order.handles)} handles")
        else:
            call_id = order.task_id.split(".")[0]
            entry = entries.get(call_id)
            result: dict[str, Any] = (order.end or {}).get("result", {}).get("structuredContent", {})
            receipts = {step: result.get(step, "") for step in STEPS}
            if result != {"number": order.number, **secrets_of(order.number), **receipts}:
                wrong.append(f"ended with {order.end}")
            wrong += _at_rest(entry)
            notes = [] if entry is None else [self._book.seal.open(note, call_id, "note") for note in entry.notes]
            wrong += [f"has the result of step {key} left" for _, key, value in notes if value is not None]
            for step, receipt in receipts.items():
                wrong += self._judge_step(order.number, step, receipt, stored[call_id])
        if order.number % 5 == 0 and "size#2" not in order.texts:
            wrong.append("was not asked again for its size")
        if not wrong:
            counted["completed"] += 1
            return
        evidence = [*map(str, self._lines[order.number][-_SHOWN:]), f"keys {order.texts}", f"entry {entry}"]
        self._report.wrong += [f"task {order.number} {what}" for what in wrong] + [f"    {line}" for line in evidence]

    def _judge_step(self, number: int, step: str, receipt: str, stored: Mapping[str, set[str]]) -> list[str]:
        """Compare the runs of a step with the history of the store, and with the result."""
        runs = [line for line in self._lines[number] if line.what == "begin" and line.step == step]
        passed = {line.receipt for line in self._lines[number] if line.what == "pass" and line.step == step}
        kept = {value for key, values in stored.items() if key.endswith(step) for value in values}
        wrong: list[str] = []
        if kept != {receipt}:
            wrong.append(f"stored {sorted(kept)} for step {step}, and ended with {receipt}")
        if passed != {receipt}:
            wrong.append(f"went on behind step {step} with {sorted(passed)}, and ended with {receipt}")
        # The lines are in the order of the runs. A run behind the stored one would be a stored step that ran again.
        if not runs or runs[-1].receipt != receipt:
            wrong.append(f"ran step {step} {len(runs)} times, and not last for {receipt}")
        for run in runs[:-1]:
            self._report.counted["steps that ran again, as their worker was lost before they were stored"] += 1
            if run.pid not in self._lost:
                wrong.append(f"ran step {step} again, although worker {run.pid} lived and had its lease")
        return wrong


def _at_rest(entry: CallEntry | None) -> list[str]:
    """Return what is left of the work on a task in its entry."""
    if entry is None:
        return ["is not in the store"]
    left = {"holder": entry.holder, "labels": entry.labels}
    wrong = [f"has {name} left: {value}" for name, value in left.items() if value]
    return wrong if entry.state is StoredState.COMPLETED else [*wrong, f"is {entry.state.value} in the store"]


async def _all(store: CallStore) -> list[CallEntry]:
    found: list[CallEntry] = []
    while page := await store.scan(after=found[-1].call_id if found else "", limit=200):
        found += page
    return found
