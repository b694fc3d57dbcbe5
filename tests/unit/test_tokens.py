"""Tokens: what goes in comes out, in a compact form, within its limits, under keys that can be replaced."""

import hashlib
from typing import Final

import pytest
from itsdangerous import Signer

from roundtrip.errors import RejectionReason, TokenRejected, TokenTooLarge
from roundtrip.machine.journal import to_text
from roundtrip.tokens import KeyRing, TokenCodec, read_unverified, take_apart
from tests.unit.secrets import NEW, OLD, OTHER, CountedEntropy, codec, decoded, envelope, journal, journals

ENVELOPES: Final = {
    "plain": envelope(journal().encode()),
    "with an audience and a principal": envelope(journal().encode(), aud="bookshop", p="salted"),
    "with a principal alone": envelope(journal().encode(), p="salted"),
    "with a sealed part": envelope(journals().write(journal(computed="9.50"))),
    "deflated": envelope(journal(answers=8, chars=40).encode()),
    "of an empty state": envelope(""),
    "of a state that is the mark": envelope("~"),
    "of a state that starts with the mark": envelope("~AAAA"),
    "of a state that ends with the mark": envelope("state~"),
    "of a state with a foreign sealed part": envelope("[1]~not base64!"),
    "of a state beyond ASCII": envelope("größe"),
    "of half a character": envelope("\ud800"),
    "of a state with line breaks": envelope("a\nb\n]"),
}

OTHER_PAYLOADS: Final = {
    "nothing": b"",
    "no text": b"\xff\x00",
    "an empty object": b"{}",
    "an array": b"[]",
    "a number": b"7",
    "another version": envelope("[]").replace(b'"v":1', b'"v":2'),
    "a version that only equals one": envelope("[]").replace(b'"v":1', b'"v":true'),
    "another spelling": envelope("[]").replace(b":", b": "),
    "an unknown claim": envelope("[]", extra="x"),
    "an audience of null": envelope("[]", aud=None),
    "claims in another order": envelope("[]", p="p", aud="a"),
    "a state that is no text": envelope("[]").replace(b'"[]"', b"[]"),
    "a claim that is not a number": envelope("[]").replace(b"1700000000.0", b"NaN"),
    "a line break in a claim": envelope("[]").replace(b"order", b"or\nder"),
    "a claim beyond ASCII": envelope("[]").replace(b"order", b"\xc3\xb6rder"),
    "an escape that is none": envelope("[]").replace(b'"[]"', b'"\\q]"'),
    "an escape that need not be": envelope("[]").replace(b'"[]"', b'"\\u0041]"'),
    "a state of base64url alone": envelope("AAAA"),
    "deep nesting": b"[" * 50_000,
    "a long number": b"1" * 10_000,
}


@pytest.mark.parametrize("payload", [*ENVELOPES.values(), *OTHER_PAYLOADS.values()], ids=[*ENVELOPES, *OTHER_PAYLOADS])
@pytest.mark.parametrize("encrypt", [False, True], ids=["signed", "encrypted"])
def test_whatever_is_sealed_comes_back_to_the_byte(payload: bytes, encrypt: bool) -> None:
    token = codec(encrypt=encrypt, max_token_bytes=100_000).seal(payload)
    assert codec(encrypt=encrypt, max_token_bytes=100_000).unseal(token) == payload


def test_a_server_that_signs_reads_what_one_that_encrypts_wrote_and_the_other_way_round() -> None:
    payload = ENVELOPES["plain"]
    assert codec().unseal(codec(encrypt=True).seal(payload)) == payload
    assert codec(encrypt=True).unseal(codec().seal(payload)) == payload


@pytest.mark.parametrize(
    ("name", "kind"), [("plain", "r1p"), ("deflated", "r1z"), ("of a state beyond ASCII", "r1x")], ids=str
)
def test_a_token_names_its_kind(name: str, kind: str) -> None:
    assert codec().seal(ENVELOPES[name]).split(".")[0][:3] == kind


def test_a_short_body_is_left_as_it_is_and_a_long_one_deflated() -> None:
    assert codec().seal(envelope("a" * 20 + "]")).startswith("r1p")
    long = codec().seal(envelope("a" * 2000 + "]"))
    assert long.startswith("r1z")
    assert len(long) < 300


def test_a_token_is_a_third_of_what_an_envelope_in_base64_would_be() -> None:
    payload = envelope(journal(answers=16, chars=40).encode(), aud="bookshop")
    assert len(codec().seal(payload)) < len(to_text(payload)) / 3


def test_a_sealed_part_stands_beside_the_body_and_is_not_encoded_twice() -> None:
    payload = ENVELOPES["with a sealed part"]
    kind, body, sealed, _ = codec().seal(payload).split(".")
    assert kind[:3] == "r1p"
    assert sealed in payload.decode()
    assert sealed.encode() not in decoded(body)


def test_a_token_is_made_of_characters_that_any_url_takes() -> None:
    for payload in ENVELOPES.values():
        token = codec().seal(payload)
        assert token.isascii()
        assert all(char.isalnum() or char in "-_." for char in token)


def test_the_same_payload_gives_the_same_signed_token_so_entropy_is_not_spent_on_it() -> None:
    assert codec().seal(ENVELOPES["plain"]) == codec().seal(ENVELOPES["plain"])


# Keys.


def test_a_token_of_an_unknown_key_is_refused() -> None:
    """Shows S4."""
    assert refusal(codec(OTHER).seal(ENVELOPES["plain"]), NEW, OLD) is RejectionReason.UNKNOWN_KEY


@pytest.mark.parametrize("encrypt", [False, True], ids=["signed", "encrypted"])
def test_a_changed_token_of_a_key_that_is_known_was_tampered_with(encrypt: bool) -> None:
    """Shows S4."""
    for key in (NEW, OLD):
        token = codec(key, encrypt=encrypt).seal(ENVELOPES["plain"])
        place = len(token) // 2
        spoilt = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
        assert refusal(spoilt, NEW, OLD) is RejectionReason.TAMPERED


def test_a_token_that_names_a_key_is_verified_with_that_one_alone() -> None:
    """Shows S4."""
    old = KeyRing([OLD])
    swapped = resigned(f"r1p{old.hints()[0]}.{to_text(b'[]')}")
    assert refusal(swapped, NEW, OLD) is RejectionReason.TAMPERED


def test_a_token_without_a_hint_may_be_of_any_key_and_is_tampered_with_if_it_is_of_none() -> None:
    payload = b"[]"
    token = resigned(f"r1x.{to_text(payload)}")
    assert codec(OTHER, NEW).unseal(token) == payload
    assert refusal(token, OTHER, OLD) is RejectionReason.TAMPERED


def test_two_keys_of_one_hint_both_verify() -> None:
    class Alike(KeyRing):
        def hints(self) -> list[str]:
            return ["same"] * len(super().hints())

    def alike(*keys: bytes) -> TokenCodec:
        return TokenCodec(Alike(keys), entropy=CountedEntropy())

    for key in (NEW, OLD):
        assert alike(NEW, OLD).unseal(alike(key).seal(b"payload")) == b"payload"


def test_a_hint_is_four_characters_of_a_subkey_of_its_own() -> None:
    ring = KeyRing([NEW, OLD])
    assert [token[3:7] for token in (codec(NEW).seal(b""), codec(OLD, encrypt=True).seal(b""))] == ring.hints()
    assert all(len(hint) == 4 for hint in ring.hints())
    for purpose in (b"sign", b"seal", b"encrypt", b"ticket"):
        assert not set(ring.hints()) & {to_text(subkey[:3]) for subkey in ring.derive(purpose)}


def refusal(token: str, *keys: bytes) -> RejectionReason:
    with pytest.raises(TokenRejected) as caught:
        codec(*keys).unseal(token)
    return caught.value.reason


@pytest.mark.parametrize("encrypt", [False, True], ids=["signed", "encrypted"])
@pytest.mark.parametrize(
    ("running", "next_"),
    [((OLD,), (OLD, NEW)), ((OLD, NEW), (NEW, OLD)), ((NEW, OLD), (NEW,))],
    ids=["add the new key", "sign with the new key", "drop the old key"],
)
def test_in_each_phase_of_a_rotation_both_halves_of_a_fleet_read_each_other(
    running: tuple[bytes, ...], next_: tuple[bytes, ...], encrypt: bool
) -> None:
    payload = ENVELOPES["with a sealed part"]
    before, after = codec(*running, encrypt=encrypt), codec(*next_, encrypt=encrypt)
    assert after.unseal(before.seal(payload)) == payload
    assert before.unseal(after.seal(payload)) == payload


def test_the_first_key_signs() -> None:
    token = codec(NEW, OLD).seal(ENVELOPES["plain"])
    assert codec(NEW).unseal(token)
    with pytest.raises(TokenRejected):
        codec(OLD).unseal(token)


def test_the_signing_key_is_not_the_secret_itself() -> None:
    token = codec(NEW).seal(ENVELOPES["plain"])
    signed, _, signature = token.rpartition(".")
    for derivation in ("none", "concat", "django-concat", "hmac"):
        assert Signer(NEW, key_derivation=derivation).get_signature(signed.encode()).decode() != signature


def test_each_purpose_and_each_secret_has_a_subkey_of_its_own() -> None:
    ring = KeyRing([NEW, OLD])
    subkeys = [key for purpose in (b"sign", b"seal", b"encrypt", b"hint") for key in ring.derive(purpose)]
    assert len(set(subkeys)) == 8
    assert all(len(key) == 32 for key in subkeys)
    assert not {NEW, OLD} & set(subkeys)


def test_a_text_key_is_its_bytes() -> None:
    assert KeyRing([NEW.decode()]).derive(b"sign") == KeyRing([NEW]).derive(b"sign")
    assert KeyRing([bytearray(NEW)]).derive(b"sign") == KeyRing([NEW]).derive(b"sign")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([], "empty"),
        ([b"x" * 31], r"keys\[0\] has 31 bytes"),
        ([NEW, "short"], r"keys\[1\] has 5 bytes"),
        ([NEW, OLD, NEW], r"keys\[2\] repeats"),
        ([NEW, NEW.decode()], r"keys\[1\] repeats"),
    ],
    ids=["none", "short", "a second that is short", "one twice", "one twice in two types"],
)
def test_a_ring_that_cannot_protect_is_refused_and_says_which_key(keys: list[bytes | str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KeyRing(keys)


@pytest.mark.parametrize("key", [b"k" * 32, "k" * 32, bytearray(32)], ids=["bytes", "text", "bytearray"])
def test_a_single_key_without_its_list_is_refused(key: bytes) -> None:
    with pytest.raises(TypeError, match="keys=\\[key\\]"):
        KeyRing(key)  # type: ignore[arg-type]


def test_a_number_is_no_key_though_python_would_make_bytes_of_it() -> None:
    with pytest.raises(TypeError, match=r"keys\[0\] must be bytes or str, not int"):
        KeyRing([32])  # type: ignore[list-item]


# Limits.


def test_a_token_over_its_limit_is_not_minted() -> None:
    with pytest.raises(TokenTooLarge) as caught:
        codec(max_token_bytes=300).seal(b"\xff" * 400)
    assert caught.value.limit == 300
    assert caught.value.size > 300


def test_a_token_over_the_limit_is_refused_before_anything_is_computed_from_it() -> None:
    """Shows S4."""
    token = codec().seal(b"\xff" * 400)
    with pytest.raises(TokenRejected) as caught:
        codec(OTHER, max_token_bytes=300).unseal(token)
    assert caught.value.reason is RejectionReason.OVERSIZED


def test_a_token_just_at_its_limit_goes_both_ways() -> None:
    payload = b"\xff" * 400
    size = len(codec().seal(payload))
    assert codec(max_token_bytes=size).unseal(codec(max_token_bytes=size).seal(payload)) == payload


def test_a_small_token_that_inflates_beyond_the_limit_is_refused() -> None:
    """Shows S4."""
    token = codec(max_payload_bytes=10_000_000).seal(envelope("a" * 5_000_000 + "]"))
    assert len(token) < 64 * 1024
    with pytest.raises(TokenRejected) as caught:
        codec().unseal(token)
    assert caught.value.reason is RejectionReason.OVERSIZED


def test_deflated_bytes_must_be_complete_and_alone() -> None:
    whole = codec().seal(ENVELOPES["deflated"]).split(".")[1]
    assert codec().unseal(resigned(f"r1z.{whole}")) == ENVELOPES["deflated"]
    for spoiled in (decoded(whole)[:-3], decoded(whole) + b"more"):
        with pytest.raises(TokenRejected):
            codec().unseal(resigned(f"r1z.{to_text(spoiled)}"))


@pytest.mark.parametrize(
    "signed",
    [
        "r1p.",
        "r1p.AAAA",
        "r1z.AAAA",
        "r1z.",
        "r1e.AAAA",
        "r1p." + to_text(b"[1]\n"),
        "r1p." + to_text(b"[]\n") + ".AAAA",
    ],
)
def test_even_a_signed_token_of_another_shape_is_refused_and_does_not_crash(signed: str) -> None:
    with pytest.raises(TokenRejected):
        codec().unseal(resigned(signed))


def test_the_room_of_a_journal_is_checked_before_the_boundary_meets_it() -> None:
    large = journal(answers=3, chars=50_000)
    text = journals(max_bytes=200_000).write(large)
    codec(max_token_bytes=20_000).check(large, text, margin=512)  # it deflates well
    with pytest.raises(TokenTooLarge) as caught:
        codec(encrypt=True, max_token_bytes=20_000).check(large, text, margin=512)
    assert [key for key, _ in caught.value.largest] == ["question_0", "question_1", "question_2"]
    assert all(size > 50_000 for _, size in caught.value.largest)


def test_a_journal_over_its_limit_is_not_written_and_its_largest_entries_are_named() -> None:
    with pytest.raises(TokenTooLarge) as caught:
        journals(max_bytes=1000).write(journal(answers=5, chars=300))
    assert len(caught.value.largest) == 3
    assert "'question_0'" in str(caught.value)
    assert caught.value.limit == 1000


def resigned(signed: str) -> str:
    """A token with a true signature over a body that no server would write."""
    subkey = KeyRing([NEW]).derive(b"sign")[0]
    return Signer(subkey, key_derivation="none", digest_method=hashlib.sha256, sep=".").sign(signed).decode()


# Without a key.


@pytest.mark.parametrize("name", ENVELOPES)
def test_the_open_part_of_a_token_is_read_without_a_key(name: str) -> None:
    assert read_unverified(codec(OTHER).seal(ENVELOPES[name])) == ENVELOPES[name]


def test_an_encrypted_token_cannot_be_read_without_a_key() -> None:
    token = codec(encrypt=True).seal(ENVELOPES["plain"])
    assert read_unverified(token) is None
    assert take_apart(token).kind == "e"


def test_reading_without_a_key_keeps_to_the_limits_of_reading_with_one() -> None:
    bomb = codec(max_payload_bytes=10_000_000).seal(envelope("a" * 5_000_000 + "]"))
    for token, reason in (
        (bomb, RejectionReason.OVERSIZED),
        ("r1p." + "A" * 70_000 + "." + "A" * 43, RejectionReason.OVERSIZED),
        ("r1p.AAAA." + "A" * 43, RejectionReason.FORMAT),
        (f"r1z.{to_text(bytes([255, 255]))}.{'A' * 43}", RejectionReason.FORMAT),
        ("r1z.A." + "A" * 43, RejectionReason.FORMAT),
        ("let me in", RejectionReason.MALFORMED),
    ):
        with pytest.raises(TokenRejected) as caught:
            read_unverified(token)
        assert caught.value.reason is reason


def test_a_token_is_taken_apart_without_a_key() -> None:
    parts = take_apart(codec(OLD).seal(ENVELOPES["with a sealed part"]))
    assert (parts.kind, parts.hint) == ("p", KeyRing([OLD]).hints()[0])
    assert parts.sealed in ENVELOPES["with a sealed part"].decode()
    assert parts.sealed
    assert take_apart(resigned("r1x.AAAA")).hint == ""


def test_a_codec_needs_no_entropy_to_read() -> None:
    def none(size: int) -> bytes:
        raise AssertionError(f"{size} random bytes were drawn to read a token")

    token = codec(encrypt=True).seal(b"payload")
    assert TokenCodec(KeyRing([NEW]), entropy=none).unseal(token) == b"payload"
