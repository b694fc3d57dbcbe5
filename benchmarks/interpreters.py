"""Scenarios in fresh interpreters: import a peer, show its command-line help, and start a server."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter_ns
from typing import Final

from benchmarks.scenarios import Call, Row
from benchmarks.variants import Variant
from benchmarks.wire import WrongReply

__all__ = ["FreshImport", "HelpCommand", "ServerStart"]

_START_SECONDS: Final = 30.0
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
class FreshImport:
    """Import the SDK's servers, and then a peer."""

    rows: tuple[Row, ...]
    """Both together, and what the peer adds: processor time, which other programs disturb least, and memory."""
    calls: int = 1
    most_rounds: int | None = None

    @asynccontextmanager
    async def prepared(self, variant: Variant) -> AsyncGenerator[Call | None]:
        """Yield the measurement."""
        program = _TIMED.format(statement=variant.imports)

        async def once() -> tuple[float, ...]:
            output = await _output_of("-c", program)
            return tuple(float(value) for value in output.split()[-len(self.rows) :])

        yield once


@dataclass(frozen=True, slots=True)
class HelpCommand:
    """A peer's command line that shows its help, from process start to end."""

    rows: tuple[Row, ...]
    calls: int = 1
    most_rounds: int | None = None

    @asynccontextmanager
    async def prepared(self, variant: Variant) -> AsyncGenerator[Call | None]:
        """Yield the measurement, or `None` if the peer has no command line."""
        command: Sequence[str] = variant.help
        if not command:
            yield None
            return

        async def once() -> tuple[float, ...]:
            start = perf_counter_ns()
            await _output_of(*command)
            return (perf_counter_ns() - start,)

        yield once


@dataclass(frozen=True, slots=True)
class ServerStart:
    """Server start in a new process, until the first response."""

    rows: tuple[Row, ...]
    calls: int = 1
    most_rounds: int | None = None

    @asynccontextmanager
    async def prepared(self, variant: Variant) -> AsyncGenerator[Call | None]:
        """Write the server's module. Yield `None` if the peer has no command that serves it."""
        if not variant.serve:
            yield None
            return
        with TemporaryDirectory() as folder:
            _write_module(folder, variant)

            async def once() -> tuple[float, ...]:
                with socket.create_server(("127.0.0.1", 0)) as free:
                    port: int = free.getsockname()[1]
                start = perf_counter_ns()
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *variant.serve,
                    "--port",
                    str(port),
                    cwd=folder,
                    env=_environment(),
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.DEVNULL,
                )
                try:
                    async with asyncio.timeout(_START_SECONDS):
                        await _first_response(port)
                    return (perf_counter_ns() - start,)
                finally:
                    process.kill()
                    await process.wait()

            yield once


def _write_module(folder: str, variant: Variant) -> None:
    Path(folder, "shop.py").write_text(variant.program, encoding="utf-8")


async def _first_response(port: int) -> None:
    while True:
        try:
            read, write = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.002)
        else:
            break
    try:
        write.write(b"GET /mcp HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nconnection: close\r\n\r\n" % port)
        head = await read.readuntil(b"\r\n")
        if not head.startswith(b"HTTP/1.1 4"):
            # Every server rejects a GET that accepts no events.
            raise WrongReply(f"the server answered {head!r}")
    finally:
        write.close()


def _environment() -> dict[str, str]:
    # As for users: Python keeps the bytecode.
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


async def _output_of(*arguments: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, env=_environment()
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"{arguments} ended with {process.returncode}")
    return output
