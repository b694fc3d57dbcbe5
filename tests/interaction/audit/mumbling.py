"""A server that answers with values of any type, and an audit of it."""

import random
from typing import Any, Final, cast

from roundtrip.audit.auditing import AuditFailed
from roundtrip.audit.sessions import AuditLimits
from tests.interaction.audit.audits import audited
from tests.interaction.audit.wrong_servers import RightServer

__all__ = ["Mumbles", "survives"]

Json = dict[str, Any]

GARBAGE: Final[list[Any]] = [None, True, -1, 1e308, "", "\x1b[2J", [], [[]], {}, {"a": None}, ["type"]]


class Mumbles(RightServer):
    """Answers with JSON of the right shape and values of any type, as a broken or hostile server does."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed, self.random = seed, random.Random(seed)

    def written(self, answer: Json) -> str:
        # Few lists of tools survive, so some stay as they are.
        is_list = self.seed % 4 and {"serverInfo", "tools"} & answer.get("result", {}).keys()
        return super().written(answer if is_list else self.garbled(answer))

    def garbled(self, value: Any, depth: int = 0) -> Any:
        if depth > 1 and self.random.random() < 0.06:
            return self.random.choice(GARBAGE)
        if isinstance(value, dict):
            return {key: self.garbled(item, depth + 1) for key, item in cast("Json", value).items()}
        if isinstance(value, list):
            return [self.garbled(item, depth + 1) for item in cast("list[Any]", value)]
        return value


async def survives(seed: int) -> None:
    """Audit a server that mumbles, which ends with a report or with a reason."""
    limits = AuditLimits(requests=120, seconds=60, timeout=60, body_bytes=2**18)
    try:
        report = await audited(Mumbles(seed), "book", "plan", limits=limits)
    except AuditFailed:
        return
    assert report.requests <= 120
