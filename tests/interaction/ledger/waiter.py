"""A process that waits for a call which another process runs."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio

from roundtrip.ledger import Ledger, RedisLedger, SqliteLedger, waiting
from tests.kit.waiting import WAIT

__all__ = ["connected", "wait_for_call", "without_looks"]

_NEVER: Final = 3600.0

SetAttribute = Callable[[Any, str, Any], object]


def connected(address: str) -> Ledger:
    """Return a ledger of this process: on Redis for a URL, else in a file."""
    return RedisLedger(address) if "://" in address else SqliteLedger(address)


def without_looks(set_attribute: SetAttribute, report: Callable[[], object]) -> None:
    """Let only announcements end a wait, and report each time that a leg begins to wait for one."""
    changed = waiting._changed  # pyright: ignore[reportPrivateUsage]

    async def reported(watch: Any, seconds: float) -> None:
        report()
        await changed(watch, seconds)

    set_attribute(waiting, "_LOOK_SECONDS", _NEVER)
    set_attribute(waiting, "_changed", reported)


def wait_for_call(arguments: Sequence[str]) -> None:
    """Wait for a call, and print its result or "free"; before that, print a line each time that the wait begins."""
    (address,) = arguments
    without_looks(setattr, lambda: print("waits", flush=True))

    async def wait() -> None:
        ledger = connected(address)
        with anyio.fail_after(WAIT):
            answer = await ledger.wait("call", patience=_NEVER)
        print("free" if answer is None else answer.result, flush=True)
        await ledger.aclose()

    anyio.run(wait)
