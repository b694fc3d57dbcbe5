"""The view of a token shows its content as far as the keys allow, and trusts none of it."""

import asyncio
import json
from dataclasses import replace
from typing import Annotated

import pytest
from mcp.server.request_state import AESGCMRequestStateCodec
from mcp_types import ElicitResult
from pydantic import BaseModel

from roundtrip import Elicit, Resolve, Server
from roundtrip.errors import RejectionReason, TokenRejected
from roundtrip.machine.journal import Action, Computed, to_text
from roundtrip.testing import LegByLeg
from roundtrip.tokens.binding import audience_digest, principal_digest
from roundtrip.tokens.token import KeyRing
from roundtrip.trace.reading.tokens import Sealed, SignatureCheck, foreign_kind, token_data, view_token
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


def test_sealed_part_stays_sealed_without_a_key() -> None:
    view = view_token(token_of(NEW))
    assert view.sealed is Sealed.CLOSED
    assert SECRET not in json.dumps(token_data(view))
    assert token_data(view)["sealed"] == {"state": "sealed", "computed": None, "author_state": None}


def test_nothing_of_an_encrypted_token_is_read_without_a_key() -> None:
    view = view_token(token_of(NEW, encrypt=True))
    assert (view.kind, view.claims, view.journal, view.sealed) == ("encrypted", None, None, Sealed.CLOSED)
    assert view.reason is None


def test_forged_token_is_readable_and_never_called_valid() -> None:
    forged = token_of(NEW)[:-22] + "A" * 22
    assert view_token(forged).signature is SignatureCheck.UNCHECKED
    rejected = view_token(forged, [NEW])
    assert (rejected.signature, rejected.reason) == (SignatureCheck.INVALID, RejectionReason.TAMPERED)
    assert rejected.sealed is Sealed.CLOSED
    assert rejected.journal is not None


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


def test_signing_key_is_named_by_its_place() -> None:
    for place in range(3):
        keys = [OLD, OTHER]
        keys.insert(place, NEW)
        assert view_token(token_of(NEW), keys).key == place + 1


def test_foreign_keys_show_the_open_part_and_the_mismatch() -> None:
    view = view_token(token_of(NEW), [OLD, OTHER])
    assert (view.signature, view.reason, view.key) == (SignatureCheck.INVALID, RejectionReason.UNKNOWN_KEY, None)
    assert view.journal is not None
    assert view.sealed is Sealed.CLOSED


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


def test_unreadable_input_is_rejected_with_its_reason() -> None:
    def check(token: str, reason: RejectionReason) -> None:
        with pytest.raises(TokenRejected) as caught:
            view_token(token)
        assert caught.value.reason is reason

    check_each(
        [
            ("let me in", RejectionReason.MALFORMED),
            ("", RejectionReason.MALFORMED),
            ("r3sAAAA." + "A" * 70_000 + "." + "A" * 22, RejectionReason.OVERSIZED),
            ("r1pAAAA.AAAA." + "A" * 43, RejectionReason.MALFORMED),
            ("r3sAAAA.A." + "A" * 22, RejectionReason.FORMAT),
        ],
        check,
    )


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


def test_tokens_of_others_are_known_for_what_they_are() -> None:
    assert "SDK" in (foreign_kind(AESGCMRequestStateCodec([NEW]).seal(b"state")) or "")
    assert "ticket" in (foreign_kind("rt1.AAAA." + "A" * 43) or "")
    assert foreign_kind(token_of(NEW)) is None


class Size(BaseModel):
    cm: int


class Consent(BaseModel):
    agree: bool


def quote() -> int:
    return 4711


async def size() -> Elicit[Size]:
    return Elicit("Which size?", Size)


async def consent(size: Annotated[Size, Resolve(size)]) -> Elicit[Consent]:
    return Elicit(f"Cut to {size.cm} cm?", Consent)


def test_token_of_a_real_call_is_shown_fully() -> None:
    server = Server("shop", keys=[NEW], build="7")

    @server.tool()
    async def cut(
        price: Annotated[int, Resolve(quote, once=True)],
        size: Annotated[Size, Resolve(size)],
        consent: Annotated[Consent, Resolve(consent)],
    ) -> str:
        return f"{size.cm} cm for {price}: {consent.agree}"

    del cut

    hopper = LegByLeg([server])

    async def two_legs() -> None:
        await hopper.leg("cut", {})
        await hopper.leg(
            "cut", {}, answers={"size": ElicitResult(action="accept", content={"cm": 80})}, state=hopper.token
        )

    asyncio.run(two_legs())
    found = token_data(view_token(hopper.token, [NEW]))
    assert found["signature"] == "valid"
    assert bytes.fromhex(found["claims"]["audience"]) == audience_digest("shop")
    assert round(found["journal"]["deadline"] - found["journal"]["written"], 2) == 600
    assert (found["journal"]["leg"], found["journal"]["round"], found["journal"]["build"]) == (2, 2, "7")
    assert [(each["key"], each["action"], each["data"]) for each in found["journal"]["answers"]] == [
        ("size", "accept", {"cm": 80})
    ]
    assert [each["key"] for each in found["journal"]["asked"]] == ["consent"]
    assert found["sealed"]["computed"] == {"quote": 4711}
