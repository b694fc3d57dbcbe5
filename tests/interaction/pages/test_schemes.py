"""Pages lead to web addresses, in every way of asking."""

from typing import Any

import pytest

from roundtrip import Context, Server
from roundtrip.testing import Era
from tests.kit.players import text_of
from tests.kit.visitors import Visitor, visiting

pytestmark = pytest.mark.anyio


def shop() -> Server[Any]:
    server = Server[Any]("shop")

    @server.tool()
    async def visit(ctx: Context, url: str) -> str:
        """Visit a page."""
        return (await ctx.elicit_url("Look at this.", url, "an-id")).action

    @server.tool()
    def visit_plain(ctx: Context, url: str) -> str:
        """Visit a page."""
        return ctx.blocking.elicit_url("Look at this.", url).action

    @server.tool()
    async def open_app(ctx: Context) -> str:
        """Open an app."""
        return (await ctx.elicit_url("Look at this.", "myapp://login", schemes=["myapp"])).action

    return server


@pytest.mark.parametrize(("tool", "era"), [("visit", Era.LIVE), ("visit_plain", Era.RETRY)])
async def test_script_address_is_never_sent_as_a_page(tool: str, era: Era) -> None:
    visitor = Visitor()
    async with visiting(shop(), era, visitor) as client:
        result = await client.call_tool(tool, {"url": "javascript:alert(1)"})
    assert result.is_error
    assert "must begin with https: or http:" in text_of(result)
    assert "alert" not in text_of(result)
    assert visitor.pages == []


async def test_a_scheme_that_the_author_allows_is_sent(era: Era) -> None:
    visitor = Visitor("accept")
    async with visiting(shop(), era, visitor) as client:
        assert text_of(await client.call_tool("open_app", {})) == "accept"
    assert [page.url for page in visitor.pages] == ["myapp://login"]
