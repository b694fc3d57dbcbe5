"""Lines that bodies of tasks write, so that they survive their processes; the environment names the folder."""

import os
from pathlib import Path
from typing import Final

__all__ = ["FOLDER", "effects", "folder", "noted"]

FOLDER: Final = "TASKS_FOLDER"


def folder() -> Path:
    return Path(os.environ[FOLDER])


def noted(what: str) -> str:
    """Write a line that survives the process."""
    with (folder() / "effects").open("a") as file:
        file.write(f"{what}\n")
    return what


def effects(folder: Path) -> list[str]:
    """Return the lines that were written."""
    path = folder / "effects"
    return path.read_text().splitlines() if path.exists() else []
