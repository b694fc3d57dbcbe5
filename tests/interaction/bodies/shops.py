"""A shop with one tool, `order`, whose body each test defines."""

from collections.abc import Callable
from typing import Any, Final

from roundtrip import Elicit, Server
from tests.kit.shops import KEY

LEFT: Final = Elicit("Left?", int)
RIGHT: Final = Elicit("Right?", int)


def shop(
    body: Callable[..., Any], *, tool: dict[str, Any] | None = None, build: str | None = None, **options: Any
) -> Server[Any]:
    """Make a server whose tool `order` is `body`; `tool` has options of the tool, the others are the server's."""
    server = Server[Any]("shop", keys=[KEY], build=build, **options)
    said: dict[str, Any] = tool or {}
    server.tool(name="order", **said)(body)
    return server
