"""Limit the bytes that entries take up in the memory of one process, and those of each account."""

from roundtrip.ledger.contract import LedgerDown


class MemoryRoom:
    """Room for entries in memory. An account gets no new entry while its entries are as large as the free room.

    Args:
        max_bytes: The approximate limit of the size of all entries.
        kind: What the entries are, for errors.
        age: The option of a tool by which entries end sooner.
    """

    def __init__(self, max_bytes: int, *, kind: str, age: str) -> None:
        self._max_bytes = max_bytes
        self._kind = kind
        self._cure = (
            f"give the server a SqliteLedger, RedisLedger or PostgresLedger, its tools a shorter {age}, or "
            "MemoryLedger(max_bytes=...) more room"
        )
        self._bytes = 0
        self._account_bytes: dict[str, int] = {}

    def resize(self, account: str | None, change: int) -> None:
        """Note that the entries of an account have grown by some bytes, or have shrunk."""
        self._bytes += change
        if account is not None:
            held = self._account_bytes[account] = self._account_bytes.get(account, 0) + change
            if not held:
                del self._account_bytes[account]

    def require(self, account: str | None, *, entries: int) -> None:
        """Check that there is room for a new entry.

        Args:
            account: Its owner.
            entries: The number of entries, for the error.

        Raises:
            LedgerDown: There is none.
        """
        if self._bytes >= self._max_bytes:
            raise LedgerDown(
                f"the ledger in memory is full, with {entries} {self._kind}, of about {self._bytes} bytes; {self._cure}"
            )
        held = self._account_bytes.get(account, 0) if account is not None else 0
        if held >= self._max_bytes - self._bytes:
            raise LedgerDown(
                "the ledger in memory has no more room for one caller (or one tool, if its callers are not "
                f"authenticated), which holds about {held} of {self._max_bytes} bytes; the rest is for others; "
                f"{self._cure}"
            )
