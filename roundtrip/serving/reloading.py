"""`roundtrip serve --reload`: one worker, which is replaced when the project's Python files change.

The new worker loads the changed code while the old worker keeps serving. If the code fails to load, nothing changes.
Otherwise, the new worker accepts requests only after the old worker has finished its own, or after `_END_SECONDS`. Both
workers take their keys from the supervisor's environment, so calls on protocol version 2026-07-28 continue.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from pathlib import Path
from typing import Final, NamedTuple

from roundtrip.server.key_files import KEY_FILE_VARIABLE, KEYS_VARIABLE
from roundtrip.server.probe import Identity
from roundtrip.serving.agreement import caution_of_reload
from roundtrip.serving.supervisor import Supervisor, WorkerFailed, WorkerPlan

logger = logging.getLogger("roundtrip")

_SCAN_SECONDS: Final = 0.25
_SETTLE_SECONDS: Final = 0.1
"""Seconds between two scans. Editors and version control write several files, so a change is complete only when two
scans agree.
"""
_MAX_SHARE: Final = 0.1
"""Maximum share of a core that scanning may take."""
_END_SECONDS: Final = 2.0
"""Maximum seconds without service. If the old worker needs longer, it finishes its requests while the new worker
serves.
"""
_MAX_NAMED_FILES: Final = 3
_IGNORED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})


class _Stamp(NamedTuple):
    changed_ns: int
    size: int
    inode: int


def prepare_processes(environment: MutableMapping[str, str]) -> bool:
    """Prepare the environment that the workers inherit; return True if it already had a key.

    The workers need the same key, so that each can continue its predecessor's calls.
    """
    has_key = KEYS_VARIABLE in environment or KEY_FILE_VARIABLE in environment
    if not has_key:
        environment[KEYS_VARIABLE] = os.urandom(32).hex()
    # Python matches bytecode to its source by the file's length and its modification time in whole seconds. It could
    # miss a second change within the same second.
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    return has_key


def folders_of(target: str) -> list[Path]:
    """Return the folders to watch: the current folder, and the folder of the server's file."""
    module = target.rpartition(":")[0]
    file = Path(module if module.endswith(".py") else target)
    return [Path.cwd(), *([file.parent] if file.suffix == ".py" else [])]


class SourceFiles:
    """Python files in folders, with their last modification times.

    Scanning does not depend on operating-system notifications, so it also finds changes on mounted and network folders.
    It skips hidden folders, virtual environments, installed packages and tests.
    """

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = _outermost(folders)
        self._seen = self._scan()

    def changes(self) -> list[Path]:
        """Return the files that were added, changed or removed since the last scan."""
        before, self._seen = self._seen, self._scan()
        return sorted({Path(file) for file, _ in before.items() ^ self._seen.items()})

    def _scan(self) -> dict[str, _Stamp]:
        return dict(entry for folder in self._folders for entry in _stamps(folder))


def _outermost(folders: Iterable[Path]) -> list[Path]:
    distinct = sorted({folder.resolve() for folder in folders})
    return [
        folder for folder in distinct if not any(folder != other and folder.is_relative_to(other) for other in distinct)
    ]


def _stamps(folder: Path) -> Iterator[tuple[str, _Stamp]]:
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as scanned:
                entries = list(scanned)
        except OSError:
            # The folder was just removed, or is not readable.
            continue
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    if not _is_ignored(entry):
                        waiting.append(entry.path)
                elif entry.name.endswith(".py") and not _is_test(entry.name):
                    stat = entry.stat()
                    yield entry.path, _Stamp(stat.st_mtime_ns, stat.st_size, stat.st_ino)
            except OSError:
                continue


def _is_test(name: str) -> bool:
    """Return True for a test file, which a server does not load."""
    return name.startswith("test_") or name == "conftest.py"


def _is_ignored(entry: os.DirEntry[str]) -> bool:
    return entry.name.startswith(".") or entry.name in _IGNORED or Path(entry.path, "pyvenv.cfg").exists()


class ReloadingSupervisor(Supervisor):
    """Supervisor that replaces its only worker when files change.

    Args:
        plan: See `Supervisor`.
        on_ready: See `Supervisor`.
        folders: The folders whose Python files are watched.
    """

    def __init__(self, plan: WorkerPlan, *, on_ready: Callable[[Identity], None], folders: Iterable[Path]) -> None:
        super().__init__(plan, on_ready=on_ready)
        # Scan before the first worker loads the files, so that changes during loading are noticed.
        self._files = SourceFiles(folders)

    def _begin(self, tasks: asyncio.TaskGroup) -> None:
        tasks.create_task(self._watch())

    async def _watch(self) -> None:
        pause = _SCAN_SECONDS
        while True:
            await asyncio.sleep(pause)
            started_at = time.monotonic()
            changed = set(await asyncio.to_thread(self._files.changes))
            pause = max(_SCAN_SECONDS, (time.monotonic() - started_at) / _MAX_SHARE)
            if not changed:
                continue
            while more := await self._more_changes():
                changed |= more
            logger.info("reloading because %s changed", _names(changed))
            self._hung_up.set()

    async def _more_changes(self) -> set[Path]:
        await asyncio.sleep(_SETTLE_SECONDS)
        return set(await asyncio.to_thread(self._files.changes))

    def _objection_to(self, newcomer: Identity) -> str | None:
        # Only one worker serves at a time, so workers need not agree.
        return None

    async def _roll(self, tasks: asyncio.TaskGroup) -> None:
        async with self._changing:
            old = self._slots[0]
            try:
                new = await self._start_worker()
            except WorkerFailed as error:
                self._tell_failure(f"not reloaded; the old code keeps serving: {error}")
                return
            if (caution := caution_of_reload(new.identity, old.identity)) is not None:
                logger.warning("%s", caution)
            # From here on, the supervisor does not replace the old worker when the old worker ends.
            self._slots[0] = new
            retiring = tasks.create_task(self._retire(old))
            await asyncio.wait([retiring], timeout=_END_SECONDS)
            try:
                await self._let_serve(new)
            except WorkerFailed as error:
                await self._discard([new])
                self._tell_failure(f"the changed server does not start; no server runs until the next change: {error}")
                return
            self._install_worker(tasks, 0, new)
        self._tell_success()

    def _tell_success(self) -> None:
        """Log that the changed code is serving."""
        logger.info("reloaded")

    def _tell_failure(self, text: str) -> None:
        """Log why the changed code is not serving."""
        logger.error("%s", text)


def _names(changed: set[Path]) -> str:
    here = Path.cwd()
    names = sorted(str(file.relative_to(here) if file.is_relative_to(here) else file) for file in changed)
    rest = len(names) - _MAX_NAMED_FILES
    return ", ".join(names[:_MAX_NAMED_FILES]) + (f" and {rest} more" if rest > 0 else "")
