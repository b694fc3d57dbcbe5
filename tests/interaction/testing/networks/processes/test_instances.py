"""Networks in front of instances in processes of their own."""

from typing import Any, cast

import pytest

from roundtrip.testing import Breach, Delay, Duplicate, Hop, Inapplicable, User
from tests.interaction.testing.networks.hand_made import ANSWERS, make, make_forgetful
from tests.kit.hosts import HttpProcess

pytestmark = pytest.mark.anyio


async def test_a_call_is_served_by_processes_in_turn() -> None:
    with HttpProcess() as one, HttpProcess() as other:
        one.start(cast(Any, make))
        other.start(cast(Any, make))
        user = User([one.url, other.url], ANSWERS["book"], network=(Hop(), Duplicate()))
        assert (await user.call("book", film="Solaris")).names == ["seat", "snack"]
        with pytest.raises(Inapplicable, match=r"only in this process: use User\(server\), not User\(url\)"):
            await User([one.url, other.url], ANSWERS["book"], network=Delay()).call("book", film="Solaris")


async def test_processes_that_keep_calls_to_themselves_are_found() -> None:
    with HttpProcess() as one, HttpProcess() as other:
        one.start(cast(Any, make_forgetful))
        other.start(cast(Any, make_forgetful))
        user = User([one.url, other.url], ANSWERS["book"], network=Hop())
        with pytest.raises(Breach, match="another instance did not continue the call"):
            await user.call("book", film="Solaris")
