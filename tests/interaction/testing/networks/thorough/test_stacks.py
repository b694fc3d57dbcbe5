"""Any two networks, one behind the other, find nothing in a server without flaws."""

import pytest

from roundtrip.testing.user_defaults import NETWORKS
from tests.interaction.testing.networks.hand_made import HONEST, Ledger, call, honest, maker

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("outer", NETWORKS)
async def test_a_server_without_flaws_passes_under_any_two_networks(outer: str) -> None:
    for inner in NETWORKS:
        ledger = Ledger()
        conversation = await call(maker(ledger=ledger), "book", honest(outer), honest(inner))
        assert (inner, conversation.text, ledger.booked) == (inner, HONEST["book"], ["book"])
