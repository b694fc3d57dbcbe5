"""Confidential values become digests."""

import json
from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent

from roundtrip.trace.writing.redaction import REVEALABLE, Redaction, read_reveal
from tests.kit.tables import check_each

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
VALUES: list[Any] = [
    None,
    "plain",
    {"nested": [1, 2.5, float("nan"), "x"]},
    CallToolResult(content=[TextContent(type="text", text="hello")]),
    "\ud800 alone",
    {"\udfff": "key"},
    object(),
    {1: {2}},
    b"bytes \xff",
]


def hidden(value: Any, key: bytes = KEY) -> dict[str, Any]:
    return json.loads(Redaction(key, frozenset()).render("answers", value))


def revealed(value: Any) -> Any:
    return json.loads(Redaction(KEY, read_reveal("all")).render("answers", value))["value"]


def test_anything_at_all_has_a_digest_and_can_be_revealed() -> None:
    def check(value: Any) -> None:
        told = hidden(value)
        assert set(told) == {"digest", "bytes"}
        assert told == hidden(value)
        revealed(value)

    check_each(VALUES, check)


def test_equal_values_have_equal_digests_under_one_key() -> None:
    assert hidden({"a": 1}) == hidden({"a": 1})
    assert hidden({"a": 1}) != hidden({"a": 2})
    assert hidden({"a": 1})["digest"] != hidden({"a": 1}, OTHER_KEY)["digest"]


def test_a_value_is_revealed_in_its_wire_form() -> None:
    assert revealed(VALUES[3])["content"] == [{"type": "text", "text": "hello"}]
    assert revealed({"nested": [1, 2.5]}) == {"nested": [1, 2.5]}


def test_only_the_kinds_that_were_chosen_are_revealed() -> None:
    def check(given: Any, expected: Any) -> None:
        redaction = Redaction(KEY, read_reveal(given))
        shown = {kind for kind in REVEALABLE if "value" in json.loads(redaction.render(kind, "x"))}
        assert shown == set(expected)

    every = [(given, REVEALABLE) for given in ("all", ["all"], REVEALABLE)]
    check_each([*every, (["questions", "steps"], ["questions", "steps"])], check)
    with pytest.raises(ValueError, match=r"some of arguments, answers, .*, got 'secrets'"):
        read_reveal(["answers", "secrets"])  # type: ignore[list-item]


def test_frequent_values_are_written_consistently() -> None:
    redaction = Redaction(KEY, frozenset())
    assert redaction.render_cached("questions", b"a", {"x": 1}) == redaction.render("questions", {"x": 1})
    for number in range(1000):
        assert redaction.render_cached("questions", b"%d" % number, number) == redaction.render("questions", number)


def test_the_size_of_a_short_value_does_not_tell_it() -> None:
    def check(short: Any, long: Any) -> None:
        assert hidden(short)["bytes"] == hidden(long)["bytes"] == 64
        assert hidden("x" * 100)["bytes"] == 128

    check_each([(True, False), ("yes", "n"), ({"ok": True}, {"ok": False})], check)


def test_unreadable_value_is_named_by_type() -> None:
    deep: Any = "bottom"
    for _ in range(500):
        deep = [deep]
    assert revealed(deep) == "(list)"
    assert revealed([10**5000]) == "(list)"
    assert revealed([[[1]]]) == [[[1]]]


def test_unnamed_question_name_is_not_a_testable_digest() -> None:
    redaction, name = Redaction(KEY, frozenset()), "unnamed-Qm9vX2Zvb2JhckRlYWRiZWVm-1"
    told = redaction.name(name)
    assert told.startswith("unnamed-")
    assert name[8:20] not in told
    assert told == redaction.name(name) != Redaction(OTHER_KEY, frozenset()).name(name)
    assert redaction.names_in(f"Question {name!r} was not answered") == f"Question {told!r} was not answered"
    assert redaction.name("confirm") == "confirm"
    assert Redaction(KEY, read_reveal("questions")).name(name) == name
