"""Provide ledgers, which record the calls whose body has run, so that it runs once."""

from typing import TYPE_CHECKING, Any, Final

from roundtrip.ledger.contract import ClaimAnswer, ClaimStatus, Ledger, LedgerDown, Reach
from roundtrip.on_demand import importable, load_public_name

if TYPE_CHECKING:
    from roundtrip.ledger.memory import MemoryLedger
    from roundtrip.ledger.postgres import PostgresLedger
    from roundtrip.ledger.redis import RedisLedger
    from roundtrip.ledger.sqlite import SqliteLedger

__all__ = [
    "ClaimAnswer",
    "ClaimStatus",
    "Ledger",
    "LedgerDown",
    "MemoryLedger",
    "PostgresLedger",
    "Reach",
    "RedisLedger",
    "SqliteLedger",
]

if not TYPE_CHECKING:
    __all__ = importable(__all__, {"PostgresLedger": "asyncpg", "RedisLedger": "redis"})

    # Most servers need none.
    _HOMES: Final = {
        "roundtrip.ledger.memory": ["MemoryLedger"],
        "roundtrip.ledger.postgres": ["PostgresLedger"],
        "roundtrip.ledger.redis": ["RedisLedger"],
        "roundtrip.ledger.sqlite": ["SqliteLedger"],
    }

    def __getattr__(name: str) -> Any:
        return load_public_name(__name__, name, _HOMES)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
