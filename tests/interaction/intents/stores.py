"""A store whose tools run once per intent, and its clients."""

from __future__ import annotations

import functools
from typing import Annotated, Any, Final

import anyio
from pydantic import Field, SecretStr

from roundtrip import Context, Server, ToolError, from_meta
from roundtrip.ledger import MemoryLedger
from roundtrip.testing import LegByLeg
from tests.kit.shops import KEY

__all__ = [
    "OTHER_KEY",
    "RECALLED",
    "Store",
    "anew",
    "by_color",
    "called",
    "client",
    "first_part",
    "former",
    "number",
]

RECALLED: Final = "roundtrip/recalled"
OTHER_KEY: Final = "2e" * 32


class Store:
    """Factory of instances of one service, with a record of what its tools did."""

    def __init__(self, ledger: Any = None, **options: Any) -> None:
        self.ran: list[str] = []
        self.steps: list[str] = []
        self.keys: list[str] = []
        self.ledger = MemoryLedger() if ledger is None else ledger
        self.options = options
        self.go_on = anyio.Event()
        self.go_on.set()
        self.began = anyio.Event()

    def __call__(self, keys: Any = (KEY,)) -> Server[Any]:
        server = Server[Any]("store", keys=keys, ledger=self.ledger, **self.options)
        tools: list[tuple[str, Any, dict[str, Any]]] = [
            ("give", self.give, {}),
            ("book", self.book, {}),
            ("pay", self.pay, {"confirm": "Pay for {order}?"}),
            ("fail", self.fail, {}),
            ("retry", self.fail, {"on_failure": "rerun"}),
            ("unlock", self.unlock, {}),
            ("shared", self.give, {"scope": "service"}),
            ("together", self.book, {"scope": "service"}),
            ("keyed", self.give, {"once_per": from_meta("com.example/key")}),
            ("perhaps", self.give, {"once_per": from_meta("com.example/key"), "uncovered": "run"}),
            ("grouped", self.give, {"once_per": first_part}),
        ]
        for name, body, options in tools:
            given: dict[str, Any] = {"once_per": "{order}", **options}
            server.add_tool(anew(body), name=name, **given)
        return server

    async def give(self, order: str, ctx: Context, copies: int = 1) -> str:
        """Give something."""
        self.ran.append(order)
        self.keys.append(ctx.idempotency_key)
        self.began.set()
        await self.go_on.wait()
        return f"{copies} {order} no. {len(self.ran)}"

    async def book(self, order: str, ctx: Context) -> str:
        """Ask three questions, with a step after the first."""
        first = await ctx.ask("first", f"{order}: first?", int)
        step = await ctx.step("step", lambda: self.steps.append(order) or len(self.steps))
        second = await ctx.ask("second", f"{order}: second?", int)
        third = await ctx.ask("third", f"{order}: third?", int)
        self.ran.append(order)
        return f"{order} {first} {second} {third} step {step} no. {len(self.ran)}"

    async def pay(self, order: str) -> str:
        """Pay."""
        self.ran.append(order)
        return f"{order} paid no. {len(self.ran)}"

    async def unlock(self, order: str, pin: SecretStr) -> str:
        """Unlock."""
        self.ran.append(order)
        return f"{order} unlocked"

    async def fail(self, order: str) -> str:
        """Fail the first time."""
        self.ran.append(order)
        if len(self.ran) == 1:
            raise ToolError("out of stock")
        return f"{order} no. {len(self.ran)}"


async def number(order: Annotated[str, Field(default_factory=str)]) -> str:
    return order


def first_part(order: str) -> str:
    return order.partition("-")[0]


def by_color(color: str) -> str:
    return color


def anew(body: Any) -> Any:
    """Return a function of its own, because some server classes keep a tool's options on its function."""

    async def run(*values: Any, **arguments: Any) -> Any:
        return await body(*values, **arguments)

    return functools.update_wrapper(run, body)


def client(store: Any, user: str | None = "ann") -> Any:
    return LegByLeg(store, principal=user)


async def called(store: Store, tool: str, user: str | None = "ann", **arguments: Any) -> Any:
    return await client(store, user).leg(tool, arguments)


def former(store: Store) -> Server[Any]:
    """Return a server of the build before, whose tool has no intents."""
    server = Server[Any]("store", keys=[KEY], ledger=store.ledger)
    server.add_tool(anew(store.book), name="book", exactly_once=True)
    return server
