"""The same tools on roundtrip, on the SDK's server, and on FastMCP's, each as its documentation says."""

from collections.abc import Callable
from importlib.metadata import version
from itertools import count
from typing import Annotated, Any, Final, Literal

from fastmcp import Context as FastContext
from fastmcp import FastMCP
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp_tasks import TasksExtension
from mcp.server import MCPServer
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import Elicit as SdkElicit
from mcp.server.mcpserver import Resolve as SdkResolve
from mcp.server.request_state import RequestStateSecurity
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import AnyHttpUrl, BaseModel, Field
from starlette.types import ASGIApp

from roundtrip import Context, Elicit, Resolve, Server
from roundtrip.ledger import MemoryLedger
from tests.interaction.pages.web import Badges

__all__ = ["LIBRARIES", "ONCE", "TASKS", "TTL", "of_fastmcp", "of_roundtrip", "of_sdk"]

TTL: Final = 3
_KEY: Final = b"k" * 32
_AUTH: Final = AuthSettings(issuer_url=AnyHttpUrl("https://login.example"), resource_server_url=None)


def _numbering() -> Callable[[str], str]:
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
    numbered = _numbering()
    server = Server[Any](
        "cinema",
        keys=[_KEY],
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
    numbered = _numbering()
    security = RequestStateSecurity(keys=[_KEY], ttl=TTL)
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


def of_fastmcp() -> ASGIApp:
    """Make the server with the guard pattern, FastMCP's way to ask on 2026-07-28."""
    numbered = _numbering()
    badges = StaticTokenVerifier({f"app/{user}": {"client_id": user, "scopes": []} for user in ("ada", "eve")})
    security = RequestStateSecurity(keys=[_KEY], ttl=TTL)
    server = FastMCP("cinema", auth=badges, request_state_security=security)

    async def book(film: str, ctx: FastContext) -> str | InputRequiredResult:
        given = ctx.input_responses or {}
        row = ctx.request_state
        if row is None or row == "seat":
            seat = given.get("seat") if row == "seat" else None
            if not isinstance(seat, ElicitResult):
                return _asking("seat", f"Which row for {film}?", Seat, state="seat")
            if seat.action != "accept":
                return "Not booked."
            row = Seat.model_validate(seat.content).row
            return _asking("snack", f"Which snack in the {row} row?", Snack, state=row)
        snack = given.get("snack")
        if not isinstance(snack, ElicitResult):
            return _asking("snack", f"Which snack in the {row} row?", Snack, state=row)
        if snack.action != "accept":
            return "Not booked."
        return numbered(f"{film}, {row}, {Snack.model_validate(snack.content).name}")

    async def cancel(film: str, ctx: FastContext) -> str | InputRequiredResult:
        sure = (ctx.input_responses or {}).get("sure")
        if not isinstance(sure, ElicitResult):
            return _asking("sure", f"Cancel {film}?", Sure, state="sure")
        return f"{film}: {sure.action == 'accept' and Sure.model_validate(sure.content).yes}"

    async def plan(film: str, ctx: FastContext) -> str | InputRequiredResult:
        given = ctx.input_responses or {}
        if ctx.request_state is None:
            return _asking("seat", f"Which row for {film}?", Seat, state="seat")
        if ctx.request_state == "seat":
            seat = given.get("seat")
            if not isinstance(seat, ElicitResult):
                return _asking("seat", f"Which row for {film}?", Seat, state="seat")
            row = Seat.model_validate(seat.content).row
            return _asking("sure", f"Plan {film} in the {row} row?", Sure, state=row)
        sure = given.get("sure")
        if not isinstance(sure, ElicitResult):
            return _asking("sure", f"Plan {film}?", Sure, state=ctx.request_state)
        return f"{film}, {ctx.request_state}: {Sure.model_validate(sure.content).yes}"

    server.tool(book)
    server.tool(cancel)
    server.tool(plan, task=True)
    server.add_extension(TasksExtension(url="memory://"))
    return server.http_app(stateless_http=True)


def _asking(key: str, message: str, model: type[BaseModel], *, state: str) -> InputRequiredResult:
    schema = model.model_json_schema()
    shapes = {name: {k: v for k, v in shape.items() if k != "title"} for name, shape in schema["properties"].items()}
    form = {"type": "object", "properties": shapes, "required": schema.get("required", [])}
    params = ElicitRequestFormParams(message=message, requested_schema=form)
    return InputRequiredResult(input_requests={key: ElicitRequest(params=params)}, request_state=state)


LIBRARIES: Final[dict[str, Callable[[], ASGIApp]]] = {
    f"roundtrip {version('mcp-roundtrip')}": of_roundtrip,
    f"mcp {version('mcp')} with `Resolve`": of_sdk,
    f"FastMCP {version('fastmcp')} with guards": of_fastmcp,
}
"""The servers, by library, version and way to ask."""

ONCE: Final = {of_roundtrip: frozenset({"book"})}
"""The tools that promise to act once; the other libraries have no such promise."""

TASKS: Final = {of_roundtrip: ("plan",), of_fastmcp: ("plan",)}
"""The tools that run as tasks."""
