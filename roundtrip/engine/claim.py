"""The contract between a leg and the ledger. The ledger ensures that a body runs once, even if the call's legs reach
different instances.

A leg with a token claims the call before the leg runs anything. The leg reports the start of its body, and later the
body's result. A suspension releases the claim, because the next leg continues the call.
"""

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeVar

from mcp_types import InputResponse

from roundtrip.engine.computed import NotedValue
from roundtrip.machine.journal import Journal

T = TypeVar("T")

_DIGEST_BYTES: Final = 16


class Claim(Protocol):
    """One leg's claim on its call. The claim is a lease, and only its holder may record how the call ends."""

    noted: list[NotedValue]
    """Values that were computed when this leg ran before."""

    async def hold(self, work: Awaitable[T]) -> T:
        """Await the leg's work, and cancel the work if another leg takes the call over.

        Raises:
            CallTakenOver: Another leg has taken the call over.
        """
        ...

    async def require_held(self) -> None:
        """Check that this leg still has the claim. Call this before any action that must not happen twice.

        Raises:
            CallTakenOver: Another leg has taken the call over.
        """
        ...

    async def start_body(self) -> None:
        """Record that the body begins. If this process dies after that, the call's outcome is unknown.

        Raises:
            CallTakenOver: Another leg has taken the call over.
        """
        ...

    async def note(self, noted: NotedValue) -> None:
        """Save a computed value, in case this leg runs again.

        Raises:
            CallTakenOver: Another leg has taken the call over.
        """
        ...


class RecordedClaim(Claim, Protocol):
    """A claim that also records how its call ended, so that a repeated leg gets the same result."""

    async def begin(self, terms: str, *, at_once: bool, remember: Callable[[], Journal]) -> Any:
        """Claim the call, and return None. If the call has already ended with the same answers, return its result
        instead.

        Args:
            terms: The digest of the client's answers.
            at_once: True if the body is the first code to run.
            remember: Returns everything that the call remembers now.

        Raises:
            RoundtripError: The call must not begin, for example because it has ended with other answers, or because its
                outcome is unknown.
            Exception: The error with which an earlier run ended.
        """
        ...

    async def record(self, outcome: Any) -> None:
        """Record the body's result or error; None if the outcome is unknown and will remain so."""
        ...

    async def suspend(self, computed: Iterable[NotedValue]) -> None:
        """End a leg that has asked, so that the next leg can continue the call. Save the values that it computed."""
        ...

    async def decline(self, reason: str) -> None:
        """End a leg whose user has declined."""
        ...

    async def release(self) -> None:
        """Release the claim, so that the next leg can continue the call."""
        ...


def answers_digest(journal: Journal | None, responses: Mapping[str, InputResponse | None] | None) -> str:
    """Return a digest of all the client's answers. A recorded result is valid only for one set of answers."""
    if journal is None:
        return ""
    given: dict[str, Any] = {key: [int(entry.action), entry.data] for key, entry in journal.entries.items()}
    brought = {
        key: response.model_dump(mode="json", by_alias=True, exclude_none=True) if response is not None else None
        for key, response in (responses or {}).items()
        # If the author asks by hand, the question names are not known here, so keep all answers.
        if key in journal.asked or journal.authored is not None
    }
    text = json.dumps([journal.leg, given, brought], sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()
