"""One of several processes that claim the same calls in one file."""

import sys
from collections.abc import Sequence

import anyio

from roundtrip.ledger import SqliteLedger


def contend(arguments: Sequence[str]) -> None:
    """Claim calls after a line was read, and print the state of each."""
    path, holder = arguments

    async def claim_all() -> None:
        ledger = SqliteLedger(path)
        print("ready", flush=True)
        sys.stdin.readline()
        for number in range(20):
            print((await ledger.claim(f"call-{number}", "a", holder=holder, lease=60, keep=60)).status.value)
        await ledger.aclose()

    anyio.run(claim_all)
