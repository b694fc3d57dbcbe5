"""A virtual environment with this checkout."""

import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS: Final = 110

__all__ = ["SECONDS", "Environment"]


class Environment:
    """Fresh virtual environment that sees this one's packages, and has this checkout installed."""

    def __init__(self, folder: Path) -> None:
        self.python = folder / "bin" / "python"
        # Without pip, which takes seconds: a path file has the same effect.
        venv.create(folder, with_pip=False)
        (site,) = folder.glob("lib/python*/site-packages")
        installed = [path for path in sys.path if path.endswith("site-packages")]
        lines = [f"import site; site.addsitedir({path!r})" for path in installed]
        (site / "checkout.pth").write_text("\n".join([*lines, str(ROOT)]) + "\n")

    def run(self, *words: str, folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "LC_ALL")}
        return subprocess.run(
            [str(self.python), "-m", *words],
            cwd=folder,
            env={**kept, **variables},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            stdin=subprocess.DEVNULL,
        )
