"""A machine with a browser: runs the cinema on stdio, and reads what its browser saw."""

import json
import os
import sys
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.kit.hosts import ROOT
from tests.kit.waiting import until

__all__ = ["ANSWERS", "HERE", "Machine"]

HERE: Final = Path(__file__).parent
ANSWERS: Final = {
    "Book": "",
    "Which seat": "3",
    "How many": "2",
    "All right": "",
    "Number": "2",
}
_OWN_VARIABLES: Final = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "TERM", "SSH_CONNECTION", "ROUNDTRIP_TRACE")
"""Variables of the tester's own desktop: no test may open their browser."""


@dataclass(slots=True)
class Machine:
    """Environment of a server on stdio, and the log of the browser.

    Args:
        folder: An empty folder.
        answers: The texts for the fields of pages; None for a browser that only opens its page.
    """

    folder: Path
    answers: Mapping[str, str] | None = field(default_factory=lambda: ANSWERS)
    variables: dict[str, str] = field(default_factory=dict[str, str])
    lacks: Collection[str] = ()

    @property
    def log(self) -> Path:
        return self.folder / "browser.log"

    @property
    def env(self) -> dict[str, str]:
        plan = {"answers": self.answers, "log": str(self.log)}
        kept = {name: value for name, value in os.environ.items() if name not in _OWN_VARIABLES}
        given = {
            **kept,
            "PYTHONPATH": str(ROOT),
            "ROUNDTRIP_LOCAL_PAGES": "1",
            "BROWSER": f"{sys.executable} {HERE / 'browser.py'} %s",
            "BROWSER_PLAN": json.dumps(plan),
            **self.variables,
        }
        return {name: value for name, value in given.items() if name not in self.lacks}

    @property
    def command(self) -> list[str]:
        return [sys.executable, str(HERE.parent / "cinema.py")]

    @asynccontextmanager
    async def client(self, mode: str = "2026-07-28", **options: Any) -> AsyncGenerator[Client]:
        program, *arguments = self.command
        transport = stdio_client(StdioServerParameters(command=program, args=arguments, env=self.env))
        async with Client(cast("Any", transport), mode=mode, **options) as client:
            yield client

    def lines(self, kind: str) -> list[str]:
        """Return the lines of the log of one kind, without its name."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{kind} ")]

    async def shows(self, *headings: str) -> None:
        """Wait until the browser has shown these pages: it may be slower than the client."""
        await until(lambda: self.headings == [*headings], what=f"the pages {headings}")

    @property
    def headings(self) -> list[str]:
        return [line.partition(" ")[2] for line in self.lines("page") if not line.endswith("Still working")]
