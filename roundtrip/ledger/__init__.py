"""Ledgers: they record which bodies have run, so that no body runs twice."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from roundtrip.ledger.contract import ClaimAnswer, ClaimStatus, Ledger, LedgerDown, Reach
from roundtrip.on_demand import load_public_name

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
    # `import *` must work even if an optional package is not installed.
    for _name, _package in (("PostgresLedger", "asyncpg"), ("RedisLedger", "redis")):
        if find_spec(_package) is None:
            __all__.remove(_name)

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
