"""The frozen tokens of `specs/vectors`: every one must decode for ever, to the very payload beside it."""

# How the vectors were made: each by `TokenCodec.seal` of its `payload`, with a `KeyRing` of its `keys` (hex, newest
# first), `encrypt` as given, and an `entropy` that returned the bytes of its `nonces` in turn. Sealed parts inside a
# payload are `JournalCodec.write` of its `journal`, under the same keys, with the nonce of `sealed_with`. All else in a
# payload is written out. They are never made again: a format that changes gets a file of its own beside this one.
# `v1-hint.json` has the same, as tokens name the key that signed them; those of `v1.json` are older.
# `v1-traceparent.json` has tokens whose journals name the span of the leg that wrote them,
# and `v1-seeds.json` some of calls that take the place of an expired one.

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import TypeAdapter

from roundtrip.errors import TokenRejected
from roundtrip.machine.journal import Journal, split_sealed
from roundtrip.tokens import JournalCodec, KeyRing, Sealer, TokenCodec

VECTORS: Final = Path(__file__).parents[2] / "specs" / "vectors"


@dataclass(frozen=True)
class Vector:
    """One frozen token, and all that it took to make it."""

    name: str
    keys: list[str]
    token: str
    payload: str
    encrypt: bool = False
    nonces: list[str] = field(default_factory=list[str])
    sealed_with: str | None = None
    secrets: Any = None
    deflated: bool = False

    @property
    def ring(self) -> KeyRing:
        return KeyRing([bytes.fromhex(key) for key in self.keys])

    @property
    def state(self) -> str:
        return json.loads(self.payload)["s"]


def spent(nonces: list[str]) -> Any:
    """Entropy that hands out these bytes and no others."""
    left = iter(nonces)

    def entropy(size: int) -> bytes:
        nonce = bytes.fromhex(next(left))
        assert len(nonce) == size
        return nonce

    return entropy


def codec_of(vector: Vector) -> TokenCodec:
    return TokenCodec(vector.ring, entropy=spent(vector.nonces), encrypt=vector.encrypt)


def journals_of(vector: Vector) -> JournalCodec:
    nonces = [vector.sealed_with] if vector.sealed_with is not None else []
    return JournalCodec(Sealer(vector.ring, purpose=b"seal", entropy=spent(nonces)))


def read(name: str) -> list[Vector]:
    return TypeAdapter(list[Vector]).validate_json((VECTORS / name).read_bytes())


UNHINTED: Final = read("v1.json")
HINTED: Final = read("v1-hint.json")
LINKED: Final = read("v1-traceparent.json")
SEEDED: Final = read("v1-seeds.json")
NAMED: Final = [*HINTED, *LINKED, *SEEDED]
FROZEN: Final = [*UNHINTED, *NAMED]

every_vector = pytest.mark.parametrize(
    "vector",
    FROZEN,
    ids=[*(f"{vector.name}, without a hint" for vector in UNHINTED), *(vector.name for vector in NAMED)],
)


@pytest.mark.parametrize("vectors", [UNHINTED, HINTED], ids=["without a hint", "with a hint"])
def test_there_is_a_vector_of_every_kind_of_token(vectors: list[Vector]) -> None:
    assert {vector.token[:3] for vector in vectors} == {"r1p", "r1z", "r1x", "r1e"}
    assert any(vector.token.count(".") == 3 for vector in vectors)


def test_the_tokens_of_one_file_name_their_key_and_those_of_the_other_do_not() -> None:
    assert {len(vector.token.split(".")[0]) for vector in UNHINTED} == {3}
    assert all(vector.token.split(".")[0][3:] == vector.ring.hints()[0] for vector in HINTED)


@every_vector
def test_a_frozen_token_decodes_to_its_payload(vector: Vector) -> None:
    assert codec_of(vector).unseal(vector.token) == vector.payload.encode()


@pytest.mark.parametrize("vector", NAMED, ids=lambda vector: vector.name)
def test_a_frozen_payload_is_sealed_into_the_same_token(vector: Vector) -> None:
    token = codec_of(vector).seal(vector.payload.encode())
    if vector.deflated:
        # Implementations of deflate differ in what they write, never in what they read.
        assert token.split(".")[0] == vector.token.split(".")[0]
    else:
        assert token == vector.token


@every_vector
def test_a_frozen_token_is_refused_under_another_key(vector: Vector) -> None:
    """Shows S4."""
    with pytest.raises(TokenRejected):
        TokenCodec(KeyRing([b"another key, of thirty-two bytes"]), entropy=spent([])).unseal(vector.token)


@every_vector
def test_a_frozen_token_survives_the_next_rotation(vector: Vector) -> None:
    ring = KeyRing([b"the next key, of thirty-two byte", *(bytes.fromhex(key) for key in vector.keys)])
    assert TokenCodec(ring, entropy=spent([])).unseal(vector.token) == vector.payload.encode()


@every_vector
def test_a_frozen_journal_is_read_and_written_as_it_was(vector: Vector) -> None:
    if vector.token.startswith("r1x"):
        with pytest.raises(TokenRejected):
            journals_of(vector).read(vector.payload)
        return
    journal = journals_of(vector).read(vector.state)
    assert (journal.traceparent is not None) == (vector in LINKED or vector.name.endswith("and a span"))
    assert bool(journal.seeds) == (vector in SEEDED)
    assert secrets_of(journal) == vector.secrets
    assert journals_of(vector).write(journal) == vector.state
    assert bool(split_sealed(vector.state)[1]) == (vector.secrets is not None)


def secrets_of(journal: Journal) -> Any:
    """What of a journal is sealed, as the vectors write it."""
    if not journal.has_secrets:
        return None
    return {"computed": {key: kept.value for key, kept in journal.computed.items()}, "authored": journal.authored}
