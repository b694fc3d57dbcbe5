"""Pages of other origins call a server of `roundtrip serve` in a real Chromium, which asks the server if they may."""

from pathlib import Path
from typing import Final

from starlette.responses import HTMLResponse

from tests.browser.conftest import Tab
from tests.browser.hosting import hosted_in_a_thread
from tests.interaction.serving.services import KEY, Service

_CALL: Final = """
async ([url, tool, state]) => {
  const params = {
    name: tool,
    arguments: {},
    _meta: {
      "io.modelcontextprotocol/protocolVersion": "2026-07-28",
      "io.modelcontextprotocol/clientInfo": {name: "page", version: "1"},
      "io.modelcontextprotocol/clientCapabilities": {elicitation: {form: {}}},
    },
  };
  if (state) Object.assign(params, state);
  const headers = {
    "content-type": "application/json", accept: "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": tool,
    authorization: "Bearer of nobody",
  };
  const body = JSON.stringify({jsonrpc: "2.0", id: 1, method: "tools/call", params});
  try {
    return await (await fetch(url, {method: "POST", headers, body})).json();
  } catch (error) {
    return String(error);
  }
}
"""


_PAGE: Final = "<!doctype html><link rel=icon href=data:,><title>App</title>"


def test_page_of_an_allowed_origin_answers_a_question(tab: Tab, tmp_path: Path) -> None:
    with (
        hosted_in_a_thread(HTMLResponse(_PAGE)) as allowed,
        Service("shop", "--allowed-origin", allowed, folder=tmp_path, ROUNDTRIP_KEYS=KEY) as service,
    ):
        tab.page.goto(allowed)
        asked = tab.page.evaluate(_CALL, [service.url, "agree", None])["result"]
        (key,) = asked["inputRequests"]
        answers = {key: {"action": "accept", "content": {"value": True}}}
        retry = {"requestState": asked["requestState"], "inputResponses": answers}
        result = tab.page.evaluate(_CALL, [service.url, "agree", retry])["result"]
        assert result["content"][0]["text"] == "agreed: True"
        # The origin of the same page by another name.
        tab.page.goto(allowed.replace("127.0.0.1", "localhost"))
        assert "Failed to fetch" in tab.page.evaluate(_CALL, [service.url, "agree", None])
    assert any("blocked by CORS policy" in line for line in tab.complaints)
    tab.complaints.clear()
