"""Lists and figures of `roundtrip ui` from lines that no recorder writes."""

import json
from pathlib import Path

import anyio
import pytest

from roundtrip.trace.index.index import CallIndex
from roundtrip.ui.fleet import fleet_data
from roundtrip.ui.forks import Forks
from roundtrip.ui.lists import Lists
from tests.unit.trace.tales import HOSTILE, Tale, question

TIMES = (-1e300, 0, 1.5, 1_790_000_000, 1e18, 1e300)


@pytest.fixture
def index(tmp_path: Path) -> CallIndex:
    tales = [Tale("--run").began(1).asked(question("q")), Tale(HOSTILE, tool="[*]").began(1, HOSTILE)]
    tales.append(Tale("late").began(1, "ash").asked(question("q")).began(2, "birch"))
    text = "".join(tale.write() for tale in tales)
    for place, at in enumerate(TIMES):
        line = json.loads(Tale(f"at{place}").began(1).write())
        text += json.dumps({**line, "at": at}) + "\n"
    (tmp_path / "calls.jsonl").write_text(text, encoding="utf-8")
    index = CallIndex([tmp_path])
    index.refresh()
    return index


def test_any_time_and_name_is_shown(index: CallIndex) -> None:
    shown = Lists(index).calls({})
    assert shown["found"] == len(shown["calls"]) == 3 + len(TIMES)
    figures = fleet_data(index, now=1_790_000_100.0)
    assert json.dumps([shown, figures], allow_nan=False)
    assert sum(begun for _, begun, _ in figures["minutes"]) >= 1
    (found,) = Lists(index).calls({"tool": ["[*]"]})["calls"]
    assert found["call"] == HOSTILE
    index.close()


def test_clock_that_is_behind_is_found(tmp_path: Path) -> None:
    early = json.loads(Tale("skewed").began(1).write())["at"]
    asked, later = Tale("skewed").began(1, "ash").asked(question("q")).began(2, "birch").lines[1:]
    lines = [Tale("skewed").began(1, "ash").lines[0], asked, later.model_copy(update={"at": early - 5})]
    text = "".join(f"{line.model_dump_json(exclude_unset=True)}\n" for line in lines)
    (tmp_path / "calls.jsonl").write_text(text)
    index = CallIndex([tmp_path])
    index.refresh()
    clocks = {one["name"]: one["clock"] for one in fleet_data(index)["instances"]}
    assert clocks == {"ash": "", "birch": "at least 6.0 s behind ash"}
    index.close()


def test_call_that_looks_like_an_option_is_not_forked(tmp_path: Path) -> None:
    async def fork() -> None:
        await Forks("shop.py", [tmp_path]).fork("--run", 1, [], run=False)

    with pytest.raises(ValueError, match="begins with a dash"):
        anyio.run(fork)
