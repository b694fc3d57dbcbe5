"""Contents of stored calls: their seal, and what a leg leaves when it waits."""

import os

import pytest

from roundtrip.ledger.machines import StoredState
from roundtrip.ledger.tasks import CallEntry
from roundtrip.stored.content import CallContent, CallOrigin, CallSeal, ContentUnreadable, Pause
from roundtrip.tokens.token import KeyRing, Sealer

NOW = 1_000.0


def content() -> CallContent:
    return CallContent(CallOrigin({}, {}, "2026-07-28", None, "s", None), "", is_fresh=False)


def test_content_is_as_sealed_as_its_server() -> None:
    """Who may write to the store, and has no key, cannot replace a content by one without a seal."""
    sealed = CallSeal(Sealer(KeyRing([b"7f" * 16]), purpose=b"seal", entropy=os.urandom), ("k",), "shop")
    plain = CallSeal(None, (), "shop")
    assert sealed.read(sealed.write(content(), "c"), "c") == plain.read(plain.write(content(), "c"), "c") == content()
    for reader, writer in ((sealed, plain), (plain, sealed)):
        with pytest.raises(ContentUnreadable):
            reader.read(writer.write(content(), "c"), "c")


@pytest.mark.parametrize(("pin", "state"), [("same", StoredState.DUE), ("other", StoredState.ASKING)])
def test_leg_that_waits_leaves_a_body_that_has_not_begun(pin: str, state: StoredState) -> None:
    entry = CallEntry("c", "pay", NOW, NOW + 100, state=StoredState.DUE, due=NOW, updated=NOW)
    assert entry.claim("worker", NOW, lease=30)
    entry.has_begun = True
    # An answer that came while the leg ran counts if its question is still the same.
    stored = content()
    stored.asked.answers, stored.asked.answered = {"size": {"action": "accept"}}, {"size": "same"}
    stored.pause(Pause("", {"size": ({"method": "elicitation/create"}, pin)}, None, ()), entry, NOW, delivered=())
    assert (entry.state, entry.has_begun, entry.tries, entry.holder) == (state, False, 0, "")
