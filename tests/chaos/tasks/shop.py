"""The server of the attack on tasks, as its instances and its workers run it, and the diary that its steps write."""

import logging
import os
import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import anyio
import uvicorn

from roundtrip import Context, Elicit, Resolve, Server
from roundtrip.ledger import PostgresLedger, RedisLedger, SqliteLedger, lease
from tests.kit.hosts import PatientServer, listening_again

__all__ = ["KEY", "STEPS", "TTL", "Diary", "Line", "Terms", "main", "order_of", "shop", "worker"]

STEPS: Final = ("one", "two", "three", "four", "five")
KEY: Final = b"one key for all who share the tasks"
_SLOWEST: Final = 0.2
"""Seconds that a step takes at most."""
TTL: Final = 3600.0
_VARIABLES: Final = "CHAOS_TASKS_"


@dataclass(frozen=True, slots=True)
class Terms:
    """Everything that a process of the attack needs to know."""

    kind: str
    where: str
    """The file of SQLite, or the URL of the server."""
    diary: str
    lease: str

    @property
    def environment(self) -> dict[str, str]:
        """Return the terms as variables, which `of_process` reads."""
        return {f"{_VARIABLES}{name.upper()}": value for name, value in asdict(self).items()}

    @staticmethod
    def of_process() -> "Terms":
        """Return the terms of this process."""
        return Terms(*(os.environ[f"{_VARIABLES}{name.upper()}"] for name in ("kind", "where", "diary", "lease")))

    def ledger(self) -> SqliteLedger | RedisLedger | PostgresLedger:
        """Return a ledger on the store."""
        match self.kind:
            case "sqlite":
                return SqliteLedger(self.where)
            case "redis":
                return RedisLedger(self.where, prefix="chaos")
            case _:
                return PostgresLedger(self.where, schema="chaos")


class Line(NamedTuple):
    """One entry of the diary."""

    what: str
    """`begin` and `end` of a run of a step, and `pass` when the body goes on behind it."""
    pid: int
    number: int
    """The order's."""
    step: str
    receipt: str
    """The result of the run, which no other run has."""


class Diary:
    """Every run of a step, in a file that all processes append to, and that survives them."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        self._read = 0

    def write(self, what: str, number: int, step: str, receipt: str) -> None:
        # One write of few bytes is atomic.
        os.write(self._file, f"{what} {os.getpid()} {number} {step} {receipt}\n".encode())

    async def run(self, number: int, step: str) -> str:
        """Run as a step of an order."""
        receipt = secrets.token_hex(6)
        self.write("begin", number, step, receipt)
        await anyio.sleep(random.uniform(0, _SLOWEST))
        self.write("end", number, step, receipt)
        return receipt

    def further(self) -> Iterator[Line]:
        """Yield the lines that this reader has not seen."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    # It is being written.
                    return
                self._read += len(line)
                what, pid, number, step, receipt = line.decode().split()
                yield Line(what, int(pid), int(number), step, receipt)

    def close(self) -> None:
        os.close(self._file)


def shop(terms: Terms) -> Server[Any]:
    """Return the server. Its instances leave tasks to workers."""
    server = Server[Any]("shop", keys=[KEY], ledger=terms.ledger(), run_tasks=False)
    server.tool(task="required", task_ttl=TTL)(order_of(terms))
    return server


def order_of(terms: Terms) -> Callable[..., Any]:
    """Return the tool."""
    lease.LEASE_SECONDS = float(terms.lease)
    diary = Diary(terms.diary)

    async def who(number: int) -> Elicit[str]:
        return Elicit(f"Who orders no. {number}?", str)

    async def order(number: int, who: Annotated[str, Resolve(who)], ctx: Context) -> dict[str, Any]:
        receipts: dict[str, str] = {}

        async def step(name: str) -> None:
            receipts[name] = await ctx.step(name, diary.run, number, name)
            diary.write("pass", number, name, receipts[name])

        await step("one")
        color = await ctx.ask("color", f"Which color has no. {number}?", str)
        await step("two")
        answers = await ctx.ask_all(
            {"size": Elicit(f"How large is no. {number}?", int), "copies": Elicit(f"How many of no. {number}?", int)}
        )
        async with anyio.create_task_group() as group:
            group.start_soon(step, "three")
            group.start_soon(step, "four")
        await ctx.sleep(0.05)
        await step("five")
        return {"number": number, "who": who, "color": color, **answers, **receipts}

    return order


def worker() -> Server[Any]:
    """Return the server of a `roundtrip worker`."""
    return shop(Terms.of_process())


def main(arguments: Sequence[str]) -> None:
    """Serve requests: `--port N LOG KIND WHERE DIARY LEASE`."""
    _, port, log, *rest = arguments
    logging.basicConfig(filename=log, level=logging.WARNING)
    app = shop(Terms(*rest)).streamable_http_app(stateless_http=True)
    config = uvicorn.Config(app, log_config=None, ws="none", timeout_graceful_shutdown=5)
    PatientServer(config).run(sockets=[listening_again(int(port))])
