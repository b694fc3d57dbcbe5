"""A desk whose tools need approvals, and recorded calls of it."""

import json
from typing import Any

import anyio

from roundtrip import Server
from roundtrip.testing import Approver, Era, User
from tests.interaction.trace.deploys import Recording
from tests.kit.waiting import until_plain

DESK = """\
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel
from starlette.requests import Request

from roundtrip import Approval, Approvals, Approve, Context, Elicit, Pages, Resolve, Server
from roundtrip.ledger import SqliteLedger


async def reader(request: Request) -> str | None:
    return request.headers.get("authorization", "").removeprefix("Bearer ") or None


def caller(context: Any) -> str | None:
    from mcp.server.auth.middleware.auth_context import get_access_token

    token = get_access_token()
    return None if token is None else token.subject


server = Server(
    "desk",
    keys=[b"k" * 32],
    ledger=SqliteLedger(Path(__file__).parent / "desk.db"),
    principal=caller,
    pages=Pages(base_url="https://desk.example", authenticate=reader, wait=1),
    approvals=Approvals(groups={"fay": ["finance"], "sam": ["safety"]}),
)


class Reason(BaseModel):
    kind: str


def why(order: str) -> Elicit[Reason]:
    return Elicit(f"Why is {order} refunded?", Reason)


def large(order: str, amount: int) -> Approve | None:
    return Approve(f"Refund {amount} for {order}?", by="finance", within=1800) if amount > 100 else None


def safe(order: str, approval: Annotated[Approval | None, Resolve(large)]) -> Approve:
    return Approve(f"Is {order} safe, {approval.who if approval else None}?", by="safety")


def where(order: str, approval: Annotated[Approval | None, Resolve(large)]) -> Elicit[str]:
    return Elicit(f"Where to, after {approval.who if approval else None}?", str)


@server.tool(exactly_once=True)
async def refund(
    order: str,
    amount: int,
    reason: Annotated[Reason, Resolve(why)],
    approval: Annotated[Approval | None, Resolve(large)],
) -> str:
    by = f", as {approval.who} approved" if approval else ""
    return f"Refunded {amount} for {order} ({reason.kind}){by}"


@server.tool(confirm=Approve("Ship {order}?", by="finance"))
async def ship(order: str, amount: int, safety: Annotated[Approval, Resolve(safe)]) -> str:
    return f"{order} is safe, says {safety.who}"


@server.tool()
async def deliver(order: str, amount: int, where: Annotated[str, Resolve(where)], ctx: Context) -> str:
    approval = await ctx.approve("deliver", f"Deliver {order} to {where}?", by="safety")
    return f"{where}, as {approval.who} approved"


@server.tool(task="required")
async def close(order: str, amount: int, approval: Annotated[Approval | None, Resolve(large)]) -> str:
    return f"closed {order}"
"""
DESK_IN_MEMORY = DESK.replace("SqliteLedger", "MemoryLedger").replace('Path(__file__).parent / "desk.db"', "")
"""The desk for several tests of one project, which share no call."""


ANSWERS: dict[str, Any] = {"why": {"kind": "late"}, "where": "Rome"}


ADA, FAY, SAM = ({"authorization": f"Bearer {name}"} for name in ("ada", "fay", "sam"))


def record(
    recording: Recording,
    tool: str = "refund",
    *,
    era: Era = Era.RETRY,
    decision: Any = "approve",
    reveal: str = "all",
    **more: Any,
) -> Server[Any]:
    """Record one call that needs approvals."""
    server = recording.load(DESK, reveal=reveal)
    approvers = [Approver({"finance": decision}, headers=FAY), Approver({"safety": "approve"}, headers=SAM)]

    async def play() -> None:
        options: dict[str, Any] = {"era": era, "principal": "ada", "approver": approvers, "page_headers": ADA, **more}
        await User(server, ANSWERS, allow_unused=True, allow_error=True, **options).call(tool, order="A1", amount=500)

    anyio.run(play)
    return server


def cut_at_the_approval(recording: Recording) -> None:
    """Leave out the lines after an approval was asked for."""
    # A worker writes the end of the call, which its client may hear of before.
    until_plain(lambda: '"event":"ended"' in recording.file.read_text(), what="the end of the call")
    lines = recording.file.read_text().splitlines(keepends=True)
    waiting = next(json.loads(line)["leg"] for line in lines if '"approvals":[{' in line)
    # The next leg may begin before the line of this one is written.
    recording.file.write_text("".join(line for line in lines if json.loads(line)["leg"] <= waiting))
