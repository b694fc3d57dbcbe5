"""Pins: an answer counts for its own question, and a changed question is named."""

import hashlib
from itertools import count
from typing import Final

from roundtrip.machine.pins import (
    LIST_ROOTS,
    PAGE,
    SAMPLE,
    SAMPLE_WITH_TOOLS,
    Pinner,
    digest,
    is_by_software,
    is_page,
    label_of,
    may_use_tools,
)
from tests.kit.tables import check_each

OLD: Final = b"old key, thirty-two bytes long.."
NEW: Final = b"new key, thirty-two bytes long.."
CALL: Final = "AAECAwQFBgcI"
PAY: Final = digest("Pay 20?")
FORM: Final = digest("form")

PINNERS: Final = (Pinner([NEW]), Pinner([NEW, OLD]), Pinner())
"""A keyed one, one with two keys, and a salted one."""


def test_a_pin_fits_its_own_question_alone() -> None:
    def check(pinner: Pinner) -> None:
        pin = pinner.pin(CALL, PAY, FORM)
        assert pinner.changes(pin, CALL, PAY, FORM) == ()
        assert pinner.changes(pin, CALL, digest("Pay 98,000?"), FORM) == ("message",)
        assert pinner.changes(pin, CALL, PAY, digest("another form")) == ("schema",)
        assert pinner.changes(pin, CALL, digest("Pay 98,000?"), digest("another form")) == ("message", "schema")
        assert pinner.changes(pin, "BAECAwQFBgcI", PAY, FORM) == ("key",)

    check_each(PINNERS, check)


def test_a_change_that_its_plain_byte_hides_still_counts() -> None:
    alike = next(other for n in count() if (other := digest(f"Pay {n}, all of it?"))[0] == PAY[0])
    changes = [pinner.changes(pinner.pin(CALL, PAY, FORM), CALL, alike, FORM) for pinner in PINNERS]
    assert changes == [("key",)] * 3


def test_message_and_form_do_not_change_places() -> None:
    pinner = Pinner([NEW])
    assert pinner.changes(pinner.pin(CALL, PAY, FORM), CALL, FORM, PAY)


def test_a_pin_has_eight_keyed_or_sixteen_salted_bytes() -> None:
    told = PAY + FORM + CALL.encode()
    assert len(Pinner([NEW]).pin(CALL, PAY, FORM)) == 8 + 2
    assert Pinner().pin(CALL, PAY, FORM) == hashlib.sha256(told).digest()[:16] + PAY[:1] + FORM[:1]


def test_pin_reveals_the_kind_of_its_question() -> None:
    def check(pinner: Pinner) -> None:
        kinds = {
            schema: (is_page(pin), is_by_software(pin), may_use_tools(pin))
            for schema in (PAGE, LIST_ROOTS, SAMPLE, SAMPLE_WITH_TOOLS, FORM, bytes(32))
            if (pin := pinner.pin(CALL, PAY, schema))
        }
        assert kinds == {
            PAGE: (True, False, False),
            LIST_ROOTS: (False, True, False),
            SAMPLE: (False, True, False),
            SAMPLE_WITH_TOOLS: (False, True, True),
            FORM: (False, False, False),
            bytes(32): (False, False, False),
        }

    check_each(PINNERS, check)


def test_digests_of_texts_differ_and_have_a_label() -> None:
    assert label_of(digest("one")) == "dpLDrTVA"
    assert digest("\ud800") != digest("\ud801")
