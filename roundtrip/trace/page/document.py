"""Build pages as HTML documents: one file each, whose policy allows its own script and style only."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, Final

from roundtrip.trace.drawings.machine_svg import machine_svg
from roundtrip.trace.drawings.page import source_hash
from roundtrip.trace.drawings.svg import STYLE, clean
from roundtrip.trace.page.data import data_of
from roundtrip.trace.reading.calls import TracedCall

__all__ = ["Page", "call_page", "calls_page", "html", "json_for_html"]

_CALL_SCRIPTS: Final = ("dom.js", "timeline.js", "exchange.js", "machine.js", "inspector.js", "call.js")
_CALLS_SCRIPTS: Final = ("dom.js", "calls.js")


@dataclass(frozen=True, slots=True)
class Page:
    """HTML page with its content security policy, which the page states and a server may send as a header."""

    text: str
    policy: str


@dataclass(frozen=True, slots=True)
class _Source:
    """Parts that all pages of a kind share."""

    template: Template
    style: str
    script: str
    policy: str


def html(call: TracedCall) -> str:
    """Return the page of a call as a single file, without a newline at its end."""
    return call_page(call).text.rstrip("\n")


def call_page(call: TracedCall, *, live: Mapping[str, Any] | None = None) -> Page:
    """Return the page of a call; `live` has the address of its updates, and the version that it shows."""
    return _page(
        "call.html", _CALL_SCRIPTS, f"{call.tool} {call.id}", {**data_of(call), "live": live}, live is not None
    )


def calls_page(calls: Sequence[Mapping[str, Any]], *, live: Mapping[str, Any]) -> Page:
    """Return the page with the list of calls."""
    return _page("calls.html", _CALLS_SCRIPTS, "Calls", {"calls": calls, "live": live}, True)


def _page(template: str, scripts: tuple[str, ...], title: str, data: Mapping[str, Any], is_live: bool) -> Page:
    source = _source(template, scripts, is_live)
    text = source.template.substitute(
        policy=source.policy,
        title=escape(clean(title)),
        style=source.style,
        script=source.script,
        machine=machine_svg(),
        data=json_for_html(data),
    )
    return Page(text, source.policy)


@cache
def _source(template: str, scripts: tuple[str, ...], is_live: bool) -> _Source:
    folder = files("roundtrip.trace.page").joinpath("web")

    def read(name: str) -> str:
        return folder.joinpath(name).read_text(encoding="utf-8")

    style = f"\n{STYLE}{read('page.css')}"
    script = "\n".join(["", "(() => {", '"use strict";', *(read(name) for name in scripts), "})();", ""])
    # A live page sends requests to its own server.
    connect = "connect-src 'self'; " if is_live else ""
    policy = (
        f"default-src 'none'; script-src {source_hash(script)}; style-src {source_hash(style)}; "
        f"{connect}base-uri 'none'; form-action 'none'"
    )
    return _Source(Template(read(template)), style, script, policy)


_ESCAPES: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def json_for_html(data: Mapping[str, Any]) -> str:
    """Return JSON that is safe in any place of an HTML document.

    It is ASCII, so U+2028 and U+2029, which end lines in scripts, are escaped too.
    """
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_ESCAPES)
