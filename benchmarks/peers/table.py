"""The rows in order, and the table in docs/comparison.md."""

import asyncio
import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Final

from benchmarks.peers import asking, beyond, legs, values
from benchmarks.peers.row import LIBRARIES, Row

__all__ = ["NAMES", "ROWS", "rows_named", "show", "table", "versions"]

ROWS: Final[tuple[Row, ...]] = (*asking.ROWS, *legs.ROWS, *values.ROWS, *beyond.ROWS)
NAMES: Final = tuple(row.name for row in ROWS)
_MAX_SECONDS: Final = 60.0


def versions() -> dict[str, str]:
    """Return each library's version."""
    return {
        "roundtrip": version("mcp-roundtrip"),
        "sdk": version("mcp"),
        "fastmcp": version("fastmcp"),
    }


def rows_named(names: Sequence[str]) -> list[Row]:
    """Return the rows with these names, or all."""
    return [row for row in ROWS if not names or row.name in names]


async def show(row: Row) -> dict[str, str]:
    """Run a row's servers, and return what each library did."""
    cells: dict[str, str] = {}
    # Libraries log and warn to different degrees. The table compares what they do.
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for library, shown in row.functions().items():
                async with asyncio.timeout(_MAX_SECONDS):
                    cells[library] = await shown()
    finally:
        logging.disable(disabled)
    return cells


def table(shown: Iterable[tuple[Row, Mapping[str, str]]]) -> list[str]:
    """Return the lines of the page's table."""
    titles = {"roundtrip": "roundtrip", "sdk": "SDK `MCPServer`", "fastmcp": "FastMCP"}
    heads = " | ".join(f"{titles[library]} {number}" for library, number in versions().items())
    lines = [f"| row | feature | {heads} | our test |", "|---|---|" + "---|" * len(LIBRARIES) + "---|"]
    for row, cells in shown:
        cell = " | ".join(cells[library] for library in LIBRARIES)
        test = "none" if row.test is None else f"`{row.test.partition('::')[2]}`"
        lines.append(f"| `{row.name}` | {row.feature} | {cell} | {test} |")
    return lines
