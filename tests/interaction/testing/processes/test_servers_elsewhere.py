"""Scripted users, and explorations, of servers on stdio."""

import os
import re
from typing import Any

import pytest

from roundtrip import Context, Server
from roundtrip.testing import Era, PathAction, PathOutcome, User, paths
from tests.interaction.testing.cinemas import cinema
from tests.kit.hosts import stdio
from tests.kit.shops import server_with

pytestmark = pytest.mark.anyio


async def risk(ctx: Context) -> str:
    if (await ctx.ask_outcome("jump", "Jump?", bool)).action == "decline":
        os._exit(3)
    return "alive"


def mortal() -> Server[Any]:
    return server_with(risk)


async def test_a_server_that_dies_on_a_path_is_an_outcome(era: Era) -> None:
    explored = await paths(stdio(mortal), "risk", era=era, depth=1, limit=3)
    died = [path for path in explored.paths if path.choices[0][1] is PathAction.DECLINE]
    assert [path.outcome for path in died] == [PathOutcome.ERROR]
    assert {path.text for path in explored.paths if path not in died} == {"alive"}


async def test_a_server_on_stdio_is_asked_by_pattern(era: Era) -> None:
    call = await User(stdio(cinema), {re.compile("row for"): "back"}).call("need", film="Solaris")
    assert call.value == {"film": "Solaris", "row": "back"}
    assert call.states is None
    assert call.names == {Era.RETRY: ["seat"], Era.LIVE: [None]}[era]
