"""Install the distributions into an empty environment of each Python of this machine, and use them there.

`python -m tests.package.pythons` builds them first; with a folder as its argument it takes those of the folder. It
stops at the first failure. Packages come from the package index.
"""

import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.package.building import ROOT, Built, build

VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
EXTRAS: Final = "docket,fast,pages,postgres,redis,testing"
SECONDS: Final = 300
KEPT: Final = {"HOME", "PATH", "LANG", "LC_ALL", "TMPDIR"}

IMPORTS: Final = """
import importlib, pkgutil, re, sys, roundtrip
hint = re.compile(r"pip install '[a-z>=.,<0-9-]+(\\[[a-z]+\\])?")
reached_by_the_package = {
    "roundtrip.pytest_plugin",
    "roundtrip.docket.dependencies",
    "roundtrip.serving.fast_connection",
    "roundtrip.testing.snapshots.extension",
}
missing, silent = [], []
for found in pkgutil.walk_packages(roundtrip.__path__, "roundtrip."):
    if not found.name.endswith("__main__"):
        try:
            importlib.import_module(found.name)
        except ImportError as error:
            is_told = found.name in reached_by_the_package or hint.search(str(error))
            (missing if is_told else silent).append(f"{found.name}: {error}")
print(len(missing))
sys.exit("\\n".join(silent) or 0)
"""
"""Import every module, and fail if one misses a package without saying how to install it."""


def pythons() -> Iterator[Path]:
    """Yield one Python of each supported version that this machine has, this one first."""
    yield Path(sys.executable)
    folders = [*map(Path, os.environ.get("PATH", "").split(os.pathsep))]
    folders += sorted(Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser().glob("versions/3.*/bin"))
    for version in VERSIONS:
        if version == f"{sys.version_info.major}.{sys.version_info.minor}":
            continue
        for program in (folder / f"python{version}" for folder in folders):
            # A shim of pyenv is there for versions that it does not choose.
            if (
                program.exists()
                and subprocess.run([program, "-c", ""], capture_output=True, check=False).returncode == 0
            ):
                yield program
                break


class Environment:
    """An empty environment, and an empty folder to work in."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self._bin = folder / "venv" / "bin"
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in KEPT or name.startswith("PIP_") or name.lower().endswith("_proxy")
        }
        self._variables = {**kept, "PATH": f"{self._bin}{os.pathsep}{kept.get('PATH', '')}", "NO_COLOR": "1"}
        self._run([str(python), "-m", "venv", str(folder / "venv")])

    def run(self, *command: str, **variables: str) -> str:
        """Run a program of the environment, and return what it prints."""
        return self._run([str(self._bin / command[0]), *command[1:]], **variables)

    def install(self, *requirements: str) -> None:
        """Install packages, and check that they fit together."""
        self.run("python", "-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements)
        self.run("python", "-m", "pip", "check", "--disable-pip-version-check")

    def _run(self, command: list[str], **variables: str) -> str:
        environment = {**self._variables, **variables}
        ran = subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if ran.returncode != 0:
            sys.exit(f"{' '.join(command)}: exit code {ran.returncode}\n{ran.stdout}{ran.stderr}")
        return ran.stdout


def expect(text: str, pattern: str) -> None:
    """Stop unless a text has a pattern."""
    if not re.search(pattern, text):
        sys.exit(f"expected {pattern!r} in:\n{text}")


def use(environment: Environment, version: str) -> None:
    """Do what a new user does: look, run the demonstration, make a project, call its tool, and check the recording."""
    expect(environment.run("roundtrip", "--version"), rf"^roundtrip {re.escape(version)}$")
    expect(environment.run("python", "-c", IMPORTS), r"^[1-9]\d*$")
    expect(environment.run("roundtrip", "demo"), "The order went through")
    environment.run("roundtrip", "new", "cinema", "--here")
    answers = {"seats": {"value": 4}, "row": {"value": "front"}}
    (environment.folder / "answers.json").write_text(json.dumps(answers), encoding="utf-8")
    keys = {
        "ROUNDTRIP_KEY_FILE": "keys",
        "ROUNDTRIP_TRACE": "calls.jsonl",
        "ROUNDTRIP_TRACE_REVEAL": "all",
    }
    for era in ("retry", "live"):
        call = ["call", "cinema.py", "book", "film=Mirror", "--answers", "answers.json", "--era", era]
        expect(environment.run("roundtrip", *call, **keys), "^Booked 4 seats for Mirror in the front row.$")
    expect(environment.run("roundtrip", "trace", "ls", "calls.jsonl"), r"book[\s\S]+book")
    environment.run("roundtrip", "check", "cinema.py:server", "calls.jsonl", ROUNDTRIP_KEY_FILE="keys")


def use_testing(environment: Environment) -> None:
    """Run the project's own tests."""
    ran = environment.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", CI="true")
    expect(ran, r"\b[1-9]\d* passed")


def main(folder: Path | None = None) -> None:
    """Build what is not there, and try it on each Python."""
    with TemporaryDirectory() as scratch:
        built = (
            build(ROOT, Path(scratch))
            if folder is None
            else Built(next(folder.glob("*.tar.gz")), next(folder.glob("*.whl")))
        )
        version = built.wheel.name.split("-")[1]
        for python, distribution in itertools.product(pythons(), (built.sdist, built.wheel)):
            began = time.monotonic()
            with TemporaryDirectory() as place:
                environment = Environment(python, Path(place))
                environment.install(str(distribution))
                use(environment, version)
                # The tutorial needs no other extra.
                environment.install(f"mcp-roundtrip[testing] @ {distribution.as_uri()}")
                use_testing(environment)
                environment.install(f"mcp-roundtrip[{EXTRAS}] @ {distribution.as_uri()}")
                expect(environment.run("python", "-c", IMPORTS), r"^\d+$")
                told = environment.run("python", "--version").strip()
            seconds = time.monotonic() - began
            print(f"{told}: installed and used {distribution.name} in {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
