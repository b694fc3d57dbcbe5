"""Install packages whose versions conflict with those of this environment into an environment of their own.

`python -m tests.kit.own_environments` does it beforehand; the tests do it when they need it. Only the standard library
is used, so any Python can run this.
"""

import fcntl
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = ["CLIENTS", "NEWEST", "OLDEST", "WINDOW", "EnvironmentMissing", "OwnEnvironment"]

ROOT: Final = Path(__file__).resolve().parents[2]
_PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
_PIP_SECONDS: Final = 300


class EnvironmentMissing(Exception):
    """The packages cannot be installed; the message has pip's reason."""


class OwnEnvironment(NamedTuple):
    """A Python with packages, and a folder with older versions of some, which has to come first in its path."""

    folder: Path
    packages: tuple[str, ...]
    older_packages: tuple[str, ...]

    @property
    def python(self) -> Path:
        """Return the program."""
        return self.folder / "venv" / "bin" / "python"

    @property
    def older(self) -> Path:
        """Return the folder of older versions."""
        return self.folder / "older"

    def install(self) -> None:
        """Install the packages if they are not there.

        Raises:
            EnvironmentMissing: The packages cannot be installed.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        done = self.folder / "done"
        wanted = "\n".join([*self.packages, *self.older_packages, sys.version, str(_PROJECT)])
        with (self.folder / "lock").open("w") as lock:
            # Of several processes that want it, one installs.
            fcntl.flock(lock, fcntl.LOCK_EX)
            if done.exists() and done.read_text(encoding="utf-8") == wanted:
                return
            done.unlink(missing_ok=True)
            venv.create(self.folder / "venv", clear=True, with_pip=True)
            self._pip(*self.packages)
            self._pip("--no-deps", "--upgrade", "--target", str(self.older), *self.older_packages)
            done.write_text(wanted, encoding="utf-8")

    def _pip(self, *arguments: str) -> None:
        # Without compiling: Python does it for the modules that are imported.
        command = [str(self.python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile"]
        try:
            ended = subprocess.run(
                [*command, *arguments], capture_output=True, text=True, timeout=_PIP_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise EnvironmentMissing(f"pip took longer than {_PIP_SECONDS} s") from error
        if ended.returncode != 0:
            raise EnvironmentMissing(f"pip failed: {ended.stderr.strip().splitlines()[-1]}")


CLIENTS: Final = OwnEnvironment(
    ROOT / ".ci" / "clients",
    ("langchain-mcp-adapters==0.3.2", "openai-agents==0.24.0", "mcp==1.30.0"),
    # The last version of the SDK that speaks 2025-06-18 and no later revision.
    ("mcp==1.22.0",),
)
"""Python clients."""

OLDEST: Final = {"mcp": "2.1.1", "mcp-types": "2.1.1", "fastmcp": "4.0.11", "fastmcp-slim": "4.0.11"}
NEWEST: Final = {"mcp": "2.3.0", "mcp-types": "2.3.0", "fastmcp": "4.2.3", "fastmcp-slim": "4.2.3"}
"""The versions of the SDK and FastMCP between which roundtrip works: the lowest allowed, and the highest tried."""


def _pinned(versions: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"{name}=={version}" for name, version in versions.items())


WINDOW: Final = OwnEnvironment(ROOT / ".ci" / "window", ("-e", f"{ROOT}[test]", *_pinned(NEWEST)), _pinned(OLDEST))
"""This checkout, beside the newest versions, and the oldest ones."""


if __name__ == "__main__":
    for each in (CLIENTS, WINDOW):
        each.install()
