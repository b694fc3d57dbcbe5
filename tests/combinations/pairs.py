"""Truth table of a leg: what each two features of a tool do together, for each kind of client.

`python -m tests.combinations.pairs` makes the stored table again.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio

from roundtrip.ledger.tasks import HasCallStore
from roundtrip.testing import Era
from tests.combinations.environment import Environment
from tests.combinations.features import FEATURES
from tests.combinations.rows import HONEST, Row

__all__ = ["CLIENTS", "FEATURES", "QUICK", "STORED", "cells"]

STORED: Final = Path(__file__).with_name("pairs.json")
CLIENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "2026": {"era": Era.RETRY},
    "2025": {"era": Era.LIVE},
    "2026 with tasks": {"era": Era.TASK},
    "2026 with links": {"era": Era.RETRY, "client": "links"},
    "2026 without forms": {"era": Era.RETRY, "client": "nothing"},
    "2025 without forms": {"era": Era.LIVE, "client": "nothing"},
}
QUICK: Final = ("2026", "2025")
"""The clients of the first tier: their users see no pages."""
_MOST_STORED: Final = 10
_ENVIRONMENT: Final[Mapping[str, Any]] = {
    "kind": "tool",
    "over": "memory",
    "instances": "one",
    "ledger": "memory",
    "subject": "ada",
    "trace": "off",
    "errors": "shown",
    "network": HONEST,
}


async def cells(client: str, first: str) -> dict[str, str]:
    """Return what a feature does alone, and with each of the features after it."""
    names = list(FEATURES)
    found = {"alone": await _cell(client, first)}
    for second in names[names.index(first) + 1 :]:
        found[second] = await _cell(client, first, second)
    return found


async def _cell(client: str, *features: str) -> str:
    """Make one call, and count what its client, its token and its body have seen."""
    with TemporaryDirectory() as folder:
        row = Row(features=features, **_ENVIRONMENT, **CLIENTS[client])
        environment = Environment(row, Path(folder), lambda name: name)
        try:
            call = await environment.call(environment.user())
            ledger = environment.ledger
            assert isinstance(ledger, HasCallStore)
            stored = await ledger.tasks.list(limit=_MOST_STORED)
        finally:
            await environment.aclose()
    counts = {
        "legs": call.legs,
        "tokens": sum(token is not None for token in call.tokens),
        "questions": len(call.questions),
        "stored calls": len(stored),
        "approvals": len(call.approvals),
        "links": len(call.link_results),
        "bodies": environment.agency.booked.total(),
        "steps": environment.agency.counted["reservations"],
    }
    end = call.failure or (call.states[-1] if call.states else "not traced")
    return f"{', '.join(f'{count} {what}' for what, count in counts.items() if count)}; {end}"


async def _store() -> None:
    table = {client: {first: await cells(client, first) for first in FEATURES} for client in CLIENTS}
    STORED.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    anyio.run(_store)
