"""Copies of request states, as hostile clients make them."""

import base64
import json
import zlib
from collections.abc import Callable
from typing import Any, Final

from roundtrip.testing.attacks.states import forged, tampered

VALUE: Final = {"step": 2, "film": "Dune", "paid": False, "seats": ["A1", "A2"], "note": None}
CHANGED: Final = [
    {**VALUE, "step": 3},
    {**VALUE, "film": "Dunex"},
    {**VALUE, "paid": True},
    {**VALUE, "seats": ["A1x", "A2"]},
    {**VALUE, "seats": ["A1", "A2x"]},
]


def as_base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def from_base64(text: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def from_hex(text: str) -> Any:
    return json.loads(bytes.fromhex(text))


def as_deflated(raw: bytes) -> str:
    return as_base64(zlib.compress(raw))


def from_deflated(text: str) -> Any:
    return json.loads(zlib.decompress(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))))


def as_signed(raw: bytes) -> str:
    return f"{as_base64(raw)}.c2lnbmF0dXJl"


def from_signed(text: str) -> Any:
    return from_base64(text.removesuffix(".c2lnbmF0dXJl"))


ENCODINGS: dict[str, tuple[Callable[[bytes], str], Callable[[str], Any]]] = {
    "json": (bytes.decode, json.loads),
    "hex": (bytes.hex, from_hex),
    "base64url": (as_base64, from_base64),
    "deflated": (as_deflated, from_deflated),
    "signed": (as_signed, from_signed),
}


def test_readable_state_is_rewritten_in_its_encoding() -> None:
    raw = json.dumps(VALUE).encode()
    copies = {name: [decode(copy) for _, copy in forged(encode(raw))] for name, (encode, decode) in ENCODINGS.items()}
    assert copies == dict.fromkeys(ENCODINGS, CHANGED)


def test_signed_web_token_is_sent_as_one_without_signature() -> None:
    header, payload = as_base64(b'{"alg":"HS256"}'), as_base64(b'{"step":2}')
    copies = dict(forged(f"{header}.{payload}.c2ln"))
    head, body, signature = copies["no signature, as its header says"].split(".")
    assert (from_base64(head), body, signature) == ({"alg": "none"}, payload, "")


def test_opaque_state_cannot_be_rewritten() -> None:
    states = ["", "v1.AAAA", "x" * 50, "7", "not json at all"]
    assert [state for state in states if list(forged(state))] == []


def test_forgeries_of_a_large_state_are_limited() -> None:
    assert len(list(forged(json.dumps(list(range(1000)))))) == 24


def test_every_tampered_copy_differs_from_the_state() -> None:
    copies = [copy for _, copy in tampered("v1.AbCdEf012")]
    assert "v1.AbCdEf012" not in copies
    assert len(set(copies)) == len(copies)
