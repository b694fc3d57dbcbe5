"""Sealed values and encrypted tokens, which the client carries but may not read."""

from dataclasses import replace
from itertools import pairwise

import pytest

from roundtrip.errors import RejectionReason, TokenRejected
from roundtrip.machine.journal import Journal
from roundtrip.machine.journal_bytes import unpack_open
from roundtrip.tokens.token import JournalCodec, KeyRing, Sealer, TokenCodec
from tests.kit.raised import raised
from tests.kit.secrets import NEW, OLD, OTHER, CountedEntropy, codec, decode, journal, journals, payload, sealer
from tests.kit.token_readings import readings

SECRET = "the quoted price is 9.50"


def test_padding_is_taken_off_again() -> None:
    sizes = (0, 1, 59, 60, 61, 63, 64, 65, 1000)
    assert [n for n in sizes if sealer().open(sealer().seal(bytes(n), b"here"), b"here") != bytes(n)] == []


def test_sealed_part_opens_only_as_it_was_sealed() -> None:
    """Shows S4."""
    sealed = sealer(OLD).seal(b"secret", b"here")
    assert sealer(NEW, OLD).open(sealed, b"here") == b"secret"
    encrypting = Sealer(KeyRing([OLD]), purpose=b"encrypt", entropy=CountedEntropy())
    damaged = [sealed[:length] for length in range(len(sealed))]
    damaged += [
        sealed[:place] + bytes([byte ^ (1 << bit)]) + sealed[place + 1 :]
        for place, byte in enumerate(sealed)
        for bit in range(8)
    ]
    errors = [
        raised(sealer(OLD).open, sealed, b"there"),
        raised(sealer(NEW, OTHER).open, sealed, b"here"),
        raised(encrypting.open, sealed, b"here"),
        *(raised(sealer(OLD).open, one, b"here") for one in damaged),
    ]
    assert {error.reason for error in errors if isinstance(error, TokenRejected)} == {RejectionReason.SEAL}
    assert [place for place, error in enumerate(errors) if not isinstance(error, TokenRejected)] == []


def test_each_sealing_draws_one_fresh_nonce_of_twelve_bytes() -> None:
    entropy = CountedEntropy()
    sealing = Sealer(KeyRing([NEW]), purpose=b"seal", entropy=entropy)
    encrypting = TokenCodec(KeyRing([NEW]), entropy=entropy, encrypt=True)
    sealed = [sealing.seal(b"secret", b"here") for _ in range(3)]
    encrypted = [decode(encrypting.seal(b"payload").split(".")[1]) for _ in range(2)]
    assert entropy.drawn == [12] * 5
    assert [one[:12] for one in (*sealed, *encrypted)] == [number.to_bytes(12, "big") for number in range(5)]
    assert len({one[12:] for one in sealed}) == 3


def test_verified_bytes_that_are_no_journal_are_rejected() -> None:
    strange = [b"", b"[]", b"not a journal", b"\x20", journals().write(journal()) + b"\0"]
    assert [packed for packed in strange if not isinstance(raised(journals().read, packed), TokenRejected)] == []


def test_journal_over_the_limit_of_its_reader_is_rejected() -> None:
    with pytest.raises(TokenRejected) as caught:
        journals(max_bytes=2000).read(journals().write(journal(chars=3000), deflate=True))
    assert caught.value.reason is RejectionReason.OVERSIZED


def test_keyless_codec_reads_open_parts_and_rejects_sealed_ones() -> None:
    keyless = JournalCodec(None)
    assert not keyless.can_seal
    assert journals().can_seal
    assert keyless.read(keyless.write(journal())) == journal()
    with pytest.raises(TokenRejected) as caught:
        keyless.read(journals().write(journal(computed=SECRET)))
    assert caught.value.reason is RejectionReason.FORMAT


def test_keyless_codec_frames_an_author_s_own_state() -> None:
    keyless, own = JournalCodec(None), journal(authored="step 2")
    packed = keyless.write(own)
    assert keyless.read(packed) == own
    # The nonce and the tag of a sealed part.
    framed = len(unpack_open(packed)[1] or b"")
    for place in (len(packed) - framed, len(packed) - 1):
        changed = bytearray(packed)
        changed[place] = ord("X")
        with pytest.raises(TokenRejected) as caught:
            keyless.read(bytes(changed))
        assert caught.value.reason is RejectionReason.FORMAT


def open_to_clients(journal: Journal, *, encrypt: bool = False) -> list[str]:
    """Return the words that a client can read in a token of a journal."""
    found = b"|".join(readings(codec(encrypt=encrypt).seal(payload(journal))))
    return [word for word in (SECRET, "quote", "question_0", "call-1", "confirm", "aaaa") if word.encode() in found]


def test_client_reads_no_sealed_value_and_nothing_encrypted() -> None:
    """Shows S4."""
    answers = journal(answers=16, chars=40).entries
    assert {
        "computed": open_to_clients(journal(computed=SECRET)),
        "written by an author, deflated": open_to_clients(replace(journal(authored=SECRET), entries=answers)),
        "encrypted": open_to_clients(journal(computed=SECRET), encrypt=True),
    } == {
        "computed": ["question_0", "call-1", "confirm", "aaaa"],
        "written by an author, deflated": ["question_0", "call-1", "confirm", "aaaa"],
        "encrypted": [],
    }


@pytest.mark.parametrize("encrypt", [False, True], ids=["sealed part", "encrypted token"])
def test_length_of_a_secret_is_known_in_steps_of_64_bytes(encrypt: bool) -> None:
    """Shows S4."""

    def size(value: str) -> int:
        if encrypt:
            return len(decode(codec(encrypt=True).seal(value.encode()).split(".")[1]))
        return len(unpack_open(journals().write(journal(computed=value)))[1] or b"")

    steps = sorted({size("x" * length) for length in range(200)})
    assert len(steps) == 4
    assert {after - before for before, after in pairwise(steps)} == {64}
