"""Calls of the server written by hand, and how each ends if nothing goes wrong."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from mcp.server.lowlevel import Server

from roundtrip.testing import Conversation, Eavesdrop, Network, User
from roundtrip.testing.chosen import NETWORKS
from tests.interaction.testing.networks.hand_made import SECRET

__all__ = ["ANSWERS", "HONEST", "call", "honest"]

ANSWERS: Final[dict[str, dict[str, Any]]] = {
    "book": {"seat": "back", "snack": "nuts"},
    "review": {"stars": 4, "words": "quite long"},
    "transfer": {"sender": "ada", "receiver": "eve"},
    "greet": {},
}
HONEST: Final = {
    "book": "book: back, nuts, number 1",
    "review": "review: 4, quite long, number 1",
    "transfer": "transfer: eve, ada, number 1",
    "greet": "hello",
}


async def call(
    make: Callable[..., Server[Any]] | Server[Any] | Sequence[Server[Any]],
    tool: str,
    *network: Network,
    **options: Any,
) -> Conversation:
    arguments = {} if tool == "greet" else {"film": "Solaris"}
    user = User(make, ANSWERS[tool], network=network, principal="ada", **options)
    return await user.call(tool, arguments)


def honest(name: str) -> Network:
    """Return a network that works in front of a server without tracers."""
    return Eavesdrop([SECRET]) if name == "eavesdrop" else NETWORKS[name]()
