"""The web client of MCP Inspector 2.12: our app renders its forms, and shows what became of a call."""

import re

import pytest
from playwright.sync_api import Browser

from tests.browser.conftest import expect
from tests.browser.foreign.approving import approve
from tests.browser.foreign.inspector import InspectorEra, inspector
from tests.clients.app_servers import app_server
from tests.clients.tables import ClientTable, HostWithApps


@pytest.mark.parametrize(("era", "revision"), [("modern", "2026-07-28"), ("legacy", "2025-11-25")])
def test_five_tools_end_with_forms_that_the_app_renders(
    browser: Browser, table: ClientTable, era: InspectorEra, revision: str
) -> None:
    with app_server() as url, inspector(browser, url, era) as client:
        client.call("book", Film="Solaris")
        client.answer("Which seat for Solaris?", "many")
        expect(client.view.get_by_role("alert", name="There is a problem")).to_be_visible()
        client.answer("Which seat for Solaris?", "3")
        client.see("Solaris, seat 3")

        client.call("delete", Film="Solaris")
        client.answer('Delete "Solaris"?')
        client.see("Solaris is deleted")

        client.call("order")
        client.answer("How many cups?", "2")
        client.answer("Is this right?", "3")
        client.see("3 cups")

        client.call("survey")
        for place in range(3):
            client.answer(f"Number {place}?", str(place))
        # It shows a text that is JSON as JSON. The structured output has the text itself.
        client.see('"[0, 1, 2]"')

        client.call("refund", Order="A7")
        if era == "modern":
            # It declares URLs, and asks again once its user has opened the page.
            client.see("This waits for an approval by finance.")
            client.page.get_by_role("button", name="Open in Browser").click()
            client.page.get_by_role("button", name="I've completed it").click()
            approve(url)
        else:
            # The result has a link for the model. A call among the apps repeats this one, and shows it.
            shown = client.page.get_by_text(re.compile("handle=")).first.inner_text()
            client.open_app("refund", Order="A7")
            expect(client.app.get_by_role("heading", name="Waiting for an approval")).to_be_visible()
            approve(url)
            expect(client.app.get_by_role("heading", name="Done")).to_be_visible()
            expect(client.app.locator("main")).to_contain_text("Approved by finance")
            client.call("continue_call", Handle=shown.partition("handle='")[2].partition("'")[0])
        client.see("refunded A7")
        assert client.revision == revision
    cells = ["form in the app"] * 4
    table.check(
        HostWithApps("MCP Inspector 2.12, in the browser", revision), *cells, "URL" if era == "modern" else "app"
    )
