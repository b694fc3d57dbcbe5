"""Pages as documents: one file each, whose policy allows its own script and style, and nothing else."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Any, Final

from roundtrip.trace.drawings.machine_svg import machine_svg
from roundtrip.trace.drawings.svg import STYLE, clean
from roundtrip.trace.page.data import data_of
from roundtrip.trace.reading.calls import TracedCall

__all__ = ["Page", "call_page", "calls_page", "html", "json_for_html"]

_CALL_SCRIPTS: Final = ("dom.js", "timeline.js", "exchange.js", "machine.js", "inspector.js", "call.js")
_CALLS_SCRIPTS: Final = ("dom.js", "calls.js")


@dataclass(frozen=True, slots=True)
class Page:
    """A page, and the policy that it states itself and that a server may send along."""

    text: str
    policy: str


@dataclass(frozen=True, slots=True)
class _Source:
    """What is the same on all pages of a kind."""

    template: Template
    style: str
    script: str
    policy: str


def html(call: TracedCall) -> str:
    """The page of a call as a file of its own, without a newline at its end."""
    return call_page(call).text.rstrip("\n")


def call_page(call: TracedCall, *, live: Mapping[str, Any] | None = None) -> Page:
    """The page of a call; `live` says where it finds what is new, and what it knows already."""
    return _page(
        "call.html", _CALL_SCRIPTS, f"{call.tool} {call.id}", {**data_of(call), "live": live}, live is not None
    )


def calls_page(calls: Sequence[Mapping[str, Any]], *, live: Mapping[str, Any]) -> Page:
    """The page with the list of calls."""
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
    return _Source(Template(read(template)), style, script, _policy(style, script, is_live=is_live))


def _policy(style: str, script: str, *, is_live: bool) -> str:
    """Everything is forbidden but this one script and this one style, and, on a live page, asking its own server."""
    allowed = ["default-src 'none'", f"script-src {_hash(script)}", f"style-src {_hash(style)}"]
    if is_live:
        allowed.append("connect-src 'self'")
    return "; ".join([*allowed, "base-uri 'none'", "form-action 'none'"])


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_ESCAPES: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def json_for_html(data: Mapping[str, Any]) -> str:
    """JSON that no text in it can end, wherever in a document it stands.

    It is ASCII, so that U+2028 and U+2029, which end lines in scripts, are escaped with everything else.
    """
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_ESCAPES)
