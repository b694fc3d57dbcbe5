"""A token has one spelling: all others are rejected, also those that itsdangerous alone would accept."""

import hashlib
import string
from collections.abc import Iterable, Iterator
from typing import Final

from itsdangerous import BadSignature, Signer

from roundtrip.errors import TokenRejected
from roundtrip.tokens.signing import ShortHmac
from roundtrip.tokens.token import KeyRing
from tests.kit.raised import raised
from tests.kit.secrets import NEW, OLD, codec, journal, payload

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


def test_a_token_is_taken_with_its_own_hint_alone() -> None:
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
