"""Tests from calls: a test is written into the folder of the server's file, and then run."""

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
    """The call cannot become a test. The message gives the reason."""


class ServerPlace(NamedTuple):
    """The path by which tests in the same folder import a server."""

    module: str
    attribute: str
    folder: str
    """The folder from which the module can be imported."""
    is_ours: bool
    """True if the server is a `roundtrip.Server`."""

    @classmethod
    def of(cls, module: str, file: str, attribute: str, *, is_file: bool, is_ours: bool) -> "ServerPlace":
        """Return the import path of a server.

        Args:
            module: The module name.
            file: The module's file.
            attribute: The server's name in the module.
            is_file: True if the module was loaded from a file path. Its module name then has no meaning.
            is_ours: True if the server is a `roundtrip.Server`.
        """
        path = Path(file).resolve()
        if is_file:
            # Like pytest, import from the folder that contains the outermost package.
            folder, names = path.parent, [path.stem]
            while (folder / "__init__.py").exists():
                folder, names = folder.parent, [folder.name, *names]
            return cls(".".join(names), attribute, str(folder), is_ours)
        above = module.count(".") + (1 if path.name == "__init__.py" else 0)
        return cls(module, attribute, str(path.parents[above]), is_ours)

    def write(self, path: Path) -> None:
        """Write the import path to a file."""
        path.write_text(json.dumps(self), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "ServerPlace":
        """Read an import path from a file that `write` created."""
        return cls(*json.loads(path.read_text(encoding="utf-8")))


class TestWriter:
    """Writer of tests for calls.

    Args:
        place: The file to which each server process writes the server's import path.
        environment: The developer's environment, in which the tests run.
    """

    __test__ = False

    def __init__(self, place: Path, environment: Mapping[str, str]) -> None:
        self._place = place
        self._environment = dict(environment)

    async def write(self, call: TracedCall | None, calls: Iterable[TracedCall], tool: str) -> Data:
        """Write a test, run it, and return its result. If the test fails, delete it.

        Raises:
            NotWritable: The call cannot become a test.
        """
        place = ServerPlace.read(self._place)
        if call is None:
            raise NotWritable(
                "a test needs a trace of its call, and this call has none: "
                + (
                    "the server has its own trace=, so it records elsewhere"
                    if place.is_ours
                    else "only a roundtrip.Server records its calls for this page"
                )
            )
        try:
            server = ServerName(f"{place.module}:{place.attribute}")
            calls = list(calls)
            sources = [write_test_of(call, calls, server, with_result=expects) for expects in (True, False)]
        except (NotReplayable, ValueError) as error:
            raise NotWritable(f"this call cannot become a test: {error}") from error
        if find_spec("pytest") is None:
            file = self._write_file(place, tool, sources[0])
            return _test_data(file, sources[0], None, "The test did not run because pytest is not installed.")
        output = ""
        for source, remark in zip(sources, ("", _NO_RESULT), strict=True):
            file = self._write_file(place, tool, source)
            passed = False
            try:
                passed, output = await self._run(file)
            finally:
                if not passed:
                    file.unlink(missing_ok=True)
            if passed:
                return _test_data(file, source, True, remark)
        return _test_data(None, sources[0], False, output)

    def _write_file(self, place: ServerPlace, tool: str, source: str) -> Path:
        """Write the test to a new file. The file name omits the parts of the tool name that could form a path."""
        name = _NOT_IN_NAMES.sub("_", tool.lower()).strip("_")[:_MAX_NAME_CHARS] or "call"
        for number in range(1, _MAX_FILES + 1):
            file = Path(place.folder) / f"test_{name}{f'_{number}' if number > 1 else ''}.py"
            try:
                # Create the file exclusively, so that no file of the developer is overwritten.
                with file.open("x", encoding="utf-8") as opened:
                    opened.write(source)
            except FileExistsError:
                continue
            except OSError as error:
                raise NotWritable(f"{str(file)!r} cannot be written: {error.strerror}") from error
            return file
        raise NotWritable(f"this tool already has {_MAX_FILES} tests; remove some")

    async def _run(self, file: Path) -> tuple[bool, str]:
        command = [sys.executable, "-m", "pytest", "-q", "--color=no", "-p", "no:cacheprovider", file.name]
        try:
            with anyio.fail_after(_RUN_SECONDS):
                process = await anyio.run_process(command, cwd=file.parent, env=self._environment, check=False)
        except TimeoutError:
            return False, f"the test ran for more than {_RUN_SECONDS:g} s"
        output = (process.stdout + process.stderr).decode("utf-8", "replace")
        return process.returncode == 0, printable(output[-_MAX_SHOWN_CHARS:], keep_newlines=True)


_NO_RESULT: Final = "The result differs from run to run, so the test does not check it."


def _test_data(file: Path | None, source: str, passed: bool | None, text: str) -> Data:
    shown = None if file is None else os.path.relpath(file)
    return {"file": shown, "source": source, "passed": passed, "text": text}
