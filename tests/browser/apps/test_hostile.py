"""Hostile hosts, frames and servers: what the app's view ignores, and texts that stay texts."""

import json
from typing import Any, Final

import pytest
from playwright.sync_api import FrameLocator

from roundtrip.channels.apps.payloads import payload_of
from roundtrip.pages.calls import AskingPage, EndedPage, ShownDecision
from roundtrip.pages.forms import OpenQuestions
from tests.browser.apps.shown import CAPABILITIES, LINK, META, VIEW, PlainHost
from tests.browser.conftest import Tab, expect
from tests.browser.pages.conftest import HOSTILE, LONG
from tests.kit.page_calls import TICKET, form, link

SHAPE: Final = {"title": HOSTILE, "description": HOSTILE, "type": "string"}
QUESTIONS: Final[OpenQuestions] = {
    HOSTILE: form(
        f"{HOSTILE}\n{HOSTILE}",
        {
            HOSTILE: {**SHAPE, "default": HOSTILE},
            "long": {**SHAPE, "default": f"\n{HOSTILE}\n{HOSTILE}"},
            "one": {**SHAPE, "oneOf": [{"const": HOSTILE, "title": HOSTILE}], "default": HOSTILE},
            "menu": {**SHAPE, "enum": [HOSTILE] * 9},
            "many": {"type": "array", "items": {"type": "string", "enum": [HOSTILE]}, "default": [HOSTILE]},
        },
    ),
    "u": link(HOSTILE, "javascript:alert(4)"),
}
LOOK: Final = {"name": HOSTILE, "accent": "#0b5cad", "dark_accent": "#77ace0", "language": "en", "logo": None}


def opened(plain: PlainHost, state: Any, **payload: Any) -> FrameLocator:
    """Show a view whose server says that its call is in a state."""
    view = plain.mount(
        capabilities=CAPABILITIES, look_at_call={"structuredContent": {"state": state}}, answer_call={"isError": True}
    )
    tools = {"look": "look_at_call", "answer": "answer_call"}
    given = {"version": 1, "ticket": TICKET, "tools": tools, "look": LOOK, "link": LINK, "state": state, **payload}
    plain.notify("ui/notifications/tool-result", content=[], _meta={META: given})
    expect(view.get_by_role("heading", level=1)).to_be_visible()
    return view


def made(view: FrameLocator) -> int:
    """Return how many elements there are that no text may make."""
    return view.locator("script, img, svg, iframe, main a, form").count()


def test_markup_runs_nowhere(plain: PlainHost) -> None:
    view = opened(plain, payload_of(AskingPage("r", QUESTIONS), "r"))
    assert made(view) == 1
    assert view.locator("main button", has_text="Open").count() == 0
    expect(view.locator(".address")).to_have_text("javascript:alert(4)")
    expect(view.locator("header")).to_contain_text("<script>alert(2)</script>")
    view.get_by_role("button", name="Send answers").click()
    expect(view.get_by_role("alert")).to_be_focused()
    (call,) = [one for one in plain.sent("tools/call") if one["params"]["name"] == "answer_call"]
    answers = call["params"]["arguments"]["answers"]
    assert answers["q0-f0"] == [HOSTILE]
    assert answers["q0-f1"] == [f"\n{HOSTILE}\n{HOSTILE}"]
    assert made(view) == 1


def test_markup_in_a_passed_on_form_runs_nowhere(plain: PlainHost) -> None:
    view = plain.mount()
    plain.ask(1, QUESTIONS[HOSTILE]["params"]["requestedSchema"], f"{HOSTILE}\n{HOSTILE}")
    # A text cannot reverse the texts around it.
    expect(view.get_by_role("heading", level=1)).to_contain_text("\\u{202e}{{7*7}}")
    assert made(view) == 1
    view.get_by_role("button", name="Answer", exact=True).click()
    content = plain.replies(1)[0]["result"]["content"]
    assert content == {HOSTILE: HOSTILE, "long": f"\n{HOSTILE}\n{HOSTILE}", "one": HOSTILE, "many": [HOSTILE]}


def test_ended_call_shows_texts(plain: PlainHost) -> None:
    decision = ShownDecision(HOSTILE, HOSTILE, "approved", HOSTILE)
    view = opened(plain, payload_of(EndedPage(HOSTILE, decisions=(decision,)), None))
    assert made(view) == 1
    assert view.locator(".result").all_inner_texts()[1].startswith("\"'><img src=x")


def test_long_texts_wrap(tab: Tab, plain: PlainHost) -> None:
    tab.page.set_viewport_size({"width": 320, "height": 640})
    words = LONG * 750
    assert len(words) > 100_000
    question = form(f"{LONG}\n{words}", {"a": {"type": "string", "title": words, "default": words}})
    view = opened(plain, payload_of(AskingPage("r", {"q": question}), "r"))
    assert view.locator("html").evaluate("(node) => node.scrollWidth <= node.clientWidth")


@pytest.mark.parametrize(
    "accent", ["red;}body{display:none", "#fffffg", "url(https://a.example/x)", None, 7, {}, "#ABC"]
)
def test_accent_that_is_no_color_is_ignored(plain: PlainHost, accent: Any) -> None:
    look = {**LOOK, "accent": accent, "dark_accent": accent, "language": '"><b', "logo": "https://a.example/x.png"}
    view = opened(plain, payload_of(AskingPage("r", {"q": form("Sure?", {"a": SHAPE})}), "r"), look=look)
    expect(view.locator("button.main")).to_have_css("background-color", "rgb(11, 92, 173)")
    expect(view.locator("html")).to_have_attribute("lang", "en")
    assert view.locator("img").count() == 0


@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", " https://a.example", "https://", None, 7])
def test_link_that_is_no_web_address_is_no_link(plain: PlainHost, url: Any) -> None:
    view = plain.mount(capabilities={})
    state = payload_of(AskingPage("r", {"q": form("Sure?", {})}), "r")
    plain.notify(
        "ui/notifications/tool-result", content=[], _meta={META: {"ticket": TICKET, "link": url, "state": state}}
    )
    expect(view.locator("main")).to_contain_text("Questions cannot be answered here")
    assert view.locator("a, button").count() == 0


def test_messages_of_other_frames_are_ignored(plain: PlainHost) -> None:
    view = plain.mount()
    asked = {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": {"message": "Sure?"}}
    result = {"content": [{"type": "text", "text": "Call continue_call with handle='a-handle-of-a-call.secret'."}]}
    told = {"jsonrpc": "2.0", "method": "ui/notifications/tool-result", "params": result}
    ended = {"jsonrpc": "2.0", "id": 2, "method": "ui/resource-teardown"}
    plain.page.evaluate("(messages) => sendFromAnother(messages)", [asked, told, ended])
    plain.settle()
    assert view.locator("main *").count() == 0
    # The same messages of the host are not.
    plain.send(told, asked)
    expect(view.get_by_role("heading", name="Sure?")).to_be_visible()


def test_messages_that_are_none_are_ignored(plain: PlainHost) -> None:
    state = payload_of(AskingPage("r", {"q": form("Sure?", {})}), "r")
    view = opened(plain, state)
    ended = {"structuredContent": {"state": {"kind": "closed"}}}
    wrong: list[Any] = [
        *(None, 1, "text", [], {}, [{"jsonrpc": "2.0", "method": "ping", "id": 9}]),
        {"id": 1, "result": ended},
        {"jsonrpc": "1.0", "id": 9, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1, "result": ended},
        {"jsonrpc": "2.0", "id": 99, "result": ended},
        {"jsonrpc": "2.0", "id": "2", "result": ended},
        {"jsonrpc": "2.0", "id": {"a": 1}, "method": "ping"},
        {"jsonrpc": "2.0", "id": None, "method": "ui/resource-teardown"},
        {"jsonrpc": "2.0", "method": "constructor", "params": {}},
        {"jsonrpc": "2.0", "method": "ui/notifications/host-context-changed", "params": 7},
        {"jsonrpc": "2.0", "method": "ui/notifications/host-context-changed", "params": {"styles": 7, "locale": 7}},
        {"jsonrpc": "2.0", "method": "ui/notifications/tool-result", "params": {"_meta": [], "content": [None]}},
        {"jsonrpc": "2.0", "method": "ui/notifications/tool-result", "params": {"_meta": {META: {"ticket": 7}}}},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {}},
    ]
    plain.send(*wrong)
    plain.settle()
    expect(view.get_by_role("heading", name="Sure?")).to_be_visible()
    assert plain.page.evaluate("got.filter((one) => !one.method)") == []
    plain.send({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {}})
    assert plain.replies(5)[0]["error"]["code"] == -32601


def test_host_variables_set_nothing_but_the_theme(plain: PlainHost) -> None:
    view = plain.mount()
    plain.ask(1, {"type": "object", "properties": {"a": {"type": "string"}}})
    variables = {
        "--color-text-primary": "red;}*{display:none}",
        "display": "none",
        "--card": "red",
        "--font-sans": None,
    }
    plain.notify("ui/notifications/host-context-changed", theme="dark", styles={"variables": variables})
    expect(view.locator("html")).to_have_css("color-scheme", "dark")
    expect(view.get_by_label("A (optional)")).to_be_visible()
    expect(view.locator("#app")).to_have_css("background-color", "rgb(27, 33, 41)")


def test_payload_that_is_wrong_is_an_error(plain: PlainHost) -> None:
    view = plain.mount(capabilities=CAPABILITIES, look_at_call={"structuredContent": {"state": {"kind": "asking"}}})
    tools = {"look": "look_at_call", "answer": "answer_call"}
    plain.notify("ui/notifications/tool-result", content=[], _meta={META: {"ticket": TICKET, "tools": tools}})
    for _ in range(3):
        expect(view.get_by_role("alert")).to_contain_text("The question could not be loaded.")
        view.get_by_role("button", name="Try again").click()


def test_ticket_is_only_in_arguments_of_the_two_tools(plain: PlainHost) -> None:
    view = opened(plain, payload_of(AskingPage("r", {"q": form("Sure?", {})}), "r"))
    view.get_by_role("button", name="Yes").click()
    expect(view.get_by_role("alert")).to_be_visible()
    view.get_by_role("button", name="Open the question page").click()
    plain.wait("ui/open-link")
    plain.send({"jsonrpc": "2.0", "id": "end", "method": "ui/resource-teardown", "params": {}})
    plain.replies("end")
    with_ticket = [one for one in plain.page.evaluate("got") if TICKET in json.dumps({**one, "params": None})]
    assert with_ticket == []
    params = [
        one["params"] for one in plain.page.evaluate("got") if "params" in one and one["method"] != "ui/open-link"
    ]
    assert {one.get("name") for one in params if TICKET in json.dumps(one)} == {"look_at_call", "answer_call"}


def test_view_has_no_means_to_load_or_keep_anything() -> None:
    text = VIEW.read_text(encoding="utf-8")
    words = [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
        "fetch(",
        "XMLHttp",
    ]
    words += [
        "localStorage",
        "sessionStorage",
        "indexedDB",
        "cookie",
        "console.",
        "<form",
        "import(",
        "WebSocket",
        "http:",
    ]
    assert [word for word in words if word in text.replace("/^https?:", "")] == []
