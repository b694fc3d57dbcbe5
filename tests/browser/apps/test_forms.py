"""Forms that a host passes on to the view (SEP-3118), in a host made by hand: AppBridge 2.0.4 drops the capability."""

from typing import Any

import pytest
from playwright.sync_api import FrameLocator

from roundtrip.pages.forms import OpenQuestions, read_form
from tests.browser.apps.shown import CAPABILITIES, AppShop, PlainHost
from tests.browser.conftest import Tab, expect
from tests.browser.pages.shop import ORDER
from tests.kit.page_calls import form

SCHEMA: dict[str, Any] = ORDER["order"]["params"]["requestedSchema"]
TYPES = {
    "text": {"type": "string"},
    "long": {"type": "string", "maxLength": 500},
    "mail": {"type": "string", "format": "email"},
    "page": {"type": "string", "format": "uri"},
    "day": {"type": "string", "format": "date"},
    "when": {"type": "string", "format": "date-time"},
    "whole": {"type": "integer", "minimum": 0},
    "number": {"type": "number"},
    "sure": {"type": "boolean"},
    "one": {"type": "string", "enum": ["s", "m"], "enumNames": ["Small", "Medium"]},
    "menu": {"type": "string", "oneOf": [{"const": f"v{place}", "title": f"Value {place}"} for place in range(9)]},
    "some": {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]}},
    "any": {"type": "object"},
}
TYPED = {
    "text": 'Ada \\ "x"',
    "long": "two\nlines",
    "mail": "ada@example.com",
    "page": "https://example.com/x",
    "day": "2026-07-28",
    "when": "2026-07-28T20:15",
    "whole": "12",
    "number": "-1.5e2",
    "any": '{"a": [1]}',
}
VALUES = {
    **TYPED,
    **{"when": "2026-07-28T20:15:00+02:00", "whole": 12, "number": -150, "any": {"a": [1]}},
    **{"sure": False, "one": "m", "menu": "v8", "some": ["b"]},
}


def press(view: FrameLocator, name: str) -> None:
    view.get_by_role("button", name=name, exact=True).click()


def test_view_declares_that_it_shows_forms(plain: PlainHost) -> None:
    plain.mount()
    (sent,) = plain.sent("ui/initialize")
    assert sent["params"]["protocolVersion"] == "2026-01-26"
    assert sent["params"]["appCapabilities"] == {"elicitation": {}, "availableDisplayModes": ["inline"]}


def test_values_have_the_types_of_the_schema(plain: PlainHost) -> None:
    view = plain.mount()
    plain.ask("first", {"type": "object", "properties": TYPES, "required": list(TYPES)})
    for place, name in enumerate(TYPES):
        if name in TYPED:
            view.locator(f"#q0-f{place}").fill(TYPED[name])
    view.get_by_label("Time zone").select_option("UTC+02:00")
    view.get_by_role("radiogroup", name="Sure").get_by_label("No").check()
    view.get_by_label("Medium").check()
    view.get_by_label("Menu").select_option("Value 8")
    view.get_by_label("B", exact=True).check()
    press(view, "Answer")
    (reply,) = plain.replies("first")
    assert reply["result"] == {"action": "accept", "content": VALUES}
    expect(view.locator("main")).to_have_text("Your answer was sent.")


def test_form_looks_as_the_server_would_show_it(plain: PlainHost, shop: AppShop) -> None:
    """The view and the server read the same schema in two languages."""
    defaults = {"text": "x", "when": "2026-07-28T20:15:00+05:45", "whole": 3, "sure": True, "one": "m", "some": ["b"]}
    shapes = {**TYPES, **{f"{name}_again": {**TYPES[name], "default": value} for name, value in defaults.items()}}
    for name, shape in SCHEMA["properties"].items():
        shapes |= {name: shape}
    snapshots: list[str] = []
    for required in ([], list(shapes)):
        view = plain.mount()
        schema = {"type": "object", "properties": shapes, "required": required}
        plain.ask("asked", schema, "Which one?\nPlease say.")
        expect(view.get_by_role("heading")).to_have_text("Which one?")
        snapshots.append(view.locator("main").aria_snapshot())
        plain.page.reload()
        plain.page.wait_for_selector("html[data-ready]")
        shop.ask({"q": form("Which one?\nPlease say.", shapes, required=required)})
        result = shop.result()
        view = plain.mount(
            capabilities=CAPABILITIES,
            look_at_call={"structuredContent": {"state": result["_meta"]["roundtrip/app"]["state"]}},
        )
        result["_meta"]["roundtrip/app"]["tools"] = {"look": "look_at_call", "answer": "answer_call"}
        plain.notify("ui/notifications/tool-result", **result)
        expect(view.get_by_role("heading")).to_have_text("Which one?")
        snapshots.append(view.locator("main").aria_snapshot())
        plain.page.reload()
        plain.page.wait_for_selector("html[data-ready]")
    assert snapshots[0] == snapshots[1]
    assert snapshots[2] == snapshots[3]


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"type": "string"}, ""),
    ({"type": "string", "minLength": 3}, "ab"),
    ({"type": "string", "maxLength": 3}, "\N{PILE OF POO}\N{PILE OF POO}\N{PILE OF POO}\N{PILE OF POO}"),
    ({"type": "string", "format": "email"}, "ada"),
    ({"type": "string", "format": "uri"}, "example.com"),
    ({"type": "integer"}, "1.5"),
    ({"type": "integer", "minimum": 2, "maximum": 4}, "5"),
    ({"type": "number", "minimum": 2.5}, "2"),
    ({"type": "string", "format": "date"}, ""),
    ({"type": "string", "format": "date-time"}, ""),
    ({"type": "boolean"}, ""),
    ({"type": "string", "enum": ["a", "b"]}, ""),
    ({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1}, ""),
    ({"type": "object"}, "{"),
]


def test_mistakes_are_those_of_the_server(plain: PlainHost) -> None:
    view = plain.mount()
    shapes = {f"field{place}": shape for place, (shape, _) in enumerate(MISTAKES)}
    questions: OpenQuestions = {"q": form("Which?", shapes, required=list(shapes))}
    plain.ask(7, questions["q"]["params"]["requestedSchema"])
    typed = {f"q0-f{place}": [text] for place, (_, text) in enumerate(MISTAKES) if text}
    for name, (text,) in typed.items():
        view.locator(f"#{name}").fill(text)
    press(view, "Answer")
    expect(view.get_by_role("alert")).to_be_focused()
    page, _ = read_form(questions, {**typed, "decision": ["answer"]})
    assert view.locator(".summary button").all_inner_texts() == [f"{one.label}: {one.text}" for one in page.mistakes]
    assert plain.page.evaluate("got.filter((one) => !one.method)") == []
    press(view, f"{page.mistakes[-2].label}: {page.mistakes[-2].text}")
    expect(view.locator("#q0-f12-0")).to_be_focused()
    press(view, "Do not answer")
    assert plain.replies(7)[0]["result"] == {"action": "decline"}


def test_pattern_is_checked_if_the_browser_knows_it(plain: PlainHost) -> None:
    view = plain.mount()
    shapes = {"a": {"type": "string", "pattern": "^x"}, "b": {"type": "string", "pattern": "(?P<x>y)"}}
    plain.ask(1, {"type": "object", "properties": shapes})
    view.get_by_label("A (optional)").fill("y")
    view.get_by_label("B (optional)").fill("z")
    press(view, "Answer")
    expect(view.locator(".error")).to_have_text("It must be text that matches the pattern ^x.")
    view.get_by_label("A (optional)").fill("xy")
    press(view, "Answer")
    assert plain.replies(1)[0]["result"]["content"] == {"a": "xy", "b": "z"}


def test_untouched_optional_fields_are_no_answers(plain: PlainHost) -> None:
    view = plain.mount()
    plain.ask(1, {"type": "object", "properties": TYPES})
    expect(view.get_by_role("radiogroup", name="Sure").get_by_label("No answer")).to_be_checked()
    press(view, "Answer")
    assert plain.replies(1)[0]["result"] == {"action": "accept", "content": {"some": []}}
    plain.notify("ui/notifications/host-context-changed", locale="de-DE")
    expect(view.locator("html")).to_have_attribute("lang", "de-DE")


@pytest.mark.parametrize(
    ("button", "result"), [("Yes", {"action": "accept", "content": {}}), ("No", {"action": "decline"})]
)
def test_empty_schema_is_a_confirmation(plain: PlainHost, button: str, result: Any) -> None:
    view = plain.mount()
    plain.ask("sure", {"type": "object", "properties": {}}, "Delete 3 files?")
    press(view, button)
    assert [reply["result"] for reply in plain.replies("sure")] == [result]


def test_questions_wait_for_each_other(plain: PlainHost) -> None:
    view = plain.mount()
    for number in (1, 2, 3):
        plain.ask(number, {"type": "object", "properties": {"a": {"type": "string"}}}, f"Number {number}?")
    view.get_by_label("A (optional)").fill("typed")
    plain.notify("notifications/cancelled", requestId=2)
    plain.settle()
    expect(view.get_by_label("A (optional)")).to_have_value("typed")
    press(view, "Answer")
    expect(view.get_by_role("heading", name="Number 3?")).to_be_focused()
    plain.notify("notifications/cancelled", requestId=3)
    expect(view.locator("main")).to_have_text("This question was withdrawn.")
    plain.settle()
    assert plain.replies(1)[0]["result"]["content"] == {"a": "typed"}
    answered = plain.page.evaluate("got.filter((one) => !one.method).map((one) => one.id)")
    assert answered == [1]


def test_teardown_withdraws_a_question(plain: PlainHost) -> None:
    view = plain.mount()
    plain.ask(1, {"type": "object"}, "Delete?")
    expect(view.get_by_role("heading", name="Delete?")).to_be_visible()
    plain.send({"jsonrpc": "2.0", "id": "end", "method": "ui/resource-teardown", "params": {}})
    assert plain.replies("end")[0]["result"] == {}
    expect(view.locator("main")).to_have_text("This question was withdrawn.")
    plain.ask(2, {"type": "object"}, "Delete?")
    assert plain.replies(2)[0]["error"]["code"] == -32601


def test_question_that_cannot_be_shown_goes_back(plain: PlainHost) -> None:
    plain.mount()
    plain.send(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "elicitation/create",
            "params": {"mode": "url", "url": "https://a.example"},
        }
    )
    assert plain.replies(1)[0]["error"]["code"] == -32602
    plain.ask(2, {"type": "object", "properties": {"a": None}})
    assert plain.replies(2)[0]["error"]["code"] == -32602


def test_host_that_only_passes_on_forms_is_told_nothing(tab: Tab, plain: PlainHost) -> None:
    tab.page.clock.install()
    view = plain.mount()
    tab.page.clock.fast_forward(10_000)
    plain.settle()
    assert view.locator("main *").count() == 0
    assert [one["params"]["height"] for one in plain.sent("ui/notifications/size-changed")] == [0]


def test_look_of_the_server_can_come_with_a_form(plain: PlainHost) -> None:
    view = plain.mount()
    look = {"name": "Corner Bookshop", "accent": "#7a1f5c", "dark_accent": "#d49bc3", "language": "de", "logo": None}
    params = {"message": "Wirklich?", "requestedSchema": {}, "_meta": {"roundtrip/app": {"look": look}}}
    plain.send({"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": params})
    expect(view.locator("header")).to_have_text("Corner Bookshop")
    expect(view.locator("html")).to_have_attribute("lang", "de")
    expect(view.locator("aside")).to_contain_text("Corner Bookshop is asking")
