"""Servers on ports of this machine."""

import signal
from typing import Any

import anyio
import pytest

from roundtrip.testing import User, served
from tests.interaction.testing.cinemas import cinema
from tests.kit.waiting import WAIT

pytestmark = pytest.mark.anyio


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]


async def test_failure_in_a_block_reaches_its_author_and_spoils_nothing() -> None:
    before = handlers()

    async def fail_while_serving() -> None:
        async with served(cinema()) as url:
            assert handlers() == before
            assert (await User(url).call("plain")).value == "nothing asked"
            raise RuntimeError("as it was raised")

    for _ in range(3):
        with pytest.raises(RuntimeError, match="as it was raised"):
            await fail_while_serving()
    async with served(cinema()) as url:
        with anyio.fail_after(WAIT):
            assert (await User(url).call("plain")).value == "nothing asked"
    assert handlers() == before
