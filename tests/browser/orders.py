"""Record calls with real servers: three instances serve an order, with a deploy in the middle."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import anyio

from roundtrip.testing import LegByLeg
from roundtrip.trace.writing.recorder import Recorder
from tests.browser.bookshop import shop
from tests.browser.ui.asking_tasks import run

__all__ = ["record_order"]

_ARGUMENTS: Final = {"title": "Dune"}
_ANSWERS: Final[Sequence[dict[str, Any]]] = (
    {"edition": {"binding": "hardcover"}},
    {"delivery": {"way": "post", "note": "Ring twice"}},
    {"delivery": {"way": "post", "note": "Ring twice"}},
    {"consent": {"agreed": True}},
)


def record_order(path: Path, *, rounds: int = len(_ANSWERS), pause: float = 0.0) -> None:
    """Record an order in five legs; with fewer `rounds` of answers, it waits for the next ones."""
    run(lambda: _order(path, rounds, pause))


async def _order(path: Path, rounds: int, pause: float) -> None:
    servers = [
        shop(_recorder(path, "ash"), tells_postage=False),
        shop(_recorder(path, "birch"), tells_postage=False),
        *[shop(_recorder(path, "cedar"), tells_postage=True)] * 3,
    ]
    hopper = LegByLeg(servers)
    await hopper.leg("order_book", _ARGUMENTS)
    for answers in _ANSWERS[:rounds]:
        await anyio.sleep(pause)
        await hopper.leg("order_book", _ARGUMENTS, answers=answers, state=hopper.token)


def _recorder(path: Path, instance: str) -> Recorder:
    return Recorder(path, reveal="all", instance=instance)
