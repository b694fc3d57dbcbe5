"""The processes of the attack on intents: instances that clients reach directly, of this version or an older one."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.chaos.fleet.processes import Instance
from tests.chaos.intents.shop import Diary, Line, Terms, main
from tests.chaos.tasks.places import place
from tests.kit.forks import start
from tests.kit.hosts import ROOT

__all__ = ["RELEASE", "Field", "Outlet", "battlefield", "has_release"]

RELEASE: Final = "fd35e535"
"""The commit of version 0.2.0."""
_MODULE: Final = "tests.chaos.intents.shop"


class Outlet(Instance):
    """An instance of the shop."""

    def __init__(self, terms: Terms, version: Path | None) -> None:
        super().__init__(target=main)
        self.terms = terms
        self._version = version
        """The folder of an older version; None for this one."""

    @property
    def is_old(self) -> bool:
        return self._version is not None

    def serve(self, **changed: str) -> None:
        """Start it, with some of its terms changed."""
        words = ["--port", str(self.port), *self.terms.words(**changed)]
        if self._version is None:
            self._process = start(self._target, words, cwd=ROOT)
            return
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(self._version), str(ROOT)])}
        process: Any = subprocess.Popen([sys.executable, "-m", _MODULE, *words], cwd=self._version, env=env)
        self._process = process


@dataclass(slots=True)
class Field:
    """A fleet under attack, with its diary."""

    terms: Terms
    outlets: Sequence[Outlet]
    diary: Diary
    lines: list[Line] = field(default_factory=list[Line])
    inside: dict[int, set[str]] = field(default_factory=dict[int, set[str]])
    """The bodies, steps and work behind steps that have begun and not ended, by their processes."""
    lost: dict[int, str] = field(default_factory=dict[int, str])
    """The processes that were killed or paused."""

    def read(self) -> None:
        """Take note of further lines of the diary."""
        for line in self.diary.further():
            self.lines.append(line)
            inside = self.inside.setdefault(line.pid, set())
            if line.what in ("begin", "step", "pass"):
                inside.add(line.receipt)
            elif line.what in ("end", "stepped", "passed"):
                inside.discard(line.receipt)

    async def is_inside(self, outlet: Outlet) -> bool:
        """Return True if an instance is inside a body or a step, and does not keep SQLite's file locked."""
        self.read()
        return outlet.pid is not None and bool(self.inside.get(outlet.pid))

    def is_locked(self) -> bool:
        """Return True if a process keeps SQLite's file locked."""
        if self.terms.kind != "sqlite":
            return False
        with closing(sqlite3.connect(self.terms.where, timeout=0.3, isolation_level=None)) as db:
            try:
                db.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            db.execute("ROLLBACK")
        return False

    async def ready(self) -> None:
        for outlet in self.outlets:
            await outlet.ready()

    def logged(self) -> str:
        """Return everything that the processes have logged."""
        return Path(self.terms.log).read_text()

    def stop_all(self) -> None:
        for outlet in self.outlets:
            outlet.signal(Signals.SIGCONT)
            outlet.close()


def has_release() -> bool:
    """Return True if git has the commit of version 0.2.0."""
    command = ["git", "cat-file", "-e", f"{RELEASE}^{{commit}}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 0


def _release(folder: Path) -> Path:
    """Return a folder with the package of version 0.2.0."""
    folder.mkdir()
    archive = subprocess.run(["git", "archive", RELEASE, "roundtrip"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    return folder


@contextmanager
def battlefield(kind: str, *, size: int, old: int, lease: float, slowest: float, **terms: str) -> Generator[Field]:
    """Run a fleet, in which some instances are of version 0.2.0."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        where = "" if kind == "memory" else stack.enter_context(place(kind, folder)).where
        diary, log = folder / "diary", folder / "log"
        log.touch()
        given = Terms(kind, where, str(diary), str(log), str(lease), str(slowest), **terms)
        version = _release(folder / "release") if old else None
        outlets = [Outlet(given, version if number < old else None) for number in range(size)]
        field = Field(given, outlets, Diary(str(diary)))
        stack.callback(field.diary.close)
        stack.callback(field.stop_all)
        for outlet in outlets:
            if outlet.is_old:
                outlet.serve(once="call")
            else:
                outlet.serve()
        yield field
