"""Measure requests per second with wrk: one uvicorn process on one core, wrk on another."""

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.asgi import PATH
from benchmarks.fleet.host import WORK
from benchmarks.fleet.processes import Process, Stack, on_core, served
from benchmarks.fleet.throughput import connected
from benchmarks.scenarios import Call, Row, Unit
from benchmarks.variants import Variant, installed
from benchmarks.variants.starlette_server import VARIANT as STARLETTE
from benchmarks.wire import Asked, Request, WrongReply, call, read
from benchmarks.workloads import Workload

__all__ = ["MISSING", "REQUESTS", "Requests", "checked", "is_possible", "peers", "rate", "requests_on"]

MISSING: Final = (
    "wrk is not installed, and requests per second are measured with it; "
    "install it with 'apt-get install wrk' (Debian, Ubuntu) or 'brew install wrk' (macOS)"
)

_PEERS: Final = ("sdk", "roundtrip", "fastmcp")
_SCRIPT: Final = Path(__file__).with_suffix(".lua")
_CONNECTIONS: Final = 16
_SECONDS: Final = 1
"""Seconds per run. wrk takes whole seconds."""
_TRIES: Final = 3
"""On a busy machine, a run may end before its first response."""


@dataclass(frozen=True, slots=True)
class Requests:
    """Scenario that sends a call's first leg over 16 connections. Each sends its next request after a response."""

    rows: tuple[Row, ...]
    work: str
    """The call's name in `benchmarks.fleet.host`."""
    calls: int = 1
    most_rounds: int | None = None
    stack: Stack = Stack.PLAIN

    @asynccontextmanager
    async def prepared(self, variant: Variant) -> AsyncGenerator[Call | None]:
        """Start a process with the variant's server, and check its response. Yield `None` without wrk."""
        if not is_possible():
            yield None
            return
        core, other_core = _cores()
        with served(variant.name, work=self.work, core=core, stack=self.stack) as (server,):
            request = call()
            expected = await checked(server, request, WORK[self.work])

            async def once() -> tuple[float, ...]:
                return (await rate(server, request, expected=expected, core=other_core),)

            yield once


def requests_on(stack: Stack) -> tuple[Requests, ...]:
    """Return the measurements for servers on one stack."""
    return (
        Requests((Row("requests", "requests per second, plain call", Unit.PER_SECOND),), "plain", stack=stack),
        Requests(
            (Row("requests-ask", "requests per second, one question, ask leg", Unit.PER_SECOND),),
            "elicit",
            stack=stack,
        ),
    )


REQUESTS: Final = requests_on(Stack.PLAIN)


def is_possible() -> bool:
    """Return True if wrk is installed."""
    return shutil.which("wrk") is not None


def peers(names: Sequence[str]) -> list[Variant]:
    """Return the servers with these names; by default those that people choose between, and Starlette."""
    return [one for one in (*installed(), STARLETTE) if one.name in (names or (*_PEERS, STARLETTE.name))]


def _cores() -> tuple[int | None, int | None]:
    """Return a core for the server and one for wrk, if there are two."""
    cores = sorted(os.sched_getaffinity(0)) if shutil.which("taskset") is not None else []
    return (cores[0], cores[1]) if len(cores) > 1 else (None, None)


async def checked(server: Process, request: Request, workload: Workload) -> str:
    """Send the request once, and return a text that only correct responses contain.

    Raises:
        WrongReply: The response is not the workload's first leg.
    """
    connection = await connected(server)
    try:
        response = await connection.post(request.body, headers=request.headers)
    finally:
        await connection.close()
    reply = read(response)
    messages = [question.message for question in reply.questions.values()] if isinstance(reply, Asked) else [reply.text]
    expected = [*workload.messages[0]] if workload.messages else [workload.text]
    if response.status != 200 or isinstance(reply, Asked) != bool(workload.messages) or messages != expected:
        raise WrongReply(f"HTTP {response.status}, {messages} where {expected} was expected")
    return f'"{expected[0]}"'


async def rate(server: Process, request: Request, *, expected: str, core: int | None = None) -> float:
    """Run wrk for a second, and return the requests per second.

    Raises:
        WrongReply: A response had another status than 200, or lacked the expected text.
        RuntimeError: wrk failed, or received no response.
    """
    body = request.body.decode().replace(f'"id":{request.id},', '"id":%d,')
    headers = [part for header in request.headers.items() for part in header]
    command = [*on_core(core), "wrk", "-t1", f"-c{_CONNECTIONS}", f"-d{_SECONDS}s", "-s", str(_SCRIPT)]
    command += [f"http://127.0.0.1:{server.port}{PATH}", "--", body, expected, *headers]
    for _ in range(_TRIES):
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        output = (await process.communicate())[0].decode(errors="replace")
        lines = dict(line.split(" ", 1) for line in output.splitlines() if line.startswith(("result ", "example ")))
        if process.returncode or "result" not in lines:
            raise RuntimeError(f"wrk ended with {process.returncode}: {output}")
        requests, microseconds, wrong = (int(word) for word in lines["result"].split())
        if wrong:
            raise WrongReply(f"{wrong} of {requests} responses were wrong: {lines['example']}")
        if requests:
            return requests / microseconds * 1e6
    raise RuntimeError(f"wrk received no response in {_TRIES} runs; measure on a machine with less to do")
