"""Random tickets, changed at random: the only spelling that verifies is the one that was issued."""

from hypothesis import given, settings
from hypothesis import strategies as st

from roundtrip.errors import TicketRejected
from roundtrip.tokens.tickets import Ticket, TicketOffice
from roundtrip.tokens.token import KeyRing
from tests.kit.tiers import examples

OFFICE = TicketOffice(KeyRing([b"k" * 32]))
NAMES = st.text(max_size=12)
PRINCIPALS = st.one_of(st.none(), NAMES)
SPELLINGS = st.sampled_from("ABCXYZabcxyz0189-_.=!/+ \n\0é٣")


def verified(ticket: str, principal: str | None, *, now: float = 0.0) -> Ticket | None:
    try:
        return OFFICE.verify(ticket, principal=principal, now=now)
    except TicketRejected:
        return None


@st.composite
def mutations(draw: st.DrawFn, ticket: str) -> str:
    """Return a strategy for a ticket with a part replaced, inserted, removed or doubled."""
    start = draw(st.integers(0, len(ticket)))
    end = draw(st.integers(start, min(len(ticket), start + 4)))
    middle = draw(st.one_of(st.text(SPELLINGS, max_size=4), st.just(ticket[start:end] * 2)))
    return ticket[:start] + middle + ticket[end:]


@settings(max_examples=examples(150), deadline=None, database=None)
@given(call_id=NAMES, purpose=NAMES, principal=PRINCIPALS, data=st.data())
def test_a_changed_ticket_never_verifies(
    call_id: str, purpose: str, principal: str | None, data: st.DataObject
) -> None:
    """Shows S12."""
    ticket = OFFICE.issue(call_id, purpose, expires=100, principal=principal)
    assert verified(ticket, principal) == Ticket(call_id, purpose)
    changed = data.draw(mutations(ticket))
    if changed != ticket:
        assert verified(changed, principal) is None


@settings(max_examples=examples(100), deadline=None, database=None)
@given(principal=PRINCIPALS, other=PRINCIPALS, now=st.floats(0, 200))
def test_ticket_verifies_only_for_its_person_and_time(principal: str | None, other: str | None, now: float) -> None:
    """Shows S12."""
    ticket = OFFICE.issue("call", "login", expires=100, principal=principal)
    assert (verified(ticket, other, now=now) is not None) == (other == principal and now < 100)
