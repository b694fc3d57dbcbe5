"""Messages of a server with apps: a middleware adds what the SDK does not, and drops.

- `tools/list`: tools that may ask name the app, and the app's tools are listed, both only for clients that show apps.
- `resources/read`: the app's document.
- `initialize` and `server/discover`: the server's capability to have forms rendered by an app (SEP-3118).
- Results with questions: for clients with the same capability, each form names the app.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from contextvars import ContextVar
from functools import cache
from importlib.resources import files
from typing import Any, Final

from mcp.server.context import CallNext, HandlerResult
from mcp_types import CallToolResult
from mcp_types.methods import is_input_required
from pydantic import BaseModel

from roundtrip.channels.apps.payloads import look_of
from roundtrip.channels.server_channels import APP_MIME_TYPE, UI_EXTENSION, renders_forms, shows_apps
from roundtrip.legs.boundary import Request
from roundtrip.legs.requests import holding
from roundtrip.pages.settings import PageLook
from roundtrip.revisions import is_retry_era
from roundtrip.untrusted import mapping_of

_ASK: Final = "elicitation/create"
APP_META: Final = "roundtrip/app"
"""Key in `_meta` of the app's tools, and of results and forms, where it has what the app needs. See `docs/apps.md`."""
ONLY_FOR_APPS: Final = {"ui": {"visibility": ["app"]}, APP_META: True}
"""The `_meta` of the app's own tools."""
_FLAT_KEYS: Final = frozenset({"ui/resourceUri", "openai/outputTemplate"})
"""Keys by which older apps are named."""
_URI: Final = re.compile(r"ui://roundtrip/questions-[0-9a-f]{12}\.html", re.ASCII)


@cache
def document() -> str:
    """Return the app's document. It is the same on every server of a release."""
    return files("roundtrip.channels.apps").joinpath("view.html").read_text(encoding="utf-8")


@cache
def app_uri() -> str:
    """Return the document's address. It names the document's content, because hosts keep documents by address."""
    return f"ui://roundtrip/questions-{hashlib.blake2b(document().encode(), digest_size=6).hexdigest()}.html"


def has_own_app(meta: Mapping[str, Any]) -> bool:
    """Return True if the author's `_meta` for a tool names an app."""
    return "resourceUri" in mapping_of(meta.get("ui")) or not _FLAT_KEYS.isdisjoint(meta)


def marked(meta: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the `_meta` of a listed tool that may ask.

    It names our app, unless the tool has an app of its own. Other apps of this server must not call the tool, because
    they would get the ticket, and could answer in place of the user.
    """
    meta = meta or {}
    own = {} if has_own_app(meta) else {"resourceUri": app_uri()}
    return {**meta, "ui": {"visibility": ["model"], **own, **mapping_of(meta.get("ui"))}}


DRESSED: Final[ContextVar[list[str] | None]] = ContextVar("roundtrip_dressed_replies", default=None)
"""The tickets that this request's reply may have."""


class AppMessages:
    """Middleware for the messages of one server.

    Args:
        look: The look of the server's pages.
        lists_tools: True if calls may be answered in apps.
        lists_always: True to list the app's tools to every client.
    """

    def __init__(self, look: PageLook, *, lists_tools: bool, lists_always: bool) -> None:
        self.look = look_of(look)
        self._lists_tools = lists_tools
        self._lists_always = lists_always

    async def __call__(self, ctx: Request, call_next: CallNext) -> HandlerResult:
        """Serve one message, with the interface of the SDK's middlewares."""
        if ctx.method == "resources/read" and _URI.fullmatch(str((ctx.params or {}).get("uri"))):
            return self._read(ctx)
        dressed = list[str]()
        with holding(DRESSED, dressed):
            result = await call_next(ctx)
        match ctx.method:
            case "tools/call" if (stranger := _undressed(result, dressed)) is not None:
                return stranger
            case "tools/list" if self._lists_tools:
                return self._listed(ctx, _as_dict(result))
            case "initialize" | "server/discover":
                return _declared(_as_dict(result))
            case _ if is_input_required(result) and renders_forms(ctx.session.client_capabilities):
                return self._with_app(_as_dict(result))
            case _:
                return result

    def ask(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return a form question's parameters with the app's address. Other questions stay as they are."""
        meta = mapping_of(params.get("_meta"))
        if params.get("mode", "form") != "form" or "ui" in meta:
            return params
        return {**params, "_meta": {**meta, "ui": {"resourceUri": app_uri()}, APP_META: {"look": self.look}}}

    def _read(self, ctx: Request) -> dict[str, Any]:
        # Old addresses have the new document, so that the views of old conversations show what became of their calls.
        uri = (ctx.params or {})["uri"]
        content = {"uri": uri, "mimeType": APP_MIME_TYPE, "text": document(), "_meta": {"ui": {"prefersBorder": False}}}
        result: dict[str, Any] = {"contents": [content]}
        return {**result, "ttlMs": 0, "cacheScope": "public", "resultType": "complete"} if _is_new(ctx) else result

    def _with_app(self, result: dict[str, Any]) -> dict[str, Any]:
        requests: Mapping[str, dict[str, Any]] = mapping_of(result.get("inputRequests"))
        asked = {
            key: {**request, "params": self.ask(request["params"])} if request["method"] == _ASK else request
            for key, request in requests.items()
        }
        return {**result, "inputRequests": asked} if asked else result

    def _listed(self, ctx: Request, result: dict[str, Any]) -> dict[str, Any]:
        is_shown = self._lists_always or shows_apps(ctx.session.client_capabilities)
        tools = result["tools"] if is_shown else [_without_app(each) for each in result["tools"] if not _is_own(each)]
        result = {**result, "tools": tools}
        return {**result, "cacheScope": "private"} if _is_new(ctx) else result


def _undressed(result: Any, dressed: Collection[str]) -> dict[str, Any] | None:
    """Return a tool's result without a payload that this server has not made; None if it has no such payload.

    A foreign tool could let our app show questions of its own, and call tools for it.
    """
    meta = mapping_of(result.meta if isinstance(result, CallToolResult) else mapping_of(result).get("_meta"))
    if APP_META not in meta or mapping_of(meta[APP_META]).get("ticket") in dressed:
        return None
    return {**_as_dict(result), "_meta": {key: value for key, value in meta.items() if key != APP_META}}


def _is_new(ctx: Request) -> bool:
    return is_retry_era(ctx.protocol_version)


def _as_dict(result: Any) -> dict[str, Any]:
    # An author's middleware may return a model.
    if isinstance(result, BaseModel):
        return result.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dict(result)


def _declared(result: dict[str, Any]) -> dict[str, Any]:
    capabilities = mapping_of(result.get("capabilities"))
    extensions = mapping_of(capabilities.get("extensions"))
    declared: dict[str, Any] = {**mapping_of(extensions.get(UI_EXTENSION)), "elicitation": {}}
    return {**result, "capabilities": {**capabilities, "extensions": {**extensions, UI_EXTENSION: declared}}}


def _is_own(tool: Mapping[str, Any]) -> bool:
    return bool(mapping_of(tool.get("_meta")).get(APP_META))


def _without_app(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = mapping_of(tool.get("_meta"))
    ui = {key: value for key, value in mapping_of(meta.get("ui")).items() if value not in (app_uri(), ["model"])}
    meta = {**{key: value for key, value in meta.items() if key != "ui"}, **({"ui": ui} if ui else {})}
    return {**{key: value for key, value in tool.items() if key != "_meta"}, **({"_meta": meta} if meta else {})}
