"""The frozen tokens of `specs/vectors`: every one must decode for ever, to the very payload beside it."""

# How the vectors were made: each by `TokenCodec.seal` of its `payload`, with a `KeyRing` of its `keys` (hex, newest
# first), `encrypt` as given, and an `entropy` that returned the bytes of its `nonces` in turn. Sealed parts inside a
# payload are `JournalCodec.write` of its `journal`, under the same keys, with the nonce of `sealed_with`. All else in a
# payload is written out. They are never made again: a format that changes gets a file of its own beside this one.

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import TypeAdapter

from roundtrip.errors import TokenRejected
from roundtrip.machine.journal import Journal, split_sealed
from roundtrip.tokens import JournalCodec, KeyRing, Sealer, TokenCodec

VECTORS: Final = Path(__file__).parents[2] / "specs" / "vectors" / "v1.json"


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


FROZEN: Final = TypeAdapter(list[Vector]).validate_json(VECTORS.read_bytes())

every_vector = pytest.mark.parametrize("vector", FROZEN, ids=[vector.name for vector in FROZEN])


def test_there_is_a_vector_of_every_kind_of_token() -> None:
    assert {vector.token[:3] for vector in FROZEN} == {"r1p", "r1z", "r1x", "r1e"}
    assert any(vector.token.count(".") == 3 for vector in FROZEN)


@every_vector
def test_a_frozen_token_decodes_to_its_payload(vector: Vector) -> None:
    assert codec_of(vector).unseal(vector.token) == vector.payload.encode()


@every_vector
def test_a_frozen_payload_is_sealed_into_the_same_token(vector: Vector) -> None:
    if vector.deflated:
        # Implementations of deflate differ in what they write, never in what they read.
        assert codec_of(vector).seal(vector.payload.encode()).split(".")[0] == "r1z"
    else:
        assert codec_of(vector).seal(vector.payload.encode()) == vector.token


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
    assert secrets_of(journal) == vector.secrets
    assert journals_of(vector).write(journal) == vector.state
    assert bool(split_sealed(vector.state)[1]) == (vector.secrets is not None)


def secrets_of(journal: Journal) -> Any:
    """What of a journal is sealed, as the vectors write it."""
    if not journal.has_secrets:
        return None
    return {"computed": {key: kept.value for key, kept in journal.computed.items()}, "authored": journal.authored}
