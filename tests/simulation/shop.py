"""The server of a simulated fleet, and the record of what its tools have done."""

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NamedTuple

import anyio

from roundtrip import Context, Elicit, Resolve, Server, ToolError
from roundtrip.ledger import Ledger
from roundtrip.system import System
from roundtrip.tracing import Tracer

__all__ = ["Diary", "Order", "error_of", "make_server"]

_KEYS: Final = (b"the old key of a simulated fleet", b"the new key of a simulated fleet")
_TIMEOUT_SECONDS: Final = 65.0
"""Less than the longest piece of work, and than the patience of clients."""


class Order(NamedTuple):
    """A run of a body, or of a step."""

    tool: str
    what: str
    instance: str


@dataclass
class Diary:
    """Everything that the tools of a fleet have done, by the orders of clients, in the order of time."""

    watch: Callable[[str, Order], None]
    """Called with each run."""
    runs: dict[str, list[Order]] = field(default_factory=lambda: defaultdict(list[Order]))

    def write(self, order: str, run: Order) -> None:
        """Note a run."""
        self.runs[order].append(run)
        self.watch(order, run)

    def of(self, order: str, what: str) -> list[Order]:
        """Return the runs of a body, or of a step."""
        return [run for run in self.runs[order] if run.what == what]


def error_of(order: str, seats: int) -> Exception | None:
    """Return the error with which bodies end that get this number of seats; None for most numbers."""
    if seats % 7 == 0:
        return ToolError(f"{order} cannot have {seats} seats")
    if seats % 7 == 1:
        return ValueError(f"{order} has no row of {seats} seats")
    return None


def _user_of(ctx: Any) -> str | None:
    return ctx.request.headers.get("x-user")


def make_server(
    instance: str,
    diary: Diary,
    tools: Collection[str],
    *,
    ledger: Ledger,
    system: System,
    tracer: Tracer,
    draw: Callable[[], float],
    has_new_key: bool,
    declined_for: float,
) -> Server[Any]:
    """Return the server of an instance.

    Args:
        instance: Its name.
        diary: Notes what it does.
        tools: The tools that the history needs; each costs milliseconds.
        ledger: Its connection to the store.
        system: Its clocks and randomness.
        tracer: Its observer.
        draw: Returns the seconds that the next piece of work takes.
        has_new_key: True if it signs and seals with the new key, and not with the old one; it accepts both.
        declined_for: The seconds for which a decline holds, of tools with `once_per=`.
    """
    server = Server[Any](
        "shop",
        keys=_KEYS[::-1] if has_new_key else _KEYS,
        ledger=ledger,
        system=system,
        trace=tracer,
        principal=_user_of,
        build="1",
        probe=False,
        max_age=24 * 3600,
    )

    def began(order: str, tool: str, what: str) -> None:
        diary.write(order, Order(tool, what, instance))

    async def work(order: str, tool: str, what: str) -> str:
        """Do a piece of work, which takes a while, and return a receipt that no other has."""
        began(order, tool, what)
        start = system.monotonic()
        try:
            await anyio.sleep(draw())
        except anyio.get_cancelled_exc_class():
            began(order, tool, "stopped")
            if system.monotonic() - start > _TIMEOUT_SECONDS - 1:
                began(order, tool, "timeout")
            raise
        began(order, tool, f"{what} done")
        return f"{what}-{system.entropy(4).hex()}-of-{order}"

    def confirmed(order: str, seats: int, *receipts: str) -> str:
        if error := error_of(order, seats):
            raise error
        return " ".join((order, str(seats), *receipts))

    async def quote(order: str) -> str:
        return await work(order, "any", "quote")

    async def how_many(order: str) -> Elicit[int]:
        return Elicit(f"{order}: how many seats?", int)

    async def which_place(order: str, seats: Annotated[int, Resolve(how_many)]) -> Elicit[str]:
        return Elicit(f"{order}: where are the {seats} seats?", str)

    async def book(
        order: str,
        price: Annotated[str, Resolve(quote, remember=True)],
        seats: Annotated[int, Resolve(how_many)],
        where: Annotated[str, Resolve(which_place)],
        ctx: Context,
    ) -> str:
        """Book seats, asked for by resolvers and by the body."""
        row = await ctx.ask("row", f"{order}: which row, for {price}?", str)
        receipt = await ctx.step("receipt", work, order, "book", "receipt")
        sure = await ctx.ask("sure", f"{order}: sure, with {receipt}?", bool)
        return f"{order} {seats} {where} {row} {sure} {price} {receipt}"

    async def pay(order: str, seats: Annotated[int, Resolve(how_many)]) -> str:
        """Pay, which must not happen twice."""
        receipt = await work(order, "pay", "body")
        return confirmed(order, seats, receipt)

    async def ship(order: str, seats: Annotated[int, Resolve(how_many)], ctx: Context) -> str:
        """Ship, which must not happen twice, behind a step and a question of the body."""
        label = await ctx.step("label", work, order, "ship", "label")
        sure = await ctx.ask("sure", f"{order}: sure, with {label}?", bool)
        receipt = await work(order, "ship", "body")
        return confirmed(order, seats, str(sure), label, receipt)

    async def report(order: str, ctx: Context) -> str:
        """Make a report in the background, with questions."""
        first = await ctx.step("first", work, order, "report", "first")
        seats = await ctx.ask("seats", f"{order}: how many seats?", int)
        await ctx.sleep(20)
        second = await ctx.step("second", work, order, "report", "second")
        where, row = await ctx.ask("where", f"{order}: where?", str), await ctx.ask("row", f"{order}: which row?", str)
        return confirmed(order, seats, where, row, first, second)

    async def transfer(order: str, ctx: Context) -> str:
        """Transfer in the background, which must not happen twice."""
        seats = await ctx.ask("seats", f"{order}: how many seats?", int)
        receipt = await work(order, "transfer", "body")
        return confirmed(order, seats, receipt)

    async def collect(order: str, ctx: Context) -> str:
        """Wait in the background until somebody has paid."""
        paid = await ctx.wait_for("payment", timeout=3600)
        receipt = await ctx.step("receipt", work, order, "collect", "receipt")
        return f"{order} {paid} {receipt}"

    async def charge(order: str, amount: int) -> str:
        """Charge, once per order, without a question."""
        receipt = await work(f"{order}/{amount}", "charge", "body")
        return confirmed(order, amount, receipt)

    async def price_of(order: str, amount: int) -> str:
        return await work(f"{order}/{amount}", "refund", "price")

    async def fee_of(order: str, amount: int, price: Annotated[str, Resolve(price_of, remember=True)]) -> str:
        return await work(f"{order}/{amount}", "refund", "fee")

    async def refund(
        order: str,
        amount: int,
        price: Annotated[str, Resolve(price_of, remember=True)],
        fee: Annotated[str, Resolve(fee_of, remember=True)],
        seats: Annotated[int, Resolve(how_many)],
    ) -> str:
        """Refund, once per order, if the user confirms, behind two resolvers that remember their values."""
        receipt = await work(f"{order}/{amount}", "refund", "body")
        return confirmed(order, seats, str(amount), price, fee, receipt)

    async def reserve(order: str, amount: int, seats: Annotated[int, Resolve(how_many)], ctx: Context) -> str:
        """Reserve, once per order, behind two steps and a question of the body."""
        whole = f"{order}/{amount}"
        label = await ctx.step("label", work, whole, "reserve", "label")
        stamp = await ctx.step("stamp", work, whole, "reserve", "stamp")
        row = await ctx.ask("row", f"{order}: which row, with {label} and {stamp}?", str)
        receipt = await work(whole, "reserve", "body")
        return confirmed(order, seats, str(amount), row, label, stamp, receipt)

    if "book" in tools:
        server.add_tool(book)
    if "pay" in tools:
        server.add_tool(pay, exactly_once=True, timeout=_TIMEOUT_SECONDS, confirm="Pay for {order}?")
    if "ship" in tools:
        server.add_tool(ship, exactly_once=True, timeout=_TIMEOUT_SECONDS)
    if "report" in tools:
        server.add_tool(report, task="required")
    if "transfer" in tools:
        server.add_tool(transfer, task="required", exactly_once=True, timeout=_TIMEOUT_SECONDS)
    if "collect" in tools:
        server.add_tool(collect, task="required")
    once: Any = {"once_per": "{order}", "timeout": _TIMEOUT_SECONDS, "declined_for": declined_for}
    if "charge" in tools:
        server.add_tool(charge, **once)
    if "refund" in tools:
        server.add_tool(refund, **once, confirm="Refund {amount} for {order}?")
    if "reserve" in tools:
        server.add_tool(reserve, **once)
    if "restock" in tools:
        server.add_tool(reserve, name="restock", on_unknown="rerun", **once)
    return server
