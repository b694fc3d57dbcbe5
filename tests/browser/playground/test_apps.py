"""The playground as a host with MCP Apps."""

import re
from collections.abc import Generator

import httpx
import pytest
from playwright.sync_api import FrameLocator

from tests.browser.conftest import DRAWINGS, Axe, Tab, expect
from tests.browser.playground.conftest import Playing, begin, choose, ended, playing, press, project


@pytest.fixture(scope="module")
def shared_shop(tmp_path_factory: pytest.TempPathFactory) -> Generator[Playing]:
    folder = project(tmp_path_factory.mktemp("apped"), "apped.py")
    with playing("apped.py", folder=folder) as running:
        yield running
        assert running.end() == 0


@pytest.fixture
def shop(shared_shop: Playing, tab: Tab) -> Generator[Playing]:
    """Open the page of a server with apps, as a host that shows them."""
    shared_shop.open(tab)
    tab.page.get_by_label("The client shows").select_option("an app in the conversation")
    yield shared_shop
    tab.page.goto("about:blank")


def app_of(tab: Tab) -> FrameLocator:
    """Return the content of the app."""
    return tab.page.frame_locator("iframe.app")


def order(tab: Tab, title: str) -> FrameLocator:
    choose(tab, "order")
    tab.page.locator("#tool-form").get_by_role("textbox", name="Title").fill(title)
    begin(tab, "order")
    return app_of(tab)


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
def test_questions_are_answered_in_the_app_and_the_model_gets_the_result(tab: Tab, axe: Axe, revision: str) -> None:
    tab.page.get_by_label("Revision").select_option(revision)
    app = order(tab, f"Emma {revision}")
    expect(app.locator("main")).to_contain_text(f"How many of Emma {revision}?")
    ended(tab, "awaiting_input")
    height = tab.page.locator("iframe.app").evaluate("(frame) => frame.clientHeight")
    assert 100 < height < 1000
    tab.page.set_viewport_size({"width": 1400, "height": 2000})
    axe("frame-tested", exclude=DRAWINGS)
    app.get_by_role("textbox").fill("many")
    app.get_by_role("button", name="Answer", exact=True).click()
    expect(app.get_by_role("alert")).to_contain_text("It must be a whole number")
    app.get_by_role("textbox").fill("3")
    app.get_by_role("button", name="Answer", exact=True).click()
    app.get_by_label("Yes").check()
    app.get_by_role("button", name="Answer", exact=True).click()
    expect(tab.page.locator("#app")).to_contain_text("The app tells the model: The user has answered in the app.")
    press(tab, "Fill in continue_call, as a model would")
    begin(tab, "continue_call")
    ended(tab, "completed")
    assert f"Ordered 3 of Emma {revision}: True" in tab.text("#result")
    assert tab.page.locator("iframe.app").count() == 0


@pytest.mark.usefixtures("shop")
def test_app_that_has_nothing_to_ask_takes_no_room(tab: Tab) -> None:
    begin(tab, "greet")
    ended(tab, "completed")
    expect(tab.page.locator("iframe.app")).to_have_css("height", "0px")


def test_other_clients_get_no_app_and_no_tools_of_apps(tab: Tab, shop: Playing) -> None:
    tools = tab.page.locator("#tool-list").inner_text()
    assert "order" in tools
    assert "answer_call" not in tools
    tab.page.get_by_label("The client shows").select_option("nothing")
    begin(tab, "greet")
    ended(tab, "completed")
    assert tab.page.locator("iframe.app").count() == 0


def test_hostile_app_gets_no_secret_no_network_and_no_other_tool(tab: Tab, shop: Playing) -> None:
    begin(tab, "own")
    found = app_of(tab).locator("#found")
    for text in (
        'input {"arguments":{"film":"Solaris"}}',
        "Shown Solaris",
        "2: the app must not call the tool 'secret'",
        "3: the app must not call the tool 'gone'",
        "4: unknown method",
        "no parent",
        "no network",
    ):
        expect(found).to_contain_text(text)
    secret = shop.url.rstrip("/").rpartition("/")[2]
    assert secret not in found.inner_text()
    expect(tab.page.locator("iframe.app")).to_have_css("height", "4000px")
    address = tab.page.locator("iframe.app").evaluate("(frame) => frame.src")
    document = httpx.get(address)
    assert re.match(r"sandbox allow-scripts; default-src 'none'", document.headers["content-security-policy"])
    assert document.headers["content-security-policy"].endswith("frame-ancestors 'self'")
    others = [address.rpartition("/")[0] + "/c999", address.replace(f"/{address.split('/')[3]}/", "/wrong/")]
    assert [(httpx.get(one).status_code, httpx.get(one).text[:5]) for one in others] == [(200, ""), (404, "open ")]
    assert httpx.get(address, headers={"host": "evil.example"}).status_code == 403
    # The frame tried the network, and the browser says so.
    assert [text for text in tab.complaints if secret in text] == []
    tab.complaints.clear()
