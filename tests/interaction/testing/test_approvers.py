"""Scripted people who decide the approvals of a scripted user's calls."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from roundtrip import Server
from roundtrip.testing import Approver, Era, User, served
from tests.interaction.pages.approving import shop

pytestmark = pytest.mark.anyio

FAY = {"authorization": "Bearer token-of-fay"}
SAM = {"authorization": "Bearer token-of-sam"}


def bookshop() -> Server[Any]:
    def ann(ctx: Any) -> str:
        return "ann"

    return shop(principal=ann)


@pytest.mark.roundtrip(eras="all")
async def test_approver_approves_in_every_era() -> None:
    fay = Approver({"finance": ("approve", "fine")}, headers=FAY)
    call = await User(bookshop(), approver=fay).call("refund_all", order="Emma")
    assert call.text == "refunded Emma, as fay says: fine"
    assert [one["message"] for one in fay.decided] == ["Refund all of Emma?"]


@pytest.mark.roundtrip(eras="all")
async def test_approver_rejects_in_every_era() -> None:
    fay = Approver({re.compile("Refund 3"): ("reject", "no receipt")}, headers=FAY)
    call = await User(bookshop(), {"how_much": 3}, approver=fay).call("partly", order="Emma")
    assert call.text == "rejected by fay: no receipt"
    assert [question.message for question in call.questions] == ["How much of Emma?"]


async def test_several_approvers_decide_a_task() -> None:
    def decide(approval: Mapping[str, Any]) -> Any:
        return "approve" if approval["message"] == "Close 2025?" else None

    approvers = [Approver(decide, headers=FAY), Approver({"safety": "approve"}, headers=SAM)]
    call = await User(bookshop(), era=Era.TASK, approver=approvers).call("close_books", year=2025)
    assert call.text == "2025: fay, sam"


async def test_rejection_without_a_reason_of_the_test_fails_the_call() -> None:
    fay = Approver({"finance": "reject"}, headers=FAY)
    call = await User(bookshop(), approver=fay).call("refund", amount=5)
    assert call.is_error
    assert "was rejected" in call.text


async def test_approver_without_a_login_is_reported() -> None:
    stranger = Approver({"finance": "approve"}, headers={})
    with pytest.raises(AssertionError, match="cannot open the inbox: 401"):
        await User(bookshop(), approver=stranger).call("refund", amount=5)


async def test_approver_decides_at_an_address() -> None:
    fay = Approver({"finance": "approve"}, headers=FAY)
    async with served(bookshop()) as url:
        call = await User(url, approver=fay).call("refund", amount=5)
    assert call.text == "refunded 5"
