"""Tokens: what they carry, their keys, limits and single spelling, and what is read of them without a key."""

import hashlib
import re
import string
from collections.abc import Iterable, Iterator
from typing import Final

import pytest
from itsdangerous import BadSignature, Signer

from roundtrip.errors import RejectionReason, TokenRejected, TokenTooLarge
from roundtrip.machine.journal import to_text
from roundtrip.tokens.signing import ShortHmac
from roundtrip.tokens.token import KeyRing, read_unverified
from tests.kit.raised import raised
from tests.kit.secrets import NEW, OLD, OTHER, claims, codec, journal, journals, payload
from tests.kit.tables import check_each

PAYLOADS: Final = {
    "plain": payload(journal(), deflate=False),
    "with an audience and a principal": payload(journal(), audience="bookshop", principal="ann"),
    "with a sealed part": payload(journal(computed="9.50")),
    "deflated": payload(journal(answers=8, chars=40)),
    "one byte": b"\x00",
    "no text": b"\xff\x00",
    "an object": b"{}",
    "zeros": bytes(1000),
    "of one length": b"a" * 100,
    "of another": b"a" * 101,
    "and another": b"a" * 102,
}


@pytest.mark.parametrize("encrypt", [False, True], ids=["signed", "encrypted"])
def test_sealed_bytes_return_unchanged(encrypt: bool) -> None:
    def check(whole: bytes) -> None:
        assert codec(encrypt=encrypt).unseal(codec(encrypt=encrypt).seal(whole)) == whole

    check_each(PAYLOADS.values(), check)


def test_signing_and_encrypting_servers_read_each_others_tokens() -> None:
    whole = PAYLOADS["plain"]
    assert codec().unseal(codec(encrypt=True).seal(whole)) == whole
    assert codec(encrypt=True).unseal(codec().seal(whole)) == whole


def test_a_token_is_its_payload_in_base64url_and_31_characters() -> None:
    def check(whole: bytes) -> None:
        token = codec().seal(whole)
        assert to_text(whole) in token
        assert len(token) == len(to_text(whole)) + 31
        # Any URL takes these characters.
        assert re.fullmatch(r"[A-Za-z0-9_.-]+", token)

    check_each(PAYLOADS.values(), check)


# Keys.


@pytest.mark.parametrize("encrypt", [False, True], ids=["signed", "encrypted"])
def test_changed_token_of_a_known_key_was_tampered_with(encrypt: bool) -> None:
    """Shows S4."""
    reasons: dict[bytes, RejectionReason | None] = {}
    for key in (NEW, OLD, OTHER):
        token = codec(key, encrypt=encrypt).seal(PAYLOADS["plain"])
        place = len(token) // 2
        spoilt = token[:place] + ("A" if token[place] != "A" else "B") + token[place + 1 :]
        reasons[key] = refusal(spoilt, NEW, OLD)
    tampered, unknown = RejectionReason.TAMPERED, RejectionReason.UNKNOWN_KEY
    assert reasons == {NEW: tampered, OLD: tampered, OTHER: unknown}


def refusal(token: str, *keys: bytes) -> RejectionReason | None:
    error = raised(codec(*keys).unseal, token)
    return error.reason if isinstance(error, TokenRejected) else None


@pytest.mark.parametrize("encrypt", [False, True], ids=["signed", "encrypted"])
def test_fleet_halves_read_each_other_in_every_rotation_phase(encrypt: bool) -> None:
    whole = PAYLOADS["with a sealed part"]

    def check(running: tuple[bytes, ...], following: tuple[bytes, ...]) -> None:
        before, after = codec(*running, encrypt=encrypt), codec(*following, encrypt=encrypt)
        assert after.unseal(before.seal(whole)) == whole
        assert before.unseal(after.seal(whole)) == whole

    check_each([((OLD,), (OLD, NEW)), ((OLD, NEW), (NEW, OLD)), ((NEW, OLD), (NEW,))], check)


def test_a_text_key_is_its_bytes() -> None:
    assert KeyRing([NEW.decode()]).derive(b"sign") == KeyRing([NEW]).derive(b"sign")
    assert KeyRing([bytearray(NEW)]).derive(b"sign") == KeyRing([NEW]).derive(b"sign")


def test_unprotecting_ring_is_rejected_naming_the_key() -> None:
    def check(keys: list[bytes | str], message: str) -> None:
        error = raised(KeyRing, keys)
        assert isinstance(error, ValueError)
        assert message in str(error)

    rings: list[tuple[list[bytes | str], str]] = [
        ([], "at least one key"),
        ([b"x" * 31], "keys[0] must have at least 32 random secret bytes, got 31"),
        ([NEW, "short"], "keys[1] must have at least 32 random secret bytes, got 5"),
        ([NEW, OLD, NEW], "keys[2] repeats"),
        ([NEW, NEW.decode()], "keys[1] repeats"),
    ]
    check_each(rings, check)


# Limits.


def test_oversized_token_is_rejected_before_any_computation() -> None:
    """Shows S4."""
    token = codec().seal(b"\xff" * 400)
    with pytest.raises(TokenRejected) as caught:
        codec(OTHER, max_token_bytes=300).unseal(token)
    assert caught.value.reason is RejectionReason.OVERSIZED


@pytest.mark.parametrize("encrypt", [False, True], ids=["signed", "encrypted"])
def test_token_size_is_known_before_it_is_made(encrypt: bool) -> None:
    def check(size: int) -> None:
        made = len(codec(encrypt=encrypt).seal(b"\xff" * size))
        just = codec(encrypt=encrypt, max_token_bytes=made)
        just.check(journal(), size)
        assert just.unseal(just.seal(b"\xff" * size)) == b"\xff" * size
        assert isinstance(raised(codec(encrypt=encrypt, max_token_bytes=made - 1).seal, b"\xff" * size), TokenTooLarge)
        error = raised(codec(encrypt=encrypt, max_token_bytes=made - 1).check, journal(answers=5, chars=300), size)
        assert isinstance(error, TokenTooLarge)
        assert error.size == made
        assert [key for key, _ in error.largest] == ["question_0", "question_1", "question_2"]

    check_each([1, 2, 3, 60, 61, 400, 20_000], check)


def test_a_small_token_that_inflates_beyond_the_limit_is_rejected() -> None:
    """Shows S4."""
    bomb = journals(max_bytes=10_000_000).write(journal(chars=5_000_000), deflate=True)
    token = codec().seal(claims() + bomb)
    assert len(token) < 64 * 1024
    with pytest.raises(TokenRejected) as caught:
        journals().read(codec().unseal(token)[len(claims()) :])
    assert caught.value.reason is RejectionReason.OVERSIZED


def resigned(signed: str) -> str:
    """Return a token with a valid signature over a body that no server would write."""
    subkey = KeyRing([NEW]).derive(b"sign")[0]
    return Signer(subkey, key_derivation="none", algorithm=ShortHmac(), sep=".").sign(signed).decode()


def test_well_signed_token_that_no_server_wrote_is_rejected() -> None:
    """Shows S4. A token that names a key is verified with it alone."""
    hint, of_old = (KeyRing([key]).hints()[0] for key in (NEW, OLD))
    unpadded = [f"{kind}{hint}.{body}" for kind in ("r3s", "r3e") for body in ("A", "AB", "AAB", "AAAAA")]
    unencrypted = [f"r3e{hint}.{body}" for body in ("AAAA", to_text(bytes(92)), to_text(bytes(200)))]
    reasons = {
        f"r3s{of_old}.{to_text(b'[]')}": RejectionReason.TAMPERED,
        f"r3s.{to_text(b'[]')}": RejectionReason.MALFORMED,
        **dict.fromkeys(unpadded, RejectionReason.FORMAT),
        **dict.fromkeys(unencrypted, RejectionReason.SEAL),
    }
    assert {signed: refusal(resigned(signed), NEW, OLD) for signed in reasons} == reasons


# Without a key.


def test_keyless_reading_applies_the_same_limits() -> None:
    reasons = {
        "r3sAAAA." + "A" * 70_000 + "." + "A" * 22: RejectionReason.OVERSIZED,
        "r3sAAAA.A." + "A" * 22: RejectionReason.FORMAT,
        "r3sAAAA.AB." + "A" * 22: RejectionReason.FORMAT,
        # Of the format before.
        "r1pAAAA.AAAA." + "A" * 43: RejectionReason.MALFORMED,
        "let me in": RejectionReason.MALFORMED,
    }
    errors = {token: raised(read_unverified, token) for token in reasons}
    assert {token: error.reason for token, error in errors.items() if isinstance(error, TokenRejected)} == reasons


def test_key_of_another_type_is_rejected() -> None:
    for key in (b"k" * 32, "k" * 32, bytearray(32)):
        with pytest.raises(TypeError, match="keys=\\[key\\]"):
            KeyRing(key)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"keys\[0\] must be bytes or str, got int"):
        KeyRing([32])  # type: ignore[list-item]


@pytest.mark.parametrize("encrypt", [False, True], ids=["signed", "encrypted"])
def test_only_a_signed_payload_is_readable_without_a_key(encrypt: bool) -> None:
    def check(whole: bytes) -> None:
        spelt = read_unverified(codec(OTHER, encrypt=encrypt).seal(whole))
        expected = ("e", None) if encrypt else ("s", whole)
        assert (spelt.kind, spelt.payload, spelt.hint) == (*expected, KeyRing([OTHER]).hints()[0])

    check_each(PAYLOADS.values(), check)


TOKENS: Final = {
    "plain": codec().seal(payload(journal(), deflate=False)),
    "deflated": codec().seal(payload(journal(answers=8, chars=40))),
    "sealed": codec().seal(payload(journal(computed="9.50"), principal="ann")),
    "encrypted": codec(encrypt=True).seal(payload(journal())),
    "another payload": codec().seal(b"\xff\x00"),
}
TOKEN: Final = TOKENS["plain"]
ALPHABET: Final = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
"""The characters of base64url in the order of their values."""


def itsdangerous_takes(token: str) -> bool:
    """Return True if the library alone would verify it, with the codec's own key and settings."""
    subkeys = list(reversed(KeyRing([NEW]).derive(b"sign")))
    signer = Signer(subkeys, key_derivation="none", algorithm=ShortHmac(), sep=".")
    try:
        signer.unsign(token.encode())
    except (BadSignature, ValueError):
        return False
    return True


def refused(token: str, *keys: bytes) -> bool:
    return isinstance(raised(codec(*keys).unseal, token), TokenRejected)


def accepted(tokens: Iterable[str]) -> list[str]:
    return [token for token in tokens if not refused(token)]


def test_the_token_itself_is_taken() -> None:
    assert [token for token in TOKENS.values() if refused(token) or not itsdangerous_takes(token)] == []


def test_the_standard_alphabet_is_rejected() -> None:
    """Shows S4."""
    tokens = (codec().seal(f"[{number}]".encode()) for number in range(100))
    token = next(token for token in tokens if {"-", "_"} & set(token[-22:]))
    variant = token[:-22] + token[-22:].replace("-", "+").replace("_", "/")
    assert variant != token
    assert refused(variant)


def test_parts_of_two_authentic_tokens_do_not_make_a_third() -> None:
    """Shows S4."""
    one = codec().seal(payload(journal(computed="one"))).split(".")
    two = codec().seal(payload(journal(computed="two"), principal="ann")).split(".")
    mixed = [[*one[:place], two[place], *one[place + 1 :]] for place in (1, 2)]
    assert all(refused(".".join(parts)) for parts in mixed)
    assert refused(".".join([one[0], one[1] + two[1], one[2]]))


def test_the_kind_of_a_token_is_under_its_signature() -> None:
    """Shows S4."""
    kinds = ("r3s", "r3e", "r3p", "r1p", "r2s", "r2e", "r4s")
    assert accepted(kind + token[3:] for kind in kinds for token in TOKENS.values() if token[:3] != kind) == []


def test_signature_of_another_length_is_rejected() -> None:
    """Shows S4."""
    key = KeyRing([NEW]).derive(b"sign")[0]
    signed = TOKEN.rpartition(".")[0]
    whole = Signer(key, key_derivation="none", digest_method=hashlib.sha256, sep=".").sign(signed).decode()
    assert whole.startswith(TOKEN[:-1])
    assert refused(whole)
    assert all(refused(whole[: len(signed) + 1 + length]) for length in range(43))


def test_an_invented_token_is_rejected() -> None:
    """Shows S4."""
    words = ("", ".", "r3s", "r3s.", "r3s..", "r3sAAAA", "v1.AAAA", "\x00", "\ud800", "." * 1000, f"{TOKEN}\n{TOKEN}")
    heads = (
        "r3s.AAAA",
        "r3sAAA.AAAA",
        "r3sAAAAA.AAAA",
        "r3sAAAA.AAAA",
        "r3sAAAA.",
        "r2xAAAA.AAAA",
        "r1pAAAA.AAAA",
        "R2SAAAA.AAAA",
        "r3sAAAA.ÄÄÄÄ",
        "r3sAAAA.\u0661\u0661",
    )
    assert accepted((*words, *(f"{head}.{'A' * length}" for head in heads for length in (22, 43)))) == []


def test_token_is_accepted_only_with_its_hint() -> None:
    """Shows S4."""
    for token in TOKENS.values():
        hints = ("", KeyRing([OLD]).hints()[0], token[3:7].swapcase(), token[3:7])
        taken = [hint for hint in hints if not refused(token[:3] + hint + token[7:], NEW, OLD)]
        assert taken == [token[3:7]]


def test_spellings_that_itsdangerous_accepts_are_rejected() -> None:
    """Shows S4. The last character of a signature has four bits that are unused."""
    variants = [
        variant
        for token in TOKENS.values()
        for variant in (
            *(token[:-1] + ALPHABET[ALPHABET.index(token[-1]) ^ spare] for spare in range(1, 16)),
            *(token + tail for tail in ("=", "==", "!!!!")),
            f"{token[:-10]}!!!!{token[-10:]}",
        )
    ]
    assert [variant for variant in variants if not itsdangerous_takes(variant)] == []
    assert accepted(variants) == []


def edited(token: str) -> Iterator[str]:
    """Yield a token with a tail, with any character changed, with any insertion, and every part of it."""
    yield from (token + tail for tail in ("=!", "\n", " ", "ä"))
    for place, char in enumerate(token):
        others = {"A", "B", ".", *(chr(ord(char) ^ (1 << bit)) for bit in range(8))} - {char}
        yield from (token[:place] + other + token[place + 1 :] for other in others)
        yield from (token[:place] + extra + token[place:] for extra in ("A", "=", ".", "\n"))
        yield token[:place]
        yield token[place + 1 :]


def test_every_edited_token_is_rejected() -> None:
    """Shows S4."""
    assert accepted(variant for token in TOKENS.values() for variant in edited(token)) == []
