"""The view of a token shows its content as far as the keys allow, and trusts none of it."""

import json
from dataclasses import replace

import pytest

from roundtrip.errors import RejectionReason
from roundtrip.machine.journal import Action, Computed, to_text
from roundtrip.tokens.binding import audience_digest, principal_digest
from roundtrip.tokens.token import KeyRing
from roundtrip.trace.reading.tokens import Sealed, SignatureCheck, token_data, view_token
from specs.tokens import Vector, read_vectors
from tests.kit.secrets import BORN, NEW, OLD, OTHER, claims, codec, journal, journals, payload
from tests.kit.tables import check_each

SECRET = "the quoted price is 9.50"
FULL = replace(journal(answers=2), computed={"quote": Computed(SECRET)}, authored=None, version="2.0")


FROZEN = read_vectors()


def token_of(*keys: bytes, encrypt: bool = False) -> str:
    return codec(*keys, encrypt=encrypt).seal(payload(FULL, *keys, audience="shop", principal="ann"))


# Without keys.


def test_signed_part_is_readable_and_marked_unchecked() -> None:
    view = view_token(token_of(NEW))
    assert (view.signature, view.reason, view.key) == (SignatureCheck.UNCHECKED, None, None)
    assert view.claims is not None
    assert view.claims.method == "tools/call"
    assert view.claims.audience == audience_digest("shop")
    assert view.claims.principal == principal_digest("ann", bytes(9))
    assert view.journal is not None
    assert (view.journal.written, view.journal.deadline) == (BORN, BORN + 600)
    assert (view.journal.call_id, view.journal.leg, view.journal.round) == ("call-1", 2, 2)
    assert (view.journal.fingerprint, view.journal.build, view.journal.version) == ("f00dab", "b001", "2.0")
    assert [(entry.action, entry.data) for entry in view.journal.entries.values()] == [
        (Action.ACCEPT, {"text": "a" * 10})
    ] * 2
    assert view.journal.asked["confirm"].attempts == 1
    assert view.hint == KeyRing([NEW]).hints()[0]


# With keys.


@pytest.mark.parametrize("encrypt", [False, True], ids=["signed", "encrypted"])
def test_with_its_key_a_token_is_verified_and_opened(encrypt: bool) -> None:
    view = view_token(token_of(OLD, encrypt=encrypt), [NEW, OLD])
    assert (view.signature, view.reason, view.key, view.keys) == (SignatureCheck.VALID, None, 2, 2)
    assert view.sealed is Sealed.OPENED
    assert token_data(view)["sealed"] == {"state": "opened", "computed": {"quote": SECRET}, "author_state": False}


def test_authored_state_is_reported_but_not_shown() -> None:
    token = codec().seal(payload(journal(authored=SECRET)))
    told_of_it = token_data(view_token(token, [NEW]))
    assert told_of_it["sealed"] == {"state": "opened", "computed": {}, "author_state": True}
    assert SECRET not in json.dumps(told_of_it)


def test_part_sealed_with_another_key_cannot_be_opened() -> None:
    token = codec(NEW).seal(payload(FULL, OTHER))
    view = view_token(token, [NEW])
    assert (view.signature, view.sealed, view.reason) == (SignatureCheck.VALID, Sealed.BROKEN, RejectionReason.SEAL)


def test_every_frozen_token_can_be_viewed() -> None:
    def check(vector: Vector) -> None:
        keys = [bytes.fromhex(key) for key in vector.keys]
        view = view_token(vector.token, keys)
        assert view.signature is SignatureCheck.VALID
        assert json.dumps(token_data(view))
        assert view.journal == vector.journal
        assert token_data(view)["journal"]["call"] == vector.journal.call_id

    check_each(FROZEN, check)


# Invalid and hostile tokens.


def test_a_token_that_inflates_hugely_is_not_inflated() -> None:
    bomb = codec().seal(claims() + journals(max_bytes=10_000_000).write(journal(chars=5_000_000), deflate=True))
    assert (view_token(bomb).journal, view_token(bomb).reason) == (None, None)
    assert (view_token(bomb, [NEW]).journal, view_token(bomb, [NEW]).reason) == (None, RejectionReason.OVERSIZED)


def test_hostile_content_is_shown_partially_without_other_errors() -> None:
    def check(body: bytes) -> None:
        view = view_token(f"r3sAAAA.{to_text(body)}.{'A' * 22}")
        assert view.journal is None
        assert json.dumps(token_data(view), allow_nan=False)
        signed = view_token(codec().seal(body), [NEW])
        assert (signed.signature, signed.reason) == (SignatureCheck.VALID, RejectionReason.FORMAT)

    check_each(
        [
            b"A",
            bytes(21),
            claims(),
            claims() + b"\x30" + bytes(40),
            claims() + b"\x20" + b"\xff" * 60,
            claims(principal="ann")[:30],
        ],
        check,
    )
