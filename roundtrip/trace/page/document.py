"""HTML pages, each in a single file. A page's policy allows only the script and style that the page contains."""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, Final

from roundtrip.text import printable
from roundtrip.trace.page.data import data_of
from roundtrip.trace.reading.calls import TracedCall

STEP_SCRIPTS: Final = ("dom.js", "timeline.js", "exchange.js", "machine.js", "inspector.js", "steps.js")
"""The scripts that draw a call's steps."""
_PARTS: Final = ("call", "nav", "timeline", "exchange", "machine", "inspector", "pages", "acting")
"""The parts that several pages share."""


@dataclass(frozen=True, slots=True)
class Page:
    """HTML page and its content security policy. The page contains the policy; a header may repeat it."""

    text: str
    policy: str


@dataclass(frozen=True, slots=True)
class PageKind:
    """A kind of page: its files in the folder `web`, and its additional policy directives."""

    template: str
    scripts: tuple[str, ...]
    styles: tuple[str, ...] = ("page.css",)
    policy: str = ""
    """Directives, each followed by a semicolon and a space."""


_LIVE: Final = "connect-src 'self'; "
"""The policy directive that lets a page send requests to its server."""
_CALL: Final = PageKind("call.html", (*STEP_SCRIPTS, "call.js"))
_LIVE_CALL: Final = PageKind("call.html", (*STEP_SCRIPTS, "call.js"), policy=_LIVE)
_UI_STYLES: Final = ("page.css", "controls.css", "ui/ui.css")


def _list_page(script: str) -> PageKind:
    scripts = ("dom.js", "sending.js", "ui/pages.js", "ui/acting.js", "ui/filters.js", "ui/list.js", script)
    return PageKind("ui/list.html", scripts, _UI_STYLES, _LIVE)


UI_PAGES: Final[Mapping[str, PageKind]] = {
    "": _list_page("ui/calls.js"),
    "call": PageKind(
        "ui/call.html",
        (
            *STEP_SCRIPTS,
            *("sending.js", "controls.js", "ui/pages.js", "ui/acting.js"),
            *("ui/stored.js", "ui/fork_form.js", "ui/forked.js", "ui/call.js", "call.js"),
        ),
        _UI_STYLES,
        _LIVE,
    ),
    "tasks": _list_page("ui/tasks.js"),
    "approvals": _list_page("ui/approvals.js"),
    "rejected": _list_page("ui/rejected.js"),
    "fleet": PageKind("ui/fleet.html", ("dom.js", "ui/pages.js", "ui/bars.js", "ui/fleet.js"), _UI_STYLES, _LIVE),
    "actions": _list_page("ui/actions.js"),
}
"""The pages of `roundtrip ui`, by path."""


def html(call: TracedCall) -> str:
    """Return a call page as a single file, without a trailing newline."""
    return call_page(call).text.rstrip("\n")


def call_page(call: TracedCall, *, live: Mapping[str, Any] | None = None) -> Page:
    """Return a call page. `live` contains the address for updates, and the current version."""
    kind = _CALL if live is None else _LIVE_CALL
    return page_of(kind, f"{call.tool} {call.id}", {**data_of(call), "live": live})


def page_of(kind: PageKind, title: str, data: Mapping[str, Any]) -> Page:
    """Return a page that draws the data."""
    template, shared = _load_sources(kind)
    text = template.substitute(shared, title=escape(printable(title)), data=json_for_html(data))
    return Page(text, shared["policy"])


@cache
def _load_sources(kind: PageKind) -> tuple[Template, Mapping[str, str]]:
    """Return a page kind's template, and the content that all pages of this kind share."""
    folder = files("roundtrip.trace.page").joinpath("web")

    def read(name: str) -> str:
        return folder.joinpath(name).read_text(encoding="utf-8")

    style = "\n".join(["", *map(read, kind.styles)])
    script = "\n".join(["", "(() => {", '"use strict";', *map(read, kind.scripts), "})();", ""])
    template = Template(read("document.html")).safe_substitute(page=read(kind.template))
    drawing = read("machine.svg")
    parts = {name: Template(read(f"parts/{name}.html")).safe_substitute(drawing=drawing) for name in _PARTS}
    policy = (
        f"default-src 'none'; script-src {_source_hash(script)}; style-src {_source_hash(style)}; "
        f"{kind.policy}base-uri 'none'; form-action 'none'"
    )
    return Template(template), {**parts, "policy": policy, "style": style, "script": script}


def _source_hash(text: str) -> str:
    """Return the policy source that allows one script or style sheet."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_ESCAPES: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def json_for_html(data: Mapping[str, Any]) -> str:
    """Return JSON that is safe anywhere in an HTML document.

    The JSON is ASCII, so U+2028 and U+2029, which end lines in scripts, are also escaped.
    """
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_ESCAPES)
