"""Runs the SDK's own tests with the class swapped, and compares what fails with `differences.toml`.

The tests come with the sdist of the installed `mcp`, which pip downloads; they run in an environment of their own, as
they need packages that nothing else here does. Both are kept in `.ci/sdk`, and nothing of them is committed.

Every test that fails on roundtrip and passes on the SDK must be listed, with the line of the docs that says why. A
listed test that does not fail any more is an error, too.
"""

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import venv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

__all__ = ["DIFFERENCES", "MOST_ENTRIES", "Difference", "Entry", "Failure", "Judgement", "differences", "judge", "main"]

ROOT: Final = Path(__file__).resolve().parents[2]
DIFFERENCES: Final = Path(__file__).parent / "differences.toml"
KEPT: Final = ROOT / ".ci" / "sdk"

MOST_ENTRIES: Final = 61

_AS_HERE: Final = ("anyio", "mcp", "mcp-types", "pydantic", "starlette")
"""Tested in the versions that are installed here."""
_NEEDED: Final = (
    "blockbuster",
    "coverage",
    "dirty-equals",
    "inline-snapshot",
    "logfire",
    "mcp[cli]",
    "opentelemetry-sdk",
    "pillow",
    "pytest",
    "pytest-examples",
    "pytest-timeout",
    "pytest-xdist",
    "pyyaml",
    "trio",
)
"""What the development group of the SDK's `pyproject.toml` lists, as far as its tests import it."""
_NOT_OURS: Final = ("tests/docs",)
"""Tests of the tools that build the SDK's pages."""
_LONGEST: Final = 1800
_FEWEST_RUN: Final = 5000
_MANY: Final = 150
"""With more unexpected failures than this something is broken for all, and running them again tells nothing more."""


class Entry(NamedTuple):
    """A test of the SDK that fails, with all its parameters; or so many tests that a pattern with stars matches."""

    match: str
    fails: int = 1


class Difference(NamedTuple):
    """A deliberate difference: a line of the docs, and the tests of the SDK that fail because of it."""

    docs: str
    line: str
    entries: tuple[Entry, ...]


class Failure(NamedTuple):
    """A test that failed, and the end of its traceback."""

    test: str
    error: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """Failures held against the list."""

    unlisted: list[Failure]
    """Failed without an entry."""
    outdated: list[str]
    """Entries that are not as listed."""
    expected: int
    """How many failed as listed."""


def differences(path: Path = DIFFERENCES) -> list[Difference]:
    """Read the committed list."""
    listed = cast("list[dict[str, Any]]", tomllib.loads(path.read_text(encoding="utf-8"))["difference"])
    return [Difference(one["docs"], one["line"], tuple(map(_entry, one["tests"]))) for one in listed]


def _entry(written: str | dict[str, Any]) -> Entry:
    return Entry(written) if isinstance(written, str) else Entry(**written)


def judge(failures: Iterable[Failure], listed: Iterable[Difference], *, ran: Iterable[str]) -> Judgement:
    """Hold failures against the list.

    Args:
        failures: What failed.
        listed: The list.
        ran: All tests that ran: entries for others are not judged.
    """
    failed = list(failures)
    functions = {_function(failure.test) for failure in failed}
    present = {_function(test) for test in ran}
    explained: set[str] = set()
    outdated: list[str] = []
    for entry in (entry for difference in listed for entry in difference.entries):
        of_it = {function for function in functions if fnmatchcase(function, entry.match)}
        explained |= of_it
        if len(of_it) != entry.fails and any(fnmatchcase(function, entry.match) for function in present):
            outdated.append(f"{entry.match}: {len(of_it)} of its tests fail, and {entry.fails} are listed")
    unlisted = [failure for failure in failed if _function(failure.test) not in explained]
    return Judgement(unlisted, outdated, len(failed) - len(unlisted))


def _function(test: str) -> str:
    """Return the function of a test, without its parameters."""
    return test.partition("[")[0]


class Suite:
    """The tests of the SDK, unpacked, with an environment to run them in. A subclass has those of another package."""

    package = "mcp"
    unbuilt = "mcp"
    """What pip must not download as a wheel."""
    as_here: Sequence[str] = _AS_HERE
    needed: Sequence[str] = _NEEDED
    left_out: Sequence[str] = _NOT_OURS
    all_tests: Sequence[str] = ()
    """The tests to run if none are named."""
    fewest = _FEWEST_RUN
    loaded: Sequence[str] = ("roundtrip_in_place",)
    swap_variable = "ROUNDTRIP_SDK_SWAP"
    plugins: Sequence[Path] = (Path(__file__).parent / "plugin",)

    def __init__(self, kept: Path = KEPT) -> None:
        self._sdk = version(self.package)
        self._place = kept / f"{self.package}-{self._sdk}"
        self._python = kept / "environment" / "bin" / "python"

    def prepare(self) -> None:
        """Download and install what is not there yet.

        Raises:
            subprocess.CalledProcessError: pip failed; its output has been printed.
        """
        kept = self._place.parent
        kept.mkdir(parents=True, exist_ok=True)
        if not self._place.is_dir():
            with tempfile.TemporaryDirectory() as folder:
                # Without a build: only the file is wanted.
                _pip(
                    sys.executable,
                    "download",
                    "--no-deps",
                    "--no-binary",
                    self.unbuilt,
                    "-d",
                    folder,
                    f"{self.package}=={self._sdk}",
                )
                with tarfile.open(next(Path(folder).glob("*.tar.gz"))) as archive:
                    archive.extractall(kept, filter="data")
        pinned = "\n".join(sorted([*(f"{name}=={version(name)}" for name in self.as_here), *self.needed, str(ROOT)]))
        installed = kept / "installed.txt"
        if installed.is_file() and installed.read_text(encoding="utf-8") == pinned:
            return
        venv.create(kept / "environment", clear=True, with_pip=True)
        same = [f"{name}=={version(name)}" for name in self.as_here]
        _pip(str(self._python), "install", *same, *self.needed, "-e", str(ROOT))
        installed.write_text(pinned, encoding="utf-8")

    def run(self, tests: Sequence[str] = (), *, swap: bool = True, processes: int = 2) -> Mapping[str, Failure | None]:
        """Run tests, all by default, and return those that ran with their failures."""
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.jsonl"
            report.touch()
            environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
            environment |= {
                # Its examples are a package that it installs, from a folder.
                "PYTHONPATH": os.pathsep.join([*map(str, self.plugins), "examples"]),
                "ROUNDTRIP_SDK_REPORT": str(report),
                self.swap_variable: "1" if swap else "",
            }
            for name in ("ROUNDTRIP_KEYS", "ROUNDTRIP_KEY_FILE", "ROUNDTRIP_TRACE", "ROUNDTRIP_PROBE"):
                environment.pop(name, None)
            command = [str(self._python), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
            command += [f"-p{name}" for name in self.loaded]
            # Native tracebacks: the others read the sources, which takes longer than the tests.
            command += ["-p", "no:roundtrip", "-o", "log_cli=false", "--tb=native", "--color=no", "--timeout=60"]
            if processes > 1:
                command += ["-n", str(processes), "--dist", "loadfile"]
            command += [*(f"--ignore={folder}" for folder in self.left_out), *(tests or self.all_tests)]
            subprocess.run(
                command, cwd=self._place, env=environment, check=False, capture_output=True, timeout=_LONGEST
            )
            lines = report.read_text(encoding="utf-8").splitlines()
        found: dict[str, Failure | None] = {}
        for line in lines:
            one = json.loads(line)
            found[one["test"]] = Failure(one["test"], one["error"]) if one["failed"] else found.get(one["test"])
        return found

    def confirm(self, failures: Sequence[Failure]) -> list[Failure]:
        """Return those failures that are roundtrip's: they happen again, and not on the SDK itself."""
        if not failures or len(failures) > _MANY:
            return list(failures)
        again = self.run([failure.test for failure in failures], processes=1)
        still = [failure for failure in failures if again.get(failure.test) is not None or failure.test not in again]
        if not still:
            return []
        unswapped = self.run([failure.test for failure in still], swap=False, processes=1)
        return [failure for failure in still if unswapped.get(failure.test) is None]


def _pip(python: str, *arguments: str) -> None:
    command = [python, "-m", "pip", *arguments, "-q", "--disable-pip-version-check"]
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900
    )
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        done.check_returncode()


def main(kind: type[Suite] = Suite, *, prog: str = "python -m tests.sdk", listed: Path = DIFFERENCES) -> int:
    """Exit with 0 if exactly what is listed fails."""
    parser = argparse.ArgumentParser(prog=prog, description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tests", nargs="*", help="files or tests of the SDK, as tests/server/mcpserver; by default all")
    parser.add_argument("--prepare", action="store_true", help="only download and install what is needed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many to run tests in")
    parser.add_argument("--show", action="store_true", help="print the tracebacks of unlisted failures")
    arguments = parser.parse_args()
    suite = kind()
    suite.prepare()
    if arguments.prepare:
        return 0
    begun = time.monotonic()
    found = suite.run(arguments.tests, processes=arguments.processes)
    failures = [failure for failure in found.values() if failure is not None]
    first = judge(failures, differences(listed), ran=found)
    unlisted = suite.confirm(first.unlisted)
    seconds = time.monotonic() - begun
    which = f"{suite.package} {version(suite.package)}"
    print(f"{len(found)} tests of {which} in {seconds:.0f} s: {first.expected} fail as listed")
    for failure in unlisted:
        print(f"  fails, and is not listed: {failure.test}")
        if arguments.show:
            print(failure.error)
    for entry in first.outdated:
        print(f"  is not as listed: {entry}")
    if not arguments.tests and len(found) < suite.fewest:
        print(f"  only {len(found)} tests ran, and there were {suite.fewest} at least")
        return 2
    if unlisted or first.outdated:
        print(f"  the list is {listed.relative_to(ROOT)}; each entry needs a line of the docs that explains it")
        return 1
    return 0
