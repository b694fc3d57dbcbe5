"""A ledger whose holders remember their epochs."""

from typing import Any

from roundtrip.ledger import ClaimAnswer, ClaimStatus, Ledger

__all__ = ["EpochKeeper"]


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
