"""The app's view for everybody: axe finds nothing in any state, keyboards are enough, and it fits a phone."""

from collections.abc import Callable
from typing import Final

import pytest

from roundtrip.pages.calls import AwaitingPage, ClosedPage, EndedPage, ShownDecision, WorkingPage
from roundtrip.pages.forms import OpenQuestions
from tests.browser.apps.shown import AppHost, AppShop, PlainHost
from tests.browser.conftest import Axe, Tab, expect
from tests.browser.pages.conftest import LONG
from tests.browser.pages.shop import DELIVERY, ORDER, SEVERAL
from tests.kit.page_calls import confirmation, form, link

HARD: Final[OpenQuestions] = {
    "a": form(LONG, {LONG: {"type": "string", "title": LONG, "description": LONG, "enum": [LONG] * 2}}),
    "b": link(LONG, f"https://a.example/{LONG}"),
    "c": form("Which?", {"d": {"type": "string", "enum": [LONG] * 9}, "e": {"type": "string", "format": "date-time"}}),
}
SURE: Final[OpenQuestions] = {"sure": confirmation("Delete 3 files?")}
PAY: Final[OpenQuestions] = {"pay": link("Please pay at the till.", "https://pay.example/till?id=7")}
DECISIONS: Final = (ShownDecision("Refund 5?", "finance", "rejected", LONG), ShownDecision(LONG, LONG, "approved"))


@pytest.fixture
def check(tab: Tab, axe: Axe) -> Callable[[], None]:
    """Return a function that looks for barriers on a phone and on a desk."""

    def look() -> None:
        frame = tab.page.frame(name="view")
        assert frame is not None
        for width in (800, 320):
            tab.page.set_viewport_size({"width": width, "height": 640})
            tab.page.wait_for_function(
                "(width) => document.querySelector('iframe').clientWidth > width - 40", arg=width
            )
            axe(frame=frame)
            assert frame.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")

    return look


@pytest.mark.parametrize("context", [{}, {"theme": "dark"}], ids=["colors of the user", "dark host"])
def test_questions_have_no_barriers(
    host: AppHost, shop: AppShop, check: Callable[[], None], context: dict[str, str]
) -> None:
    shop.ask(ORDER, SEVERAL, HARD, SURE, PAY)
    view = host.mount(result=shop.result(), context=context)
    buttons = [
        *(("Answer", "Do not answer"), ("Send answers", "Do not answer any of these")),
        *(("Send answers", "Do not answer any of these"), (None, "No"), (None, "Do not continue")),
    ]
    for answer, decline in buttons:
        expect(view.get_by_role("button", name=decline, exact=True)).to_be_visible()
        check()
        if answer is not None:
            view.get_by_role("button", name=answer, exact=True).click()
            expect(view.get_by_role("alert")).to_be_focused()
            check()
        view.get_by_role("button", name=decline, exact=True).click()
    expect(view.get_by_role("heading", name="Done")).to_be_focused()


STATES: Final = {
    "working": WorkingPage(),
    "awaiting": AwaitingPage(("finance", LONG)),
    "ended": EndedPage(LONG, is_error=True, decisions=DECISIONS),
    "closed": ClosedPage(),
}


@pytest.mark.parametrize("state", STATES)
def test_states_have_no_barriers(host: AppHost, shop: AppShop, check: Callable[[], None], state: str) -> None:
    shop.ask(instead=STATES[state])
    view = host.mount(result=shop.result())
    expect(view.get_by_role("heading", level=1)).to_be_visible()
    check()


def test_sentences_have_no_barriers(host: AppHost, shop: AppShop, check: Callable[[], None]) -> None:
    shop.ask(SURE)
    for without in (["serverTools"], ["serverTools", "openLinks"]):
        view = host.mount(result=shop.result(), without=without)
        expect(view.locator("main")).to_contain_text("Questions cannot be answered here")
        check()
        host.tell("remove", "view")
    view = host.mount(result=shop.result())
    shop.is_down = True
    view.get_by_role("button", name="Yes").click()
    expect(view.get_by_role("alert")).to_be_focused()
    check()
    host.tell("remove", "view")
    view = host.mount(result=shop.result())
    expect(view.get_by_role("alert")).to_contain_text("could not be loaded")
    check()


def test_form_that_is_passed_on_has_no_barriers(plain: PlainHost, check: Callable[[], None]) -> None:
    view = plain.mount()
    plain.ask(1, ORDER["order"]["params"]["requestedSchema"])
    expect(view.get_by_label("Name on the parcel")).to_be_visible()
    check()
    view.get_by_role("button", name="Answer", exact=True).click()
    check()
    view.get_by_role("button", name="Do not answer").click()
    check()


def test_keyboard_alone_answers(tab: Tab, host: AppHost, shop: AppShop) -> None:
    call = shop.ask(DELIVERY, SURE)
    view = host.mount(result=shop.result())
    expect(view.get_by_label("Name on the parcel")).to_be_visible()
    tab.press("Tab")
    # The focus goes to another process.
    expect(view.get_by_label("Name on the parcel")).to_be_focused()
    tab.page.keyboard.type("A")
    tab.press("Enter")
    expect(view.get_by_role("alert")).to_be_focused()
    tab.press("Tab", "Enter")
    expect(view.get_by_label("Name on the parcel")).to_be_focused()
    tab.press("End")
    tab.page.keyboard.type("da")
    tab.press("Tab", "Space", "ArrowDown")
    expect(view.get_by_label("By bicycle, today")).to_be_checked()
    outline = view.locator("label:has(:focus-visible)").evaluate("(node) => getComputedStyle(node).outlineStyle")
    assert outline == "solid"
    # The date has three parts.
    tab.press("Tab", "Tab", "Tab", "Tab", "Tab", "Enter")
    expect(view.get_by_role("heading", name="Delete 3 files?")).to_be_focused()
    tab.press("Tab", "Tab", "Enter")
    expect(view.get_by_role("heading", name="Done")).to_be_focused()
    delivery = {"action": "accept", "content": {"name": "Ada", "way": "bike"}}
    assert call.answers == [{"delivery": delivery}, {"sure": {"action": "decline"}}]


def test_forced_colors_keep_focus_and_choices_visible(tab: Tab, host: AppHost, shop: AppShop) -> None:
    tab.page.emulate_media(forced_colors="active")
    shop.ask(DELIVERY)
    view = host.mount(result=shop.result())
    view.get_by_label("By post, 3 days").focus()
    tab.press("Space")
    style = "(node) => { const style = getComputedStyle(node); return [style.outlineStyle, style.outlineColor]; }"
    line, color = view.locator("label:has(:focus-visible)").evaluate(style)
    assert line == "solid"
    assert color != view.locator("label:has(:focus-visible)").evaluate(
        "(node) => getComputedStyle(node).backgroundColor"
    )
