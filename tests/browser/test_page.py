"""The page of a call in a real Chromium loads nothing, works by keyboard, and runs no foreign script."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from roundtrip.trace.page.document import html
from roundtrip.trace.reading.calls import TracedCall
from roundtrip.trace.reading.joining import join
from roundtrip.trace.reading.transcripts import files_of, read_files
from tests.browser.conftest import DRAWINGS, Axe, Tab, expect, papers, scroll_width
from tests.browser.orders import record_order
from tests.unit.trace.tales import Tale, long_call, question

Open = Callable[[TracedCall | Tale], None]


@pytest.fixture
def open_page(tab: Tab, tmp_path: Path) -> Open:
    def opened(shown: TracedCall | Tale) -> None:
        path = tmp_path / "call.html"
        path.write_text(html(shown.call() if isinstance(shown, Tale) else shown), encoding="utf-8")
        tab.page.goto(path.as_uri())
        tab.page.wait_for_selector("html[data-ready]")

    return opened


@pytest.fixture(scope="module")
def order(tmp_path_factory: pytest.TempPathFactory) -> TracedCall:
    path = tmp_path_factory.mktemp("order") / "calls.jsonl"
    record_order(path)
    (call,) = join(read_files(files_of([path])).lines).calls.values()
    return call


def messages_here(tab: Tab) -> list[str]:
    return tab.page.locator(".message.here text").all_text_contents()


def visited(tab: Tab) -> set[tuple[str | None, str | None]]:
    arrows = tab.page.locator(".rt-arrow.rt-visited")
    return {
        (arrow.get_attribute("data-source"), arrow.get_attribute("data-event")) for arrow in arrows.element_handles()
    }


def test_stepping_by_keyboard_moves_all_panes(tab: Tab, open_page: Open, order: TracedCall, tmp_path: Path) -> None:
    tab.page.context.set_offline(True)
    open_page(order)
    assert "completed" in tab.text("#state")
    assert [part for part in ("Server time", "Waiting", "5 on 3 instances") if part not in tab.text("#facts")] == []
    assert not tab.page.locator("#failure").is_visible()
    assert tab.text("#inspector-title") == "Round 1"
    before = visited(tab)
    tab.press("ArrowRight", "ArrowRight")
    tab.page.wait_for_url("**#step-3")
    assert tab.text("#inspector-title") == "Round 3"
    assert tab.text("#grid [aria-current=step]") == "3"
    assert tab.page.locator("#grid td.here").all_inner_texts()[1].split() == ["↻", "asked", "again"]
    assert [text.split(",")[0] for text in messages_here(tab)] == [
        "retry with delivery: lost",
        "asks delivery (reworded)",
    ]
    assert visited(tab) - before == {("awaiting_input", "resume"), ("resumed", "resolve")}
    assert tab.page.locator(".rt-state.rt-current").get_attribute("data-state") == "awaiting_input"
    assert tab.text("#announced").startswith("Round 3, 3 of 5. Asked: delivery (reworded).")
    inspected = tab.text("#inspected")
    asked = "How shall we send you the hardcover? Postage is 3.50."
    parts = (asked, "its message changed from", "◉ post", "Ring twice", "answer:delivery")
    assert [part for part in parts if part not in inspected] == []
    tab.press("End")
    assert tab.text("#inspector-title") == "End: completed"
    assert "'Dune', hardcover, by post: ordered." in tab.text("#inspected")
    assert ("executing", "finish") in visited(tab)
    assert tab.page.locator(".rt-state.rt-current").get_attribute("data-state") == "completed"
    # A column, a message and a button lead to their steps, too.
    tab.page.locator("#grid button", has_text="2").click()
    assert tab.text("#inspector-title") == "Round 2"
    tab.page.locator(".message", has_text="tools/call").click()
    assert tab.text("#inspector-title") == "Round 1"
    tab.page.locator("#next").click()
    assert tab.text("#inspector-title") == "Round 2"
    assert tab.requests == [(tmp_path / "call.html").as_uri()]


def test_each_key_and_address_goes_where_it_says(tab: Tab, open_page: Open, order: TracedCall) -> None:
    open_page(order)
    for keys, step in (
        (["j"], 2),
        (["j", "j", "k"], 2),
        (["ArrowRight", "ArrowLeft", "ArrowLeft"], 1),
        (["End"], 5),
        (["End", "ArrowRight"], 5),
        (["End", "Home"], 1),
        (["Shift+ArrowRight", "Control+ArrowRight"], 1),
    ):
        tab.press("Home", *keys)
        tab.page.wait_for_url(f"**#step-{step}")
    # The address says where the reader is.
    tab.page.evaluate("location.hash = '#step-2'")
    expect(tab.page.locator("#inspector-title")).to_have_text("Round 2")
    tab.page.reload()
    assert tab.text("#inspector-title") == "Round 2"
    tab.page.evaluate("location.hash = '#step-99'")
    tab.page.wait_for_url("**#step-5")


def test_everything_can_be_reached_by_tabulator(tab: Tab, open_page: Open, order: TracedCall) -> None:
    open_page(order)
    reached: list[str] = []
    for _ in range(20):
        tab.press("Tab")
        reached.append(
            tab.page.evaluate("document.activeElement.id || document.activeElement.textContent.trim().slice(0, 14)")
        )
    wanted = ["first", "previous", "next", "last", "1", "exchange-pane", "inspected", "Recorded lines"]
    assert [name for name in reached if name in wanted][: len(wanted)] == wanted
    assert reached.count("1") >= 1
    # The columns are one stop, as the keys go through them.
    assert "2" not in reached


def test_raw_lines_are_spread_out_and_keep_their_numbers(tab: Tab, open_page: Open) -> None:
    value: dict[str, Any] = {
        "big": 2**70,
        "text": 'a "quoted\\" {brace}, [bracket]: \u00e9',
        "none": {},
        "list": [1, [], None],
    }
    open_page(Tale().began(1, arguments={"value": value}).asked(question("a")))
    tab.page.locator("summary", has_text="Recorded lines").click()
    first = tab.page.locator("pre.raw").first.inner_text()
    assert f'      "big": {2**70},\n' in first
    assert '      "text": "a \\"quoted\\\\\\" {brace}, [bracket]: é",\n' in first
    assert '      "none": {},\n      "list": [\n        1,\n        [],\n        null\n      ]\n' in first


LOST_BEGINNING: Final = Tale("abc").began(1).asked(question("a")).ended()
LOST_BEGINNING.lines = LOST_BEGINNING.lines[1:]


@pytest.mark.parametrize(
    ("tale", "name"),
    [
        (Tale(era="live").began(1).asked(question("a")).answered("a").ended(), "End: completed"),
        (Tale().began(1), "Now: received"),
        (Tale().rejected("tampered"), "Now: rejected"),
        (Tale().began(1).asked(question("a")).began(1, "birch").asked(question("a")), "Round 2"),
        (Tale(era="direct").began(1).ended("failed", error={"type": "E", "text": {"value": "x"}}), "End: failed"),
        (LOST_BEGINNING, "End: completed"),
    ],
    ids=["live", "begun", "rejected", "served twice", "direct", "without its beginning"],
)
def test_every_kind_of_call_has_a_page(tab: Tab, open_page: Open, tale: Tale, name: str) -> None:
    open_page(tale)
    tab.press("End")
    assert tab.text("#inspector-title") == name
    assert messages_here(tab)


def test_page_has_no_barriers_in_light_and_in_dark_at_any_width(
    tab: Tab, open_page: Open, axe: Axe, order: TracedCall
) -> None:
    for shown in (order, failed_call()):
        open_page(shown)
        tab.press("Home", "j", "j")
        axe(exclude=DRAWINGS)
        light, dark = papers(tab.page)
        assert light == "rgb(255, 255, 255)"
        assert dark != light
        for width in (800, 1280):
            tab.page.set_viewport_size({"width": width, "height": 800})
            assert scroll_width(tab.page) <= width


def test_page_of_a_thousand_events_draws_a_part_of_them(tab: Tab, open_page: Open) -> None:
    open_page(long_call(60))
    few = tab.page.locator("*").count()
    tale = long_call(500)
    assert len(tale.lines) == 1000
    open_page(tale)
    for key in ("End", "ArrowLeft", "Home", "ArrowRight", "End", "k", "Home", "j"):
        tab.press(key)
        assert tab.page.locator("*").count() < 2 * few, key
    tab.press("End")
    assert tab.text("#inspector-title") == "End: completed"
    assert "of 499 in these columns" in tab.text("#columns")


def failed_call() -> Tale:
    tale = Tale().began(1, "ash").asked(question("seat")).began(2, "birch").asked(question("snack"))
    moves = [
        ("resume", "resumed", 0.1),
        ("resolve", "resolving", 0.2),
        ("execute", "executing", 1),
        ("fail", "failed", 2),
    ]
    return tale.began(3, "ash").ended("failed", moves=moves, error={"type": "KeyError", "text": {"value": "no hall 9"}})


def test_failed_call_opens_at_its_failure(tab: Tab, open_page: Open) -> None:
    open_page(failed_call())
    assert tab.text("#inspector-title") == "End: failed"
    tab.page.wait_for_url("**#step-3")
    why = tab.text("#failure")
    assert why.startswith("Leg 3 on 'ash' failed after round 2, in its body, because KeyError: 'no hall 9' was raised")
    box = tab.page.locator("#failure").bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 300
    # The address says where it is read, all the same.
    tab.press("Home")
    tab.page.reload()
    assert tab.text("#inspector-title") == "Round 1"


def test_parts_that_scroll_say_so_and_can_be_reached(tab: Tab, open_page: Open) -> None:
    open_page(long_call(60))
    for pane, hint in [("#timeline-pane", "#timeline-more"), ("#exchange-pane", "#exchange-more")]:
        assert tab.text(hint).startswith("Scrolls: more ")
        assert tab.page.locator(pane).get_attribute("tabindex") == "0"
        described = tab.page.locator(pane).get_attribute("aria-describedby")
        assert f"#{described}" == hint
    assert "↓ below" in tab.text("#exchange-more")
    assert "↑ above" not in tab.text("#exchange-more")
    tab.page.locator("#exchange-pane").focus()
    tab.press("PageDown")
    expect(tab.page.locator("#exchange-more")).to_contain_text("↑ above")
    # Parts that do not scroll say nothing.
    tab.page.set_viewport_size({"width": 1280, "height": 1400})
    open_page(Tale().began(1).ended())
    assert tab.page.locator(".more").evaluate_all("hints => hints.every(hint => hint.hidden)")
    assert tab.page.locator("#timeline-pane").get_attribute("tabindex") is None


def test_arrows_scroll_a_part_that_is_wider_than_its_frame(tab: Tab, open_page: Open, order: TracedCall) -> None:
    tab.page.set_viewport_size({"width": 500, "height": 900})
    open_page(order)
    assert "→ to the right" in tab.text("#machine-more")
    tab.page.locator("#machine-pane").focus()
    tab.press("ArrowRight")
    expect(tab.page.locator("#machine-more")).to_contain_text("← to the left")
    assert tab.text("#inspector-title") == "Round 1"
