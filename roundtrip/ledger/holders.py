"""Names of the holders of leases, and the processes that are certainly dead.

A leg holds its lease under a random name. In a worker of `roundtrip serve` or `roundtrip worker`, the name begins with
that of the process, which its supervisor knows. A supervisor that has reaped a worker tells the others its name. From
then on they treat the leases of that process as ended, in every ledger. A process that is only silent keeps its leases
until they end.

These are facts about processes, and not about one server or ledger, so a process keeps them once.
"""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from roundtrip.system import SYSTEM

_PROCESS_BYTES: Final = 12
MAX_BURIED: Final = 64
"""Dead processes that are remembered. The leases of earlier ones have ended meanwhile, or end without help."""

_own: tuple[str, int] | None = None
"""The name of this process, and its id: a forked child has neither the name nor its leases."""
_buried: dict[str, None] = {}
_listeners: dict[object, Callable[[], object]] = {}
_changing: Final = threading.Lock()


def name_process() -> str:
    """Give this process a random name, and return it. The caller sees to it that its death is reported."""
    global _own
    _own = SYSTEM.entropy(_PROCESS_BYTES).hex(), os.getpid()
    return _own[0]


def holder_name(entropy: bytes) -> str:
    """Return the name of a holder in this process."""
    if _own is None or _own[1] != os.getpid():
        return entropy.hex()
    return f"{_own[0]}.{entropy.hex()}"


def bury(process: str) -> None:
    """Treat the leases of a process as ended. Any thread may call it, once the process was reaped by its parent."""
    with _changing:
        _buried[process] = None
        while len(_buried) > MAX_BURIED:
            del _buried[next(iter(_buried))]
        listeners = list(_listeners.values())
    for hear in listeners:
        # The event loop of a listener may have closed.
        with suppress(RuntimeError):
            hear()


def is_buried(holder: str) -> bool:
    """Return True if the process of a holder is certainly dead."""
    return bool(_buried) and "." in holder and holder.partition(".")[0] in _buried


def buried_processes() -> list[str]:
    """Return the names of the processes that are certainly dead."""
    return list(_buried)


def hear_of_deaths(hear: Callable[[], object]) -> Callable[[], None]:
    """Call a function, on any thread, after each death that becomes known. Returns a function that ends it."""
    name = object()
    with _changing:
        _listeners[name] = hear

    def stop() -> None:
        with _changing:
            _listeners.pop(name, None)

    return stop
