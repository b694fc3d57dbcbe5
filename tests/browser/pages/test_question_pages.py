"""Question pages in a real Chromium: filling in, mistakes, tabs, the way back, and what a reader sees and hears."""

from collections.abc import Generator
from typing import Any

import pytest
from playwright.sync_api import Page

from roundtrip.pages.forms import OpenQuestions
from tests.browser.conftest import Axe, Tab, expect, papers, scroll_width
from tests.browser.pages.conftest import HOSTILE, LONG, has_tall_button, markup_of, press, see
from tests.browser.pages.shop import ORDER, SEVERAL, PageShop, page_shop
from tests.kit.page_calls import confirmation, form, link

NAME: OpenQuestions = {"name": form("Your name?", {"name": {"type": "string", "minLength": 2}}, required=["name"])}
SURE: OpenQuestions = {"sure": confirmation("Delete 3 files?")}
ORDERED = {
    "name": "Ada",
    "email": "ada@example.com",
    "way": "bike",
    "day": "2026-07-28",
    "extras": ["wrap"],
    "insured": True,
}
PAY: OpenQuestions = {"pay": link("Please pay at the till.", "https://pay.example/till?id=7")}


@pytest.fixture(scope="module")
def _running() -> Generator[PageShop]:
    with page_shop() as shop:
        yield shop


@pytest.fixture
def shop(_running: PageShop) -> PageShop:
    _running.calls.calls.clear()
    return _running


def fill_order(page: Page) -> None:
    page.get_by_label("Name on the parcel").fill("Ada")
    page.get_by_label("E-mail").fill("ada@example.com")
    page.get_by_label("Copies").fill("2")
    page.get_by_label("By bicycle, today").check()
    page.get_by_label("Not before").fill("2026-07-28")
    page.get_by_label("Gift wrapping").check()
    page.get_by_role("radiogroup", name="Insure the parcel?").get_by_label("Yes").check()
    page.get_by_label("Note for the courier").fill("Ring twice.\nThen wait.")


def test_mistakes_are_named_and_everything_typed_is_kept(tab: Tab, shop: PageShop) -> None:
    call = shop.ask(ORDER, result="Your books leave today.")
    tab.page.goto(shop.url())
    fill_order(tab.page)
    tab.page.get_by_label("Name on the parcel").fill("A")
    tab.page.get_by_label("Copies").fill("many")
    press(tab.page, "Answer")
    assert tab.page.title() == "Error: How shall we send your books? · Corner Bookshop"
    # The summary has the focus, and its links lead to the fields.
    expect(tab.page.locator(".summary")).to_be_focused()
    assert tab.page.locator(".summary li").all_inner_texts() == [
        "Name on the parcel: It must be 2 to 40 characters.",
        "Copies: It must be a whole number.",
    ]
    tab.press("Tab", "Tab", "Enter")
    expect(tab.page.get_by_label("Copies")).to_be_focused()
    expect(tab.page.get_by_label("Copies")).to_have_accessible_description(
        "A whole number, 1 to 9. It must be a whole number."
    )
    expect(tab.page.get_by_label("Copies")).to_have_value("many")
    expect(tab.page.get_by_label("E-mail")).to_have_value("ada@example.com")
    expect(tab.page.get_by_label("By bicycle, today")).to_be_checked()
    expect(tab.page.get_by_label("Gift wrapping")).to_be_checked()
    expect(tab.page.get_by_label("A card")).not_to_be_checked()
    expect(tab.page.get_by_label("Not before")).to_have_value("2026-07-28")
    expect(tab.page.get_by_label("Note for the courier")).to_have_value("Ring twice.\nThen wait.")
    tab.page.get_by_label("Copies").fill("3")
    tab.page.get_by_label("Name on the parcel").fill("Ada")
    press(tab.page, "Answer")
    see(tab.page, "Done")
    assert "Your books leave today." in tab.text("main")
    content = {**ORDERED, "copies": 3, "note": "Ring twice.\nThen wait."}
    assert call.answers == [{"order": {"action": "accept", "content": content}}]
    assert all(request.startswith((shop.base, "data:")) for request in tab.requests)


def test_incomplete_date_is_not_sent(tab: Tab, shop: PageShop) -> None:
    call = shop.ask(ORDER)
    tab.page.goto(shop.url())
    fill_order(tab.page)
    tab.page.get_by_label("Not before").fill("")
    tab.page.get_by_label("Not before").focus()
    tab.page.keyboard.type("02")
    press(tab.page, "Answer")
    expect(tab.page.get_by_label("Not before")).to_be_focused()
    assert call.answers == []
    # A no needs no complete form.
    press(tab.page, "Do not answer")
    see(tab.page, "Done")
    assert call.answers == [{"order": {"action": "decline"}}]


def test_several_questions_are_answered_on_one_page(tab: Tab, shop: PageShop) -> None:
    call = shop.ask(SEVERAL)
    tab.page.goto(shop.url())
    press(tab.page, "Send answers")
    assert len(tab.page.locator(".summary li").all()) == 4
    tab.page.get_by_label("Middle").check()
    tab.page.get_by_label("Date and time").fill("2026-07-28T20:15")
    tab.page.get_by_label("Time zone").select_option("UTC+02:00")
    tab.page.get_by_role("group", name="Charge 24.50 euros").get_by_label("Yes").check()
    tab.page.get_by_role("group", name="Please log in").get_by_label("Do not continue").check()
    press(tab.page, "Send answers")
    see(tab.page, "Done")
    assert call.answers == [
        {
            "seat": {"action": "accept", "content": {"row": "Middle", "when": "2026-07-28T20:15:00+02:00"}},
            "charge": {"action": "accept", "content": {}},
            "login": {"action": "decline"},
        }
    ]


def test_review_shows_the_earlier_answer(tab: Tab, shop: PageShop) -> None:
    properties: dict[str, Any] = {
        "day": {"type": "string", "format": "date", "default": "2026-07-28"},
        "when": {"type": "string", "format": "date-time", "default": "2026-07-28T20:15:30.5+02:00"},
        "size": {"type": "string", "enum": ["s", "m"], "default": "m"},
        "extras": {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}, "default": ["a", "c"]},
        "file": {"type": "string", "default": 'Quarterly "report" (final) & more/ü.pdf'},
        "note": {"type": "string", "default": "\n one\n\ntwo "},
        "rate": {"type": "number", "default": -0.5},
        "sure": {"type": "boolean", "default": False},
    }
    call = shop.ask({"review": form("Is this right?", properties)})
    tab.page.goto(shop.url())
    press(tab.page, "Answer")
    see(tab.page, "Done")
    defaults = {name: shape["default"] for name, shape in properties.items()}
    content = call.answers[0]["review"]["content"]
    # The browser writes the fraction of the second in full.
    assert content.pop("when") in ("2026-07-28T20:15:30.5+02:00", "2026-07-28T20:15:30.500+02:00")
    del defaults["when"]
    assert content == defaults


def test_link_opens_beside_the_page(tab: Tab, shop: PageShop) -> None:
    call = shop.ask(PAY)
    tab.page.context.route(
        "https://pay.example/**", lambda route: route.fulfill(body="till", content_type="text/plain")
    )
    tab.page.goto(shop.url())
    with tab.page.context.expect_page() as opened:
        tab.page.get_by_role("link", name="Open pay.example in a new tab").click()
    opened.value.wait_for_load_state()
    assert opened.value.url == "https://pay.example/till?id=7"
    assert opened.value.evaluate("[document.referrer, window.opener]") == ["", None]
    press(tab.page, "Continue")
    see(tab.page, "Done")
    assert call.answers == [{"pay": {"action": "accept"}}]


def test_waiting_page_goes_on_by_itself_and_enter_answers(tab: Tab, shop: PageShop) -> None:
    call = shop.ask(NAME)
    call.is_working = True
    tab.page.goto(shop.url())
    see(tab.page, "Still working")
    call.is_working = False
    see(tab.page, "Your name?")
    tab.page.get_by_label("Name").fill("Ada")
    tab.press("Enter")
    see(tab.page, "Done")
    assert call.answers == [{"name": {"action": "accept", "content": {"name": "Ada"}}}]


def test_keyboard_alone_fills_in_a_form(tab: Tab, shop: PageShop) -> None:
    call = shop.ask(ORDER)
    tab.page.goto(shop.url())
    type_ = tab.page.keyboard.type
    for text in ("Ada", "ada@example.com", "2"):
        tab.press("Tab")
        type_(text)
    tab.press("Tab", "Space", "ArrowDown", "Tab")
    type_("07282026")
    # The three parts of the date, and the button of its calendar.
    while tab.page.evaluate("document.activeElement.type") == "date":
        tab.press("Tab")
    tab.press("Space", "Tab", "Tab", "Space")
    tab.press("Tab")
    type_("Ring twice.")
    tab.press("Tab")
    assert tab.page.evaluate("document.activeElement.textContent") == "Answer"
    outline = tab.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    tab.press("Enter")
    see(tab.page, "Done")
    assert call.answers[0]["order"]["content"] == {**ORDERED, "copies": 2, "note": "Ring twice."}


def test_accessibility_tree_names_every_part(tab: Tab, shop: PageShop) -> None:
    shop.ask(
        {
            "order": form(
                "How many?",
                {
                    "copies": {"type": "integer", "title": "Copies", "minimum": 1},
                    "way": {
                        "type": "string",
                        "title": "Delivery",
                        "enum": ["Post", "Bike"],
                        "description": "In town only.",
                    },
                    "extras": {
                        "type": "array",
                        "title": "Extras",
                        "items": {"type": "string", "enum": ["Wrap", "Card"]},
                    },
                    "sure": {"type": "boolean", "title": "Sure?"},
                },
                required=["copies", "sure"],
            )
        }
    )
    tab.page.goto(shop.url())
    expect(tab.page.locator("main")).to_match_aria_snapshot(
        """
        - main:
          - heading "How many?" [level=1]
          - text: Copies
          - paragraph: A whole number, at least 1.
          - textbox "Copies"
          - radiogroup "Delivery (optional)":
            - paragraph: In town only.
            - radio "Post"
            - text: Post
            - radio "Bike"
            - text: Bike
            - radio "No answer" [checked]
            - text: No answer
          - group "Extras (optional)":
            - paragraph: Choose as many as you like.
            - checkbox "Wrap"
            - text: Wrap
            - checkbox "Card"
            - text: Card
          - radiogroup "Sure?":
            - radio "Yes"
            - text: "Yes"
            - radio "No"
            - text: "No"
          - button "Answer"
          - button "Do not answer"
        """
    )
    expect(tab.page.get_by_role("radiogroup").first).to_have_accessible_description("In town only.")
    assert tab.page.locator("html").get_attribute("lang") == "en"
    assert tab.page.get_by_label("Copies").get_attribute("aria-required") == "true"


def test_pages_have_no_barriers_and_fit_a_phone(tab: Tab, shop: PageShop, axe: Axe) -> None:
    page = tab.page
    shape = {"title": LONG, "description": LONG, "type": "string"}
    hard = {
        "a": form(LONG, {LONG: {**shape, "oneOf": [{"const": "a", "title": LONG}]}, "b": {**shape, "default": LONG}}),
        "c": link(LONG, f"https://a.example/{LONG}"),
        "d": form("Which?", {"e": {**shape, "enum": [LONG] * 9}, "f": {"type": "string", "format": "date-time"}}),
    }
    call = shop.ask(ORDER, SEVERAL, hard, SURE, PAY, result=LONG)

    def check(*without: str) -> None:
        page.set_viewport_size({"width": 1280, "height": 800})
        axe(*without)
        page.set_viewport_size({"width": 320, "height": 640})
        assert scroll_width(page) == 320
        light, dark = papers(page)
        assert dark == "rgb(18, 22, 27)"
        assert light != dark

    page.goto(shop.url())
    for answer, decline in [
        ("Answer", "Do not answer"),
        ("Send answers", "Do not answer any of these"),
        ("Send answers", "Do not answer any of these"),
        (None, "No"),
        (None, "Do not continue"),
    ]:
        check()
        if answer is not None:
            press(page, answer)
            expect(page.locator(".summary")).to_be_focused()
            check()
        assert has_tall_button(page, decline)
        press(page, decline)
    see(page, "Done")
    check()
    page.goto(shop.url("unknown-unknown-"))
    check()
    call.is_working, call.seconds = True, 3600
    page.goto(shop.url())
    # It loads itself again, as it has no script; its link does the same, and nothing in it is lost.
    check("meta-refresh")


def test_markup_runs_nowhere(tab: Tab, shop: PageShop) -> None:
    shape = {"title": HOSTILE, "description": HOSTILE, "type": "string"}
    properties = {
        HOSTILE: {**shape, "default": HOSTILE},
        "long": {**shape, "default": f"{HOSTILE}\n{HOSTILE}"},
        "one": {**shape, "oneOf": [{"const": HOSTILE, "title": HOSTILE}], "default": HOSTILE},
        "many": {"type": "array", "items": {"type": "string", "enum": [HOSTILE]}, "default": [HOSTILE]},
        "wrong": {**shape, "pattern": "^x", "default": HOSTILE},
    }
    hostile = {HOSTILE: form(f"{HOSTILE}\n{HOSTILE}", properties), "u": link(HOSTILE, "javascript:alert(4)")}
    call = shop.ask(hostile, result=HOSTILE)
    tab.page.goto(shop.url())
    assert tab.page.locator("main a").count() == 0
    tab.page.locator("#q1-choice-yes").check()
    press(tab.page, "Send answers")
    expect(tab.page.locator(".summary")).to_be_focused()
    assert markup_of(tab.page) == 0
    tab.page.locator("#q0-f4").fill(f"x{HOSTILE}")
    press(tab.page, "Send answers")
    expect(tab.page.locator(".result")).to_contain_text("<script>alert(2)</script>")
    assert markup_of(tab.page) == 0
    content = call.answers[0][HOSTILE]["content"]
    assert content == {**{name: shape["default"] for name, shape in properties.items()}, "wrong": f"x{HOSTILE}"}


def test_script_is_blocked_even_if_a_template_has_one(tab: Tab, tmp_path: Any) -> None:
    (tmp_path / "closed.html.j2").write_text("<script>document.title = 'ran'</script><h1 onclick=alert(1)>Closed</h1>")
    with page_shop(templates=tmp_path) as shop:
        tab.page.goto(shop.url())
        tab.page.locator("h1").click()
        assert tab.page.title() != "ran"
    assert any("Content Security Policy" in line for line in tab.complaints)
    tab.complaints.clear()
