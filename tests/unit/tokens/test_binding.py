"""The binding of a token: requests with the same claims, and the differences of others."""

from itertools import product
from typing import Any

from roundtrip.errors import RejectionReason, TokenRejected
from roundtrip.tokens.binding import (
    MAX_BINDING_BYTES,
    audience_digest,
    is_principal,
    pack_binding,
    principal_digest,
    read_binding,
    rejection_of,
)
from tests.kit.raised import raised
from tests.kit.secrets import claims
from tests.kit.tables import check_each

CALL = b"this call"
OTHER_CALL = b"that call"

REASONS: dict[str, tuple[dict[str, Any], dict[str, Any], RejectionReason]] = {
    "another tool": ({}, {"tool": "buy"}, RejectionReason.OTHER_TARGET),
    "another method": ({}, {"method": "prompts/get"}, RejectionReason.OTHER_METHOD),
    "another service": ({"audience": "a"}, {"audience": "b"}, RejectionReason.OTHER_AUDIENCE),
    "a service without a name": ({"audience": "a"}, {}, RejectionReason.OTHER_AUDIENCE),
    "a service of an empty name": ({"audience": ""}, {}, RejectionReason.OTHER_AUDIENCE),
    "other arguments": ({"arguments": {"a": 1}}, {"arguments": {"a": 2}}, RejectionReason.OTHER_ARGUMENTS),
    "an argument more": ({"arguments": {"a": 1}}, {"arguments": {"a": 1, "b": None}}, RejectionReason.OTHER_ARGUMENTS),
    "a number as text": ({"arguments": {"a": 1}}, {"arguments": {"a": "1"}}, RejectionReason.OTHER_ARGUMENTS),
    "items in another order": (
        {"arguments": {"a": [1, 2]}},
        {"arguments": {"a": [2, 1]}},
        RejectionReason.OTHER_ARGUMENTS,
    ),
    "half a character": (
        {"arguments": {"a": "\ud800"}},
        {"arguments": {"a": "\ud801"}},
        RejectionReason.OTHER_ARGUMENTS,
    ),
    "another resource": (
        {"method": "resources/read", "tool": "book://1"},
        {"method": "resources/read", "tool": "book://2"},
        RejectionReason.OTHER_TARGET,
    ),
    "all of it": ({}, {"method": "prompts/get", "tool": "buy", "audience": "x"}, RejectionReason.OTHER_METHOD),
}


def test_differences_of_two_requests_are_named() -> None:
    """Shows S5."""

    def check(name: str, principal: str | None) -> None:
        one, other, reason = REASONS[name]
        for ours, theirs in ((one, other), (other, one)):
            found, size = read_binding(claims(**ours, principal=principal))
            wanted = claims(**theirs)
            wanted = bytes([wanted[0] | (4 if principal else 0)]) + wanted[1:]
            assert not claims(**ours, principal=principal).startswith(wanted)
            assert rejection_of(found, wanted) is reason
            assert size == (MAX_BINDING_BYTES if principal else 21)

    check_each(product(REASONS, (None, "ann")), check)


def test_equal_requests_have_equal_claims() -> None:
    assert claims(arguments={"a": 1, "b": 2}) == claims(arguments={"b": 2, "a": 1})
    assert claims(arguments={}) == claims(arguments=None)
    no_parameters = pack_binding("tools/call", None, audience=audience_digest(None), call=bytes(9), bound=False)
    assert claims(tool="") == no_parameters
    # A resource has no arguments.
    assert claims(method="resources/read", arguments={"a": 1}) == claims(method="resources/read", arguments=None)


def test_caller_is_known_only_by_their_claim() -> None:
    """Shows S5."""
    claim = principal_digest("ann", CALL)
    assert claim != principal_digest("ann", OTHER_CALL)
    assert is_principal(claim, "ann", CALL)
    assert not is_principal(claim, "ann", OTHER_CALL)
    for name in ("bob", "", "ann ", "Ann", "\ud800"):
        assert not is_principal(claim, name, CALL)
    for place in range(len(claim)):
        for bit in range(8):
            spoilt = bytearray(claim)
            spoilt[place] ^= 1 << bit
            assert not is_principal(bytes(spoilt), "ann", CALL)
    assert not any(is_principal(claim[:length], "ann", CALL) for length in range(len(claim)))


def refusal(raw: bytes) -> RejectionReason | None:
    error = raised(read_binding, raw)
    return error.reason if isinstance(error, TokenRejected) else None


def test_cut_claims_and_those_of_another_kind_are_rejected() -> None:
    """Shows S4."""
    whole = claims(principal="ann")
    kinds = (0x00, 0x10, 0x20, 0x33, 0x37, 0x38, 0x3C, 0xFF)
    wrong = [*(whole[:length] for length in range(33)), *(bytes([kind]) + whole[1:] for kind in kinds)]
    assert [one for one in wrong if refusal(one) is not RejectionReason.FORMAT] == []
