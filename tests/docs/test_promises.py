"""Each promise names the test that proves it, and the tier in which it runs."""

import re
from typing import Final

from tests.docs.pages import ROOT
from tests.kit.tiers import Tier, is_in_tier

_PAGE: Final = ROOT / "docs" / "reliability.md"
_ROW: Final = re.compile(
    r"^\| (?P<promise>.+) \| \[`(?P<test>test_\w+)`\]\(\.\./(?P<path>\S+)\) \| (?P<tier>\w+) \|$", re.MULTILINE
)


def test_each_promise_names_a_test_of_its_tier() -> None:
    rows = list(_ROW.finditer(_PAGE.read_text(encoding="utf-8")))
    assert len(rows) >= 9
    wrong: list[str] = []
    for row in rows:
        path = ROOT / row["path"]
        folders = [folder for folder in path.relative_to(ROOT).parents if folder.name]
        in_first = all(is_in_tier(ROOT / folder, Tier.FIRST) for folder in folders)
        if f"def {row['test']}(" not in path.read_text(encoding="utf-8") or in_first != (row["tier"] == "first"):
            wrong.append(row["promise"])
    assert wrong == []
