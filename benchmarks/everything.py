"""All scenarios, in table order."""

from typing import Final

from benchmarks.fleet.tails import Tail
from benchmarks.interpreters import FreshImport, HelpCommand, ServerStart
from benchmarks.scenarios import IN_PROCESS, Row, Scenario, Unit

__all__ = ["scenarios"]

_IMPORT: Final = FreshImport(
    (
        Row("import", "import, processor time"),
        Row("import-beyond", "of that, beyond import mcp.server", is_compared=False),
        Row("import-memory", "the memory of that", Unit.BYTES, is_compared=False),
    ),
    most_rounds=15,
)
_HELP: Final = HelpCommand((Row("help", "--help of the command line, whole process"),), most_rounds=15)

_START: Final = ServerStart((Row("start", "a server process, until its first response"),), most_rounds=15)


def scenarios(*, quick: bool = False) -> tuple[Scenario, ...]:
    """Return all scenarios; in a quick run, the large ones are small."""
    return (*IN_PROCESS, _tail(3 if quick else 30), _IMPORT, _HELP, _START)


def _tail(calls_per_connection: int) -> Tail:
    return Tail(
        (
            Row("tail", "uvicorn, 16 connections, three rounds: p99 by median", Unit.RATIO),
            Row("tail-median", "the median of those calls"),
        ),
        most_rounds=10,
        calls_per_connection=calls_per_connection,
    )
