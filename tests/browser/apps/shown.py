"""Hosts of the app's view in Chromium, with calls in memory behind them.

The payloads and the reading of answers are Python's own. Only the tools around them are short ones of this module.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from playwright.sync_api import FrameLocator, Page
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import roundtrip.channels.apps
from roundtrip.channels.apps.payloads import payload_of
from roundtrip.pages.calls import AskingPage, ClosedPage, PageState
from roundtrip.pages.forms import OpenQuestions, read_form
from roundtrip.pages.settings import PageLook
from tests.browser.hosting import hosted_in_a_thread
from tests.kit.hosts import ROOT
from tests.kit.page_calls import TICKET, ScriptedCall

__all__ = ["CAPABILITIES", "LINK", "META", "VIEW", "AppHost", "AppShop", "PlainHost", "Shown", "hosts"]

META: Final = "roundtrip/app"
VIEW: Final = Path(roundtrip.channels.apps.__path__[0]) / "view.html"
LINK: Final = "https://shop.example/ask/0123456789abcdef"
CAPABILITIES: Final[Mapping[str, Any]] = {"serverTools": {}, "openLinks": {}, "updateModelContext": {"text": {}}}
_ANSWERED: Final = "Nothing was sent this time: the question was already answered, or it has changed."
_FOLDER: Final = Path(__file__).parent / "hosts"


@dataclass(slots=True)
class Shown(ScriptedCall):
    """A scripted call, which can also be in a state that a script does not reach."""

    instead: PageState | None = None

    def state(self) -> PageState:
        return ScriptedCall.state(self) if self.instead is None else self.instead


@dataclass(slots=True)
class AppShop:
    """A server's side of the app: its two tools, and the calls that they open."""

    calls: dict[str, Shown] = field(default_factory=dict[str, Shown])
    is_down: bool = False
    arguments: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    look: PageLook = field(default_factory=lambda: PageLook("Corner Bookshop"))

    def ask(self, *rounds: OpenQuestions, ticket: str = TICKET, **options: Any) -> Shown:
        call = self.calls[ticket] = Shown(list(rounds), **options)
        return call

    def result(self, ticket: str = TICKET, **changes: Any) -> dict[str, Any]:
        """Return the result of the tool that asks."""
        look = self.look
        payload = {
            "version": 1,
            "ticket": ticket,
            "tools": {"answer": "shop_answer_call", "look": "shop_look_at_call"},
            "look": {
                "name": look.name,
                "accent": look.accent,
                "dark_accent": look.dark_accent,
                "language": look.language,
                "logo": look.logo,
            },
            "link": LINK,
            "state": self._payload(ticket),
        }
        return {
            "content": [{"type": "text", "text": "This call waits for its user."}],
            "_meta": {META: payload | changes},
        }

    def call_tool(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of a tool that the view calls."""
        values = params["arguments"]
        self.arguments.append(params)
        if self.is_down:
            return {"content": [{"type": "text", "text": "Error: <b>down</b>"}], "isError": True}
        call = self.calls.get(values["ticket"])
        if params["name"] == "shop_look_at_call":
            return _result(self._payload(values["ticket"]))
        state = ClosedPage() if call is None else call.state()
        if call is None or not isinstance(state, AskingPage) or state.round_id != values["round"]:
            return _result(self._payload(values["ticket"], notice=_ANSWERED))
        form, answers = read_form(state.questions, values["answers"])
        if answers is None:
            return _result(payload_of(state, state.round_id, form=form))
        call.answers.append(answers)
        return _result(self._payload(values["ticket"]))

    def _payload(self, ticket: str, notice: str | None = None) -> dict[str, Any]:
        call = self.calls.get(ticket)
        state = ClosedPage() if call is None else call.state()
        return payload_of(state, state.round_id if isinstance(state, AskingPage) else None, notice=notice)


class AppHost:
    """A chat on the bridge of ext-apps, with views in frames."""

    def __init__(self, page: Page, base: str, shop: AppShop) -> None:
        self.page, self.shop = page, shop
        self.opened: list[str] = []
        self.contexts: list[tuple[str, Any]] = []
        given: Any = page
        given.expose_function("callTool", self._call_tool)
        given.expose_function("openLink", self._open)
        given.expose_function("updateModelContext", self._update_model_context)
        page.goto(f"{base}/bridge.html")
        page.wait_for_selector("html[data-ready]")

    def _call_tool(self, name: str, params: Mapping[str, Any]) -> dict[str, Any]:
        return self.shop.call_tool(params)

    def _update_model_context(self, name: str, params: Mapping[str, Any]) -> None:
        self.contexts.append((name, params))

    def _open(self, url: str) -> dict[str, Any]:
        self.opened.append(url)
        return {}

    def mount(
        self,
        name: str = "view",
        *,
        result: Mapping[str, Any] | None = None,
        without: Sequence[str] = (),
        context: Mapping[str, Any] | None = None,
        proxy: Mapping[str, str] | None = None,
    ) -> FrameLocator:
        """Show a view. `proxy` has the address of a page between the two, and what the host writes around the view."""
        capabilities = {key: value for key, value in CAPABILITIES.items() if key not in without}
        given = {"result": result, "capabilities": capabilities, "context": context or {}, "proxy": proxy}
        self.page.evaluate("([name, given]) => mount(name, given)", [name, given])
        self.page.wait_for_selector(f"iframe[name={name}][data-ready]", state="attached")
        return self.page.frame_locator(f"iframe[name={name}]")

    def tell(self, function: str, *values: Any) -> Any:
        """Call a function of the host's page."""
        return self.page.evaluate("([name, values]) => window[name](...values)", [function, values])

    def wait_for(self, kind: Literal["calls", "links", "contexts"], count: int = 1) -> None:
        """Wait until the host has handled so many requests of the views."""
        self.page.wait_for_function("([kind, count]) => counts[kind] >= count", arg=[kind, count])

    def wait_for_held_call(self) -> None:
        """Wait until a call of the view has arrived that the host holds back."""
        self.page.wait_for_function("heldCalls() === 1")

    def height(self, name: str = "view") -> float:
        box = self.page.locator(f"iframe[name={name}]").evaluate("(frame) => frame.clientHeight")
        return float(box)


class PlainHost:
    """A host made by hand, which can misbehave, and pass forms on to the view (SEP-3118)."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        page.goto(f"{base}/plain.html")
        page.wait_for_selector("html[data-ready]")

    def mount(self, **replies: Any) -> FrameLocator:
        """Show a view. The keyword arguments are capabilities, beside the replies of tools."""
        capabilities = replies.pop("capabilities", {"elicitation": {}})
        initialized = {
            "protocolVersion": "2026-01-26",
            "hostInfo": {"name": "host", "version": "1"},
            "hostCapabilities": capabilities,
            "hostContext": {},
        }
        self.page.evaluate("(given) => mount('view', given)", {"ui/initialize": initialized, **replies})
        self.wait("ui/notifications/initialized")
        return self.page.frame_locator("iframe[name=view]")

    def send(self, *messages: Any) -> None:
        """Send messages to the view as they are."""
        self.page.evaluate("(messages) => messages.forEach(send)", list(messages))

    def notify(self, method: str, **params: Any) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def ask(self, id: str | int, schema: Mapping[str, Any], message: str = "Your details?") -> None:
        params = {"mode": "form", "message": message, "requestedSchema": schema}
        self.send({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params})

    def wait(self, method: str) -> None:
        self.page.wait_for_function("(method) => got.some((one) => one.method === method)", arg=method)

    def sent(self, method: str) -> list[dict[str, Any]]:
        """Return the view's messages with a method."""
        return [one for one in self.page.evaluate("got") if one.get("method") == method]

    def replies(self, id: str | int) -> list[dict[str, Any]]:
        """Return the view's replies to a request, after one has come."""
        self.page.wait_for_function("(id) => got.some((one) => one.id === id && !one.method)", arg=id)
        return [one for one in self.page.evaluate("got") if one.get("id") == id and "method" not in one]

    def settle(self) -> None:
        """Wait until the view has handled all messages that were sent."""
        self.send({"jsonrpc": "2.0", "id": "settled", "method": "ping"})
        self.replies("settled")
        self.page.evaluate("got.splice(got.findIndex((one) => one.id === 'settled'), 1)")


@contextmanager
def hosts() -> Generator[str]:
    """Serve the pages of the hosts, the view, and the modules of ext-apps, on this machine."""
    modules = StaticFiles(directory=ROOT / ".ci" / "node_modules", follow_symlink=True)
    routes = [Route("/view", _view), Mount("/modules", modules), Mount("/", StaticFiles(directory=_FOLDER))]
    with hosted_in_a_thread(Starlette(routes=routes)) as url:
        yield url


def _view(request: Request) -> FileResponse:
    return FileResponse(VIEW, media_type="text/plain; charset=utf-8")


def _result(state: Mapping[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": "The state of the call."}], "structuredContent": {"state": state}}
