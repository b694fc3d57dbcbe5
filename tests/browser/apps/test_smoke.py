from tests.browser.conftest import Tab, expect
from tests.browser.apps.shown import *
from tests.browser.pages.shop import ORDER, SEVERAL
import pytest
def test_a(tab: Tab):
    with hosts() as url:
        shop = AppShop()
        shop.ask(ORDER, SEVERAL)
        host = AppHost(tab.page, url, shop)
        view = host.mount(result=shop.result())
        expect(view.get_by_role("heading", level=1)).to_have_text("How shall we send your books?")
        tab.page.wait_for_timeout(500);tab.page.screenshot(path="/tmp/w/view-shots/a.png", full_page=True)
        print(host.height(), host.contexts)
        view.get_by_role("button", name="Answer", exact=True).click()
        expect(view.locator(".summary")).to_be_focused()
        fr = tab.page.frame(name="view")
        print(fr.evaluate("document.title"))
        try:
            s = tab.page.context.new_cdp_session(fr)
            print("cdp ok")
        except Exception as e: print("cdp", e)
        print(tab.complaints)
