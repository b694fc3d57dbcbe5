"""The same tools on roundtrip and on the SDK's server, each as its documentation says."""

from collections.abc import Callable
from itertools import count
from typing import Annotated, Any, Final, Literal

from mcp.server import MCPServer
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import Elicit as SdkElicit
from mcp.server.mcpserver import Resolve as SdkResolve
from mcp.server.request_state import RequestStateSecurity
from pydantic import AnyHttpUrl, BaseModel, Field
from starlette.types import ASGIApp

from roundtrip import Context, Elicit, Resolve, Server
from roundtrip.ledger import MemoryLedger
from tests.interaction.pages.web import Badges

__all__ = ["KEY", "TTL", "Seat", "Snack", "Sure", "numbering", "of_roundtrip", "of_sdk"]

TTL: Final = 3
KEY: Final = b"k" * 32
_AUTH: Final = AuthSettings(issuer_url=AnyHttpUrl("https://login.example"), resource_server_url=None)


def numbering() -> Callable[[str], str]:
    """Return a function that numbers results, so that a second act shows."""
    numbers = count(1)
    return lambda text: f"{text}, number {next(numbers)}"


class Seat(BaseModel):
    row: Literal["front", "middle"] = "middle"


class Snack(BaseModel):
    name: str = Field(min_length=3)


class Sure(BaseModel):
    yes: bool


def of_roundtrip() -> ASGIApp:
    numbered = numbering()
    server = Server[Any](
        "cinema",
        keys=[KEY],
        ttl=TTL,
        auth=_AUTH,
        token_verifier=Badges(),
        ledger=MemoryLedger(),
    )

    def seat(film: str) -> Elicit[Seat]:
        return Elicit(f"Which row for {film}?", Seat)

    def snack(seat: Annotated[Seat, Resolve(seat)]) -> Elicit[Snack]:
        return Elicit(f"Which snack in the {seat.row} row?", Snack)

    def sure(film: str) -> Elicit[Sure]:
        return Elicit(f"Cancel {film}?", Sure)

    @server.tool(exactly_once=True)
    async def book(film: str, seat: Annotated[Seat, Resolve(seat)], snack: Annotated[Snack, Resolve(snack)]) -> str:
        return numbered(f"{film}, {seat.row}, {snack.name}")

    @server.tool()
    async def cancel(film: str, sure: Annotated[Sure, Resolve(sure)]) -> str:
        return f"{film}: {sure.yes}"

    @server.tool(task=True)
    async def plan(film: str, ctx: Context) -> str:
        seat = await ctx.ask("seat", f"Which row for {film}?", Seat)
        sure = await ctx.ask("sure", f"Plan {film} in the {seat.row} row?", Sure)
        return f"{film}, {seat.row}: {sure.yes}"

    return server.streamable_http_app(stateless_http=True)


def of_sdk() -> ASGIApp:
    numbered = numbering()
    security = RequestStateSecurity(keys=[KEY], ttl=TTL)
    server = MCPServer[Any]("cinema", request_state_security=security, auth=_AUTH, token_verifier=Badges())

    def seat(film: str) -> SdkElicit[Seat]:
        return SdkElicit(f"Which row for {film}?", Seat)

    def snack(seat: Annotated[Seat, SdkResolve(seat)]) -> SdkElicit[Snack]:
        return SdkElicit(f"Which snack in the {seat.row} row?", Snack)

    def sure(film: str) -> SdkElicit[Sure]:
        return SdkElicit(f"Cancel {film}?", Sure)

    async def book(
        film: str, seat: Annotated[Seat, SdkResolve(seat)], snack: Annotated[Snack, SdkResolve(snack)]
    ) -> str:
        return numbered(f"{film}, {seat.row}, {snack.name}")

    async def cancel(film: str, sure: Annotated[Sure, SdkResolve(sure)]) -> str:
        return f"{film}: {sure.yes}"

    server.add_tool(book)
    server.add_tool(cancel)
    return server.streamable_http_app(stateless_http=True)
