"""The server of the attack on intents, as each instance runs it, and the diary in which its bodies and steps write.

Version 0.2.0 of roundtrip can run it, too, so it needs nothing of roundtrip that is newer, nor the other modules of the
attack.
"""

import contextlib
import contextvars
import importlib
import logging
import os
import random
import secrets
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import anyio
import uvicorn

from roundtrip import Context, Server
from roundtrip.ledger import MemoryLedger, PostgresLedger, RedisLedger, SqliteLedger
from tests.kit.hosts import PatientServer, listening_again

__all__ = ["KEYS", "PER_CALL", "TOOLS", "USER", "Diary", "Line", "Terms", "main"]

USER: Final = "x-user"
"""The header that names the caller, as if a proxy had authenticated it."""
KEYS: Final = {"old": b"the old key of a fleet of many shops", "new": b"the new key of a fleet of many shops"}
TOOLS: Final = ("give", "pay", "book", "rebook")
"""A tool that asks nothing; one that is confirmed; one with a step and two questions; one that may run again."""
PER_CALL: Final = TOOLS[:3]
"""The tools that a fleet has of which an instance knows no intents."""
_CALLER: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("caller")


class Line(NamedTuple):
    """One entry of the diary."""

    what: str
    """`near` before a body's first question; `begin` and `end` of a body; `step`, `stepped` at its end, `pass` when the
    body goes on behind it, and `passed` before the next question.
    """
    pid: int
    user: str
    tool: str
    order: str
    receipt: str


class Diary:
    """What every process did, in a file that all of them append to."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        self._read = 0

    def write(self, what: str, tool: str, order: str, receipt: str = "-") -> None:
        # One write of few bytes is atomic.
        os.write(self._file, f"{what} {os.getpid()} {_CALLER.get()} {tool} {order} {receipt}\n".encode())

    def further(self) -> Iterator[Line]:
        """Yield the lines that this reader has not seen."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            for line in file:
                if not line.endswith(b"\n"):
                    # It is being written.
                    return
                self._read += len(line)
                what, pid, *rest = line.decode().split()
                yield Line(what, int(pid), *rest)

    def close(self) -> None:
        os.close(self._file)


@dataclass(frozen=True, slots=True)
class Terms:
    """Everything that an instance needs to know, which it gets as words."""

    kind: str
    where: str
    """The file of SQLite, or the URL of the server."""
    diary: str
    log: str
    lease: str
    slowest: str
    """Seconds that a body or a step takes at most."""
    keys: str = "new"
    """Names of the keys, the newest first."""
    once: str = "intent"
    """`intent`, or `call` for a body that runs once per call."""
    patience: str = "20"

    def words(self, **changed: str) -> list[str]:
        return [*{**asdict(self), **changed}.values()]

    def ledger(self) -> Any:
        match self.kind:
            case "memory":
                return MemoryLedger()
            case "sqlite":
                return SqliteLedger(self.where)
            case "redis":
                return RedisLedger(self.where, prefix="chaos")
            case _:
                return PostgresLedger(self.where, schema="chaos")

    def set_times(self) -> None:
        """Set shorter times. Version 0.2.0 has them elsewhere, and keeps its own."""
        for name, module, value in (
            ("LEASE_SECONDS", "roundtrip.ledger.lease", self.lease),
            ("PATIENCE_SECONDS", "roundtrip.once.exactly_once", self.patience),
        ):
            with contextlib.suppress(ModuleNotFoundError):
                setattr(importlib.import_module(module), name, float(value))


def _user(context: Any) -> str | None:
    return context.request.headers.get(USER) if context.request is not None else None


class Shop:
    """The tools, which tell the diary what they do."""

    def __init__(self, diary: Diary, slowest: float) -> None:
        self._diary = diary
        self._slowest = slowest

    async def _work(self) -> None:
        await anyio.sleep(random.uniform(0, self._slowest))

    async def _run(self, tool: str, order: str, **values: Any) -> dict[str, Any]:
        receipt = secrets.token_hex(6)
        self._diary.write("begin", tool, order, receipt)
        await self._work()
        self._diary.write("end", tool, order, receipt)
        return {"tool": tool, "order": order, "user": _CALLER.get(), "receipt": receipt, **values}

    async def give(self, order: str, copies: int = 1) -> dict[str, Any]:
        """Give something."""
        return await self._run("give", order, copies=copies)

    async def pay(self, order: str, copies: int = 1) -> dict[str, Any]:
        """Pay for something."""
        return await self._run("pay", order, copies=copies)

    async def book(self, order: str, ctx: Context, copies: int = 1) -> dict[str, Any]:
        """Book something."""
        return await self._book("book", order, ctx, copies)

    async def rebook(self, order: str, ctx: Context, copies: int = 1) -> dict[str, Any]:
        """Book something, again if the outcome is unknown."""
        return await self._book("rebook", order, ctx, copies)

    async def _book(self, tool: str, order: str, ctx: Context, copies: int) -> dict[str, Any]:
        """Ask, compute a step, ask again, and book."""
        user = _CALLER.get()
        self._diary.write("near", tool, order)
        first = await ctx.ask("first", f"{user} {tool} {order}: first?", int)
        step = await ctx.step("step", self._step, tool, order)
        self._diary.write("pass", tool, order, step)
        await self._work()
        self._diary.write("passed", tool, order, step)
        second = await ctx.ask("second", f"{user} {tool} {order} {step}: second?", str)
        return await self._run(tool, order, copies=copies, first=first, second=second, step=step)

    async def _step(self, tool: str, order: str) -> str:
        receipt = secrets.token_hex(6)
        self._diary.write("step", tool, order, receipt)
        await self._work()
        self._diary.write("stepped", tool, order, receipt)
        return receipt


def shop(terms: Terms) -> Server[Any]:
    """Return the server."""
    terms.set_times()
    keys = [KEYS[name] for name in terms.keys.split(",")]
    server = Server[Any]("shop", keys=keys, ledger=terms.ledger(), principal=_user)
    shop = Shop(Diary(terms.diary), float(terms.slowest))
    is_old = not hasattr(sys.modules["roundtrip"], "from_meta")
    options: dict[str, Any] = {"once_per": "{order}"} if terms.once == "intent" else {"exactly_once": True}
    silent: dict[str, Any] = {} if terms.once == "intent" or is_old else {"uncovered": "round"}
    server.tool(**options, **silent)(shop.give)
    server.tool(**options, confirm="Pay for {order}?")(shop.pay)
    server.tool(**options)(shop.book)
    server.tool(**options, on_unknown="rerun")(shop.rebook)
    return server


class _Callers:
    """ASGI middleware that tells the bodies which user's request they serve."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        for name, value in scope.get("headers", ()):
            if name == USER.encode():
                _CALLER.set(value.decode())
        await self._app(scope, receive, send)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve both eras: `--port N`, and the words of the terms."""
    _, port, *words = sys.argv[1:] if arguments is None else arguments
    terms = Terms(*words)
    logging.basicConfig(filename=terms.log, level=logging.WARNING)
    app = _Callers(shop(terms).streamable_http_app(stateless_http=False))
    config = uvicorn.Config(app, log_config=None, ws="none", timeout_graceful_shutdown=5)
    PatientServer(config).run(sockets=[listening_again(int(port))])


if __name__ == "__main__":
    main()
