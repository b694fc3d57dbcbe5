"""`roundtrip check` replays the decisions about approvals, and generated tests have an approver."""

import re
from typing import Any

import anyio
import pytest

from roundtrip import Server
from roundtrip.cli import main
from roundtrip.testing import DECLINE, LEAVE, Approver, Era, User
from tests.interaction.trace.deploys import Change, Recording, changed, recording
from tests.interaction.trace.test_check import check, checked
from tests.interaction.trace.test_to_test import Project, project

__all__ = ["project", "recording"]

DESK = """\
from typing import Annotated, Any

from pydantic import BaseModel
from starlette.requests import Request

from roundtrip import Approval, Approvals, Approve, Context, Elicit, Pages, Resolve, Server
from roundtrip.ledger import MemoryLedger


async def reader(request: Request) -> str | None:
    return request.headers.get("authorization", "").removeprefix("Bearer ") or None


def caller(context: Any) -> str | None:
    from mcp.server.auth.middleware.auth_context import get_access_token

    token = get_access_token()
    return None if token is None else token.subject


server = Server(
    "desk",
    keys=[b"k" * 32],
    ledger=MemoryLedger(),
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
    lines = recording.file.read_text().splitlines(keepends=True)
    waits = next(place for place, line in enumerate(lines) if '"approvals":[{' in line)
    recording.file.write_text("".join(lines[: waits + 1]))


@pytest.mark.parametrize(
    ("tool", "era", "decision"),
    [
        ("refund", Era.RETRY, "approve"),
        ("refund", Era.LIVE, "approve"),
        ("refund", Era.RETRY, ("reject", "no receipt")),
        ("ship", Era.RETRY, "approve"),
        ("ship", Era.RETRY, "reject"),
        ("deliver", Era.RETRY, "approve"),
        ("close", Era.TASK, "approve"),
    ],
)
def test_unchanged_code_with_approvals_is_compatible(
    recording: Recording, capsys: pytest.CaptureFixture[str], tool: str, era: Era, decision: Any
) -> None:
    record(recording, tool, era=era, decision=decision)
    assert '"approvals":[{' in recording.file.read_text()
    assert f"{tool}: compatible" in checked(recording, capsys, source=DESK)


def test_open_approval_is_compatible_or_asked_again(recording: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    record(recording)
    cut_at_the_approval(recording)
    assert "refund: compatible" in checked(recording, capsys, source=DESK)
    assert "'large': reworded" in checked(recording, capsys, ("Refund {amount} for", "Pay {amount} for"), source=DESK)
    gone = checked(recording, capsys, ("amount > 100", "amount > 1000"), source=DESK)
    assert "recorded: waits for the approval 'large'\n    now:      runs the body" in gone


@pytest.mark.parametrize(
    ("change", "now"),
    [
        (("Refund {amount} for", "Pay {amount} for"), "now:      'Pay 500 for A1? (decided by 'finance')'"),
        (('for {order}?", by="finance"', 'for {order}?", by="safety"'), "A1? (decided by 'safety')'"),
    ],
)
def test_changed_approval_is_decided_again(
    recording: Recording, capsys: pytest.CaptureFixture[str], change: Change, now: str
) -> None:
    record(recording)
    report = checked(recording, capsys, change, source=DESK)
    assert "refund: asks 1 again" in report
    assert "'large': reworded" in report
    assert now in report


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_dropped_and_new_approvals_diverge(
    recording: Recording, capsys: pytest.CaptureFixture[str], decision: str
) -> None:
    record(recording, decision=decision)
    assert "now:      runs the body" in checked(recording, capsys, ("amount > 100", "amount > 1000"), source=DESK)
    recording.file.unlink()
    server = recording.load(DESK)
    anyio.run(lambda: User(server, {"why": {"kind": "late"}}).call("refund", order="A1", amount=5))
    report = checked(recording, capsys, ("amount > 100", "amount > 1"), source=DESK)
    assert "recorded: runs the body\n    now:      waits for the approval 'large'" in report


def test_check_never_touches_the_stored_call(recording: Recording, capsys: pytest.CaptureFixture[str]) -> None:
    stored = changed(
        DESK,
        (
            "from roundtrip.ledger import MemoryLedger",
            "from pathlib import Path\nfrom roundtrip.ledger import SqliteLedger",
        ),
        ("MemoryLedger()", "SqliteLedger(Path(__file__).parent / 'desk.db')"),
    )
    server = recording.load(stored)

    async def play() -> None:
        user = User(server, {"why": {"kind": "late"}, "page": LEAVE}, principal="ada")
        await user.call("refund", order="A1", amount=500)

    anyio.run(play)
    database = recording.folder / "desk.db"
    before = database.read_bytes()
    assert "refund: compatible" in checked(recording, capsys, source=stored)
    assert database.read_bytes() == before


def test_approval_recorded_without_its_person_is_not_replayed(
    recording: Recording, capsys: pytest.CaptureFixture[str]
) -> None:
    record(recording, reveal="arguments,questions")
    code, out = check(capsys, f"{recording.folder / 'recorded.py'}:server", str(recording.file))
    assert code == 2
    assert "refund: not replayed: recorded without reveal" in out


def filled_in(generated: str) -> str:
    """Fill in the logins of a generated test, by its comments."""
    for name in ("fay", "sam"):
        generated = re.sub(
            rf'(# Fill in the login of "{name}" .*\n\w+: .*= ){{}}',
            lambda found, name=name: f'{found[1]}{{"authorization": "Bearer {name}"}}',
            generated,
        )
    return generated.replace('CALLER = "caller"', 'CALLER = "ada"')


def test_generated_tests_pass_with_the_logins_filled_in(recording: Recording, project: Project) -> None:
    project.serve(DESK, "desk")
    decisions: dict[str, tuple[str, Era, Any]] = {
        "approved": ("refund", Era.RETRY, "approve"),
        "live": ("refund", Era.LIVE, "approve"),
        "reason": ("refund", Era.RETRY, ("approve", 'fine "by" me\n')),
        "rejected": ("refund", Era.RETRY, ("reject", "no receipt")),
        "two": ("ship", Era.RETRY, "approve"),
        "task": ("close", Era.TASK, "approve"),
    }
    for name, (tool, era, decision) in decisions.items():
        recording.file.unlink(missing_ok=True)
        record(recording, tool, era=era, decision=decision)
        generated = project.generate(recording, name=name, server="desk")
        assert "    {},\n" not in generated
        assert "principal=CALLER" in generated
        (project.folder / f"test_{name}.py").write_text(filled_in(generated))
    ended, out = project.run()
    assert ended == {name: {"passed"} for name in decisions}, out
    # Each has this approval. Now the person who decides reads other words.
    project.serve(DESK.replace("Refund {amount} for", "Give {amount} away for"), "desk")
    ended, out = project.run()
    assert ended == {name: {"failed"} for name in decisions}, out
    assert "away for" in out


def test_generated_test_without_logins_says_so(recording: Recording, project: Project) -> None:
    project.serve(DESK, "desk")
    record(recording)
    project.generate(recording, name="call", server="desk")
    ended, out = project.run()
    assert ended == {"call": {"failed"}}
    assert "give Approver headers=" in out


def test_no_test_is_written_without_a_repeatable_decision(
    recording: Recording, project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    for tool, reason in {"deliver": "came after an approval, on a page", "refund": "it waits for an approval"}.items():
        recording.file.unlink(missing_ok=True)
        record(recording, tool)
        if tool == "refund":
            cut_at_the_approval(recording)
        assert main(["trace", "to-test", "last", "--server", "desk:server", str(recording.file)]) == 2
        assert reason in capsys.readouterr().err


def test_call_whose_link_was_declined_waits_for_no_approval(
    recording: Recording, project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.serve(DESK, "desk")
    server = recording.load(DESK, reveal="all")
    answers = {**ANSWERS, "page": DECLINE}
    user = User(server, answers, era=Era.RETRY, principal="ada", page_headers=ADA, allow_unused=True, allow_error=True)
    anyio.run(lambda: user.call("refund", order="A1", amount=500))
    assert main(["trace", "show", "last", str(recording.file)]) == 0
    shown = capsys.readouterr().out
    assert "waits for the approval 'large' by 'finance', but the call ended first\n" in shown
    assert "the call was cancelled" in shown
    assert main(["trace", "to-test", "last", "--server", "desk:server", str(recording.file)]) == 2
    assert "it ended before its approval was decided" in capsys.readouterr().err
