"""Apps inside the conversation on FastMCP and on the SDK's own class."""

from collections.abc import Callable
from typing import Annotated, Any, Final

import pytest
from fastmcp import FastMCP
from mcp.server import MCPServer

from roundtrip import Elicit, Pages, Resolve
from roundtrip.fastmcp import install as install_in_fastmcp
from roundtrip.install import install
from roundtrip.testing import User
from tests.kit.page_users import BASE, KEY, reader

pytestmark = pytest.mark.anyio


def ann(ctx: object) -> str:
    return "ann"


OPTIONS: Final[dict[str, Any]] = {
    "keys": [KEY],
    "principal": ann,
    "pages": Pages(base_url=BASE, authenticate=reader, wait=5),
}


def of_sdk() -> Any:
    server = MCPServer[Any]("cinema")
    install(server, **OPTIONS)
    return server


def of_fastmcp() -> Any:
    server = FastMCP[Any]("cinema")
    install_in_fastmcp(server, **OPTIONS)
    return server


def how_many(film: str) -> Elicit[int]:
    return Elicit(f"How many for {film}?", int)


@pytest.mark.roundtrip(eras="both")
@pytest.mark.parametrize("kind", ["apps", "app-forms"])
@pytest.mark.parametrize("make", [of_sdk, of_fastmcp])
async def test_scripted_user_answers_in_apps(make: Callable[[], Any], kind: Any) -> None:
    server = make()

    @server.tool()
    async def book(film: str, seats: Annotated[int, Resolve(how_many)]) -> str:
        return f"{seats} for {film}"

    call = await User(server, {"how_many": 3}, client=kind).call("book", film="Solaris")
    assert call.text == "3 for Solaris"
    assert [one.in_app for one in call.questions] == [True]
