"""The tokens of `specs/vectors`: each is read as its content, and its content is written as the token."""

import json
from typing import Any

from roundtrip.errors import RejectionReason, TokenRejected
from roundtrip.machine.journal import Chain
from roundtrip.tokens.binding import read_binding
from roundtrip.tokens.token import JournalCodec, KeyRing, TokenCodec
from specs.tokens import REFUSED, RESTARTED, VECTORS, Vector, read_vectors, vectors_page
from tests.kit.raised import raised
from tests.kit.tables import check_each

FROZEN = read_vectors()


def test_there_is_a_vector_of_every_shape() -> None:
    assert {vector.token[:3] for vector in FROZEN} == {"r3s", "r3e"}
    assert {vector.method for vector in FROZEN} == {"tools/call", "prompts/get", "resources/read"}
    flags = [vector.payload[len(vector.claims)] & 0x0F for vector in FROZEN]
    assert all(any(each & flag for each in flags) for flag in (1, 2, 4, 8))
    assert not all(flags)
    versions = {(vector.journal.chain, vector.payload[len(vector.claims)] >> 4) for vector in FROZEN}
    assert versions == {(Chain.NONE, 3), (Chain.FIRST, 4), (Chain.AGAIN, 4)}


def test_frozen_token_decodes_to_its_listed_contents() -> None:
    def check(vector: Vector) -> None:
        journals, tokens = vector.codecs()
        payload = tokens.unseal(vector.token)
        assert payload == vector.payload
        assert payload.startswith(vector.claims)
        assert journals.read(payload.removeprefix(vector.claims)) == vector.journal

    check_each([*FROZEN, *read_vectors(RESTARTED)], check)


def test_listed_contents_encode_to_the_frozen_token() -> None:
    def check(vector: Vector) -> None:
        made = vector.complete()
        if vector.deflated:
            # Implementations of deflate differ in what they write, never in what they read.
            assert made.token[:8] == vector.token[:8]
        else:
            assert (made.payload, made.token) == (vector.payload, vector.token)

    check_each(FROZEN, check)


def test_the_file_is_what_is_generated() -> None:
    assert json.loads(vectors_page()) == json.loads(VECTORS.read_text(encoding="utf-8"))


def test_a_token_of_the_format_before_is_rejected() -> None:
    """Shows S4. By every part of it, as another codec sees only the payload."""

    def check(told: dict[str, Any]) -> None:
        keys = KeyRing([bytes.fromhex(key) for key in told["keys"]])
        payload = bytes.fromhex(told["payload"])
        journal = payload[33 if told["request"]["principal"] is not None else 21 :]
        errors = [
            raised(TokenCodec(keys, entropy=bytes).unseal, told["token"]),
            raised(read_binding, payload),
            raised(JournalCodec(None).read, journal),
        ]
        found = [error.reason for error in errors if isinstance(error, TokenRejected)]
        assert found == [RejectionReason.MALFORMED, RejectionReason.FORMAT, RejectionReason.FORMAT]

    check_each(json.loads(REFUSED.read_text(encoding="utf-8")), check)
