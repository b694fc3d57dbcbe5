"""Ledgers of every kind whose holders remember their epochs."""

import itertools
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import pytest

from roundtrip.ledger import (
    ClaimAnswer,
    ClaimStatus,
    Ledger,
    MemoryLedger,
    PostgresLedger,
    RedisLedger,
    SqliteLedger,
)
from tests.kit.programs import needs
from tests.kit.stores import KINDS

__all__ = ["LONG", "EpochKeeper", "claim", "ledger"]

LONG: Final = 60.0
_SCHEMAS: Final = itertools.count()


class EpochKeeper:
    """Ledger that gives each write the epoch of its holder's last claim, unless a test gives another one."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._epochs: dict[tuple[str, str], int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ledger, name)

    async def claim(self, key: str, answers_digest: str, *, holder: str, **more: Any) -> ClaimAnswer:
        answer = await self.ledger.claim(key, answers_digest, holder=holder, **more)
        if answer.status is ClaimStatus.GRANTED:
            self._epochs[key, holder] = answer.epoch
        return answer

    async def renew(self, key: str, *, holder: str, lease: float, epoch: int | None = None) -> bool:
        return await self.ledger.renew(key, holder=holder, epoch=self._epoch(key, holder, epoch), lease=lease)

    async def settle(self, key: str, *, holder: str, epoch: int | None = None, **more: Any) -> bool:
        return await self.ledger.settle(key, holder=holder, epoch=self._epoch(key, holder, epoch), **more)

    async def note(self, key: str, name: str, value: str, *, holder: str, epoch: int | None = None) -> bool:
        return await self.ledger.note(key, name, value, holder=holder, epoch=self._epoch(key, holder, epoch))

    def _epoch(self, key: str, holder: str, given: int | None) -> int:
        return given if given is not None else self._epochs.get((key, holder), 0)


@pytest.fixture(params=[*KINDS, pytest.param("cluster", marks=needs("redis"))])
async def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[EpochKeeper]:
    made: Ledger
    if request.param == "memory":
        made = MemoryLedger()
    elif request.param == "sqlite":
        made = SqliteLedger(tmp_path / "ledger.db", durable=False)
    elif request.param == "redis":
        made = RedisLedger(request.getfixturevalue("redis").url, prefix=request.node.name)
    elif request.param == "postgres":
        made = PostgresLedger(request.getfixturevalue("postgres").url, schema=f"s{next(_SCHEMAS)}")
    else:
        made = RedisLedger(request.getfixturevalue("cluster"), prefix=request.node.name, cluster=True)
    yield EpochKeeper(made)
    await made.aclose()


async def claim(
    ledger: EpochKeeper, key: str = "call", answers_digest: str = "a", holder: str = "one", **more: Any
) -> ClaimAnswer:
    asked: dict[str, Any] = {"holder": holder, "lease": LONG, "keep": LONG, **more}
    return await ledger.claim(key, answers_digest, **asked)
