"""Attack the workers of one `roundtrip serve` with a FastMCP server, and print what its tasks survived:
`python -m tests.chaos.tasks.served --tasks 200 --kills 10`.
"""

import argparse
import os
import random
import re
import signal
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio
import httpx

from tests.chaos.fleet.attack import Plan, Report, Turns
from tests.chaos.fleet.processes import until
from tests.chaos.tasks.attack import AT_ONCE, TaskJudge, read_options
from tests.chaos.tasks.client import Order, TaskClient
from tests.chaos.tasks.places import Place, place
from tests.chaos.tasks.shop import Diary, Terms, shop
from tests.interaction.serving.services import Service

__all__ = ["ServedSite", "attack_served", "served_site"]

_WORKERS: Final = 2
_PATIENCE: Final = 300.0
_MISCHIEF: Final = 0.1
_NOTE_CHARS: Final = 5000
_SERVES: Final = re.compile(r"\[(\d+)\] uvicorn\.error: Application startup complete")


@dataclass(frozen=True, slots=True)
class ServedSite:
    """A running `roundtrip serve`, and its store."""

    place: Place
    terms: Terms
    service: Service
    dead: set[int] = field(default_factory=set[int])
    """The workers that were killed."""

    def logged(self) -> str:
        return "".join(self.service.log)

    def serving(self) -> list[int]:
        """Return the ids of the living workers that serve requests."""
        return sorted(({int(pid) for pid in _SERVES.findall(self.logged())} & self.service.workers()) - self.dead)

    async def complete(self) -> None:
        """Wait until all workers serve."""
        await until(lambda: len(self.serving()) == _WORKERS, "dead workers are replaced")


@contextmanager
def served_site(*, lease: float) -> Generator[ServedSite]:
    """Serve with workers that share an SQLite file."""
    with TemporaryDirectory() as name, place("sqlite", Path(name)) as store:
        folder = Path(name)
        terms = Terms("sqlite", store.where, str(folder / "diary"), str(lease))
        flags = ["--workers", str(_WORKERS), "--log-level", "info"]
        with Service(f"{__package__}.served_shop:shop", *flags, folder=folder, **terms.environment) as service:
            yield ServedSite(store, terms, service)


async def attack_served(plan: Plan, site: ServedSite) -> Report:
    """Play all tasks to their ends while workers are killed at random, and judge each task."""
    report = Report(plan)
    tasks = shop(site.terms).internals.storage.tasks
    if tasks is None:
        raise RuntimeError("the server has no tasks")
    await tasks.book.store.list(limit=1)
    site.place.begin()
    began = time.monotonic()
    async with httpx.AsyncClient(timeout=30) as http:
        client = TaskClient(http, site.service.url.removesuffix("/mcp"), seed=plan.seed, mischief=_MISCHIEF)
        ended: list[Order] = []

        async def play(number: int, later: anyio.abc.TaskGroup) -> None:
            ended.append(await client.play(number, later))

        orders = Turns(plan, play, at_once=AT_ONCE)
        try:
            async with anyio.create_task_group() as killing:
                killing.start_soon(_kill, plan, site, orders)
                await orders.play()
        except Exception as error:
            error.add_note(f"seed {plan.seed}, {orders.begun} tasks begun\n{site.logged()[-_NOTE_CHARS:]}")
            raise
    report.counted += client.counted
    report.counted["workers killed"] = len(site.dead)
    report.seconds = time.monotonic() - began
    await site.complete()
    site.service.signal(signal.SIGTERM)
    if (code := await anyio.to_thread.run_sync(site.service.ended)) != 0:
        report.wrong.append(f"the stopped service ended with {code}: {site.logged()}")
    diary = Diary(site.terms.diary)
    await TaskJudge(report, tasks.book, list(diary.further()), site.dead).judge(ended, site)
    await tasks.legs.parts.effects.ledger.aclose()
    return report


async def _kill(plan: Plan, site: ServedSite, orders: Turns) -> None:
    """Kill workers, evenly over all tasks and otherwise at random."""
    chance = random.Random(plan.seed + 2)
    for moment in sorted(chance.sample(range(plan.calls), plan.kills)):
        await until(lambda moment=moment: orders.begun > moment or orders.done, "tasks go on", seconds=_PATIENCE)
        await site.complete()
        victim = chance.choice(site.serving())
        await anyio.sleep(chance.uniform(0, 0.5))
        os.kill(victim, signal.SIGKILL)
        site.dead.add(victim)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.tasks.served", description=__doc__)
    options = read_options(parser, arguments, tasks=200, kills=10)

    async def run(site: ServedSite) -> Any:
        return await attack_served(options.plan, site)

    with served_site(lease=options.lease) as site:
        report = anyio.run(run, site)
    print(report.text(), flush=True)
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
