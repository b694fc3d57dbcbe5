"""Ledgers: what has been done is written down, so that it is not done twice."""

from typing import TYPE_CHECKING, Any, Final

from roundtrip.ledger.contract import Claim, EntryState, Ledger, LedgerDown, Reach
from roundtrip.ledger.memory import MemoryLedger
from roundtrip.on_demand import load_public_name

if TYPE_CHECKING:
    from roundtrip.ledger.redis import RedisLedger
    from roundtrip.ledger.sqlite import SqliteLedger

__all__ = ["Claim", "EntryState", "Ledger", "LedgerDown", "MemoryLedger", "Reach", "RedisLedger", "SqliteLedger"]

if not TYPE_CHECKING:
    # Every server needs the one in memory.
    _HOMES: Final = {"roundtrip.ledger.redis": ["RedisLedger"], "roundtrip.ledger.sqlite": ["SqliteLedger"]}

    def __getattr__(name: str) -> Any:
        return load_public_name(__name__, name, _HOMES)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
