"""Tools over stdio: messages and progress reach the client, and there is no session."""

import pytest

from roundtrip.testing import Era
from tests.interaction.server.desk import ENTRIES, Log, desk
from tests.kit.hosts import stdio
from tests.kit.players import connect

pytestmark = pytest.mark.anyio


async def test_stdio_has_messages_and_progress_but_no_session(era: Era) -> None:
    log = Log()
    seen: list[float] = []

    async def watch(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with connect(stdio(desk), era, logging_callback=log, log_level="debug") as client:
        await client.call_tool("talk_in_a_thread", {}, progress_callback=watch)
        whose = (await client.call_tool("whose", {})).structured_content
    assert log.entries == ENTRIES
    assert seen == [1, 2]
    assert whose == {"client": None, "session": None}
