"""Scenarios in fresh interpreters: what importing a peer takes, and what its command line takes to show its help."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Final

from benchmarks.scenarios import Call, Row
from benchmarks.variants import Variant

__all__ = ["Helping", "Importing"]

_TIMED: Final = """\
from time import process_time_ns as now
def memory():
    with open("/proc/self/status") as status:
        return 1024 * int(next(line for line in status if line.startswith("VmRSS:")).split()[1])
began = now()
import mcp.server
start, least = now(), memory()
{statement}
stop, most = now(), memory()
print(f"\\n{{stop - began}} {{stop - start}} {{most - least}}")
"""


@dataclass(frozen=True, slots=True)
class Importing:
    """Imports the SDK's servers, and then a peer."""

    rows: tuple[Row, ...]
    """Both together, and what the peer adds: time of the processor, which other programs disturb least, and memory."""
    calls: int = 1
    most_rounds: int | None = None

    @asynccontextmanager
    async def prepared(self, variant: Variant) -> AsyncGenerator[Call | None]:
        """Nothing needs to be started."""
        program = _TIMED.format(statement=variant.imports)

        async def once() -> tuple[float, ...]:
            output = await _output_of("-c", program)
            return tuple(float(value) for value in output.split()[-len(self.rows) :])

        yield once


@dataclass(frozen=True, slots=True)
class Helping:
    """Has the command line of a peer show its help, from the start of its process to the end."""

    rows: tuple[Row, ...]
    calls: int = 1
    most_rounds: int | None = None

    @asynccontextmanager
    async def prepared(self, variant: Variant) -> AsyncGenerator[Call | None]:
        """Nothing needs to be started; `None` where there is no command line."""
        command: Sequence[str] = variant.help
        if not command:
            yield None
            return

        async def once() -> tuple[float, ...]:
            start = perf_counter_ns()
            await _output_of(*command)
            return (perf_counter_ns() - start,)

        yield once


async def _output_of(*arguments: str) -> bytes:
    # As users have it: Python keeps the bytecode.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, env=environment
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{arguments} ended with {process.returncode}")
    return output
