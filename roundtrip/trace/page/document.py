"""Build pages as HTML documents: one file each, whose policy allows its own script and style only."""

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
"""The scripts that draw the steps of a call."""
_PARTS: Final = ("call", "nav", "timeline", "exchange", "machine", "inspector", "pages", "acting")
"""The parts that several pages have: of a call, of its steps, and of the pages that operate a server."""


@dataclass(frozen=True, slots=True)
class Page:
    """HTML page with its content security policy, which the page states and a server may send as a header."""

    text: str
    policy: str


@dataclass(frozen=True, slots=True)
class PageKind:
    """Files of a kind of page, in the folder `web`, and what its policy allows besides them."""

    template: str
    scripts: tuple[str, ...]
    styles: tuple[str, ...] = ("page.css",)
    policy: str = ""
    """Directives, each with a semicolon and a space after it."""


_UPDATED: Final = "connect-src 'self'; "
"""The policy of a page that sends requests to its own server."""
_CALL: Final = PageKind("call.html", (*STEP_SCRIPTS, "call.js"))
_LIVE_CALL: Final = PageKind("call.html", (*STEP_SCRIPTS, "call.js"), policy=_UPDATED)
_UI_STYLES: Final = ("page.css", "controls.css", "ui/ui.css")


def _list_page(script: str) -> PageKind:
    scripts = ("dom.js", "sending.js", "ui/pages.js", "ui/acting.js", "ui/filters.js", "ui/list.js", script)
    return PageKind("ui/list.html", scripts, _UI_STYLES, _UPDATED)


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
        _UPDATED,
    ),
    "tasks": _list_page("ui/tasks.js"),
    "approvals": _list_page("ui/approvals.js"),
    "rejected": _list_page("ui/rejected.js"),
    "fleet": PageKind("ui/fleet.html", ("dom.js", "ui/pages.js", "ui/bars.js", "ui/fleet.js"), _UI_STYLES, _UPDATED),
    "actions": _list_page("ui/actions.js"),
}
"""The pages of `roundtrip ui`, by their addresses."""


def html(call: TracedCall) -> str:
    """Return the page of a call as a single file, without a newline at its end."""
    return call_page(call).text.rstrip("\n")


def call_page(call: TracedCall, *, live: Mapping[str, Any] | None = None) -> Page:
    """Return the page of a call; `live` has the address of its updates, and the version that it shows."""
    kind = _CALL if live is None else _LIVE_CALL
    return page_of(kind, f"{call.tool} {call.id}", {**data_of(call), "live": live})


def page_of(kind: PageKind, title: str, data: Mapping[str, Any]) -> Page:
    """Return a page that draws some data."""
    template, shared = _source(kind)
    text = template.substitute(shared, title=escape(printable(title)), data=json_for_html(data))
    return Page(text, shared["policy"])


@cache
def _source(kind: PageKind) -> tuple[Template, Mapping[str, str]]:
    """Return the template of a kind of page, and what all of these pages have in it."""
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
    """Return the source of a content security policy that allows one script or style sheet."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_ESCAPES: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def json_for_html(data: Mapping[str, Any]) -> str:
    """Return JSON that is safe in any place of an HTML document.

    It is ASCII, so U+2028 and U+2029, which end lines in scripts, are escaped too.
    """
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_ESCAPES)
