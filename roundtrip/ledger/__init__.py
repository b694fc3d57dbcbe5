"""Ledgers: what has been done is written down, so that it is not done twice."""

from roundtrip.ledger.contract import Claim, Ledger, LedgerDown, Reach, Standing
from roundtrip.ledger.memory import MemoryLedger
from roundtrip.ledger.redis import RedisLedger
from roundtrip.ledger.sqlite import SqliteLedger

__all__ = ["Claim", "Ledger", "LedgerDown", "MemoryLedger", "Reach", "RedisLedger", "SqliteLedger", "Standing"]
