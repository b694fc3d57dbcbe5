"""Golden transcripts: every message of a call, exactly as it is on the wire, in both eras.

Only what differs from run to run is replaced.
"""

from typing import Any

import pytest
from mcp_types import Root
from pydantic import FileUrl

from roundtrip.testing import DECLINE, User
from roundtrip.testing.snapshots.extension import CallSnapshot
from tests.kit.bookshop import bookshop

pytestmark = [pytest.mark.anyio, pytest.mark.roundtrip(eras="both", over="http")]

CALLS: dict[str, tuple[str, dict[Any, Any]]] = {
    "two-rounds": ("order", {"confirm_backorder": {"confirm": True}, "how_many": {"copies": 2}}),
    "mistake-and-decline": ("order", {"confirm_backorder": [{"confirm": "perhaps"}, DECLINE]}),
    "three-kinds": ("present", {"confirm_backorder": {"confirm": True}, "blurb": "A classic"}),
}


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_has_its_messages(call: str, wire_snapshot: CallSnapshot) -> None:
    tool, answers = CALLS[call]
    user = User(bookshop(), answers, roots=[Root(uri=FileUrl("file:///books"), name="books")])
    assert await user.call(tool, title="Neuromancer") == wire_snapshot
