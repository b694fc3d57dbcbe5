"""The drawings of tools show the source of each parameter, and stay valid with any names."""

import re
from typing import Annotated, Any, Literal

from mcp_types import CreateMessageResult, ListRootsResult
from pydantic import BaseModel, Field
from starlette.requests import Request

from roundtrip import (
    Approval,
    Approvals,
    Approve,
    Context,
    Elicit,
    ElicitationResult,
    ElicitUrl,
    ListRoots,
    Pages,
    Resolve,
    Sample,
    Server,
)
from roundtrip.trace.drawings.machine import Format
from roundtrip.trace.drawings.plans import draw_plans
from tests.kit.tables import check_each


class Consent(BaseModel):
    agreed: bool


def price(title: str, ctx: Context) -> float:
    return len(title) + len(ctx.request_id)


def consent(price: Annotated[float, Resolve(price, remember=True)]) -> Elicit[Consent]:
    return Elicit(f"{price}?", Consent)


def opinion() -> Sample:
    return Sample("Is it good?", max_tokens=5)


def roots() -> ListRoots:
    return ListRoots()


def shop() -> Server[Any]:
    server: Server[Any] = Server("shop")

    @server.tool()
    def order(title: str, consent: Annotated[ElicitationResult[Consent], Resolve(consent, name='ok "yes" <b>')]) -> str:
        return f"{title} {consent}"

    @server.tool()
    def review(
        opinion: Annotated[CreateMessageResult, Resolve(opinion)], roots: Annotated[ListRootsResult, Resolve(roots)]
    ) -> str:
        return f"{opinion} {roots}"

    @server.tool()
    def close() -> str:
        return "closed"

    del order, review, close
    return server


def draw(format: Format, *tools: str) -> str:
    plans = shop().internals.plans
    return draw_plans({tool: plans[tool] for tool in tools or plans}, format)


def test_approval_is_drawn_as_a_question_to_a_group() -> None:
    def large(amount: int) -> Approve:
        return Approve(f"Refund {amount}?", by="finance")

    async def reader(request: Request) -> str | None:
        return None

    pages = Pages(base_url="https://shop.example", authenticate=reader)
    server = Server[Any]("shop", principal=lambda _: "ada", pages=pages, approvals=Approvals(groups={}))

    @server.tool()
    def refund(amount: int, approval: Annotated[Approval, Resolve(large)]) -> str:
        return f"{amount} {approval}"

    del refund
    assert "large: asks a group to approve\n" in draw_plans({"refund": server.internals.plans["refund"]}, Format.TEXT)


def test_text_lists_the_tool_before_its_requirements() -> None:
    assert (
        draw(Format.TEXT)
        == """\
order
    consent <- ok "yes" <b> (outcome)
price: once per call
    title   <- title (argument)
    ctx     <- Context
ok "yes" <b>: consent, asks the user for Consent
    price   <- price

review
    opinion <- opinion
    roots   <- roots
opinion: asks the client's model
roots: asks for the client's roots

close
    (no resolver fills a parameter)"""
    )


def test_graphs_quote_names_and_join_boxes_that_are_drawn() -> None:
    def check(format: Format, keyword: str, arrow: str, quoted: list[str]) -> None:
        one, all_tools = draw(format, "order"), draw(format)
        assert [text for text in quoted if one.count(text) != 1] == []
        assert "subgraph" not in one
        assert all_tools.startswith(keyword)
        assert all_tools.count(keyword) == 1
        assert len(re.findall(r"^ +subgraph ", all_tools, re.MULTILINE)) == 3
        boxes = set(re.findall(r"^ +(t\d+\w*)[\[({ ]+(?!-)", all_tools, re.MULTILINE))
        lines = re.findall(rf"^ +(t\d+\w*) (?:{arrow})(?:\|.*\|)? (t\d+\w*)", all_tools, re.MULTILINE)
        assert len(lines) == 6
        assert {end for line in lines for end in line} <= boxes

    mermaid = [
        '"price<br/>once per call"',
        '"ok &quot;yes&quot; &lt;b&gt;<br/>consent, asks the user for Consent"',
        '-.->|"consent (outcome)"| t0',
    ]
    dot = [
        r'label="ok \"yes\" <b>\nconsent, asks the user for Consent"',
        'label="consent (outcome)", style=dashed',
    ]
    check_each(
        [(Format.MERMAID, "flowchart LR\n", r"-+>|-\.->", mermaid), (Format.DOT, "digraph tools {\n", "->", dot)], check
    )


def test_aliased_argument_is_drawn_under_its_function_name() -> None:
    server: Server[Any] = Server("shop")

    def shout(title: str) -> str:
        return title.upper()

    @server.tool()
    def order(title: Annotated[str, Field(alias="book-title")], loud: Annotated[str, Resolve(shout)]) -> str:
        return title + loud

    del order
    assert "title <- title (argument)" in draw_plans(server.internals.plans, Format.TEXT)
    assert re.search(r'^    t0_a0\(\["title<br/>', draw_plans(server.internals.plans, Format.MERMAID), re.MULTILINE)


def test_pages_and_choices_are_drawn_as_such() -> None:
    def check(returns: Any, told: str) -> None:
        assert f"login: {told}" in drawn(returns)

    page, question = "sends the user to a page", "asks the user"
    choices = (Elicit[Literal["a", "b"]], Elicit[list[Literal["a", "b"]]], Elicit)
    check_each([(ElicitUrl[str], page), (ElicitUrl, page), *((choice, question) for choice in choices)], check)


def drawn(returns: Any) -> str:
    server: Server[Any] = Server("shop")

    async def login() -> Any:
        raise NotImplementedError

    login.__annotations__["return"] = returns

    @server.tool()
    def order(account: Annotated[Any, Resolve(login)]) -> str:
        return str(account)

    del order
    return draw_plans(server.internals.plans, Format.TEXT)
