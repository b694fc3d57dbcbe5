"""Install Python clients whose dependencies conflict with this package's into an environment of their own.

`python -m tests.clients.environments` does it beforehand; the tests do it when they need it. Only the standard library
is used, so any Python can run this.
"""

import fcntl
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

__all__ = ["FOLDER", "EnvironmentMissing", "OlderPython", "older_python"]

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = ROOT / ".ci" / "clients"

PACKAGES: Final = ("langchain-mcp-adapters==0.3.2", "openai-agents==0.24.0", "mcp==1.30.0")
OLDEST_SDK: Final = "mcp==1.22.0"
"""The last version of the SDK that speaks 2025-06-18 and no later revision."""

_PIP_SECONDS: Final = 300


class EnvironmentMissing(Exception):
    """The packages cannot be installed; the message has pip's reason."""


class OlderPython:
    """A Python with the clients, and the folder of the oldest SDK, which has to come first in its path."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "venv" / "bin" / "python"
        self.oldest_sdk = folder / "oldest"


def older_python() -> OlderPython:
    """Return the environment, and install it if it is not there.

    Raises:
        EnvironmentMissing: The packages cannot be installed.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    made = OlderPython(FOLDER)
    done, wanted = FOLDER / "done", "\n".join([*PACKAGES, OLDEST_SDK, sys.version])
    with (FOLDER / "lock").open("w") as lock:
        # Of several processes that want it, one installs.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists() and done.read_text(encoding="utf-8") == wanted:
            return made
        done.unlink(missing_ok=True)
        venv.create(FOLDER / "venv", clear=True, with_pip=True)
        _pip(made, *PACKAGES)
        _pip(made, "--no-deps", "--upgrade", "--target", str(made.oldest_sdk), OLDEST_SDK)
        done.write_text(wanted, encoding="utf-8")
    return made


def _pip(made: OlderPython, *arguments: str) -> None:
    command = [str(made.program), "-m", "pip", "install", "-q", "--disable-pip-version-check", *arguments]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise EnvironmentMissing(f"pip took longer than {_PIP_SECONDS} s") from error
    if ended.returncode != 0:
        raise EnvironmentMissing(f"pip failed: {ended.stderr.strip().splitlines()[-1]}")


if __name__ == "__main__":
    older_python()
