"""Tickets: one spelling, one call, one purpose, one person, one end."""

import json
from collections.abc import Iterable

import pytest

from roundtrip.errors import TicketReason, TicketRejected
from roundtrip.machine.journal import to_text
from roundtrip.questions.wire import TICKET
from roundtrip.tokens.tickets import Ticket, TicketOffice
from roundtrip.tokens.token import KeyRing
from tests.kit.raised import raised
from tests.kit.secrets import BORN, NEW, OLD, OTHER, decode

END = BORN + 3600


def office(*keys: bytes) -> TicketOffice:
    return TicketOffice(KeyRing(keys or (NEW,)))


def issued(principal: str | None = "ada", *, call_id: str = "call-1", purpose: str = "login") -> str:
    return office().issue(call_id, purpose, expires=END, principal=principal)


def verified(ticket: str, principal: str | None = "ada", *, now: float = BORN, keys: tuple[bytes, ...] = ()) -> Ticket:
    return office(*keys).verify(ticket, principal=principal, now=now)


def reason(
    ticket: str, principal: str | None = "ada", *, now: float = BORN, keys: tuple[bytes, ...] = ()
) -> TicketReason | None:
    error = raised(verified, ticket, principal, now=now, keys=keys)
    return error.reason if isinstance(error, TicketRejected) else None


def accepted(tickets: Iterable[str]) -> list[str]:
    forged = (TicketReason.SIGNATURE, TicketReason.MALFORMED)
    return [ticket for ticket in tickets if reason(ticket) not in forged]


def test_every_build_makes_the_same_ticket() -> None:
    bound = (
        "rt1.WyJjYWxsLTEiLCJsb2dpbiIsMTcwMDAwMzYwMCwiQ2NvMU94dVhlTnlrYk82X1ItcG9OZyJd"
        ".xAEH4zrXOEnEeD5gHzwPMM221Z_HByG620lfflZf1Fk"
    )
    anonymous = "rt1.WyJjYWxsLTEiLCJsb2dpbiIsMTcwMDAwMzYwMCxudWxsXQ.mAB-pwL5ZFbiMdDP3edKXdndTi5i6cINRXYWbEljUGo"
    assert (issued("ada"), issued(None)) == (bound, anonymous)


def test_a_ticket_fits_into_a_url_as_it_is() -> None:
    for purpose in ("login", "log in & pay: ä/\ud800?"):
        assert TICKET.fullmatch(issued(purpose=purpose))
        assert verified(issued(purpose=purpose)) == Ticket("call-1", purpose)


def test_a_ticket_does_not_tell_whose_it_is() -> None:
    assert b"ada" not in decode(issued().split(".")[1])
    # Nor is one person's mark the same in two calls.
    marks = {json.loads(decode(issued(call_id=call).split(".")[1]))[-1] for call in ("call-1", "call-2")}
    assert len(marks) == 2


def test_a_ticket_ends_with_its_call() -> None:
    assert verified(issued(), now=END - 1) == Ticket("call-1", "login")
    for now in (END, END + 1, END + 1e9):
        assert reason(issued(), now=now) == TicketReason.EXPIRED


def test_keys_are_replaced_while_tickets_are_out() -> None:
    old = office(OLD).issue("call-1", "login", expires=END, principal="ada")
    assert verified(old, keys=(NEW, OLD)) == Ticket("call-1", "login")
    assert office(OLD, NEW).issue("call-1", "login", expires=END, principal="ada") == old
    assert office(NEW, OLD).issue("call-1", "login", expires=END, principal="ada") == issued()
    assert reason(old) == TicketReason.SIGNATURE
    assert reason(issued(), keys=(OTHER,)) == TicketReason.SIGNATURE


def test_a_ticket_has_one_spelling() -> None:
    ticket = issued()
    befores, afters = ("", " ", "\n", "rt1.", "x"), ("", " ", "\n", "=", "==", "!!!!", ".", "\0")
    spellings = {before + ticket + after for before in befores for after in afters}
    for place in range(len(ticket)):
        spellings |= {ticket[:place] + other + ticket[place + 1 :] for other in "A_z09-.é\n"}
    spellings |= {"", ".", "rt1", "rt1..", "rt1.e30." + "A" * 43, "a.b.c", "rt2" + ticket[3:]}
    assert accepted(spellings) == [ticket]


def test_a_ticket_whose_claims_were_rewritten_is_rejected() -> None:
    _, body, signature = issued("eve").split(".")
    claims = json.loads(decode(body))
    claims[-1] = json.loads(decode(issued("ada").split(".")[1]))[-1]
    assert reason(f"rt1.{to_text(json.dumps(claims).encode())}.{signature}") == TicketReason.SIGNATURE


def test_ticket_rejection_logs_the_reason_and_no_ticket() -> None:
    with pytest.raises(TicketRejected, match="another principal") as caught:
        verified(issued(), "bob")
    assert issued() not in str(caught.value)
    assert "ada" not in str(caught.value)


def test_a_ticket_in_another_s_hands_is_worth_nothing() -> None:
    others: dict[str | None, list[str | None]] = {
        "ada": ["bob", "", "Ada", "ada\0", None],
        None: ["ada", ""],
        "\ud800": ["\udc00", None],
    }
    assert {owner: verified(issued(owner), owner) for owner in others} == dict.fromkeys(
        others, Ticket("call-1", "login")
    )
    reasons = {reason(issued(owner), other) for owner, theirs in others.items() for other in theirs}
    assert reasons == {TicketReason.PRINCIPAL}
