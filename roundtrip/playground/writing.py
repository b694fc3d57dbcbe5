"""Write a test of a call beside the server's file, and run it."""

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

import anyio

from roundtrip.checking.playable import ServerName, write_test_of
from roundtrip.checking.recorded import NotReplayable
from roundtrip.text import printable
from roundtrip.trace.page.data import Data
from roundtrip.trace.reading.calls import TracedCall

_RUN_SECONDS: Final = 120.0
_MAX_SHOWN_CHARS: Final = 6000
_MAX_NAME_CHARS: Final = 40
_MAX_FILES: Final = 100
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+")


class NotWritable(Exception):
    """A call that cannot become a test; the message has the reason."""


class ServerPlace(NamedTuple):
    """The place of a server, as a test beside it can import it."""

    module: str
    attribute: str
    folder: str
    """The folder from which the module can be imported."""
    is_ours: bool
    """True for a server of this package."""

    @classmethod
    def of(cls, module: str, file: str, attribute: str, *, is_file: bool, is_ours: bool) -> "ServerPlace":
        """Return the place of a module's server.

        Args:
            module: The name of the module.
            file: Its file.
            attribute: The name of the server in it.
            is_file: True if it was loaded by its file, so that its name means nothing.
            is_ours: True for a server of this package.
        """
        path = Path(file).resolve()
        if is_file:
            # As pytest does: the folder above the outermost package is importable.
            folder, names = path.parent, [path.stem]
            while (folder / "__init__.py").exists():
                folder, names = folder.parent, [folder.name, *names]
            return cls(".".join(names), attribute, str(folder), is_ours)
        above = module.count(".") + (1 if path.name == "__init__.py" else 0)
        return cls(module, attribute, str(path.parents[above]), is_ours)

    def write(self, path: Path) -> None:
        """Write the place to a file."""
        path.write_text(json.dumps(self), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "ServerPlace":
        """Read a place that `write` wrote."""
        return cls(*json.loads(path.read_text(encoding="utf-8")))


class TestWriter:
    """Writes tests of calls.

    Args:
        place: The file with the place of the server, which each of its processes writes.
        environment: The environment of the tests: the developer's own.
    """

    __test__ = False

    def __init__(self, place: Path, environment: Mapping[str, str]) -> None:
        self._place = place
        self._environment = dict(environment)

    async def write(self, call: TracedCall | None, calls: Iterable[TracedCall], tool: str) -> Data:
        """Write a test, run it, and tell the result.

        A test that fails is not kept.

        Raises:
            NotWritable: The call cannot become a test.
        """
        place = ServerPlace.read(self._place)
        if call is None:
            raise NotWritable(
                "there is no trace of this call, from which the test would be made: "
                + (
                    "the server has trace=, and records elsewhere"
                    if place.is_ours
                    else "only a roundtrip.Server records its calls for this page"
                )
            )
        try:
            server = ServerName(f"{place.module}:{place.attribute}")
            calls = list(calls)
            sources = [write_test_of(call, calls, server, with_result=expects) for expects in (True, False)]
        except (NotReplayable, ValueError) as error:
            raise NotWritable(f"it cannot become a test: {error}") from error
        if find_spec("pytest") is None:
            file = self._kept(place, tool, sources[0])
            return _told(file, sources[0], None, "It did not run, as pytest is not installed.")
        output = ""
        for source, remark in zip(sources, ("", _NO_RESULT), strict=True):
            file = self._kept(place, tool, source)
            passed = False
            try:
                passed, output = await self._run(file)
            finally:
                if not passed:
                    file.unlink(missing_ok=True)
            if passed:
                return _told(file, source, True, remark)
        return _told(None, sources[0], False, output)

    def _kept(self, place: ServerPlace, tool: str, source: str) -> Path:
        """Write a new file. Its name has nothing of the tool's that could be a path."""
        name = _NOT_IN_NAMES.sub("_", tool.lower()).strip("_")[:_MAX_NAME_CHARS] or "call"
        for number in range(1, _MAX_FILES + 1):
            file = Path(place.folder) / f"test_{name}{f'_{number}' if number > 1 else ''}.py"
            try:
                # Exclusively: no file of the developer is overwritten.
                with file.open("x", encoding="utf-8") as opened:
                    opened.write(source)
            except FileExistsError:
                continue
            except OSError as error:
                raise NotWritable(f"{str(file)!r} cannot be written: {error.strerror}") from error
            return file
        raise NotWritable(f"there are {_MAX_FILES} tests of this tool; remove some")

    async def _run(self, file: Path) -> tuple[bool, str]:
        command = [sys.executable, "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider", file.name]
        try:
            with anyio.fail_after(_RUN_SECONDS):
                ran = await anyio.run_process(command, cwd=file.parent, env=self._environment, check=False)
        except TimeoutError:
            return False, f"it ran for more than {_RUN_SECONDS:g} s"
        said = (ran.stdout + ran.stderr).decode("utf-8", "replace")
        return ran.returncode == 0, printable(said[-_MAX_SHOWN_CHARS:], keep_newlines=True)


_NO_RESULT: Final = "Its result differs from run to run, so the test does not expect it."


def _told(file: Path | None, source: str, passed: bool | None, text: str) -> Data:
    shown = None if file is None else os.path.relpath(file)
    return {"file": shown, "source": source, "passed": passed, "text": text}
