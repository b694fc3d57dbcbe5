"""The table of `docs/moving.md`: each feature works on a server class, or is rejected with a reason.

Features that work on all classes have no row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import pytest
from fastmcp import FastMCP
from mcp.server import MCPServer
from mcp.server.lowlevel import Server as LowLevelServer

import roundtrip
from roundtrip import (
    Approval,
    Approvals,
    Approve,
    Context,
    Depends,
    Elicit,
    ElicitUrl,
    InvalidSignature,
    Pages,
    Resolve,
)
from roundtrip.fastmcp import install as install_in_fastmcp
from roundtrip.install import bind, install
from roundtrip.ledger import MemoryLedger
from roundtrip.testing import ACCEPT, Approver, Era, User
from tests.interaction.adapters.seats import Seats, ask_seats

pytestmark = pytest.mark.anyio

PAGE: Final = Path(__file__).parents[3] / "docs" / "moving.md"
WORKS: Final = "works"


async def by_resolver(film: str, seats: Annotated[Seats, Resolve(ask_seats)]) -> int:
    return seats.seats


async def in_body(film: str, ctx: Context) -> int:
    return await ctx.ask("seats", "How many?", int)


def blocking(film: str, ctx: Context) -> int:
    return ctx.blocking.ask("seats", "How many?", int)


async def by_dependency(film: str, ctx: Context, price: int = Depends(lambda: 3)) -> int:
    return price


async def by_once(film: str, fixed: Annotated[int, Resolve(lambda: 3, remember=True)], ctx: Context) -> int:
    await ctx.ask("ok", "Go on?", bool)
    return fixed


async def by_step(film: str, ctx: Context) -> int:
    price = await ctx.step("price", lambda: 3)
    await ctx.ask("ok", "Go on?", bool)
    return price


async def by_review(film: str, ctx: Context) -> int:
    await ctx.ask("seats", "How many?", int)
    return (await ctx.review("ok", "Right?", of=["seats"]))["seats"]


async def by_page(film: str, ctx: Context) -> int:
    return await ctx.ask("pay", ElicitUrl("Pay.", "https://shop.example/pay", done=lambda: 3, wait=0))


async def by_sample(film: str, ctx: Context) -> int:
    return len((await ctx.sample("How many?", name="seats")).text)


async def finance_agrees(film: str) -> Approve:
    return Approve(f"Show {film}?", by="finance")


async def by_approval(film: str, approval: Annotated[Approval, Resolve(finance_agrees)]) -> int:
    return 3


async def plain(film: str) -> int:
    return 3


def optional(fn: Callable[..., Any], **options: Any) -> Callable[[], Any]:
    def make() -> Any:
        async def marked(film: str, ctx: Context) -> int:
            return await fn(film, ctx) if fn is in_body else await fn(film)

        return roundtrip.tool(**options)(marked)

    return make


@dataclass
class Feature:
    make: Callable[[], Any]
    answers: dict[str, Any] = field(default_factory=dict[str, Any])
    install: dict[str, Any] = field(default_factory=dict[str, Any])
    user: Callable[[], dict[str, Any]] = dict
    eras: Sequence[Era] = (Era.RETRY, Era.LIVE)


async def in_body_for_anyone(film: str, ctx: Context) -> int:
    return await ctx.ask("seats", Elicit("How many?", int, answered_by="anyone"))


async def reader(request: Any) -> str | None:
    return request.headers.get("x-user")


def ann(ctx: Any) -> str:
    return "ann"


SEATS: Final = {"seats": 3}
WITH_PAGES: Final[dict[str, Any]] = {
    "pages": Pages(base_url="https://shop.example", authenticate=reader, wait=2),
    "principal": ann,
}
APPROVED: Final[dict[str, Any]] = {**WITH_PAGES, "approvals": Approvals(groups={"fred": ["finance"]})}
LEAVES_FORMS: Final[dict[str, Any]] = {"client": "no-elicitation", "page_headers": {"x-user": "ann"}}


def fred() -> dict[str, Any]:
    return {"approver": Approver({"finance": "approve"}, headers={"x-user": "fred"}), **LEAVES_FORMS}


FEATURES: Final[dict[str, Feature]] = {
    "`Resolve(fn)`": Feature(lambda: by_resolver, {"ask_seats": SEATS}),
    "`Resolve(fn, remember=True)`": Feature(lambda: by_once, {"ok": True}),
    "`Depends(fn)`": Feature(lambda: by_dependency),
    "`ctx.ask`": Feature(lambda: in_body, SEATS),
    "`ctx.blocking.ask`": Feature(lambda: blocking, SEATS),
    "`ctx.step`": Feature(lambda: by_step, {"ok": True}),
    "`ctx.review`": Feature(lambda: by_review, {"seats": 3, "ok": ACCEPT}),
    "`ctx.sample`": Feature(lambda: by_sample, {"seats": "yes"}),
    "`ElicitUrl`": Feature(lambda: by_page, {"pay": ACCEPT}),
    "`confirm=`": Feature(optional(plain, confirm="Sure?"), {"confirm:pay": ACCEPT}),
    "`consent=`": Feature(optional(plain, consent=True), {"confirm:pay": ACCEPT}),
    "`confirm=Approve(...)`": Feature(
        optional(plain, confirm=Approve("Sure?", by="finance")), install=APPROVED, user=fred
    ),
    "`Resolve` of an `Approve`": Feature(lambda: by_approval, install=APPROVED, user=fred),
    "`exactly_once=`": Feature(optional(in_body, exactly_once=True), SEATS),
    "`once_per=`": Feature(optional(in_body, once_per="{film}", scope="service"), SEATS),
    "`timeout=`": Feature(optional(in_body, timeout=30.0), SEATS),
    "`ttl=`, `max_age=`": Feature(optional(in_body, ttl=60.0, max_age=90.0), SEATS),
    "`dependencies=`": Feature(optional(plain, dependencies=[lambda: None])),
    "`title=`, `description=`, `annotations=`": Feature(optional(plain, title="Pay")),
    "`tags=`": Feature(optional(plain, tags=["paid"])),
    "`version=`": Feature(optional(plain, version="2")),
    "`enabled=`": Feature(optional(plain, enabled=lambda: True)),
    "`input_schema=`": Feature(
        optional(plain, input_schema={"type": "object", "properties": {"film": {"type": "string"}}})
    ),
    "`task=`": Feature(optional(plain, task=True), eras=(Era.TASK, Era.RETRY, Era.LIVE)),
    "`install(ledger=...)`": Feature(lambda: in_body, SEATS, {"ledger": MemoryLedger()}),
    "`install(encrypt=True)`": Feature(lambda: in_body, SEATS, {"encrypt": True}),
    "`install(consent=...)`": Feature(lambda: plain, {"confirm:pay": ACCEPT}, {"consent": "destructive"}),
    "`install(pages=...)`": Feature(lambda: in_body, SEATS, WITH_PAGES, lambda: LEAVES_FORMS),
    "`install(channels=...)`": Feature(
        lambda: in_body_for_anyone, SEATS, {"channels": ("form", "model")}, lambda: LEAVES_FORMS
    ),
}


def attach(install: Any, server: Any, feature: Feature) -> None:
    install(server, **{"ledger": MemoryLedger(), **feature.install})


def on_fastmcp(feature: Feature) -> Any:
    mcp = FastMCP[Any]("shop")
    attach(install_in_fastmcp, mcp, feature)
    mcp.tool(feature.make(), name="pay")
    return mcp


def on_mcpserver(feature: Feature) -> Any:
    server = MCPServer[Any]("shop")
    attach(install, server, feature)
    server.tool(name="pay")(feature.make())
    return server


def on_low_level(feature: Feature) -> Any:
    made = feature.make()
    options: Any = {**_given(made), "name": "pay"}
    tools = bind(roundtrip.tool(**options)(partial(made)))
    server = LowLevelServer[Any]("shop", on_list_tools=tools.list_tools, on_call_tool=tools)
    attach(install, server, feature)
    return server


def _given(fn: Any) -> dict[str, Any]:
    from roundtrip.tools.options import spec_of

    return dict(spec_of(fn))


HOSTS: Final = {"FastMCP 4": on_fastmcp, "`MCPServer`": on_mcpserver, "low-level `Server`": on_low_level}


async def cell(feature: Feature, make: Callable[[Feature], Any]) -> str:
    """Return what becomes of a feature on a class of servers."""
    try:
        for era in feature.eras:
            server = make(feature)
            user = User(server, feature.answers, era=era, **feature.user())
            assert (await user.call("pay", film="Dune")).value == 3
    except InvalidSignature as error:
        _, _, reason = str(error).partition(" of roundtrip's @tool ")
        return "no: it " + (reason or str(error).partition("Approve(...) ")[2]).partition(";")[0]
    except TypeError as error:
        return "no: " + str(error).partition("=: ")[2].partition(";")[0]
    return WORKS


async def test_table_of_the_docs_is_true() -> None:
    lines = [f"| feature | {' | '.join(HOSTS)} |", f"|---|{'---|' * len(HOSTS)}"]
    for name, feature in FEATURES.items():
        cells = [await cell(feature, make) for make in HOSTS.values()]
        if set(cells) != {WORKS}:
            lines.append(f"| {name} | {' | '.join(cells)} |")
    table = "\n".join(lines)
    assert table in PAGE.read_text(encoding="utf-8"), f"the table of docs/moving.md should be:\n{table}"


@pytest.mark.parametrize(("attach", "kind"), [(install_in_fastmcp, FastMCP[Any]), (install, MCPServer[Any])])
def test_unknown_option_of_install_is_rejected(attach: Any, kind: Any) -> None:
    for wrong, meant in {"kyes": "keys", "ladder": "channels"}.items():
        with pytest.raises(TypeError, match=f"got an unexpected keyword argument '{wrong}'; did you mean {meant}="):
            attach(kind("shop"), **{wrong: []})
