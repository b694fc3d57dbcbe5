"""Scripted people who decide the approvals of a scripted user's calls."""

import copy
import re
from collections.abc import Mapping
from typing import Annotated, Any

import anyio
import pytest
from mcp.server.auth.middleware.auth_context import get_access_token

from roundtrip import Approval, Approve, Context, Resolve, Server
from roundtrip.client.legs import LegRequest
from roundtrip.ledger import MemoryLedger
from roundtrip.testing import (
    Approver,
    Drop,
    Era,
    User,
    assert_same_in_all_lives,
    assert_same_on_both_eras,
    served,
)
from roundtrip.testing.networks.deliveries import LegDelivery
from roundtrip.testing.networks.network import Route
from roundtrip.testing.snapshots.texts import call_text
from tests.kit.approving import how_much, large, shop

pytestmark = pytest.mark.anyio

FAY = {"authorization": "Bearer token-of-fay"}
ANN = {"authorization": "Bearer token-of-ann"}
SAM = {"authorization": "Bearer token-of-sam"}


def ann(ctx: Any) -> str:
    return "ann"


def bookshop() -> Server[Any]:
    return shop(principal=ann)


@pytest.fixture
def fay() -> Approver:
    """A person of finance who approves without a word."""
    return Approver({"finance": "approve"}, headers=FAY)


@pytest.mark.roundtrip(eras="all")
async def test_approver_rejects_in_every_era() -> None:
    fay = Approver({re.compile("Refund 3"): ("reject", "no receipt")}, headers=FAY)
    call = await User(bookshop(), {"how_much": 3}, approver=fay).call("partly", order="Emma")
    assert call.text == "rejected by fay: no receipt"
    assert [question.message for question in call.questions] == ["How much of Emma?"]
    assert [(one["message"], one["state"]) for one in call.approvals] == [("Refund 3 of Emma?", "rejected")]


async def test_repeated_leg_may_meet_the_running_call(fay: Approver) -> None:
    server, started, may_end = bookshop(), anyio.Event(), anyio.Event()

    @server.tool(confirm=Approve("Pay?", by="finance"))
    async def pay() -> str:
        started.set()
        await may_end.wait()
        return "paid"

    class Late:
        name = "late"

        async def carry(self, leg: LegRequest, route: Route) -> LegDelivery:
            if route.number == 2:
                await started.wait()
            delivery = await route.onward(leg)
            if route.number == 2:
                may_end.set()
            return delivery

    user = User(server, era=Era.RETRY, client="no-elicitation", network=[Drop(), Late()], approver=fay)
    assert (await user.call("pay")).text == "paid"


async def test_several_approvers_decide_a_task() -> None:
    def decide(approval: Mapping[str, Any]) -> Any:
        return "approve" if approval["message"] == "Close 2025?" else None

    approvers = [Approver(decide, headers=FAY), Approver({"safety": "approve"}, headers=SAM)]
    call = await User(bookshop(), era=Era.TASK, approver=approvers).call("close_books", year=2025)
    assert call.text == "2025: fay, sam"


async def test_approver_without_a_login_is_reported() -> None:
    stranger = Approver({"finance": "approve"}, headers={})
    with pytest.raises(AssertionError, match="cannot open the inbox: 401"):
        await User(bookshop(), approver=stranger).call("refund", amount=5)


@pytest.mark.timeout(20)
async def test_approver_decides_at_an_address_and_at_a_new_text_each_time(fay: Approver) -> None:
    async with served(bookshop()) as url, anyio.create_task_group() as tasks:
        assert (await User(url, approver=fay).call("refund", amount=5)).text == "refunded 5"
        tasks.start_soon(fay.watch, lambda: "".join([*url]))
        later = await User(url, approver=Approver({}, headers=SAM)).call("refund", amount=6)
        assert later.text == "refunded 6"
        tasks.cancel_scope.cancel()


LEDGER, DONE = MemoryLedger(), list[str]()


def warehouse(keys: Any = (b"k" * 32,)) -> Server[Any]:
    server = shop(principal=ann, keys=keys, ledger=LEDGER)

    @server.tool(exactly_once=True)
    async def ship(
        order: str,
        amount: Annotated[int, Resolve(how_much)],
        approval: Annotated[Approval, Resolve(large)],
        ctx: Context,
    ) -> str:
        DONE.append(ctx.call.id)
        return f"shipped {amount} of {order}, as {approval.who} says"

    return server


@pytest.mark.parametrize("client", [None, "links"])
@pytest.mark.roundtrip(hostile=["hop", "duplicate-at-once", "drop", "interleave"])
async def test_approved_tool_runs_once_on_hostile_networks(fay: Approver, client: Any) -> None:
    user = User(warehouse, {"how_much": 3}, approver=fay, client=client, page_headers=ANN)
    call = await user.call("ship", order="Emma")
    assert call.text == "shipped 3 of Emma, as fay says"
    assert len(DONE) == len(set(DONE))


WAITS = r"after 0.5 s, the call still waits for approval 'confirm:refund' by 'finance'"


@pytest.mark.parametrize(
    ("approver", "era", "told"),
    [
        (Approver({"finance": "approve"}, headers=ANN), Era.RETRY, WAITS),
        (Approver({"safety": "approve"}, headers=FAY), Era.LIVE, WAITS),
        (Approver({"finance": "approve"}, headers=SAM), Era.RETRY, WAITS),
        (Approver({"finance": "approve"}, headers=SAM), Era.TASK, "Waits for an approval by finance"),
    ],
    ids=["own", "verdict", "group", "task"],
)
async def test_approval_that_no_approver_decides_fails_the_test(approver: Approver, era: Era, told: str) -> None:
    tool, arguments = ("close_books", {"year": 2025}) if era is Era.TASK else ("refund", {"amount": 5})
    with pytest.raises(AssertionError, match=told):
        await User(bookshop(), approver=approver, patience=0.1, era=era).call(tool, arguments)


@pytest.mark.roundtrip(eras="all")
@pytest.mark.parametrize("client", [None, "no-elicitation"])
async def test_approval_without_an_approver_fails_the_test(client: Any) -> None:
    told = r"after 0.1 s, the call still waits for approval 'confirm:refund' by 'finance': pass User\(approver="
    with pytest.raises(AssertionError, match=told):
        await User(bookshop(), client=client, patience=0.1).call("refund", amount=5)


def subject(ctx: Any) -> str | None:
    token = get_access_token()
    return token.subject if token is not None else None


def desk() -> Server[Any]:
    """Return a shop whose callers are known by their tokens."""
    return shop(principal=subject)


async def test_call_of_a_user_is_compared_in_all_lives() -> None:
    fay = Approver({"finance": ("approve", "fine")}, headers=FAY)
    for compare, times in ((assert_same_on_both_eras, 2), (assert_same_in_all_lives, 3)):
        fay.decided.clear()
        call = await compare(desk, "refund_all", {"order": "Emma"}, approver=fay, principal="ann")
        assert call.text == "refunded Emma, as fay says: fine"
        assert [one["caller"] for one in fay.decided] == ["ann"] * times


async def test_snapshot_has_the_approval_and_all_states() -> None:
    fay = Approver({"finance": ("reject", "no receipt")}, headers=FAY)
    call = await User(bookshop(), {"how_much": 3}, approver=fay).call("partly", order="Emma")
    assert call.states is not None
    assert [state.value for state in call.states[-4:]] == ["resumed", "resolving", "executing", "completed"]
    text = call_text(call)
    assert "approval by finance\n  > Refund 3 of Emma?\n  -> rejected by fay\n    > no receipt\n" in text
    reworded = copy.deepcopy(call)
    reworded.approvals[0]["message"] = "Give 3 of Emma away?"
    assert call_text(reworded) != text
    assert call_text(await User(bookshop(), {"how_much": 3}, approver=fay).call("partly", order="Emma")) == text
