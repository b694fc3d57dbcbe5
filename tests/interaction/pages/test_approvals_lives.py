"""Approvals together with tasks, tools that run once, reviews, questions and other approvals."""

import re
from collections.abc import Callable
from typing import Annotated, Any
from uuid import uuid4

import pytest
from pydantic import Field

from roundtrip import Approval, Approve, Context, Elicit, Resolve, Server, after
from roundtrip.testing import Approver, Era, User
from tests.kit.approving import shop

pytestmark = pytest.mark.anyio

FAY = {"authorization": "Bearer token-of-fay"}
SAM = {"authorization": "Bearer token-of-sam"}
RUNS: list[str] = []
LIVES: list[tuple[str, Era, dict[str, Any]]] = [
    ("confirmation", Era.RETRY, {"task": after(1)}),
    ("confirmation", Era.LIVE, {"exactly_once": True}),
    ("confirmation", Era.TASK, {"task": "required"}),
    ("resolver", Era.RETRY, {"exactly_once": True}),
    ("resolver", Era.LIVE, {"task": True}),
    ("resolver", Era.TASK, {"task": after(1)}),
    ("body", Era.RETRY, {"exactly_once": True}),
    ("body", Era.LIVE, {}),
    ("body", Era.TASK, {"task": "required", "exactly_once": True}),
    ("body", Era.TASK, {"task": True}),
]
"""Each place in each era, and each option in two of them."""


def ann(ctx: Any) -> str:
    return "ann"


def server_with(fn: Callable[..., Any], **options: Any) -> Server[Any]:
    server = shop(principal=ann)
    server.add_tool(fn, name="pay", **options)
    return server


def approver(**more: Any) -> Approver:
    return Approver({"finance": "approve"}, headers=FAY, **more)


def approve_it() -> Approve:
    return Approve("Pay?", by="finance")


@pytest.mark.parametrize(("place", "era", "options"), LIVES, ids=str)
async def test_approval_works_in_every_life(place: str, era: Era, options: dict[str, Any]) -> None:
    RUNS.clear()

    async def confirmed(amount: int) -> str:
        RUNS.append("pay")
        return f"paid {amount}"

    async def resolved(amount: int, approval: Annotated[Approval, Resolve(approve_it)]) -> str:
        RUNS.append(approval.who)
        return f"paid {amount}"

    async def awaited(amount: int, ctx: Context) -> str:
        await ctx.approve("ok", "Pay?", by="finance")
        await ctx.step("pay", lambda: RUNS.append("pay"))
        return f"paid {amount}"

    fn = {"confirmation": confirmed, "resolver": resolved, "body": awaited}[place]
    if place == "confirmation":
        options = {**options, "confirm": Approve("Pay {amount}?", by="finance")}
    fay = approver()
    call = await User(server_with(fn, **options), era=era, approver=fay).call("pay", amount=5)
    assert call.text == "paid 5"
    assert len(RUNS) == len(fay.decided) == 1


@pytest.mark.roundtrip(eras="all")
async def test_review_voids_only_approvals_that_came_after_the_answer(era: Era) -> None:
    async def pay(ctx: Context) -> str:
        await ctx.approve("before", "May we begin?", by="finance")
        amount = await ctx.ask("amount", "How much?", int)
        await ctx.approve("ok", "Pay what was asked for?", by="finance")
        await ctx.review("sure", "Right?", of=["amount"])
        return f"{amount} paid"

    options = {"task": "required"} if era is Era.TASK else {}
    fay, answers = approver(), {"amount": 5, "sure": {"amount": 7}}
    user = User(server_with(pay, **options), answers, era=era, approver=fay, page_headers={"cookie": "user=ann"})
    assert (await user.call("pay")).text == "7 paid"
    again = "Pay what was asked for?"
    assert [one["message"] for one in fay.decided] == ["May we begin?", again, again]


@pytest.mark.roundtrip(eras="all")
async def test_two_groups_decide_side_by_side_after_the_question() -> None:
    def safe() -> Approve:
        return Approve("Safe?", by="safety")

    def size() -> Elicit[int]:
        return Elicit("How many?", int)

    async def pay(
        one: Annotated[Approval, Resolve(approve_it)],
        two: Annotated[Approval, Resolve(safe)],
        size: Annotated[int, Resolve(size)],
    ) -> str:
        return f"{size}: {one.who}, {two.who}"

    fay, sam = approver(), Approver({"safety": "approve"}, headers=SAM)
    call = await User(server_with(pay), {"size": 3}, approver=[fay, sam]).call("pay")
    assert call.text == "3: fay, sam"


@pytest.mark.roundtrip(eras="all")
async def test_plain_body_and_several_in_one_round() -> None:
    def pay(ctx: Context) -> str:
        found = ctx.blocking.ask_all({"first": Approve("First?", by="finance"), "size": Elicit("Size?", int)})
        second = ctx.blocking.approve("second", "Second?", by="finance")
        return f"{found['first'].who}, {second.who}, {found['size']}"

    call = await User(server_with(pay), {"size": 3}, approver=approver()).call("pay")
    assert call.text == "fay, fay, 3"


async def test_body_of_a_server_without_an_inbox_says_what_is_missing() -> None:
    server = Server[Any]("shop", keys=[b"k" * 32])

    @server.tool()
    async def pay(ctx: Context) -> str:
        await ctx.approve("ok", "Pay?", by="finance")
        return "paid"

    call = await User(server).call("pay")
    assert call.is_error
    assert "needs an inbox; give the server approvals=" in call.text


async def test_body_that_waits_longer_than_its_call_lives_says_so() -> None:
    async def pay(ctx: Context) -> str:
        await ctx.approve("ok", "Pay?", by="finance", within=24 * 3600)
        return "paid"

    call = await User(server_with(pay, task=True)).call("pay")
    assert call.is_error
    assert "within= must not exceed its call's lifetime of 3600 s" in call.text
    task = await User(server_with(pay, task=True), era=Era.TASK, approver=approver()).call("pay")
    assert task.text == "paid"


async def test_approval_whose_wording_changes_on_each_leg_ends_the_call() -> None:
    async def pay(amount: int, key: Annotated[str, Field(default_factory=lambda: uuid4().hex)]) -> str:
        return "paid"

    fay = approver()
    call = await User(server_with(pay, confirm=Approve("Pay {amount}?", by="finance")), approver=fay).call(
        "pay", amount=5
    )
    assert call.is_error
    assert "has a different message each time it is asked" in call.text
    assert len(fay.decided) == 3


async def test_approvals_that_reviews_have_made_void_do_not_count_as_changing() -> None:
    async def pay(ctx: Context) -> str:
        amount = await ctx.ask("amount", "How much?", int)
        await ctx.approve("ok", f"Pay {amount}?", by="finance")
        for number in range(4):
            await ctx.review(f"sure{number}", "Right?", of=["amount"])
        return f"{amount} paid"

    reviewed = [{re.compile("Right"): {"amount": amount}} for amount in [2, 3, 4, *[5] * 9]]
    fay, server = approver(), server_with(pay, task="required")
    user = User(server, [{"amount": 1}, *reviewed], era=Era.TASK, approver=fay, allow_unused=True)
    call = await user.call("pay")
    assert call.text == "5 paid"
    assert [one["message"] for one in fay.decided] == [f"Pay {amount}?" for amount in range(1, 6)]
