"""What all instances of one service must have in common, for them to serve each other's calls."""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from roundtrip.ledger.contract import Ledger, Reach
from roundtrip.server.keys import Protection
from roundtrip.server.tools.registered import RegisteredTool

__all__ = ["Identity", "identity_of"]


class Identity(NamedTuple):
    """What the instances of a service can be told from those of another by. Nothing of it is secret."""

    name: str
    keys: tuple[str, ...]
    """The hints of the server's keys, the one that signs first; none where an SDK policy brought its own codec."""
    audience: str
    """The service that tokens are for."""
    build: str
    """A digest of the tools: their names, schemas, and the source that they and their resolvers are made of."""
    ledger: str
    """The class of the ledger."""
    reach: Reach
    """Between which processes the ledger holds."""
    exactly_once: bool
    """Whether any tool demands to run once."""
    own_key: bool
    """Whether this process has made its key, so that no other can resume its calls."""


def identity_of(name: str, *, protection: Protection, ledger: Ledger, tools: Iterable[RegisteredTool]) -> Identity:
    """The identity of a server that is made of these."""
    tools = list(tools)
    audience = protection.policy.audience
    return Identity(
        name=name,
        keys=protection.hints,
        audience=audience if audience is not None else name,
        build=_build_of(tools),
        ledger=type(ledger).__name__,
        reach=ledger.reach,
        exactly_once=any(tool.spec.exactly_once for tool in tools),
        own_key=protection.own_key,
    )


def _build_of(tools: Iterable[RegisteredTool]) -> str:
    said = sorted(
        f"{tool.name}@{tool.version or ''}\n{tool.function.build}\n{bool(tool.spec.exactly_once)}\n"
        f"{tool.listing.model_dump_json(by_alias=True, exclude_none=True)}"
        for tool in tools
    )
    return hashlib.sha256("\n\n".join(said).encode()).hexdigest()[:12]
