"""Any instance with the key serves any leg: hops, restarts, and a key replaced while calls are in flight."""

import gc
import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from roundtrip.machine.call import Call
from roundtrip.machine.journal import Journal
from roundtrip.testing import Hop, LegByLeg, Steps, User
from roundtrip.testing.networks.fleet import Instance
from tests.kit.bookshop import bookshop

pytestmark = pytest.mark.anyio

OLD, NEW = b"o" * 32, b"n" * 32
ARGUMENTS = {"title": "Neuromancer"}
ROUNDS: list[dict[str, dict[str, Any]]] = [{"confirm_backorder": {"confirm": True}}, {"how_many": {"copies": 2}}]
DONE = "2 x Neuromancer, in 2-3 weeks"


async def ordered(instances: Sequence[Instance]) -> str:
    """Make a whole call, each leg on the next of these instances, and return its text."""
    return (await User(instances, ROUNDS, network=Hop()).call("order", ARGUMENTS)).text


async def test_every_leg_lands_on_another_instance() -> None:
    traces = [Steps() for _ in range(3)]
    assert await ordered([bookshop(trace=trace) for trace in traces]) == DONE
    assert [{step.leg for step in trace.transitions} for trace in traces] == [{1}, {2}, {3}]
    assert len({step.call_id for trace in traces for step in trace.transitions}) == 1


@pytest.mark.parametrize("encrypt", [False, True])
async def test_encrypting_and_signing_instances_share_calls(encrypt: bool) -> None:
    servers = [bookshop(encrypt=encrypt), bookshop(encrypt=not encrypt), bookshop(encrypt=encrypt)]
    assert await ordered(servers) == DONE


async def test_key_is_replaced_in_three_phases_without_losing_calls() -> None:
    phases = [[OLD], [OLD, NEW], [NEW, OLD], [NEW]]
    # In a rollout two neighbouring phases serve side by side; a call may hop between them in either direction.
    for earlier, later in itertools.pairwise(phases):
        for keys in ([earlier, later, earlier], [later, earlier, later]):
            servers = [bookshop(keys=ring) for ring in keys]
            assert await ordered(servers) == DONE


async def test_calls_whose_client_never_comes_back_leave_nothing_behind() -> None:
    """Shows S10."""
    server = bookshop()
    before = alive()
    for _ in range(20):
        await LegByLeg([server]).leg("order", ARGUMENTS)
    assert alive() <= before


def alive() -> int:
    """Return the number of calls and journals in this process."""
    gc.collect()
    return sum(isinstance(thing, Journal | Call) for thing in gc.get_objects())
