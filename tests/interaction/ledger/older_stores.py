"""Write what a version stores, for later ones to continue: `python -m tests.interaction.ledger.older_stores FOLDER`.

`stored/` has one for each release. Never change one of them.
"""

import json
import sqlite3
import sys
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio

from roundtrip import Context, Server
from roundtrip.ledger import SqliteLedger
from roundtrip.system import System
from roundtrip.testing import Clock, LegByLeg
from tests.interaction.ledger.shops import Shop, text_of
from tests.kit.peer import peers

__all__ = ["NOW", "STORED", "AtWork", "restored"]

STORED: Final = Path(__file__).parent / "stored"
NOW: Final = 1_800_000_000.0
"""The time at which everything was stored."""


class AtWork:
    """A shop on a ledger in a file, at a time of its own."""

    def __init__(self, path: Path, now: float) -> None:
        clock = Clock()
        clock.now = now
        system = System(time=clock)
        self.ledger = SqliteLedger(path, durable=False, system=system)
        self.steps: list[str] = []
        self.shipped: list[str] = []
        self.shop = Shop(self.ledger, system=system)
        self.legs = LegByLeg(self.instance)

    def instance(self) -> Server[Any]:
        server = self.shop()
        server.add_tool(self.deliver, task="required")
        server.add_tool(self.ship, once_per="{order}", scope="service")
        return server

    async def ship(self, order: str) -> str:
        """Ship an order."""
        self.shipped.append(order)
        return f"{order} is shipment no. {len(self.shipped)}"

    async def deliver(self, ctx: Context[Any, Any]) -> str:
        """Deliver what was bought."""
        packed = await ctx.step("pack", self._pack)
        word = await ctx.ask("word", "Which word?", str)
        return f"{packed}, {word}"

    async def _pack(self) -> str:
        self.steps.append("pack")
        return "packed"

    async def pay(self, token: str | None) -> Any:
        """Send the last leg of a call."""
        return await self.legs.leg("buy", {"what": "tea"}, answers={"paid": {"value": True}}, state=token)


def restored(stored: Path, path: Path) -> dict[str, str]:
    """Make the file that a version had, and return the ids and tokens that its clients had."""
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(stored.read_text(encoding="ascii"))
    return json.loads(stored.with_suffix(".json").read_text(encoding="ascii"))


async def store(path: Path) -> dict[str, str | None]:
    """Leave calls that have run, once and once per intent, and a call and a task that wait for answers."""
    work = AtWork(path, NOW)
    await work.legs.leg("buy", {"what": "tea"})
    done = work.legs.token
    await work.pay(done)
    await work.legs.leg("buy", {"what": "tea"})
    open_ = work.legs.token
    shipped = text_of(await work.legs.leg("ship", {"order": "A7"}))
    async with peers(work.instance()) as (peer,):
        task = (await peer.call("deliver"))["taskId"]
        await peer.asked(task, "word")
    await work.ledger.aclose()
    return {"done": done, "open": open_, "task": task, "shipped": shipped}


def main(folder: Path) -> None:
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "calls.db"
        clients = anyio.run(store, path)
        with closing(sqlite3.connect(path)) as database:
            (number,) = database.execute("PRAGMA user_version").fetchone()
            lines = [*database.iterdump(), f"PRAGMA user_version={number};"]
    stored = folder / f"{version('mcp-roundtrip')}.sql"
    stored.write_text("\n".join(lines) + "\n", encoding="ascii")
    stored.with_suffix(".json").write_text(json.dumps(clients, indent=2) + "\n", encoding="ascii")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
