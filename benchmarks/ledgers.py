"""Measure ledgers: a leg whose body must run once, and a repeated leg that gets the stored result.

Run it as `python -m benchmarks.ledgers`. If Redis is installed, it starts its own Redis on the loopback interface.
"""

import argparse
import asyncio
import importlib
import logging
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

from starlette.types import ASGIApp

from benchmarks.asgi import PATH, Endpoint, serving
from benchmarks.measure import Effort, Line, measure
from benchmarks.scenarios import Call, Row
from benchmarks.variants import Variant
from benchmarks.wire import Asked, WrongReply, call, read
from benchmarks.workloads import CONSENT_MESSAGE, KEY, TOOL, Consent, Workload, confirm, result_text
from roundtrip import Elicit, Resolve, Server
from roundtrip.ledger import Ledger, MemoryLedger, RedisLedger, SqliteLedger

_SEED: Final = 20260728
_NONE: Final = "none"
_ROWS: Final = (
    Row("leg", "the leg whose body runs"),
    Row("replay", "the same leg again, told what came of it"),
)


async def _consent() -> Elicit[Consent]:
    return Elicit(CONSENT_MESSAGE, Consent)


def _app(workload: Workload, *, ledger: Ledger | None) -> ASGIApp:
    server = Server("bench", keys=[KEY], ledger=ledger, trace=False)

    @server.tool(name=TOOL, exactly_once=ledger is not None)
    async def work(name: str, consent: Annotated[Consent, Resolve(_consent)]) -> str:
        """Ask once, and return the answer."""
        return result_text(name, [str(consent.ok)])

    return server.streamable_http_app(streamable_http_path=PATH, json_response=True, stateless_http=True)


def _app_without_resolvers(*, ledger: Ledger) -> ASGIApp:
    server = Server("bench", keys=[KEY], ledger=ledger, trace=False)

    @server.tool(name=TOOL, exactly_once=True, uncovered="round")
    async def work(name: str) -> str:
        """Return what the other tool returns, without asking."""
        return result_text(name, [str(True)])

    return server.streamable_http_app(streamable_http_path=PATH, json_response=True, stateless_http=True)


@dataclass(frozen=True, slots=True)
class _Replays:
    """Client that answers a question and sends the answer twice."""

    rows: tuple[Row, ...] = _ROWS
    calls: int = 40
    most_rounds: int | None = None

    @asynccontextmanager
    async def prepared(self, variant: Variant) -> AsyncGenerator[Call | None]:
        """Start the variant's server."""
        app = variant.build(confirm())
        if app is None:
            yield None
            return
        async with serving(app) as endpoint:
            yield partial(_answer_twice, endpoint)


async def _answer_twice(endpoint: Endpoint) -> tuple[float, ...]:
    return tuple([taken async for taken in _last_legs(endpoint)])


async def _last_legs(endpoint: Endpoint) -> AsyncGenerator[float]:
    """Call the tool, and yield the time of its last leg and of the same leg again."""
    request = call()
    asked = read(await endpoint.post(request.body, headers=request.headers))
    if not isinstance(asked, Asked):
        raise WrongReply("the first leg did not ask")
    answers: dict[str, dict[str, str | bool]] = {key: {one.field or "": True} for key, one in asked.questions.items()}
    request = call(answers=answers, state=asked.state)
    for _ in _ROWS:
        response = await endpoint.post(request.body, headers=request.headers)
        reply = read(response)
        if isinstance(reply, Asked) or reply.text != confirm().text:
            raise WrongReply("the last leg did not end the call")
        yield response.elapsed_ns


async def _round_trips(url: str) -> str:
    """Count the Redis requests in each leg. Redis statistics count the scripts that it ran."""
    client: Any = importlib.import_module("redis").Redis.from_url(url)

    def scripts() -> int:
        return client.info("commandstats")["cmdstat_evalsha"]["calls"]

    shown = ["Round trips to Redis:"]
    for title, make in (("with a resolver", partial(_app, confirm())), ("without resolvers", _app_without_resolvers)):
        ledger = RedisLedger(url)
        async with serving(make(ledger=ledger)) as endpoint:
            # The first calls load the scripts into Redis.
            await _answer_twice(endpoint)
            counts = [scripts(), *[scripts() async for _ in _last_legs(endpoint)]]
        await ledger.aclose()
        leg, replay = (after - before for before, after in pairwise(counts))
        shown.append(f"  {title:<32} {leg}, for the same leg again {replay}")
    client.close()
    return "\n".join(shown)


def _variant(name: str, title: str, make: Callable[[], Ledger | None]) -> Variant:
    return Variant(name=name, title=title, imports="", note="", build=lambda workload: _app(workload, ledger=make()))


@contextmanager
def own_redis(folder: Path) -> Generator[str | None]:
    """Yield the URL of a Redis that writes nothing to disk, or None if it is not installed."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        yield None
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(folder)]
    process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
    try:
        ends = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                if time.monotonic() > ends:
                    raise
                time.sleep(0.02)
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def _table(lines: Sequence[Line], variants: Sequence[Variant]) -> str:
    """Return medians, and in brackets the median extra time in each batch over the variant without a ledger."""
    shown: list[str] = []
    for line in lines:
        shown.append(f"{line.row.title}:")
        without = line.figures[_NONE]
        for variant in variants:
            figure = line.figures[variant.name]
            more = median(one - other for one, other in zip(figure.samples, without.samples, strict=True))
            shown.append(
                f"  {variant.title:<32} {figure.median / 1000:6.0f} µs  ({more / 1000:+5.0f})  "
                f"least {figure.least / 1000:5.0f}"
            )
    return "\n".join(shown)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ledgers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=25, metavar="N", help="batches of each ledger (default 25)")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    with TemporaryDirectory(prefix="rt") as name, own_redis(Path(name)) as url:
        folder = Path(name)
        variants = [
            _variant(_NONE, "without: the body runs again", lambda: None),
            _variant("memory", "MemoryLedger", MemoryLedger),
            _variant("sqlite", "SqliteLedger(durable=False)", lambda: SqliteLedger(folder / "fast.db", durable=False)),
            _variant("durable", "SqliteLedger", lambda: SqliteLedger(folder / "durable.db")),
        ]
        if url is not None:
            variants.append(_variant("redis", "RedisLedger, loopback", lambda: RedisLedger(url)))
        effort = Effort(rounds=options.rounds, batch_scale=1, warm_up=5)
        lines = asyncio.run(measure(_Replays(), variants, effort=effort, rng=random.Random(_SEED)))
        round_trips = [asyncio.run(_round_trips(url))] if url is not None else []
    sys.stdout.write("\n".join([_table(lines, variants), *round_trips]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
