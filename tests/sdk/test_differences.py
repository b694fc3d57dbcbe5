"""The list of expected differences from the SDK, and how failures are held against it."""

import re

import pytest

from tests.fastmcp_suite.suite import DIFFERENCES as OF_FASTMCP
from tests.sdk.suite import MOST_ENTRIES, ROOT, Difference, Entry, Failure, differences, judge


def test_list_is_short_and_names_no_test_twice() -> None:
    matches = [entry.match for difference in differences() for entry in difference.entries]
    assert len(matches) == len(set(matches)) <= MOST_ENTRIES


@pytest.mark.parametrize("difference", [*differences(), *differences(OF_FASTMCP)], ids=lambda one: one.line)
def test_each_difference_is_explained_by_a_line_of_the_docs(difference: Difference) -> None:
    page, _, anchor = difference.docs.partition("#")
    text = (ROOT / page).read_text(encoding="utf-8")
    titles = [line.lstrip("# ").lower() for line in text.splitlines() if line.startswith("#")]
    assert anchor in [re.sub(r"[^a-z -]", "", title).replace(" ", "-") for title in titles]
    assert sum(difference.line in line for line in text.splitlines()) == 1
    assert difference.entries


ONE, MANY = ["t.py::one[a]"], ["t.py::many_a", "t.py::many_b[x]"]


@pytest.mark.parametrize(
    ("fails", "unlisted", "outdated"),
    [
        ([*ONE, *MANY], [], []),
        ([*ONE, *MANY, "t.py::other"], ["t.py::other"], []),
        (MANY, [], ["t.py::one: 0 of its tests fail, and 1 are listed"]),
        ([*ONE, MANY[0]], [], ["t.py::many_*: 1 of its tests fail, and 2 are listed"]),
        ([*ONE, *MANY, "t.py::many_c"], [], ["t.py::many_*: 3 of its tests fail, and 2 are listed"]),
    ],
)
def test_failures_are_held_against_the_list(fails: list[str], unlisted: list[str], outdated: list[str]) -> None:
    listed = [Difference("page", "line", (Entry("t.py::one"), Entry("t.py::many_*", 2)))]
    judgement = judge([Failure(test, "") for test in fails], listed, ran=[*ONE, *MANY, "t.py::many_c", "t.py::other"])
    assert [failure.test for failure in judgement.unlisted] == unlisted
    assert (judgement.outdated, judgement.expected) == (outdated, len(fails) - len(unlisted))
    # An entry for a test that did not run is not judged.
    assert judge([], listed, ran=["t.py::other"]).outdated == []
