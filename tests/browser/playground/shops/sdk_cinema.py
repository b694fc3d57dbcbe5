"""A server of the SDK's own class."""

from typing import Annotated, Literal

from mcp.server import MCPServer
from mcp.server.mcpserver import Elicit, Resolve
from pydantic import BaseModel

server = MCPServer("cinema")


class Seat(BaseModel):
    row: Literal["front", "back"]


def choose_seat(film: str) -> Elicit[Seat]:
    return Elicit(f"Which row for {film}?", Seat)


@server.tool()
async def book(film: str, seat: Annotated[Seat, Resolve(choose_seat)]) -> str:
    """Book a seat."""
    row = seat.row
    return f"{film}, {row}"


if __name__ == "__main__":
    server.run()
