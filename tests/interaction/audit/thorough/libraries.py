"""The tools of the other libraries on FastMCP, as its documentation says, and all libraries by name."""

from collections.abc import Callable
from importlib.metadata import version
from typing import Final

from fastmcp import Context as FastContext
from fastmcp import FastMCP
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp_tasks import TasksExtension
from mcp.server.request_state import RequestStateSecurity
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from pydantic import BaseModel
from starlette.types import ASGIApp

from tests.interaction.audit.libraries import KEY, TTL, Seat, Snack, Sure, numbering, of_roundtrip, of_sdk

__all__ = ["LIBRARIES", "ONCE", "TASKS", "of_fastmcp"]


def of_fastmcp() -> ASGIApp:
    """Make the server with the guard pattern, FastMCP's way to ask on 2026-07-28."""
    numbered = numbering()
    badges = StaticTokenVerifier({f"app/{user}": {"client_id": user, "scopes": []} for user in ("ada", "eve")})
    security = RequestStateSecurity(keys=[KEY], ttl=TTL)
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
