"""Install packages whose versions conflict with this environment into separate environments.

`python -m tests.kit.own_environments` installs them beforehand; otherwise the tests install them when needed. Only the
standard library is used, so any Python can run this.
"""

import fcntl
import subprocess
import sys
import tomllib
import venv
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

__all__ = ["BETWEEN", "CLIENTS", "FRAMEWORKS", "NEWER_CLIENTS", "NEWEST", "OLDEST", "WINDOW", "OwnEnvironment"]

ROOT: Final = Path(__file__).resolve().parents[2]
_PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_PIP_SECONDS: Final = 300


class OwnEnvironment(NamedTuple):
    """Python with packages, and folders with older versions. Such a folder must come first in the path."""

    folder: Path
    packages: tuple[str, ...]
    older_packages: Mapping[str, tuple[str, ...]] = MappingProxyType({})

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    def install(self) -> None:
        """Install missing packages. Raise SubprocessError with the reason if pip fails."""
        self.folder.mkdir(parents=True, exist_ok=True)
        done = self.folder / "done"
        wanted = "\n".join([*self.packages, str(dict(self.older_packages)), sys.version, str(_PROJECT)])
        with (self.folder / "lock").open("w") as lock:
            # If several processes need it, one installs.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if done.exists() and done.read_text(encoding="utf-8") == wanted:
                return
            done.unlink(missing_ok=True)
            venv.create(self.folder / "venv", clear=True, with_pip=True)
            self._pip(*self.packages)
            for name, older in self.older_packages.items():
                self._pip("--no-deps", "--upgrade", "--target", str(self.folder / name), *older)
            done.write_text(wanted, encoding="utf-8")

    def install_or_skip(self) -> None:
        """Install the packages, and skip the test if that fails."""
        import pytest  # CI installs beforehand, without pytest

        try:
            self.install()
        except subprocess.SubprocessError as error:
            pytest.skip(str(error))

    def _pip(self, *arguments: str) -> None:
        # Without compiling: Python compiles the modules that are imported.
        command = [str(self.python), "-m", "pip", "install", "-q", "--no-compile", *arguments]
        subprocess.run(command, timeout=_PIP_SECONDS, check=True)


CLIENTS: Final = OwnEnvironment(
    ROOT / ".ci" / "clients",
    ("langchain-mcp-adapters==0.3.2", "mcp-use==1.7.1", "openai-agents==0.24.0", "mcp==1.30.0"),
    # The last SDK version that speaks 2025-06-18 and no later revision.
    {"older": ("mcp==1.22.0",)},
)
"""Python clients that stand on version 1 of the SDK."""

OLDEST: Final = {"mcp": "2.1.1", "fastmcp": "4.0.11"}
BETWEEN: Final = {"mcp": "2.2.0", "fastmcp": "4.1.7"}
NEWEST: Final = {"mcp": "2.3.0", "fastmcp": "4.2.3"}
"""The SDK and FastMCP versions with which roundtrip works: the lowest allowed, the other minors, the highest."""


def _pins(mcp: str, fastmcp: str) -> tuple[str, ...]:
    return f"mcp=={mcp}", f"mcp-types=={mcp}", f"fastmcp=={fastmcp}", f"fastmcp-slim=={fastmcp}"


WINDOW: Final = OwnEnvironment(
    ROOT / ".ci" / "window",
    ("-e", f"{ROOT}[test]", *_pins(**NEWEST)),
    {"older": _pins(**OLDEST), "between": _pins(**BETWEEN)},
)
"""This checkout with the newest versions, and with older ones."""

NEWER_CLIENTS: Final = OwnEnvironment(
    ROOT / ".ci" / "clients" / "newer",
    (
        "langchain[mcp]==1.5.2",
        "openai-agents==0.24.0",
        "pydantic-ai-slim[mcp]==2.68.0",
        *_pins(**NEWEST),
    ),
)
"""Python clients that stand on version 2 of the SDK."""

FRAMEWORKS: Final = {
    "agents": "openai-agents==0.24.0",
    "fastmcp": "fastmcp==4.2.3",
    "langchain": "langchain[mcp]==1.5.2",
    "pydantic_ai": "pydantic-ai-slim[mcp]==2.68.0",
    "strands": "strands-agents==1.62.0",
}
"""Frameworks that authors use beside roundtrip, by the names of their modules."""


if __name__ == "__main__":
    for each in (CLIENTS, NEWER_CLIENTS, WINDOW):
        each.install()
