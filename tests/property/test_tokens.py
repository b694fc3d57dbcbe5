"""Random payloads and journals: what is sealed comes back, and a changed token never does."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundtrip.errors import RejectionReason, TokenRejected
from roundtrip.machine.journal import Action, Asked, Chain, Computed, Entry, Journal, to_text
from roundtrip.tokens.binding import read_binding
from roundtrip.tokens.token import KeyRing, TokenCodec
from tests.kit.secrets import NEW, OLD, CountedEntropy, claims, codec, journals
from tests.kit.tiers import examples
from tests.property.vault import json_of

bounded = settings(max_examples=examples(120), deadline=None, database=None)

TEXT: st.SearchStrategy[str] = st.one_of(st.text(max_size=20), st.text('"\\~]./\n\ud800é', max_size=8))
JSON = json_of(TEXT, leaves=6)
PAYLOADS: st.SearchStrategy[bytes] = st.binary(min_size=1, max_size=400)


@bounded
@given(payload=PAYLOADS, encrypt=st.booleans())
def test_unsealing_is_the_inverse_of_sealing(payload: bytes, encrypt: bool) -> None:
    token = codec(encrypt=encrypt).seal(payload)
    assert codec(encrypt=not encrypt).unseal(token) == payload
    assert codec(OLD, NEW).unseal(token) == payload


@bounded
@given(payload=PAYLOADS, spot=st.floats(0, 1, exclude_max=True), put=st.text(max_size=3), length=st.integers(0, 3))
def test_a_changed_token_is_rejected(payload: bytes, spot: float, put: str, length: int) -> None:
    """Shows S4."""
    token = codec().seal(payload)
    start = int(spot * len(token))
    changed = token[:start] + put + token[start + length :]
    try:
        assert codec().unseal(changed) == payload
        assert changed == token
    except TokenRejected:
        assert changed != token


PINS = st.binary(min_size=10, max_size=10)
KEYS = TEXT
JOURNALS = st.builds(
    Journal,
    call_id=st.text("abcXYZ019-_", min_size=1) | st.binary(min_size=9, max_size=9).map(to_text) | TEXT,
    born=st.integers(0, 2**33).map(float),
    deadline=st.integers(2**33, 2**34).map(float),
    end=st.integers(2**33, 2**34).map(float),
    leg=st.integers(1, 999),
    round=st.integers(0, 999),
    fingerprint=TEXT | st.text("0123456789abcdef", min_size=5, max_size=7),
    build=TEXT | st.text("0123456789abcdef", min_size=5, max_size=7),
    version=st.none() | TEXT,
    entries=st.dictionaries(KEYS, st.builds(Entry, st.sampled_from(Action), PINS, JSON), max_size=4),
    asked=st.dictionaries(KEYS, st.builds(Asked, PINS, st.integers(0, 9), st.integers(0, 9)), max_size=3),
    computed=st.dictionaries(KEYS, st.builds(Computed, JSON), max_size=3),
    authored=st.none() | TEXT,
    written=st.integers(2**33, 2**34).map(float),
    chain=st.sampled_from(Chain),
    traceparent=st.none()
    | st.from_regex(r"\A00-[1-9a-f]{32}-[1-9a-f]{16}-[0-9a-f]{2}\Z", alphabet="0123456789abcdef-"),
)


@bounded
@given(journal=JOURNALS, encrypt=st.booleans(), claimed=st.fixed_dictionaries({"tool": TEXT, "arguments": JSON}))
def test_a_journal_crosses_the_wire_in_a_token_unchanged(
    journal: Journal, encrypt: bool, claimed: dict[str, Any]
) -> None:
    sealing: TokenCodec = TokenCodec(KeyRing([NEW]), entropy=CountedEntropy(), encrypt=encrypt)
    begins = claims(**claimed, principal="ann")
    payload = codec(NEW).unseal(sealing.seal(begins + journals().write(journal, deflate=not encrypt)))
    _, size = read_binding(payload)
    assert payload[:size] == begins
    assert journals().read(payload[size:]) == journal


@bounded
@given(journal=JOURNALS, deflate=st.booleans())
def test_a_signed_journal_in_the_other_format_is_rejected(journal: Journal, deflate: bool) -> None:
    """Shows S4."""
    packed = journals().write(journal, deflate=deflate)
    assert packed[0] >> 4 == (4 if journal.chain else 3)
    payload = codec().unseal(codec().seal(claims() + bytes([packed[0] ^ (3 ^ 4) << 4]) + packed[1:]))
    with pytest.raises(TokenRejected) as caught:
        journals().read(payload.removeprefix(claims()))
    assert caught.value.reason is RejectionReason.FORMAT
