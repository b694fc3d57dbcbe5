"""Versions of tools: their order, and the version that a request names."""

from typing import Any

import pytest

from roundtrip import InvalidSignature
from roundtrip.server.tool_calls import named_version
from roundtrip.tools.options import version_text
from roundtrip.tools.registry import order_of
from tests.kit.tables import check_each


def test_versions_are_ordered() -> None:
    def check(lower: str, higher: str) -> None:
        assert order_of(lower) < order_of(higher)
        assert not order_of(higher) < order_of(lower)
        assert order_of(lower) != order_of(higher)

    pairs = [
        ("1", "2"),
        ("2", "10"),
        ("1.9", "1.10"),
        ("1.0rc1", "1.0"),
        ("1.0", "1.0.post1"),
        ("v1", "v2"),
        ("1!1.0", "2!0.1"),
        ("9.9", "2025-01-15"),
        ("2025-01-15", "2025-02-01"),
        ("alpha", "beta"),
    ]
    check_each(pairs, check)


def test_two_spellings_of_one_version_are_one() -> None:
    for one, other in (("1", "1.0"), ("1.0", "v1.0"), ("1.0-rc.1", "1.0rc1")):
        assert order_of(one) == order_of(other)
        assert hash(order_of(one)) == hash(order_of(other))


def test_version_that_is_too_long_to_parse_is_text() -> None:
    assert order_of("1") < order_of("9" * 5000)
    assert order_of("1.0" + " " * 200) == order_of("1.0") < order_of("1.0" + " " * 300)


def test_a_version_is_text_or_a_number() -> None:
    assert [version_text(version, tool="quote") for version in (None, "1.0", 2)] == [None, "1.0", "2"]
    invalid: list[Any] = ["", "1@2", True, 1.1, ["1"]]
    for version in invalid:
        with pytest.raises(InvalidSignature, match="tool 'quote': version="):
            version_text(version, tool="quote")


def test_a_request_names_a_version_in_its_metadata() -> None:
    def check(meta: object, version: str | None) -> None:
        assert named_version({"name": "quote", "_meta": meta}) == version

    requests: list[tuple[object, str | None]] = [
        (None, None),
        ({}, None),
        ({"roundtrip/version": "1.0"}, "1.0"),
        ({"roundtrip/version": 2}, "2"),
        ({"fastmcp": {"version": "1.0"}}, "1.0"),
        ({"roundtrip/version": "2.0", "fastmcp": {"version": "1.0"}}, "2.0"),
        ({"fastmcp": "1.0"}, None),
        ({"fastmcp": {"version": None}}, None),
        ("1.0", None),
    ]
    check_each(requests, check)
