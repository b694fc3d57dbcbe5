"""Times, sizes and values as text."""

import math
from datetime import UTC

from roundtrip.trace.explaining.wording import (
    clock_text,
    count_text,
    duration_text,
    quoted,
    recorded_text,
    size_text,
    times_text,
)
from roundtrip.trace.writing.lines import Digested, Revealed
from tests.kit.tables import check_each


def test_durations() -> None:
    def check(ms: float, text: str) -> None:
        assert duration_text(ms) == text

    check_each(
        [
            (0, "0 ms"),
            (0.04, "0.0 ms"),
            (3.14, "3.1 ms"),
            (12.4, "12 ms"),
            (999, "999 ms"),
            (1234, "1.2 s"),
            (59_940, "59.9 s"),
            (59_990, "1 min"),
            (125_000, "2 min 5 s"),
            (3_599_600, "1 h"),
            (3_720_000, "1 h 2 min"),
            (86_400_000 * 3 + 3_600_000 * 4, "3 d 4 h"),
            (math.inf, "?"),
            (math.nan, "?"),
            (-1, "?"),
        ],
        check,
    )


def test_sizes_clocks_and_counts() -> None:
    sizes = [size_text(size) for size in (0, 1023, 1024, 70_000, 3 * 1024**2)]
    assert sizes == ["0 B", "1023 B", "1.0 KiB", "68.4 KiB", "3.0 MiB"]
    assert clock_text(1_795_000_000.1234, zone=UTC) == "2026-11-18 11:06:40"
    assert clock_text(1_795_000_000.1234, zone=UTC, precise=True) == "2026-11-18 11:06:40.123"
    assert clock_text(1e300) == "?"
    assert [count_text(number, "leg") for number in (0, 1, 2)] == ["0 legs", "1 leg", "2 legs"]
    assert [times_text(number) for number in (1, 2, 3)] == ["once", "twice", "3 times"]


def test_quoted_text_is_printable_and_short() -> None:
    assert quoted("it's\x1b[31m\u202e") == '"it\'s\\x1b[31m\\u202e"'
    assert quoted(["a", 1]) == "'[\"a\", 1]'"
    assert quoted("\ud800").isprintable()
    assert len(quoted("x" * 1000)) < 250


def test_fixed_values_are_json_or_placeholders() -> None:
    assert recorded_text(Revealed(value={"a": "ü"})) == '{"a": "ü"}'
    assert recorded_text(Revealed(value="x" * 50), longest=10) == '"xxxxxxxxx… (52 characters)'
    assert recorded_text(Digested(digest="abc", bytes=2048)) == "(2.0 KiB, digest abc)"
