"""The list of expected differences from the SDK, and how failures are held against it."""

import re

import pytest

from tests.fastmcp_suite.suite import DIFFERENCES as OF_FASTMCP
from tests.sdk.suite import MOST_ENTRIES, ROOT, Difference, Entry, Failure, differences, judge

LISTED = [Difference("page", "line", (Entry("t.py::one"), Entry("t.py::many_*", 2)))]
AS_LISTED = ["t.py::one[a]", "t.py::many_a", "t.py::many_b[x]"]


def failed(*tests: str) -> list[Failure]:
    return [Failure(test, "") for test in tests]


def test_list_is_short_and_names_no_test_twice() -> None:
    matches = [entry.match for difference in differences() for entry in difference.entries]
    assert len(matches) == len(set(matches)) <= MOST_ENTRIES


@pytest.mark.parametrize("difference", [*differences(), *differences(OF_FASTMCP)], ids=lambda one: one.line)
def test_each_difference_is_explained_by_a_line_of_the_docs(difference: Difference) -> None:
    page, _, anchor = difference.docs.partition("#")
    text = (ROOT / page).read_text(encoding="utf-8")
    headings = [re.sub(r"[^a-z -]", "", line.lstrip("# ").lower()).replace(" ", "-") for line in _headings(text)]
    assert anchor in headings
    assert sum(difference.line in line for line in text.splitlines()) == 1
    assert difference.entries


def _headings(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("#")]


def test_failures_as_listed_pass() -> None:
    judgement = judge(failed(*AS_LISTED), LISTED, ran=AS_LISTED)
    assert (judgement.unlisted, judgement.outdated, judgement.expected) == ([], [], 3)


def test_failure_without_an_entry_is_reported() -> None:
    judgement = judge(failed(*AS_LISTED, "t.py::other"), LISTED, ran=[*AS_LISTED, "t.py::other"])
    assert [failure.test for failure in judgement.unlisted] == ["t.py::other"]


@pytest.mark.parametrize(
    ("fails", "told"),
    [
        (["t.py::many_a", "t.py::many_b[x]"], "t.py::one: 0 of its tests fail, and 1 are listed"),
        (["t.py::one[a]", "t.py::many_a"], "t.py::many_*: 1 of its tests fail, and 2 are listed"),
        ([*AS_LISTED, "t.py::many_c"], "t.py::many_*: 3 of its tests fail, and 2 are listed"),
    ],
)
def test_entry_differing_from_its_listing_is_reported(fails: list[str], told: str) -> None:
    assert judge(failed(*fails), LISTED, ran=[*AS_LISTED, "t.py::many_c"]).outdated == [told]


def test_entry_for_an_unrun_test_is_not_judged() -> None:
    assert judge([], LISTED, ran=["t.py::other"]).outdated == []
