"""Every kind of question, and every way to keep the state of a call, under every network."""

from collections.abc import Callable
from typing import Any

import pytest

from roundtrip import Server
from roundtrip.testing import User
from tests.interaction.testing.networks.everything import CALLS, ORDER, encrypted, play, secured

pytestmark = [pytest.mark.anyio, pytest.mark.roundtrip(eras="retry", hostile=True)]


@pytest.mark.parametrize(("tool", "arguments", "answers", "value"), CALLS, ids=[str(call[0::2]) for call in CALLS])
async def test_hostile_network_gives_honest_results(
    tool: str, arguments: dict[str, Any], answers: dict[Any, Any], value: str
) -> None:
    assert await play(tool, arguments, answers) == value


@pytest.mark.parametrize("make", [encrypted, secured])
async def test_state_may_be_stored_anywhere(make: Callable[..., Server[Any]]) -> None:
    call = await User(make, {"confirmation": True}, principal="ada").call("pay", film="Solaris")
    assert call.value == f"{ORDER} True"
