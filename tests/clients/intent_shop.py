"""A shop whose tools run once per order, for foreign clients; it notes which bodies and steps ran."""

from pathlib import Path
from typing import Any, Final

import anyio

from roundtrip import Context, Server
from roundtrip.ledger import Ledger, SqliteLedger
from tests.kit.shops import KEY
from tests.kit.waiting import until

__all__ = ["GATE", "fleet", "make_server", "ran"]

GATE: Final = "gate"
"""The file for which deliveries wait."""
_NOTES: Final = "ran"


def ran(folder: Path) -> list[str]:
    """Return the bodies and steps that ran, in order."""
    notes = folder / _NOTES
    return notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []


def make_server(folder: Path, ledger: Ledger) -> Server[Any]:
    """Return a server that notes in a folder what ran."""
    server = Server[Any]("shop", keys=[KEY], ledger=ledger, trace=False)
    _add_silent_tools(server, folder)
    _add_asking_tools(server, folder)
    return server


def _note(folder: Path, what: str) -> str:
    """Take note that something ran, and return its name and how many have run."""
    with (folder / _NOTES).open("a", encoding="utf-8") as notes:
        notes.write(f"{what}\n")
    return f"{what} as number {len(ran(folder))}"


def _add_silent_tools(server: Server[Any], folder: Path) -> None:
    @server.tool(once_per="{order}", scope="service")
    async def ship(order: str) -> str:
        return _note(folder, f"ship {order}")

    @server.tool(once_per="{order}", scope="service")
    async def deliver(order: str) -> str:
        noted = _note(folder, f"deliver {order}")
        await until(anyio.Path(folder / GATE).exists)
        return noted

    @server.tool(exactly_once=True, uncovered="round")
    async def ship_once() -> str:
        return _note(folder, "ship_once")


def _add_asking_tools(server: Server[Any], folder: Path) -> None:
    def step(name: str) -> str:
        return _note(folder, name)

    @server.tool(once_per="{order}", scope="service")
    async def wrap(order: str, ctx: Context) -> str:
        sheets = await ctx.ask("sheets", "How many sheets?", int)
        return _note(folder, f"wrap {order} in {sheets}")

    @server.tool(once_per="{order}", scope="service")
    async def party(order: str, ctx: Context) -> str:
        guests = await ctx.ask("guests", "How many guests?", int)
        booked = await ctx.step("book", step, f"book for {guests}")
        cakes = await ctx.ask("cakes", f"How many cakes for {guests}?", int)
        candles = await ctx.ask("candles", f"How many candles on {cakes}?", int)
        return f"{booked}; {_note(folder, f'party {order} with {guests}, {cakes}, {candles}')}"

    @server.tool(once_per="{order}", scope="service")
    async def move(order: str, ctx: Context) -> str:
        rooms = await ctx.ask("rooms", "How many rooms?", int)
        vans = await ctx.step("vans", step, f"vans for {rooms}")
        boxes = await ctx.ask("boxes", f"How many boxes for {rooms}?", int)
        lamps = await ctx.ask("lamps", f"How many lamps beside {boxes}?", int)
        crew = await ctx.step("crew", step, f"crew for {lamps}")
        floor = await ctx.ask("floor", f"Which floor for {lamps}?", int)
        return f"{vans}; {crew}; {_note(folder, f'move {order} with {rooms}, {boxes}, {lamps}, {floor}')}"


fleet: Final = make_server(Path(), SqliteLedger("intents.db"))
"""The server of `roundtrip serve`, which writes into the folder that it starts in."""
