"""Versions of tools: their order, and the version that a request names."""

import pytest

from roundtrip import InvalidSignature
from roundtrip.server.tool_calls import named_version
from roundtrip.server.tools.options import version_text
from roundtrip.server.tools.registry import VersionKey


@pytest.mark.parametrize(
    ("lower", "higher"),
    [
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
    ],
)
def test_versions_are_ordered(lower: str, higher: str) -> None:
    assert VersionKey(lower) < VersionKey(higher)
    assert not VersionKey(higher) < VersionKey(lower)
    assert VersionKey(lower) != VersionKey(higher)


@pytest.mark.parametrize(("one", "other"), [("1", "1.0"), ("1.0", "v1.0"), ("1.0-rc.1", "1.0rc1")])
def test_two_spellings_of_one_version_are_one(one: str, other: str) -> None:
    assert VersionKey(one) == VersionKey(other)
    assert hash(VersionKey(one)) == hash(VersionKey(other))


def test_a_version_with_more_digits_than_python_reads_is_text() -> None:
    assert VersionKey("1") < VersionKey("9" * 5000)


def test_oversized_version_is_text_and_not_parsed() -> None:
    assert VersionKey("1.0" + " " * 200) == VersionKey("1.0") < VersionKey("1.0" + " " * 300)


@pytest.mark.parametrize(("version", "text"), [(None, None), ("1.0", "1.0"), (2, "2")])
def test_a_version_is_text_or_a_number(version: object, text: str | None) -> None:
    assert version_text(version, tool="quote") == text


@pytest.mark.parametrize("version", ["", "1@2", True, 1.1, ["1"]])
def test_invalid_version_is_rejected(version: object) -> None:
    with pytest.raises(InvalidSignature, match="tool 'quote': version="):
        version_text(version, tool="quote")


@pytest.mark.parametrize(
    ("meta", "version"),
    [
        (None, None),
        ({}, None),
        ({"roundtrip/version": "1.0"}, "1.0"),
        ({"roundtrip/version": 2}, "2"),
        ({"fastmcp": {"version": "1.0"}}, "1.0"),
        ({"roundtrip/version": "2.0", "fastmcp": {"version": "1.0"}}, "2.0"),
        ({"fastmcp": "1.0"}, None),
        ({"fastmcp": {"version": None}}, None),
        ("1.0", None),
    ],
)
def test_a_request_names_a_version_in_its_metadata(meta: object, version: str | None) -> None:
    assert named_version({"name": "quote", "_meta": meta}) == version
