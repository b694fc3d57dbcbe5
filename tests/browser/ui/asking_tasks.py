"""Tasks that ask, for the pages of an operator."""

from tests.interaction.tasks import workshops
from tests.kit.peer import peers

__all__ = ["begin"]


async def begin() -> tuple[str, str]:
    """Make two tasks that ask, and return their ids."""
    async with peers(workshops.shop()) as (peer,):
        cancelled = (await peer.call("build", secret="this"))["taskId"]
        kept = (await peer.call("ask_twice"))["taskId"]
        await peer.asked(cancelled, "size")
        await peer.asked(kept, "a")
        return kept, cancelled
