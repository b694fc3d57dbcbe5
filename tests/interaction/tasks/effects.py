"""Lines that bodies of tasks write, so that they survive their processes; the environment names the folder."""

import os
from pathlib import Path
from typing import Final

from tests.kit.waiting import until

__all__ = ["FOLDER", "effects", "folder", "holding", "noted"]

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


async def holding(folder: Path, times: int = 1) -> list[int]:
    """Return the processes that hold a body, once it has been held so often."""

    def holders() -> list[int]:
        return [int(line.split()[-1]) for line in effects(folder) if line.startswith("held")]

    await until(lambda: len(holders()) >= times)
    return holders()
