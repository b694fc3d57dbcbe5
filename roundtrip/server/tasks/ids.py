"""Make and verify the ids of tasks."""

import hashlib
import hmac
from typing import Final

from roundtrip.machine.journal import to_text
from roundtrip.tokens.token import KeyRing

__all__ = ["TaskIds"]

_SECRET_BYTES: Final = 16


class TaskIds:
    """Ids of tasks: the id of the call, and a secret part that is derived from it.

    Ids of calls are in logs and transcripts. Only clients see the secret part, so that reading a log is not enough to
    read a task. Each instance derives the same id, so a call has one handle however often its request is repeated.
    """

    def __init__(self, ring: KeyRing) -> None:
        self._keys = ring.derive(b"task")

    def of(self, call_id: str) -> str:
        """Return the id of the task of a call."""
        return f"{call_id}.{_secret(self._keys[0], call_id)}"

    def call_of(self, task_id: str) -> str | None:
        """Return the call of a task; None for an id that this service has not made."""
        call_id, _, secret = task_id.rpartition(".")
        given = secret.encode("utf-8", "surrogatepass")
        valid = [hmac.compare_digest(_secret(key, call_id).encode(), given) for key in self._keys]
        return call_id if any(valid) else None


def _secret(key: bytes, call_id: str) -> str:
    return to_text(hmac.digest(key, call_id.encode("utf-8", "surrogatepass"), hashlib.sha256)[:_SECRET_BYTES])
