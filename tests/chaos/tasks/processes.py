"""The processes of the attack on tasks: instances behind nginx, and workers."""

import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from roundtrip.cli import main as roundtrip_command
from tests.chaos.fleet.processes import RETRIES, Instance, Member, until
from tests.chaos.tasks.places import Place, place
from tests.chaos.tasks.shop import Terms
from tests.chaos.tasks.shop import main as serve_shop
from tests.kit.forks import start
from tests.kit.hosts import ROOT
from tests.kit.nginx_server import nginx

__all__ = ["WorkerProcess", "Worksite", "worksite"]

_READY: Final = "runs its tasks"


class WorkerProcess(Member):
    """A `roundtrip worker`."""

    def __init__(self, terms: Terms, logs: Path) -> None:
        super().__init__()
        self._terms = terms
        self._logs = logs
        self._starts = 0

    @property
    def _log(self) -> Path:
        return self._logs.with_name(f"{self._logs.name}-{self._starts}.log")

    def start(self) -> None:
        self._starts += 1
        words = ["worker", "tests.chaos.tasks.shop:worker", "--log-level", "warning"]
        env = {**os.environ, **self._terms.environment}
        with self._log.open("wb") as log:
            self._process = start(roundtrip_command, words, cwd=ROOT, env=env, stderr=log.fileno())

    async def ready(self) -> None:
        """Wait until it runs tasks."""
        await until(lambda: _READY in self._log.read_text(), f"the worker of {self._log.name} starts")


@dataclass(frozen=True, slots=True)
class Worksite:
    """Instances behind nginx, and workers, which share a store."""

    url: str
    """nginx's."""
    place: Place
    terms: Terms
    instances: Sequence[Instance]
    workers: Sequence[WorkerProcess]
    logs: Path
    pids: set[int] = field(default_factory=set[int])
    """All processes that were started."""

    def start(self, each: Instance | WorkerProcess) -> None:
        """Start a process, and keep its id."""
        each.start()
        if each.pid is not None:
            self.pids.add(each.pid)

    async def ready(self) -> None:
        for each in (*self.instances, *self.workers):
            await each.ready()

    async def stop(self) -> list[str]:
        """Stop all processes as a deployment does, and return what went wrong."""
        await self.ready()
        codes = [await worker.stop() for worker in self.workers]
        for instance in self.instances:
            await instance.stop()
        wrong = [f"a stopped worker ended with {code}" for code in codes if code != 0]
        return [*wrong, *(f"process {pid} is left" for pid in self.pids if _lives(pid))]

    def logged(self) -> str:
        """Return everything that the processes have logged."""
        return "".join(path.read_text() for path in sorted(self.logs.iterdir()))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def worksite(kind: str, *, instances: int, workers: int, lease: float) -> Generator[Worksite]:
    """Run instances and workers on a store of a kind."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        logs = folder / "logs"
        logs.mkdir()
        store = stack.enter_context(place(kind, folder))
        terms = Terms(kind, store.where, str(folder / "diary"), str(lease))
        served: list[Instance] = []
        for number in range(instances):
            options = [str(logs / f"instance-{number}"), terms.kind, terms.where, terms.diary, terms.lease]
            served.append(Instance(*options, target=serve_shop))
            stack.callback(served[-1].close)
        working = [WorkerProcess(terms, logs / f"worker-{number}") for number in range(workers)]
        for each in working:
            stack.callback(each.close)
        url = stack.enter_context(nginx([instance.address for instance in served], extra=RETRIES))
        yield Worksite(url, store, terms, served, working, logs)
