"""Errors name a question without a name by its wording, to the client; no log or transcript has that wording."""

import logging
import re
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, Field

from roundtrip import Context, Server
from roundtrip.testing import Era, User

pytestmark = pytest.mark.anyio

MARKER = "Dune for 4711"


class Copies(BaseModel):
    copies: int = Field(ge=1)


def shop(**options: Any) -> Server[Any]:
    server = Server[Any]("shop", **options)

    @server.tool()
    async def order(ctx: Context) -> str:
        answer = await ctx.elicit(f'How many of "{MARKER}"?', Copies)
        return answer.action

    return server


WORDS = r'question "How many of \"Dune for 4711\"?"'


async def test_rejected_answer_names_the_words_of_its_question(
    era: Era, caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    caplog.set_level(logging.DEBUG, "roundtrip")
    caplog.set_level(logging.DEBUG, "mcp.server.mcpserver")
    server = shop(trace=str(tmp_path / "calls.jsonl"))
    call = await User(server, too_few(), era=era).call("order")
    assert call.is_error
    assert f"{WORDS} was answered invalidly 3 times" in call.text
    assert "unnamed-" not in call.text
    assert MARKER not in caplog.text
    assert MARKER not in (tmp_path / "calls.jsonl").read_text()


def too_few() -> Any:
    return {re.compile("How many"): [{"copies": 0}] * 3}


async def test_unaskable_client_is_told_the_question_text(era: Era) -> None:
    with pytest.raises(MCPError) as rejected:
        await User(shop(), era=era, lacks=["elicitation"]).call("order")
    assert rejected.value.error.message.endswith(WORDS)


async def test_swallowed_suspension_names_the_words() -> None:
    server = Server[Any]("shop")

    @server.tool()
    async def order(ctx: Context) -> str:
        try:
            await ctx.elicit("How many? " + "x" * 100, Copies)
        except BaseException:  # noqa: BLE001
            return "went on"
        return "done"

    call = await User(server, era=Era.RETRY).call("order")
    assert f'the exception with which "How many? {"x" * 70}..." ended the leg' in call.text
