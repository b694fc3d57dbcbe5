"""Tasks that ask, for the pages of an operator."""

from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import anyio

from tests.interaction.tasks import workshops
from tests.kit.peer import peers

__all__ = ["asked", "begin", "finish", "run"]

T = TypeVar("T")


def run(work: Callable[[], Awaitable[T]]) -> T:
    """Run asynchronous work in a thread, as the loop of playwright's synchronous interface runs in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(anyio.run, work).result()


async def begin() -> tuple[str, str]:
    """Make two tasks that ask, and return their ids."""
    async with peers(workshops.shop()) as (peer,):
        cancelled = (await peer.call("build", secret="this"))["taskId"]
        kept = (await peer.call("ask_twice"))["taskId"]
        await peer.asked(cancelled, "size")
        await peer.asked(kept, "a")
        return kept, cancelled


async def asked(task: str, key: str) -> None:
    """Wait until a task asks."""
    async with peers(workshops.shop()) as (peer,):
        await peer.asked(task, key)


async def finish(*tasks: str) -> list[dict[str, Any]]:
    """Return tasks when they have ended."""
    async with peers(workshops.shop()) as (peer,):
        return [await peer.until(task) for task in tasks]
