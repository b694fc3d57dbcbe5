"""The client of FastMCP drives tasks."""

from typing import Any

import anyio
import pytest
from fastmcp_tasks.client import TasksClientExtension
from mcp.client import Client
from mcp_types import ElicitResult
from pydantic import BaseModel

from roundtrip import Context, Server
from tests.kit.peer import WAIT_SECONDS, peers

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("each_class")]


class Word(BaseModel):
    text: str


async def test_client_of_fastmcp_drives_a_task_that_asks() -> None:
    server = Server[Any]("shop")

    @server.tool(task=True)
    async def work(ctx: Context) -> str:
        await ctx.report_progress(1, 2, "half way")
        word = await ctx.ask("word", "Which word?", Word)
        return word.text

    async def answer(context: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"text": "yes"})

    extensions = [TasksClientExtension(answer)]
    async with (
        peers(server) as (peer,),
        Client(peer.url, mode="2026-07-28", elicitation_callback=answer, extensions=extensions) as client,
    ):
        with anyio.fail_after(WAIT_SECONDS):
            result = await client.call_tool("work", {})
    assert result.content[0].text == "yes"  # type: ignore[union-attr]
